"""A trunk whose functions depend on the input, so that shocks, fronts and waves can move with it."""

import dataclasses as dc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..encoders import AbstractEncoder, Identity
from ..errors import UsageError
from .layers import ACTIVATIONS, AbstractFunctions, Perceptron


class Latent(eqx.Module):
    """z(f) = f M + a small network: the few numbers by which a front moves, of an input with many features."""

    matrix: Float[Array, "features numbers"]
    network: Perceptron

    def __call__(self, features: Float[Array, "samples features"]) -> Float[Array, "samples numbers"]:
        return features @ self.matrix + self.network(features)


class MovingFunctions(AbstractFunctions):
    """phi(y, f) = (1, phi_1(y, z), ..., phi_N(y, z)), where z(f) are a few numbers of the encoded input f.

    The network `levels` gives smooth functions g_j(y, z). Where g_j changes sign there is a front: `network` sees,
    besides y and z, t_j = tanh(exp(s_j) g_j) and g_j t_j, with a trained logarithm s_j of the slope. Where that is
    steep the first jumps and the second, nearly |g_j|, has a kink: at shocks, and at the edges of rarefactions.
    """

    depends_on_input: ClassVar[bool] = True

    levels: Perceptron
    log_slopes: Float[Array, " fronts"]
    network: Perceptron
    numbers: int = eqx.field(static=True)
    """The length of z."""
    latent: Latent | None = None
    """None takes the encoded input itself."""
    encoder: AbstractEncoder = Identity()  # pyright: ignore[reportIncompatibleMethodOverride]

    def functions(
        self, points: Float[Array, "*samples points coordinates"], features: Array | None = None
    ) -> Float[Array, "samples points functions"]:
        """All functions for each of the inputs `features` (samples, features), at common points or at its own."""
        if features is None:
            raise UsageError(
                "the functions of this trunk depend on the input: pass the encoded inputs too, "
                "basis(points, operator.features(inputs))"
            )
        y = self.encoder(points.reshape(-1, points.shape[-1]))
        y = y[None] if points.ndim == 2 else y.reshape(*points.shape[:2], -1)
        z = features[:, None] if self.latent is None else self.latent(features)[:, None]
        levels = _layers(self.levels, y, z)
        jumps = jnp.tanh(levels * jnp.exp(self.log_slopes)[None, None])
        functions = _layers(self.network, y, z, jumps, levels * jumps)
        return jnp.concatenate([jnp.ones_like(functions[..., :1]), functions], axis=-1)

    def after(self, encoder: AbstractEncoder) -> "MovingFunctions":
        return dc.replace(self, encoder=encoder)

    @property
    def coordinates(self) -> int:
        return self.levels.inputs - self.numbers if self.encoder.sensors is None else self.encoder.sensors

    @property
    def count(self) -> int:
        return self.network.architecture[-1] + 1

    @property
    def dtype(self) -> np.dtype:
        return self.log_slopes.dtype

    def __str__(self) -> str:
        return f"moving: {self.count} functions, {len(self.log_slopes)} fronts"


def _layers(network: Perceptron, *parts: Float[Array, "_ _ _"]) -> Float[Array, "samples points outputs"]:
    """The network of the parts side by side; those of points or of samples alone are multiplied alone."""
    W, *weights = network.weights
    ends = np.cumsum([part.shape[-1] for part in parts])
    columns = jnp.split(W, ends[:-1], axis=1)
    x = network.biases[0][None, None]
    for part, block in zip(parts, columns, strict=True):
        x = x + part @ block.T
    sigma = ACTIVATIONS[network.activation]
    for V, b in zip(weights, network.biases[1:], strict=True):
        x = sigma(x) @ V.T + b[None, None]
    return x
