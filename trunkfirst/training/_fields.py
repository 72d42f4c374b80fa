"""What step 1 sees of the data: raw fields at encoded points, one row for each sample and channel."""

import dataclasses as dc
from typing import TypeAlias, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ..data import AnyData, OperatorData, ScatteredData
from ..networks import AbstractEncoder, Identity, OutputMap
from ._outputs import raw_outputs


@dc.dataclass(frozen=True, eq=False)
class Fields:
    """Fields that are all given at the same points.

    Rows are samples and their channels, channels running faster. Weights may be None: all alike.
    """

    points: Float[np.ndarray, "points features"]
    outputs: Float[np.ndarray, "rows points"]
    point_weights: Float[np.ndarray, " points"] | None = None
    sample_weights: Float[np.ndarray, " rows"] | None = None
    channels: int | None = None
    factor: Float[np.ndarray, "rank points"] | None = None
    """The thin factor of the outputs with the roots of all weights in it, where it is known already."""

    @property
    def samples(self) -> int:
        """How many rows there are."""
        return len(self.outputs)


@dc.dataclass(frozen=True, eq=False)
class ScatteredFields:
    """Fields each given at its own choice among the pooled `points`.

    `places` (samples, most) says where, `weights` (samples, most) counts each value, zero where there is none;
    channels of a sample share its places.
    """

    points: Float[np.ndarray, "points features"]
    places: Int[np.ndarray, "samples most"]
    outputs: Float[np.ndarray, "rows most"]
    weights: Float[np.ndarray, "samples most"]
    sample_weights: Float[np.ndarray, " rows"] | None = None
    channels: int | None = None

    @property
    def samples(self) -> int:
        """How many rows there are."""
        return len(self.outputs)


AnyFields: TypeAlias = Fields | ScatteredFields


@overload
def make_fields(
    data: OperatorData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> Fields: ...
@overload
def make_fields(
    data: AnyData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> AnyFields: ...
def make_fields(
    data: AnyData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> AnyFields:
    """Undo the output map, encode the points, and put channels below each other."""
    weights = None if row_weights is None else row_weights.ravel()
    channels = data.channels if data.is_multichannel else None
    if isinstance(data, OperatorData):
        rows, factor = raw_rows(data, output)
        inside = factor > 0
        point_weights = data.point_weights
        if output is not None and output.boundary is not None:
            squares = factor[inside] ** 2 * (1.0 if point_weights is None else point_weights[inside])
            point_weights = squares / squares.sum()
        return Fields(_encode(coordinates, data.points[inside]), rows, point_weights, weights, channels)
    points, places = data.pooled()
    mask = data.mask
    raw, factor = raw_outputs(np.nan_to_num(data.outputs, nan=1.0), points[places], output)
    # Given weights sum to 1 in every sample; here a point counts 1 in the mean.
    values = mask if data.point_weights is None else data.point_weights * data.counts[:, None]
    scattered = np.where(factor > 0, values * factor**2, 0.0)
    return ScatteredFields(
        _encode(coordinates, points), places, _rows(_zeros_outside(raw, mask)), scattered, weights, channels
    )


@overload
def as_fields(data: OperatorData) -> Fields: ...
@overload
def as_fields(data: ScatteredData) -> ScatteredFields: ...
@overload
def as_fields(data: AnyData) -> AnyFields: ...
def as_fields(data: AnyData) -> AnyFields:
    """The fields of `data` as they are: no encoding, no output map."""
    weights = None if data.sample_weights is None else np.repeat(data.sample_weights[:, None], data.channels, 1)
    return make_fields(data, Identity(), None, weights)


def raw_rows(
    data: OperatorData, output: OutputMap | None
) -> tuple[Float[np.ndarray, "rows inside"], Float[np.ndarray, " points"]]:
    """Raw fields at the points that count, channels below each other, and how much every point counts."""
    raw, factor = raw_outputs(data.outputs, data.points, output)
    return _rows(raw if (factor > 0).all() else raw[:, factor > 0]), factor


def _encode(coordinates: AbstractEncoder, points: Float[np.ndarray, "points coordinates"]) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(coordinates(jnp.asarray(points)))


def _rows(outputs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "rows points"]:
    """(samples, points, channels) to (samples x channels, points); two axes stay as they are."""
    return outputs if outputs.ndim == 2 else outputs.swapaxes(1, 2).reshape(-1, outputs.shape[1])


def _zeros_outside(raw: Float[np.ndarray, "..."], mask: Bool[np.ndarray, "samples most"]) -> np.ndarray:
    return np.where(mask[..., None] if raw.ndim == 3 else mask, raw, 0.0)
