"""StableHLO: the form in which JAX stores functions, for JAX programs without this library."""

import importlib.util

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from ..errors import MissingExtraError
from ._graph import Graph

_PLATFORMS = ("cpu", "cuda", "tpu")


def to_stablehlo(graph: Graph, *, double: bool) -> bytes:
    """The operator for `jax.export.deserialize(bytearray(...)).call(inputs, points)`, of any numbers of rows.

    Runs on processors and accelerators, and can be differentiated once.
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise MissingExtraError("StableHLO export", "flatbuffers", "stablehlo")
    dtype = np.float64 if double else np.float32
    samples, points = jax.export.symbolic_shape("samples, points")
    # Broadcasting is meant, whatever the program around says of it.
    with jax.enable_x64(double), jax.numpy_rank_promotion("allow"):
        exported = jax.export.export(
            jax.jit(lambda inputs, points: graph.evaluate(inputs, points, dtype, jnp)), platforms=_PLATFORMS
        )(
            jax.ShapeDtypeStruct((samples, graph.sensors), dtype),
            jax.ShapeDtypeStruct((points, graph.coordinates), dtype),
        )
        return bytes(exported.serialize(vjp_order=1))
