"""Input functions and output fields of an operator, every sample on points of its own."""

import dataclasses as dc
import functools as ft
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import DataError
from ._abstract import AbstractData, Indices, rows_of
from ._checks import check_length, first_place, real_array
from ._input_functions import InputFunction
from ._unique import unique_rows


@dc.dataclass(frozen=True, eq=False)
class ScatteredData(AbstractData):
    """Samples of an operator, each with its own points, any number of them.

    Where a sample has fewer points than the longest one, `points` and `outputs` are NaN at the same places;
    `scattered_from_lists` makes such arrays. Everything is checked once, on construction; a `DataError` names
    the sample and the point that is wrong.
    """

    # the operator
    inputs: Mapping[str, InputFunction]
    """Named input functions; a bare array (samples, sensors) is taken as one input called "input"."""
    points: Float[np.ndarray, "samples points coordinates"]
    outputs: Float[np.ndarray, "samples points"] | Float[np.ndarray, "samples points channels"]
    # weights
    point_weights: Float[np.ndarray, "samples points"] | None = None
    """Quadrature weights, scaled to sum to 1 in every sample, 0 where there is no point; None: all alike."""
    sample_weights: Float[np.ndarray, " samples"] | None = None
    # what is known beside
    labels: Mapping[str, Float[np.ndarray, " samples"]] = dc.field(default_factory=dict[str, np.ndarray])
    """Numbers that name a sample in figures; never used in training."""
    # words
    output_name: str = "output"
    coordinate_names: tuple[str, ...] = ()
    channel_names: tuple[str, ...] = ()
    """One for each channel; "output 1", "output 2", ... where none are given."""
    units: Mapping[str, str] = dc.field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        points = real_array("points", self.points, ("samples", "points", "coordinates"), may_be_nan=True)
        outputs = real_array("outputs", self.outputs, ("samples", "points"), last="channels", may_be_nan=True)
        transposed = outputs.shape[:2] == points.shape[1::-1]
        for axis, name in enumerate(("samples", "points")):
            hint = "; outputs looks transposed; use .swapaxes(0, 1)" if transposed else ""
            check_length("outputs", name, outputs.shape[axis], points.shape[axis], "points", hint=hint)
        _check_places(points, outputs)
        self._check_samples(points, outputs)
        self._set(point_weights=_checked_point_weights(self.point_weights, self.mask))

    @ft.cached_property
    def mask(self) -> Bool[np.ndarray, "samples points"]:
        """True where a sample has a point."""
        return ~np.isnan(self.points[..., 0])

    @property
    def counts(self) -> Int[np.ndarray, " samples"]:
        """How many points each sample has."""
        return self.mask.sum(axis=1)

    def take(self, indices: Indices) -> "ScatteredData":
        """The samples at `indices`."""
        return dc.replace(
            self,
            **self._taken(indices),
            points=self.points[indices],
            point_weights=rows_of(self.point_weights, indices),
        )

    def pooled(self) -> tuple[Float[np.ndarray, "pooled coordinates"], Int[np.ndarray, "samples points"]]:
        """The distinct points of all samples, and which of them each point of a sample is.

        So a trunk is evaluated once for each distinct point. Where a sample has no point the index is 0; `mask`
        tells.
        """
        distinct, inverse = unique_rows(self.points[self.mask])
        places = np.zeros(self.mask.shape, np.int64)
        places[self.mask] = inverse
        return distinct, places


def scattered_from_lists(inputs: Any, points: Sequence[Any], outputs: Sequence[Any], **more: Any) -> ScatteredData:
    """Scattered data from one array a sample.

    `points[k]` is (points, coordinates), `outputs[k]` is (points,) or (points, channels); `more` are further
    fields of `ScatteredData`.

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
    return ScatteredData(inputs, _padded("points", places), _padded("outputs", values), **more)


def _padded(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """One array from rows of different lengths, NaN behind the shorter ones."""
    tail = arrays[0].shape[1:]
    for k, array in enumerate(arrays):
        if array.shape[1:] != tail:
            raise DataError(f"{name}[{k}]: shape {array.shape} does not go with {arrays[0].shape} of {name}[0]")
    padded = np.full((len(arrays), max(map(len, arrays)), *tail), np.nan, np.result_type(*arrays))
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def _check_places(points: np.ndarray, outputs: np.ndarray) -> None:
    """NaN stands for a missing point, in all coordinates and all channels or in none."""
    no_place: np.ndarray = np.isnan(points)
    no_value: np.ndarray = np.isnan(outputs if outputs.ndim == 3 else outputs[..., None])
    absent = np.asarray(no_place.all(axis=2))
    _refuse(no_place.any(axis=2) & ~absent, "points: {} has NaN in some coordinates only")
    _refuse(
        no_value.any(axis=2) & ~absent,
        "outputs: {} is NaN, but points has a place there; a missing point is NaN in both",
    )
    _refuse(
        absent & ~no_value.all(axis=2),
        "outputs: {} has a value, but points is NaN there; a missing point is NaN in both",
    )
    if absent.all(axis=1).any():
        raise DataError(f"points: sample {int(np.argmax(absent.all(axis=1)))} has no point at all; remove it")


def _refuse(is_bad: np.ndarray, message: str) -> None:
    if is_bad.any():
        sample, point = first_place(is_bad)
        also = f" ({int(is_bad.sum())} such points)" if is_bad.sum() > 1 else ""
        raise DataError(message.format(f"sample {sample}, point {point}") + also)


def _checked_point_weights(weights: Any, mask: np.ndarray) -> Float[np.ndarray, "samples points"] | None:
    if weights is None:
        return None
    array = real_array("point_weights", weights, ("samples", "points"), may_be_nan=True)
    for axis, name in enumerate(("samples", "points")):
        check_length("point_weights", name, array.shape[axis], mask.shape[axis], "outputs")
    _refuse(mask & ~(array >= 0), "point_weights: {} is negative or NaN")
    array = np.where(mask, array, 0)
    sums = array.sum(axis=1, keepdims=True)
    if (sums == 0).any():
        raise DataError(f"point_weights: sample {int(np.argmin(sums))} has no weight at all")
    return array / sums
