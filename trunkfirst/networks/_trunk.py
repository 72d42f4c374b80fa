"""The trunk: functions of the output points, the first of them the constant 1."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..encoders import AbstractEncoder, Identity
from ._perceptron import Perceptron


class Trunk(eqx.Module):
    """phi(y) = (1, phi_1(y), ..., phi_N(y)); `network` gives the last N from the encoded point."""

    network: Perceptron
    encoder: AbstractEncoder = Identity()

    def __call__(self, points: Float[Array, "points coordinates"]) -> Float[Array, "points functions"]:
        functions = self.network(self.encoder(points))
        return jnp.concatenate([jnp.ones((len(points), 1), functions.dtype), functions], axis=1)

    @property
    def coordinates(self) -> int:
        """How many coordinates a point has."""
        return self.network.architecture[0] if self.encoder.sensors is None else self.encoder.sensors

    @property
    def width(self) -> int:
        """N, the number of functions beside the constant."""
        return self.network.architecture[-1]

    @property
    def effective_width(self) -> int:
        """How many functions beside the constant can be independent: at most the last hidden width."""
        *_, hidden, width = self.network.architecture
        return min(width, hidden) if len(self.network.architecture) > 2 else width
