"""Input functions and output fields of an operator, all samples on the same points."""

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError
from ._abstract import AbstractData, Indices, rows_of
from ._checks import check_length, checked_weights, real_array, whole_numbers
from ._input_functions import InputFunction


@dc.dataclass(frozen=True, eq=False)
class OperatorData(AbstractData):
    """Samples of an operator: what goes in, what comes out, and where.

    Everything is checked once, on construction; a `DataError` names the array and the axis that is wrong.

    >>> import numpy as np
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([x, x**2]))
    >>> data.samples, data.take(slice(0, 10)).samples
    (40, 10)
    """

    # the operator
    inputs: Mapping[str, InputFunction]
    """Named input functions; a bare array (samples, sensors) is taken as one input called "input"."""
    points: Float[np.ndarray, "points coordinates"]
    outputs: Float[np.ndarray, "samples points"] | Float[np.ndarray, "samples points channels"]
    # weights
    point_weights: Float[np.ndarray, " points"] | None = None
    """Quadrature weights, scaled to sum to 1; None means all alike."""
    sample_weights: Float[np.ndarray, " samples"] | None = None
    # what is known beside
    reference_outputs: Float[np.ndarray, "samples points ..."] | None = None
    """A finer solution of the same samples, in the shape of `outputs`: what the outputs themselves are worth."""
    triangles: Int[np.ndarray, "triangles 3"] | None = None
    labels: Mapping[str, Float[np.ndarray, " samples"]] = dc.field(default_factory=dict[str, np.ndarray])
    """Numbers that name a sample in figures; never used in training."""
    # words
    output_name: str = "output"
    coordinate_names: tuple[str, ...] = ()
    channel_names: tuple[str, ...] = ()
    """One for each channel; "output 1", "output 2", ... where none are given."""
    units: Mapping[str, str] = dc.field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        points = real_array("points", self.points, ("points", "coordinates"))
        outputs = real_array("outputs", self.outputs, ("samples", "points"), last="channels")
        hint = _hint(points, outputs)
        check_length("outputs", "points", outputs.shape[1], len(points), "points", hint=hint)
        self._check_samples(points, outputs)
        point_weights = checked_weights("point_weights", self.point_weights, "points", len(points))
        self._set(
            reference_outputs=_checked_reference(self.reference_outputs, outputs),
            triangles=_checked_triangles(self.triangles, len(points)),
            point_weights=None if point_weights is None else point_weights / point_weights.sum(),
        )

    def take(self, indices: Indices) -> "OperatorData":
        """The samples at `indices`."""
        return dc.replace(self, **self._taken(indices), reference_outputs=rows_of(self.reference_outputs, indices))


def _hint(points: np.ndarray, outputs: np.ndarray) -> str:
    """What may have happened where outputs and points do not go together."""
    samples, columns = outputs.shape[:2]
    if points.shape == (samples, columns):
        return "; where every sample has points of its own, give them an axis of coordinates, points[:, :, None]"
    if outputs.ndim == 2 and samples == len(points):
        return "; outputs looks transposed; use .T"
    if columns == points.shape[1] > len(points):
        return "; points looks transposed; use .T"
    if outputs.ndim == 3 and outputs.shape[2] == len(points):
        return "; channels are the last axis; use np.moveaxis(outputs, 1, 2)"
    if outputs.ndim == 3 and columns * outputs.shape[2] == len(points):
        return "; flatten the grid with outputs.reshape(len(outputs), -1)"
    return ""


def _checked_reference(reference: Any, outputs: np.ndarray) -> Float[np.ndarray, "samples points ..."] | None:
    if reference is None:
        return None
    axes = ("samples", "points", "channels")[: outputs.ndim]
    array = real_array("reference_outputs", reference, axes)
    for axis, length, expected in zip(axes, array.shape, outputs.shape, strict=True):
        check_length("reference_outputs", axis, length, expected, "outputs")
    return array


def _checked_triangles(triangles: Any, points: int) -> Int[np.ndarray, "triangles 3"] | None:
    if triangles is None:
        return None
    array = whole_numbers("triangles", triangles, ("triangles", "corners"))
    if array.shape[1] != 3:
        raise DataError(f"triangles: axis 'corners' has {array.shape[1]} entries, expected 3")
    if array.min() < 0 or array.max() >= points:
        hint = "; count from 0: subtract 1" if (array.min(), array.max()) == (1, points) else ""
        raise DataError(
            f"triangles: names points from {array.min()} to {array.max()}, but there are 0 to {points - 1}{hint}"
        )
    return array
