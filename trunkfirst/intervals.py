"""How far a prediction can be trusted: conformal prediction intervals, and inputs out of distribution."""

import dataclasses as dc
import functools as ft
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from .data.array_checks import unit_of
from .errors import ValueRangeError
from .linear.blocked_qr import one_blas_thread
from .linear.orthonormalise import relative_errors

LEVELS = (0.8, 0.9, 0.95)
_MAX_CALIBRATION = 2000
# Novelty: principal coordinates and training inputs that are kept; an input may leave the range of training by a
# tenth of it, and may be 1.5 times as far from its neighbours as training inputs are.
_MAX_COORDINATES, _MAX_SEEN = 8, 2000
_MARGIN, _SLACK = 0.1, 1.5
# Far outside of any training inputs, but its square is still finite.
_FAR = 1e100

Inputs = Float[np.ndarray, "samples sensors"]
AnyOutputs = Float[np.ndarray, "samples points ..."]


# -- intervals


@dc.dataclass(frozen=True, eq=False)
class Intervals:
    """Bounds of the error of a prediction at several levels of confidence.

    `field` bounds the relative l2 error of a whole field, `pointwise` the absolute error at each of the training
    `points`; each holds for a new sample with at least about the probability in `levels`.
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

    def coverage(self, predictions: AnyOutputs, outputs: AnyOutputs) -> dict[str, dict[str, float]]:
        """The share of fields and of values that are inside their intervals, by level."""
        relative, errors = _relative(predictions, outputs), np.abs(predictions - outputs)
        return {
            f"{level:g}": {
                "field": float(np.mean(relative <= bound)),
                "pointwise": float(np.mean(errors <= width)),
            }
            for level, bound, width in zip(self.levels, self.field, self.pointwise, strict=True)
        }

    def arrays(self) -> dict[str, np.ndarray]:
        """Named arrays for `training.npz`; `intervals_from` reads them back."""
        return _prefixed("intervals.", self)


def intervals_from(arrays: dict[str, np.ndarray]) -> Intervals | None:
    """The intervals in the arrays of a file; None where there are none."""
    found = _without_prefix("intervals.", arrays)
    return Intervals(**found) if found else None


@dc.dataclass(frozen=True, eq=False)
class HeldOut:
    """Outputs, and what operators that were fitted without these samples predict."""

    outputs: AnyOutputs
    predictions: AnyOutputs


def conformal_intervals(points: Float[np.ndarray, "points coordinates"], held_out: HeldOut) -> Intervals:
    """Quantiles of the errors of samples that were not trained on.

    The operator itself is trained on all samples and is no worse than those that were fitted without some.
    """
    some = np.random.default_rng(0).permutation(len(held_out.outputs))[:_MAX_CALIBRATION]
    outputs, predictions = held_out.outputs[some], held_out.predictions[some]
    relative, errors = _relative(predictions, outputs), np.abs(predictions - outputs)
    return Intervals(
        np.asarray(LEVELS),
        np.asarray([conformal_quantile(relative, level) for level in LEVELS]),
        points,
        np.stack([conformal_quantile(errors, level) for level in LEVELS]),
    )


def conformal_quantile(scores: Float[np.ndarray, "samples ..."], level: float) -> Float[np.ndarray, "..."]:
    """The ceil((n + 1) level)-th smallest score: a new one is below it with at least this probability.

    Infinite where there are too few scores.

    >>> float(conformal_quantile(np.arange(1.0, 100.0), 0.9))
    90.0
    """
    rank = math.ceil((len(scores) + 1) * level)
    if rank > len(scores):
        return np.full(scores.shape[1:], np.inf)
    return np.asarray(np.sort(scores, axis=0)[rank - 1])


def _relative(predictions: np.ndarray, outputs: np.ndarray) -> Float[np.ndarray, " samples"]:
    """|error| over |prediction|, because at prediction time the output is not known."""
    return relative_errors(outputs.reshape(len(outputs), -1), predictions.reshape(len(predictions), -1))


# -- novelty


@dc.dataclass(frozen=True, eq=False)
class Novelty:
    """Training inputs in a few principal coordinates with standard deviation 1, to recognise outliers."""

    centre: Float[np.ndarray, " sensors"]
    matrix: Float[np.ndarray, "sensors coordinates"]
    seen: Float[np.ndarray, "rows coordinates"]
    distance: float
    """The largest distance from a training input to its nearest neighbour."""
    remainder: float
    """The largest norm that the coordinates leave of a training input."""

    def is_outlier(self, inputs: Inputs) -> Bool[np.ndarray, " samples"]:
        """True for inputs outside the range of training, far from all training inputs, or of another shape."""
        with np.errstate(all="ignore"):
            coordinates = (inputs - self.centre) @ self.matrix
            residuals = self.residuals(inputs)
        is_beyond = ~(np.isfinite(coordinates).all(axis=1) & np.isfinite(residuals))
        coordinates = np.clip(np.nan_to_num(coordinates), -_FAR, _FAR)
        low, high = self.seen.min(axis=0), self.seen.max(axis=0)
        margin = _MARGIN * (high - low) + 1e-12
        is_outside = ((coordinates < low - margin) | (coordinates > high + margin)).any(axis=1)
        distances, _ = self._tree.query(coordinates)
        is_far = np.asarray(distances) > _SLACK * self.distance + 1e-12
        return is_beyond | is_outside | is_far | (residuals > _SLACK * self.remainder + 1e-9 * self._unit)

    def residuals(self, inputs: Inputs) -> Float[np.ndarray, " samples"]:
        """The norm that the coordinates leave of each input."""
        centred = inputs - self.centre
        rest = centred - centred @ self.matrix @ self._inverse
        unit = unit_of(rest, axis=1)
        return unit * np.linalg.norm(rest / unit[:, None], axis=1)

    @ft.cached_property
    def _unit(self) -> float:
        """1, or the size of training inputs that are far smaller."""
        return min(1.0, float(1 / np.abs(self.matrix).max()))

    @ft.cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.seen)

    @ft.cached_property
    def _inverse(self) -> Float[np.ndarray, "coordinates sensors"]:
        return np.linalg.pinv(self.matrix)

    def arrays(self) -> dict[str, np.ndarray]:
        """Named arrays for `training.npz`; `novelty_from` reads them back."""
        return _prefixed("familiarity.", self)


def novelty_from(arrays: dict[str, np.ndarray]) -> Novelty | None:
    """The novelty check in the arrays of a file; None where there is none."""
    found = _without_prefix("familiarity.", arrays)
    if not found:
        return None
    found["distance"], found["remainder"] = float(found["distance"]), float(found["remainder"])
    return Novelty(**found)


def fit_novelty(inputs: Inputs) -> Novelty:
    """Learn what training inputs look like; at most 2,000 of them are kept."""
    unit = unit_of(inputs)
    centre = unit * (inputs / unit).mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd((inputs - centre) / unit, full_matrices=False)
    sizes = unit * sizes
    count = max(1, min(_MAX_COORDINATES, int((sizes > 1e-6 * sizes[0]).sum())))
    deviations = np.where(sizes[:count] > 0, sizes[:count], 1.0) / np.sqrt(len(inputs))
    matrix = modes[:count].T / deviations
    rows = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), _MAX_SEEN)).astype(int))
    seen = (inputs[rows] - centre) @ matrix
    distances = np.asarray(KDTree(seen).query(seen, k=min(2, len(seen)))[0]).reshape(len(seen), -1)
    bare = Novelty(centre, matrix, seen, float(distances[:, -1].max()), 0.0)
    return dc.replace(bare, remainder=float(bare.residuals(inputs).max()))


# -- files


def _prefixed(prefix: str, record: Any) -> dict[str, np.ndarray]:
    return {f"{prefix}{field.name}": np.asarray(getattr(record, field.name)) for field in dc.fields(record)}


def _without_prefix(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
