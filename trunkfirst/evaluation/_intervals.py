"""Prediction intervals without assumptions on the errors: conformal, from cross-fitted branches."""

import dataclasses as dc
import math

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from ..data import OperatorData
from ..errors import ValueRangeError
from ..training import FitResult, TwoStep, fit

LEVELS = (0.8, 0.9, 0.95)
_FOLDS, _MOST_SAMPLES = 5, 2000


@dc.dataclass(frozen=True, eq=False)
class Intervals:
    """How far off a prediction may be, at several levels of confidence.

    `field` bounds the relative l2 error of a whole field, `pointwise` the absolute error at each of the
    training `points`; each holds for a new sample with (at least about) the probability `levels`.
    """

    levels: Float[np.ndarray, " levels"]
    field: Float[np.ndarray, " levels"]
    points: Float[np.ndarray, "points coordinates"]
    pointwise: Float[np.ndarray, "levels points ..."]

    def half_width(
        self, points: Float[np.ndarray, "new coordinates"], level: float
    ) -> Float[np.ndarray, "new ..."]:
        """Half the width of the pointwise interval; at new points that of the nearest training point."""
        _, nearest = KDTree(self.points).query(points)
        return self.pointwise[self._index(level)][nearest]

    def field_bound(self, level: float) -> float:
        """The bound of the relative l2 error of a field."""
        return float(self.field[self._index(level)])

    def _index(self, level: float) -> int:
        found = np.flatnonzero(np.isclose(self.levels, level))
        if not len(found):
            known = ", ".join(f"{each:g}" for each in self.levels)
            raise ValueRangeError(f"level is {level:g}; intervals are known for {known}")
        return int(found[0])

    def coverage(
        self,
        predictions: Float[np.ndarray, "samples points ..."],
        outputs: Float[np.ndarray, "samples points ..."],
    ) -> dict[str, dict[str, float]]:
        """The share of fields and of values that lie inside, by level: what the promise is worth."""
        relative = _relative(predictions, outputs)
        misses = np.abs(predictions - outputs)
        return {
            f"{level:g}": {
                "field": float(np.mean(relative <= bound)),
                "pointwise": float(np.mean(misses <= width)),
            }
            for level, bound, width in zip(self.levels, self.field, self.pointwise, strict=True)
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """As named arrays, for a file."""
        return {f"intervals.{field.name}": np.asarray(getattr(self, field.name)) for field in dc.fields(self)}


def intervals_from(arrays: dict[str, np.ndarray]) -> Intervals | None:
    """The way back from a file; None where it holds none."""
    prefix = "intervals."
    found = {name[len(prefix) :]: value for name, value in arrays.items() if name.startswith(prefix)}
    return Intervals(**found) if found else None


def conformal_intervals(data: OperatorData, method: TwoStep, result: FitResult, *, seed: int = 0) -> Intervals:
    """Errors of samples that the branch did not see, each fold in its turn, and their quantiles.

    The trunk stays: it saw the outputs of all these samples, so the intervals are honest where there are many
    more samples than functions. The operator itself is trained on all samples and is no worse than those of the
    folds.
    """
    step1 = result.trunk_result
    assert step1 is not None
    order = np.random.default_rng(seed).permutation(data.samples)[:_MOST_SAMPLES]
    predictions = np.empty((len(order), *data.outputs.shape[1:]))
    channels = data.channels
    for fold in np.array_split(np.arange(len(order)), min(_FOLDS, len(order))):
        rest = np.setdiff1d(np.arange(data.samples), order[fold])
        rows = (rest[:, None] * channels + np.arange(channels)).ravel()
        part = dc.replace(step1, coefficients=step1.coefficients[rows])
        operator = fit(data.take(rest), method, key=seed, trunk_result=part).operator
        predictions[fold] = operator.predict(data.flat_inputs[order[fold]], data.points)
    outputs = data.outputs[order]
    relative, misses = _relative(predictions, outputs), np.abs(predictions - outputs)
    return Intervals(
        np.asarray(LEVELS),
        np.asarray([conformal_quantile(relative, level) for level in LEVELS]),
        data.points,
        np.stack([conformal_quantile(misses, level) for level in LEVELS]),
    )


def conformal_quantile(scores: Float[np.ndarray, "samples ..."], level: float) -> Float[np.ndarray, "..."]:
    """The ceil((n + 1) level)-th smallest score: a new one lies below it with at least this probability.

    Infinite where there are too few scores to say.

    >>> float(conformal_quantile(np.arange(1.0, 100.0), 0.9))
    90.0
    """
    rank = math.ceil((len(scores) + 1) * level)
    if rank > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def _relative(predictions: np.ndarray, outputs: np.ndarray) -> Float[np.ndarray, " samples"]:
    """|error| in units of the prediction, which is known when an interval is wanted."""
    sizes = np.linalg.norm(predictions.reshape(len(predictions), -1), axis=1)
    misses = np.linalg.norm((predictions - outputs).reshape(len(predictions), -1), axis=1)
    return misses / np.maximum(sizes, np.finfo(float).tiny)
