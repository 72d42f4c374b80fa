"""How far a prediction can be trusted: conformal prediction intervals, and inputs out of distribution."""

import dataclasses as dc
import functools as ft
import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from .data.array_checks import unit_of
from .data.data_display import range_in_words
from .data.repeated_samples import repeated_rows
from .data.scattered_data import AnyData, ScatteredData
from .errors import ValueRangeError
from .linear.blocked_qr import one_blas_thread
from .linear.orthonormalise import relative_errors
from .records import misfit

LEVELS = (0.8, 0.9, 0.95)
# Half the width of the first level, in standard deviations of a normal distribution.
_DEVIATIONS = 1.2816
_MAX_CALIBRATION = 2000
# Inputs with at most this many numbers are kept as they are.
MOST_NUMBERS = 32
# Novelty: principal coordinates, those of them for distances, training inputs that are kept, folds.
_MAX_COORDINATES, _MAX_NEAR, _MAX_SEEN, _FOLDS = 32, 8, 2000, 10
# Training inputs for each coordinate; of fewer its standard deviation is not known.
_ROWS_PER_COORDINATE = 3
# More directions than are kept, and steps, of the subspace iteration that finds them.
_MORE_VECTORS, _ITERATIONS = 8, 4
# What may be rounding, relative to the size of the inputs.
_ROUNDING = 1e-6
# Smaller numbers are zero here: their inverse is none, and they have few digits.
_LEAST = 1e-300
# Far outside of any training inputs, but its square is still finite; that of the other is the last that is.
_FAR, _FARTHEST = 1e100, 1e150

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

    @property
    def is_consistent(self) -> bool:
        """Whether the sizes belong together, and what is searched for neighbours can be."""
        return misfit(self) is None and _is_searchable(self.points)

    def half_width(
        self, points: Float[np.ndarray, "new coordinates"], level: float
    ) -> Float[np.ndarray, "new ..."]:
        """Half the width of the pointwise interval; at new points that of the nearest training point."""
        _, nearest = KDTree(self.points).query(np.clip(np.asarray(points, float), -_FAR, _FAR))
        return self.pointwise[self._index(level)][nearest]

    def deviations(self, points: Float[np.ndarray, "new coordinates"]) -> Float[np.ndarray, "new ..."]:
        """Standard deviations of normal errors with intervals of these widths; 0 where they are not known."""
        half = self.half_width(points, LEVELS[0])
        return np.where(np.isfinite(half), half, 0.0) / _DEVIATIONS

    def field_bound(self, level: float) -> float:
        """The bound of the relative l2 error of a field."""
        return float(self.field[self._index(level)])

    def _index(self, level: float) -> int:
        found = np.flatnonzero(np.isclose(self.levels, level))
        if not len(found):
            known = ", ".join(f"{each:g}" for each in self.levels)
            raise ValueRangeError(f"level is {level:g}; intervals are known for {known}")
        return int(found[0])

    def coverage(self, held_out: "HeldOut") -> dict[str, dict[str, float]]:
        """The share of fields and of values that are inside their intervals, by level."""
        relative, errors, points = held_out.relative, held_out.errors, np.nan_to_num(held_out.data.points)
        is_known = ~np.isnan(errors)
        widths = {level: self.half_width(points.reshape(-1, points.shape[-1]), level) for level in self.levels}
        return {
            f"{level:g}": {
                "field": float(np.mean(relative <= bound)),
                "pointwise": float(np.mean((errors <= width.reshape(-1, *errors.shape[1:]))[is_known])),
            }
            for (level, width), bound in zip(widths.items(), self.field, strict=True)
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
    """Samples, and what operators that were fitted without them predict."""

    data: AnyData
    predictions: AnyOutputs

    @property
    def errors(self) -> AnyOutputs:
        """Absolute errors, NaN where a sample has no point."""
        return np.abs(self.predictions - self.data.outputs)

    @property
    def relative(self) -> Float[np.ndarray, " samples"]:
        """|error| over |prediction|, because at prediction time the output is not known."""
        outputs = self.data.outputs.reshape(self.data.samples, -1)
        predictions = np.where(np.isnan(outputs), 0.0, self.predictions.reshape(outputs.shape))
        return relative_errors(np.nan_to_num(outputs), predictions)


def conformal_intervals(held_out: HeldOut) -> Intervals:
    """Quantiles of the errors of samples that were not trained on.

    The operator itself is trained on all samples and is no worse than those that were fitted without some. Where
    samples have points of their own, their errors are those at the points nearest to common ones.
    """
    some = np.sort(np.random.default_rng(0).permutation(held_out.data.samples)[:_MAX_CALIBRATION])
    held_out = HeldOut(held_out.data.take(some), held_out.predictions[some])
    data, errors = held_out.data, held_out.errors
    if isinstance(data, ScatteredData):
        points, places = data.common_points()
        errors = errors[np.arange(len(errors))[:, None], places]
    else:
        points = data.points
    return Intervals(
        np.asarray(LEVELS),
        np.asarray([conformal_quantile(held_out.relative, level) for level in LEVELS]),
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


# -- novelty


@dc.dataclass(frozen=True, eq=False)
class Novelty:
    """Training inputs, to recognise outliers among new ones.

    Five numbers describe an input: how far it rises above and falls below the mean at a sensor, in standard
    deviations (the largest over all sensors); its norm in principal coordinates with standard deviation 1; the
    distance to the nearest training input in the first of them; and the norm of what they leave. Each is measured
    in units of `scale` from `location`; an input is an outlier if the largest of them exceeds `limit`.
    """

    centre: Float[np.ndarray, " sensors"]
    spread: Float[np.ndarray, " sensors"]
    """Standard deviations."""
    matrix: Float[np.ndarray, "sensors coordinates"]
    seen: Float[np.ndarray, "rows first"]
    location: Float[np.ndarray, " 5"]
    scale: Float[np.ndarray, " 5"]
    limit: float

    @property
    def is_consistent(self) -> bool:
        """Whether the sizes belong together, and what is searched for neighbours can be."""
        return (
            misfit(self) is None
            and self.seen.shape[1] <= self.matrix.shape[1]
            and _is_searchable(self.seen)
            and bool(np.isfinite(self.matrix).all())
        )

    def is_outlier(self, inputs: Inputs) -> Bool[np.ndarray, " samples"]:
        """True for inputs unlike those of training.

        Of inputs like them at most about max(1 %, 1/(n + 1)) are marked, for n training inputs.
        """
        return ~(self.scores(inputs) <= self.limit)

    def scores(self, inputs: Inputs) -> Float[np.ndarray, " samples"]:
        """How unlike the training inputs each input is; NaN or infinite for what cannot be measured."""
        with np.errstate(all="ignore"):
            return self.scores_of(self.measures(inputs))

    def scores_of(self, measures: Float[np.ndarray, "samples 5"]) -> Float[np.ndarray, " samples"]:
        """The scores of inputs with these measures."""
        return ((measures - self.location) / self.scale).max(axis=1)

    def measures(self, inputs: Inputs) -> Float[np.ndarray, "samples 5"]:
        """Largest rise and fall at a sensor, norm, distance to the nearest training input, norm that is left."""
        centred = inputs - self.centre
        steps = centred / self.spread
        coordinates = centred @ self.matrix
        near = np.clip(np.nan_to_num(coordinates[:, : self.seen.shape[1]]), -_FAR, _FAR)
        distances = np.asarray(self._tree.query(near)[0])
        norms = [_norms(coordinates), distances, _norms(centred - coordinates @ self.inverse)]
        return np.stack([steps.max(axis=1), -steps.min(axis=1), *norms], axis=1)

    @ft.cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.seen)

    @ft.cached_property
    def inverse(self) -> Float[np.ndarray, "coordinates sensors"]:
        """From coordinates to inputs without their centre."""
        return np.linalg.pinv(self.matrix)

    def arrays(self) -> dict[str, np.ndarray]:
        """Named arrays for `training.npz`; `novelty_from` reads them back."""
        return _prefixed("familiarity.", self)


def novelty_from(arrays: dict[str, np.ndarray]) -> Novelty | None:
    """The novelty check in the arrays of a file; None where there is none."""
    found = _without_prefix("familiarity.", arrays)
    if not found:
        return None
    if "remainder" in found:  # before 0.2: the largest distance and the largest norm of training inputs, no ranges
        distance, remainder = found.pop("distance"), found.pop("remainder")
        found |= {"spread": np.ones_like(found["centre"]), "location": np.zeros(5), "limit": 1.5}
        found["scale"] = np.array([np.inf, np.inf, np.inf, distance, remainder]) + 1e-9
    found["limit"] = float(found["limit"])
    return Novelty(**found)


def fit_novelty(inputs: Inputs) -> Novelty:
    """Learn what training inputs look like; at most 2,000 of them are kept.

    Everything is learned once more without each of ten folds, whose scores are then those of new inputs. One in a
    hundred of them is above the limit or, where there are fewer than 199, none; the same holds for the training
    inputs themselves, which are further out than new ones where they are fewer than their sensors.
    """
    inputs = np.delete(inputs, repeated_rows(inputs)[:, 1], axis=0)  # the distance to a copy is no measure
    inputs = some_inputs(np.where(np.abs(inputs) < _LEAST, 0.0, inputs))
    most = min(_MAX_COORDINATES, max(1, len(inputs) // _ROWS_PER_COORDINATE))  # the same in every fold
    folds = _folds(len(inputs))
    with one_blas_thread():
        rough = _uncalibrated(inputs, most)
        measures = np.empty((len(inputs), 5))
        for rest, out in folds:
            measures[out] = _uncalibrated(inputs[rest], most).measures(inputs[out])
        own = rough.measures(inputs)
    new = np.concatenate([_in_units(rough, measures[rest]).scores_of(measures[out]) for rest, out in folds])
    place = -max(1, (len(inputs) + 1) // 100)
    limit = max(1.0, float(np.sort(new)[place]))  # of scores that vary it is above 1 anyway
    known = _in_units(rough, measures)
    own_scale = (np.sort(own, axis=0)[place] - known.location) / limit * (1 + 1e-9)
    return dc.replace(known, scale=np.maximum(known.scale, own_scale), limit=limit)


def some_inputs(inputs: Inputs) -> Float[np.ndarray, "some sensors"]:
    """At most 2,000 of them, evenly chosen."""
    count = len(inputs)
    return inputs[np.unique(np.linspace(0, count - 1, min(count, _MAX_SEEN)).astype(int))]


def _folds(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows to learn from and those left out; a single row is both."""
    parts = np.array_split(np.random.default_rng(0).permutation(count), min(count, _FOLDS))
    return [(np.setdiff1d(np.arange(count), part) if count > 1 else part, part) for part in parts]


def _in_units(known: Novelty, measures: Float[np.ndarray, "samples 5"]) -> Novelty:
    """With the median of the measures as location and the distance to the 90th percentile as scale."""
    location, high = np.quantile(measures, [0.5, 0.9], axis=0)
    return dc.replace(known, location=location, scale=np.maximum(high - location, known.scale))


def _uncalibrated(inputs: Inputs, most: int) -> Novelty:
    """Centre, standard deviations and at most `most` principal coordinates; the scales are those of rounding."""
    unit = unit_of(inputs)
    centre = unit * (inputs / unit).mean(axis=0)
    centred = (inputs - centre) / unit
    sizes, modes = _principal_directions(centred)
    count = max(1, min(most, int((sizes > _ROUNDING * sizes[0]).sum())))
    deviations = unit * np.where(sizes[:count] > 0, sizes[:count], 1.0) / np.sqrt(len(inputs))
    matrix = modes[:, :count] / deviations
    largest = np.abs(inputs).max(axis=0)
    rounding = 10 * _ROUNDING * np.where(largest > 0, largest, largest.max() or 1.0)
    spread = np.maximum(unit * np.sqrt((centred**2).mean(axis=0)), rounding)
    scale = np.array([0.1, 0.1, 0.1, _ROUNDING, 10 * _ROUNDING * float(deviations[0])])
    seen = (inputs - centre) @ matrix[:, :_MAX_NEAR]
    return Novelty(centre, spread, matrix, seen, np.zeros(5), scale, 1.0)


def _principal_directions(
    rows: Float[np.ndarray, "rows sensors"],
) -> tuple[Float[np.ndarray, " directions"], Float[np.ndarray, "sensors directions"]]:
    """The largest singular values and their directions, by subspace iteration from a fixed start."""
    count = min(_MAX_COORDINATES + _MORE_VECTORS, *rows.shape)
    basis = np.random.default_rng(0).normal(size=(rows.shape[1], count))
    for _ in range(_ITERATIONS):
        basis, _ = np.linalg.qr(rows.T @ (rows @ basis))
    _, sizes, turned = np.linalg.svd(rows @ basis, full_matrices=False)
    return sizes, basis @ turned.T


def _norms(rows: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " rows"]:
    unit = unit_of(rows, axis=1)
    return unit * np.linalg.norm(rows / unit[:, None], axis=1)


def is_logarithmic(values: Float[np.ndarray, " samples"]) -> bool:
    """Whether a number was sampled logarithmically: over a decade or more, and its logarithm more evenly."""
    if not values.min() > 0 or values.max() < 10 * values.min():
        return False

    def unevenness(x: np.ndarray) -> float:
        return abs((x.min() + x.max()) / 2 - float(np.median(x))) / float(np.ptp(x))

    return bool(unevenness(np.log(values)) < unevenness(values))


# -- files


def _is_searchable(rows: np.ndarray) -> bool:
    return rows.size > 0 and bool((np.abs(rows, dtype=np.float64) <= _FARTHEST).all())


def _prefixed(prefix: str, record: Any) -> dict[str, np.ndarray]:
    return {f"{prefix}{field.name}": np.asarray(getattr(record, field.name)) for field in dc.fields(record)}


def _without_prefix(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


@dc.dataclass(frozen=True, eq=False, repr=False)
class Prediction:
    """The result of `Operator.predict` with an interval: predicted outputs, and bounds at every point.

    `values`, `lower` and `upper` have the shape of the outputs; `is_outlier` (samples,) marks inputs unlike those
    of training, whose predictions are unreliable; `is_extrapolated` (points,) marks points outside the training
    domain, where the bounds are NaN.
    """

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    is_outlier: np.ndarray
    is_extrapolated: np.ndarray

    def __repr__(self) -> str:
        samples, points = self.values.shape[:2]
        half = (self.upper - self.lower)[:, ~self.is_extrapolated] / 2
        widths = f", ± {half.min():.2g} to {half.max():.2g}" if half.size else ""
        return (
            f"Prediction({samples} samples at {points} points, values {range_in_words(self.values)}{widths}; "
            f"{self.is_outlier.sum()} outliers, {self.is_extrapolated.sum()} points extrapolated)"
        )
