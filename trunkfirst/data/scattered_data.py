"""Samples of an operator that each have points of their own; and weights of samples of any kind."""

import dataclasses as dc
import functools as ft
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from ..errors import DataError
from .array_checks import check_length, evenly, first_index, real_array, sample_blocks, unique_rows, unit_of
from .operator_data import AbstractData, InputsLike, OperatorData

# Common points are chosen among this many, and are at most this many times as many as those of a sample.
_MOST_LOOKED_AT, _COMMON, _MOST_COMMON = 5000, 4, 1000


class ScatteredData(AbstractData):
    """Samples of an operator, each at its own points.

    `points` is (samples, points, coordinates), `outputs` (samples, points) or (samples, points, channels) and
    `point_weights` (samples, points), scaled to sum to 1 in every sample. If a sample has fewer points than the
    longest one, `points` and `outputs` are NaN at the same places; `scattered_from_lists` makes such arrays. The
    other arguments are those of `OperatorData`, without `reference_outputs` and `triangles`. Arrays are checked on
    construction; a `DataError` names the sample and the point that is wrong.

    >>> points = [[[0.0], [1.0]], [[0.2], [0.7]]]
    >>> data = ScatteredData(inputs=[[1.0], [2.0]], points=points, outputs=[[1, 2], [3, 4]])
    >>> data.samples, data.counts
    (2, array([2, 2]))
    """

    _per_sample = ("points", "outputs", "point_weights", "sample_weights", "is_suggested")

    @ft.cached_property
    def mask(self) -> Bool[np.ndarray, "samples points"]:
        """True where a sample has a point."""
        return ~np.isnan(self.points[..., 0])

    @property
    def counts(self) -> Int[np.ndarray, " samples"]:
        """Number of points of each sample."""
        return self.mask.sum(axis=1)

    def pooled(self) -> tuple[Float[np.ndarray, "pooled coordinates"], Int[np.ndarray, "samples points"]]:
        """Return the distinct points of all samples, and for each point of a sample its index among them.

        So a trunk is evaluated once for each distinct point. Where `mask` is False the index is 0.
        """
        distinct, inverse = unique_rows(self.points[self.mask])
        places = np.zeros(self.mask.shape, np.int64)
        places[self.mask] = inverse
        return distinct, places

    def common_points(
        self,
    ) -> tuple[Float[np.ndarray, "common coordinates"], Int[np.ndarray, "samples common"]]:
        """Return points spread over those of all samples, and for each sample which of its own is the nearest."""
        from scipy.spatial import KDTree

        common = common_points(self.pooled()[0], self.mask.shape[1])
        size = np.ptp(common, axis=0)
        scale = np.where(size > 0, size, 1.0)
        trees = [KDTree(points[mask] / scale) for points, mask in zip(self.points, self.mask, strict=True)]
        nearest = [np.asarray(tree.query(common / scale)[1]) for tree in trees]
        own = [np.flatnonzero(mask)[places] for mask, places in zip(self.mask, nearest, strict=True)]
        return common, np.stack(own)

    def _checked(
        self, points: object, outputs: object, weights: object, reference: object, triangles: object
    ) -> dict[str, Any]:
        for name, given in (("reference_outputs", reference), ("triangles", triangles)):
            if given is not None:
                raise DataError(f"{name}: not for scattered data (points has 3 axes); leave it out")
        places = real_array("points", points, ("samples", "points", "coordinates"), may_be_nan=True)
        values = real_array("outputs", outputs, ("samples", "points"), last="channels", may_be_nan=True)
        transposed = values.shape[:2] == places.shape[1::-1]
        for axis, name in enumerate(("samples", "points")):
            hint = "; outputs looks transposed; use .swapaxes(0, 1)" if transposed else ""
            check_length("outputs", name, values.shape[axis], places.shape[axis], "points", hint=hint)
        _check_missing(places, values)
        mask = ~np.isnan(places[..., 0])
        return {
            "points": places,
            "outputs": values,
            "point_weights": None if weights is None else _checked_point_weights(weights, mask),
            "reference_outputs": None,
            "triangles": None,
        }

    def points_in_words(self) -> str:
        return f"each on its own {int(self.counts.min()):,} to {int(self.counts.max()):,} points"


def scattered_from_lists(
    inputs: InputsLike, points: Sequence[npt.ArrayLike], outputs: Sequence[npt.ArrayLike], **fields: Any
) -> ScatteredData:
    """Make scattered data from one array per sample.

    Args:
        inputs: input functions, as for `ScatteredData`.
        points: for each sample an array (points, coordinates).
        outputs: for each sample an array (points,) or (points, channels).
        **fields: further arguments of `ScatteredData`.

    Returns:
        `ScatteredData`, padded with NaN.

    >>> data = scattered_from_lists([[1.0], [2.0]], [[[0.0], [0.5]], [[0.1], [0.4], [0.9]]], [[1, 2], [3, 4, 5]])
    >>> data.counts
    array([2, 3])
    """
    if len(points) != len(outputs) or len(points) == 0:
        raise DataError(f"got points of {len(points)} samples and outputs of {len(outputs)}; give both for each")
    places = [real_array(f"points[{k}]", p, ("points", "coordinates")) for k, p in enumerate(points)]
    values = [real_array(f"outputs[{k}]", u, ("points",), last="channels") for k, u in enumerate(outputs)]
    for k, (p, u) in enumerate(zip(places, values, strict=True)):
        check_length(f"outputs[{k}]", "points", len(u), len(p), f"points[{k}]")
    return ScatteredData(inputs, _padded("points", places), _padded("outputs", values), **fields)


def _padded(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """Stack rows of different lengths, padded with NaN."""
    tail = arrays[0].shape[1:]
    for k, array in enumerate(arrays):
        if array.shape[1:] != tail:
            raise DataError(f"{name}[{k}]: shape {array.shape} does not match {arrays[0].shape} of {name}[0]")
    padded = np.full((len(arrays), max(map(len, arrays)), *tail), np.nan, np.result_type(*arrays))
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def _check_missing(points: np.ndarray, outputs: np.ndarray) -> None:
    """A missing point is NaN in all coordinates and all channels."""
    no_place: np.ndarray = np.isnan(points)
    no_value: np.ndarray = np.isnan(outputs if outputs.ndim == 3 else outputs[..., None])
    absent = np.asarray(no_place.all(axis=2))
    _refuse(
        no_place.any(axis=2) & ~absent,
        "points: {} has NaN in some coordinates only; a missing point is NaN in all",
    )
    _refuse(
        no_value.any(axis=2) & ~absent,
        "outputs: {} is NaN, but points has coordinates there; a missing point is NaN in both",
    )
    _refuse(
        absent & ~no_value.all(axis=2),
        "outputs: {} has a value, but points is NaN there; a missing point is NaN in both",
    )
    if absent.all(axis=1).any():
        raise DataError(f"points: sample {int(np.argmax(absent.all(axis=1)))} has no points; remove it")


def _refuse(is_bad: np.ndarray, message: str) -> None:
    if is_bad.any():
        sample, point = first_index(is_bad)
        also = f" ({int(is_bad.sum())} such points)" if is_bad.sum() > 1 else ""
        raise DataError(message.format(f"sample {sample}, point {point}") + also)


def _checked_point_weights(weights: object, mask: np.ndarray) -> Float[np.ndarray, "samples points"]:
    array = real_array("point_weights", weights, ("samples", "points"), may_be_nan=True)
    for axis, name in enumerate(("samples", "points")):
        check_length("point_weights", name, array.shape[axis], mask.shape[axis], "outputs")
    _refuse(mask & ~(array >= 0), "point_weights: {} is negative or NaN; give a weight of 0 or more")
    array = np.where(mask, array, 0)
    sums = array.sum(axis=1, keepdims=True)
    if (sums == 0).any():
        raise DataError(f"point_weights: the weights of sample {int(np.argmin(sums))} are all zero")
    return array / sums


def common_points(
    pooled: Float[np.ndarray, "pooled coordinates"], longest: int
) -> Float[np.ndarray, "common coordinates"]:
    """Return some of the points of all samples, spread over them; `longest` is the most points of a sample."""
    most = min(_COMMON * longest, _MOST_COMMON)
    if len(pooled) <= most:
        return pooled
    points = pooled[evenly(len(pooled), _MOST_LOOKED_AT)]
    size = np.ptp(points, axis=0)
    scaled = points / np.where(size > 0, size, 1.0)
    chosen, distance = [0], np.full(len(points), np.inf)
    while len(chosen) < most:  # the point that is farthest from those chosen, in units of the box
        distance = np.minimum(distance, np.sum((scaled - scaled[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(distance.argmax()))
    return points[np.sort(chosen)]


AnyData: TypeAlias = OperatorData | ScatteredData
"""Samples in memory."""


# -- weights of samples

# Below this share of the mean square a field is zero.
_ZERO = 1e-20


def relative_weights(data: AnyData) -> Float[np.ndarray, " samples"]:
    """Sample weights 1 / |u|^2 times those of the data, with mean 1: every sample counts by its relative error."""
    weights = channel_weights(data, True)
    assert weights is not None
    weights = weights.mean(axis=1)
    return weights / weights.mean()


def channel_weights(data: AnyData, is_relative: bool) -> Float[np.ndarray, "samples channels"] | None:
    """Weights of every sample and channel, for fields in units of the channel's mean square.

    An output map leaves the raw fields in these units, but for the channel weights asked for, which stay.
    """
    unit = output_units(data)
    weights = unscaled_weights(data, mean_squares(data, unit) if is_relative else None, unit)
    return weights if weights is None or not is_relative else weights / weights.mean()


def output_units(data: AnyData) -> Float[np.ndarray, "..."]:
    """The units in which the outputs, those of each channel where there are several, can be squared."""
    return unit_of(data.outputs, axis=(0, 1))


def mean_squares(data: AnyData, unit: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The mean square of the outputs in these units, of each channel where there are several."""
    squares, count = 0.0, 0.0
    for block in sample_blocks(data.outputs.shape):
        values = data.outputs[block] / unit
        squares = squares + np.nansum(values**2, axis=(0, 1))
        count = count + np.sum(~np.isnan(values), axis=(0, 1))
    return np.asarray(squares / count)


def unscaled_weights(
    data: AnyData, usual: Float[np.ndarray, "..."] | None, unit: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "samples channels"] | None:
    """The same before they are scaled to mean 1; relative if the `usual` mean squares, in units, are given."""
    if usual is None and data.sample_weights is None:
        return None
    weights = np.ones(data.samples) if data.sample_weights is None else data.sample_weights
    weights = np.repeat(weights[:, None], data.channels, axis=1)
    if usual is None:
        return weights
    blocks = sample_blocks(data.outputs.shape)
    squares = np.concatenate([np.nanmean((data.outputs[block] / unit) ** 2, axis=1) for block in blocks])
    squares = squares.reshape(data.samples, -1)
    sizes = np.broadcast_to(usual, squares.shape)
    # A field of zeros has no relative error; it counts like one of the usual size.
    is_zero = squares <= _ZERO * sizes
    return weights * np.divide(sizes, squares, out=np.ones_like(squares), where=~is_zero)


def joined(old: AnyData, new: AnyData) -> AnyData:
    """Old and new samples together; they must have the same inputs and the same points."""
    if type(old) is not type(new) or set(old.inputs) != set(new.inputs):
        raise DataError(
            "the new data differ from those of the earlier fit in their inputs or in the kind of points"
        )
    if old.points.shape[-1] != new.points.shape[-1] or (
        old.points.ndim == 2 and not np.array_equal(old.points, new.points)
    ):
        raise DataError("points: the new samples are given at other points than those of the earlier fit")
    inputs = {
        name: dc.replace(f, values=_stacked(f"inputs[{name!r}]", f.values, new.inputs[name].values))
        for name, f in old.inputs.items()
    }
    fields: dict[str, Any] = {"inputs": inputs, "outputs": _stacked("outputs", *_even(old.outputs, new.outputs))}
    if isinstance(old, ScatteredData):
        fields["points"] = _stacked("points", *_even(old.points, new.points))
        fields["point_weights"] = _joined_weights("point_weights", old, new)
    else:
        fields["reference_outputs"] = None
    fields |= {"sample_weights": _joined_weights("sample_weights", old, new), "is_suggested": _marks(old, new)}
    return dc.replace(old, **fields, labels={})


def _marks(*parts: AnyData) -> np.ndarray | None:
    """Which samples were suggested, if any were."""
    if all(part.is_suggested is None for part in parts):
        return None
    marks = [np.zeros(part.samples, bool) if part.is_suggested is None else part.is_suggested for part in parts]
    return np.concatenate(marks)


def _joined_weights(name: str, old: AnyData, new: AnyData) -> np.ndarray | None:
    first, second = getattr(old, name), getattr(new, name)
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise DataError(
            f"{name}: given only for the earlier or only for the new samples; give it for both or for neither"
        )
    return _stacked(name, *_even(first, second))


def _even(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples with fewer points than others are filled up with NaN."""
    if first.ndim == 1:
        return first, second
    most = max(first.shape[1], second.shape[1])

    def filled(array: np.ndarray) -> np.ndarray:
        width = [(0, 0)] * array.ndim
        width[1] = (0, most - array.shape[1])
        return np.pad(array, width, constant_values=np.nan)

    return filled(first), filled(second)


def _stacked(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if first.shape[1:] != second.shape[1:]:
        raise DataError(f"{name}: the new samples have the shape {second.shape}, the earlier ones {first.shape}")
    return np.concatenate([first, second])
