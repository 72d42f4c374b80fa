"""The multilayer perceptron, described as in the paper by its vector of layer widths."""

import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import UnknownNameError, ValueRangeError

Activation: TypeAlias = Callable[[Array], Array]

ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sine": jnp.sin,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
    "sigmoid": jax.nn.sigmoid,
}


def rounded(activation: str, radius: Float[Array, ""]) -> Activation:
    """The activation; that of ReLU with its kink rounded off, by a parabola from -radius to radius."""
    if activation != "relu":
        return ACTIVATIONS[activation]

    def sigma(x: Array) -> Array:
        r = jnp.maximum(radius.astype(x.dtype), jnp.finfo(x.dtype).tiny)  # radius 0 is ReLU itself
        return jnp.clip(x + r, 0, 2 * r) ** 2 / (4 * r) + jnp.maximum(x - r, 0)

    return sigma


# Variance of a weight between layers of widths n_in and n_out.
INITIALISATIONS: dict[str, Callable[[int, int], float]] = {
    "he": lambda n_in, n_out: 2 / n_in,
    "xavier": lambda n_in, n_out: 2 / (n_in + n_out),
}


class Perceptron(eqx.Module):
    """z^1 = W^1 x + b^1, z^l = W^l sigma(z^(l-1)) + b^l; no activation on the output.

    Works on whole batches: (..., n_0) to (..., n_L).
    """

    weights: tuple[Float[Array, "... _ _"], ...]
    biases: tuple[Float[Array, "... _"], ...]
    activation: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        _check_activation(self.activation)

    def __call__(
        self, x: Float[Array, "*batch n_in"], sigma: Activation | None = None
    ) -> Float[Array, "*batch n_out"]:
        return self.hidden(x, sigma) @ self.weights[-1].T + self.biases[-1].reshape((1,) * (x.ndim - 1) + (-1,))

    def hidden(
        self, x: Float[Array, "*batch n_in"], sigma: Activation | None = None
    ) -> Float[Array, "*batch n_hidden"]:
        """The last hidden layer, after its activation: what the output layer combines linearly.

        With another activation `sigma` where one is given.
        """
        sigma = sigma or ACTIVATIONS[self.activation]
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = sigma(x @ W.T + b.reshape((1,) * (x.ndim - 1) + (-1,)))
        return x

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return self.weights[0].shape[-1]

    @property
    def architecture(self) -> tuple[int, ...]:
        """The widths (n_0, n_1, ..., n_L)."""
        return (self.inputs, *(len(b) for b in self.biases))


def make_perceptron(
    architecture: Sequence[int],
    *,
    activation: str = "relu",
    initialisation: str = "he",
    dtype: jnp.dtype | type = jnp.float64,
    key: PRNGKeyArray,
) -> Perceptron:
    """A perceptron with normal weights of the variance of He or Xavier, and zero biases.

    `architecture` is the paper's vector, e.g. (2, 50, 50, 50, 50): two inputs, three hidden layers, 50 outputs.
    """
    check_architecture("architecture", architecture)
    _check_activation(activation)
    if initialisation not in INITIALISATIONS:
        raise UnknownNameError("initialisation", initialisation, tuple(INITIALISATIONS))
    variance = INITIALISATIONS[initialisation]
    layers = list(itertools.pairwise(architecture))
    keys = jr.split(key, len(layers))
    weights = tuple(
        jr.normal(k, (n_out, n_in), dtype) * jnp.asarray(variance(n_in, n_out) ** 0.5, dtype)
        for k, (n_in, n_out) in zip(keys, layers, strict=True)
    )
    return Perceptron(weights, tuple(jnp.zeros(n_out, dtype) for _, n_out in layers), activation)


def side_by_side(networks: Sequence[Perceptron]) -> Perceptron:
    """One network with the outputs of all of them, which have the same input and depth: its layers are blocks."""
    first, *others = zip(*(network.weights for network in networks), strict=True)
    weights = (jnp.concatenate(first), *(jsl.block_diag(*layer) for layer in others))
    biases = tuple(jnp.concatenate(layer) for layer in zip(*(network.biases for network in networks), strict=True))
    return Perceptron(weights, biases, networks[0].activation)


def _check_activation(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, tuple(ACTIVATIONS))


def check_architecture(name: str, architecture: Sequence[int]) -> None:
    """At least an input and an output, all widths positive."""
    if len(architecture) < 2 or any(width < 1 for width in architecture):
        raise ValueRangeError(f"{name} is {tuple(architecture)}; expected two or more positive widths")


def count_parameters(module: eqx.Module) -> int:
    """The number of trainable numbers in a module."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array)))
