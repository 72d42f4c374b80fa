"""The monolithic method with the matrix between trunk and branch solved for (variable projection)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float

from ..minimisers import AbstractObjective, Parameters
from ..networks import ACTIVATIONS, Perceptron
from ._losses import CompressedLoss


class HiddenPair(eqx.Module):
    """The hidden layers of trunk and branch; their output layers are one matrix between them."""

    trunk: Perceptron
    branch: Perceptron


class BilinearProblem(AbstractObjective):
    """min over M of |B M T^T - U|^2 with trunk features T = (1, hidden) and branch features B = (1, hidden).

    Regularised on both sides, |B M T^T - U|^2 + t |B M|^2 + b |M T^T|^2 + t b |M|^2 with t = b = ridge^2, so
    that the solution is (B^T B + b)^-1 B^T U T (T^T T + t)^-1: two small Cholesky factorisations and never a
    Kronecker product. The gradient is the envelope's: M is held fixed.
    """

    loss: CompressedLoss
    ridge: float = eqx.field(static=True, default=1e-3)

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        B, T = self.features(parameters)
        M = jax.lax.stop_gradient(self._solve(B, T))
        BM, TM = B @ M, T @ M.T
        shift = self.ridge**2
        squares = self.loss.squares(BM, T) + shift * (jnp.sum(BM**2) + jnp.sum(TM**2)) + shift**2 * jnp.sum(M**2)
        return squares / (len(B) * len(T))

    @eqx.filter_jit
    def matrix(self, parameters: HiddenPair) -> Float[Array, "branch_features trunk_features"]:
        """The matrix M at these parameters."""
        return self._solve(*self.features(parameters))

    def features(
        self, parameters: HiddenPair
    ) -> tuple[Float[Array, "samples branch_features"], Float[Array, "points trunk_features"]]:
        """Weighted features B of the samples and T of the points."""
        B = _with_constant(parameters.branch, self.loss.inputs) * self.loss.sample_roots[:, None]
        T = _with_constant(parameters.trunk, self.loss.points) * self.loss.point_roots[:, None]
        return B, T

    def _solve(self, B: Array, T: Array) -> Array:
        middle = (B.T @ self.loss.directions) @ (self.loss.factor @ T)  # B^T U T
        return _shifted_solve(B, self.ridge, _shifted_solve(T, self.ridge, middle.T).T)


def _with_constant(layers: Perceptron, x: Array) -> Array:
    hidden = ACTIVATIONS[layers.activation](layers(x))
    return jnp.concatenate([jnp.ones((len(x), 1), hidden.dtype), hidden], axis=1)


def _shifted_solve(features: Array, ridge: float, right: Array) -> Array:
    gram = features.T @ features
    shift = ridge**2 + 8 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    factor = jsl.cho_factor(gram + shift * jnp.eye(len(gram), dtype=gram.dtype), lower=True)
    return jsl.cho_solve(factor, right)


def hidden_layers(network: Perceptron) -> Perceptron:
    """All layers but the last; the activation of the last hidden layer is left to whoever evaluates it."""
    return Perceptron(network.weights[:-1], network.biases[:-1], network.activation)
