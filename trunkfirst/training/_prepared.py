"""Data made ready for training: encoders fitted, outputs in raw form, weights in place."""

import dataclasses as dc

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data import AnyData
from ..networks import AbstractEncoder, Branch, Operator, OutputMap, Parallel, Trunk
from ._encodings import channel_weights
from ._fields import AnyFields, make_fields
from ._methods import Method


@dc.dataclass(frozen=True, eq=False)
class Prepared:
    """What the steps of training look at, and how an operator is put together from what they find."""

    fields: AnyFields
    inputs: Float[Array, "samples features"]
    groups: tuple[int, ...]
    """How many features each input function has."""
    sample_weights: Float[Array, " samples"] | None
    dtype: np.dtype
    # the way back
    encoder: AbstractEncoder
    coordinates: AbstractEncoder
    output: OutputMap | None
    input_names: tuple[str, ...]

    def operator(self, branch: Branch, trunk: Trunk, transform: Array | None) -> Operator:
        """The operator of a trunk and a branch that were trained on this."""
        return Operator(
            self.encoder,
            branch,
            Trunk(trunk.network, self.coordinates),
            transform,
            self.input_names,
            self.output,
            self.fields.channels,
        )


def prepare(data: AnyData, method: Method, dtype: np.dtype) -> Prepared:
    """Fit the encoders and the output map of `method` to training data."""
    output = method.outputs.fit(data)
    coordinates = method.coordinates.fit_in(data, dtype)
    rows = channel_weights(data, method.is_relative and (output is None or not output.is_positive))
    encoder = method.inputs.fit_in(data, dtype)
    inputs = jnp.asarray(data.flat_inputs, dtype)
    weights = None if rows is None else jnp.asarray(rows.mean(axis=1), dtype)
    return Prepared(
        make_fields(data, coordinates, output, rows),
        encoder(inputs),
        input_groups(encoder, inputs),
        weights,
        dtype,
        encoder,
        coordinates,
        output,
        tuple(data.inputs),
    )


def input_groups(encoder: AbstractEncoder, inputs: Float[Array, "samples sensors"]) -> tuple[int, ...]:
    """How many features each input function has behind the encoder; behind a common one they are one group."""
    if isinstance(encoder, Parallel):
        return tuple(part.shape[1] for part in encoder.split(inputs[:1]))
    return (encoder(inputs[:1]).shape[1],)
