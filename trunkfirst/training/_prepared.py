"""Data made ready for training: encoders fitted, outputs in raw form, weights in place."""

import dataclasses as dc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data import AnyData, ShardedData, some_indices
from ..networks import AbstractEncoder, Branch, Operator, OutputMap, Parallel, Trunk
from ._encodings import channel_weights, encoded, mean_squares
from ._fields import AnyFields, Fields, make_fields
from ._methods import Method, TwoStep
from ._stream import Stream, check_streams, samples_in_memory, take_together


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
    # what is too large for memory
    stream: Stream | None = None
    """The samples on disk; `fields` are few rows that stand for all of them, `inputs` those of some in memory."""
    mean_weight: float = 1.0
    """By which the weights in the stream are to be divided."""

    @property
    def rows(self) -> int:
        """How many output functions there are in all: samples times channels."""
        return self.fields.samples if self.stream is None else self.stream.rows

    def after_step1(self) -> "Prepared":
        """Without the factor, which may be large and has served."""
        if not isinstance(self.fields, Fields):
            return self
        return dc.replace(self, fields=dc.replace(self.fields, factor=None))

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


def prepare(data: AnyData | ShardedData, method: Method, dtype: np.dtype) -> Prepared:
    """Fit the encoders and the output map of `method` to training data, or to some of those in shards."""
    if isinstance(data, ShardedData):
        return _prepare_stream(data, check_streams(method), dtype)
    output = method.outputs.fit(data)
    coordinates = method.coordinates.fit_in(data, dtype)
    rows = channel_weights(data, method.is_relative and (output is None or not output.is_positive))
    encoder = method.inputs.fit_in(data, dtype)
    weights = None if rows is None else jnp.asarray(rows.mean(axis=1), dtype)
    return Prepared(
        make_fields(data, coordinates, output, rows),
        encoded(encoder, data.flat_inputs, dtype),
        input_groups(encoder, data.flat_inputs.shape[1]),
        weights,
        dtype,
        encoder,
        coordinates,
        output,
        tuple(data.inputs),
    )


def _prepare_stream(data: ShardedData, method: TwoStep, dtype: np.dtype) -> Prepared:
    some = take_together(data, some_indices(data.samples, samples_in_memory(data), seed=0))
    output, coordinates = method.outputs.fit(some), method.coordinates.fit_in(some, dtype)
    encoder = method.inputs.fit_in(some, dtype)
    is_relative = method.is_relative and (output is None or not output.is_positive)
    usual = mean_squares(some) if is_relative else None
    stream = Stream(data, encoder, coordinates, output, usual, dtype)
    stream.notes["samples_in_memory"] = some.samples
    inputs, groups = encoded(encoder, some.flat_inputs, dtype), input_groups(encoder, some.flat_inputs.shape[1])
    del some  # before more memory is asked for
    fields, mean_weight = stream.compressed()
    return Prepared(
        fields,
        inputs,
        groups,
        None,
        dtype,
        encoder,
        coordinates,
        output,
        tuple(data.example.inputs),
        stream,
        mean_weight,
    )


def input_groups(encoder: AbstractEncoder, sensors: int) -> tuple[int, ...]:
    """How many features each input function has behind the encoder; behind a common one they are one group."""
    one = jax.ShapeDtypeStruct((1, sensors), jnp.result_type(float))
    if isinstance(encoder, Parallel):
        return tuple(part.shape[1] for part in eqx.filter_eval_shape(encoder.split, one))
    return (eqx.filter_eval_shape(encoder, one).shape[1],)
