"""Weights of samples: given with the data, relative to the size of each output, or both."""

import numpy as np
from jaxtyping import Float

from .array_checks import sample_blocks, unit_of
from .scattered_data import AnyData

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
