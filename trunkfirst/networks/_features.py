"""Branches as features times a last layer: products of networks (MIONet), convolutions on a grid."""

import abc
import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._perceptron import ACTIVATIONS, Perceptron, make_perceptron


class AbstractBranchFeatures(eqx.Module):
    """The functions of an input that the last layer of a branch combines."""

    @property
    @abc.abstractmethod
    def inputs(self) -> int:
        """How many numbers it takes."""

    @abc.abstractmethod
    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples features"]:
        """The features (samples, features)."""


class LayerFeatures(AbstractBranchFeatures):
    """The hidden layers of a perceptron, after their activation."""

    layers: Perceptron

    @property
    def inputs(self) -> int:
        return self.layers.inputs

    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples features"]:
        return ACTIVATIONS[self.layers.activation](self.layers(x))


class SkipFeatures(AbstractBranchFeatures):
    """Features with the inputs themselves beside them: what is linear need not be learned by neurons."""

    features: AbstractBranchFeatures

    @property
    def inputs(self) -> int:
        return self.features.inputs

    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples features"]:
        return jnp.concatenate([self.features(x), x], axis=1)


class ProductFeatures(AbstractBranchFeatures):
    """One network for each input function, multiplied with each other entry by entry (MIONet).

    `groups` says how many of the inputs belong to each function.
    """

    networks: tuple[Perceptron, ...]
    groups: tuple[int, ...] = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        return sum(self.groups)

    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples features"]:
        parts = jnp.split(x, list(itertools.accumulate(self.groups))[:-1], axis=1)
        values = [network(part) for network, part in zip(self.networks, parts, strict=True)]
        return math.prod(values[1:], start=values[0])


class ConvolutionFeatures(AbstractBranchFeatures):
    """Convolutions of width 3 and stride 2 on the grid of the sensors, then a dense layer."""

    kernels: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, " _"], ...]
    dense: Perceptron
    grid_shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        return math.prod(self.grid_shape)

    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples features"]:
        sigma = ACTIVATIONS[self.dense.activation]
        dimensions = len(self.grid_shape)
        values = x.reshape(len(x), 1, *self.grid_shape)
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            values = jax.lax.conv_general_dilated(values, kernel, (2,) * dimensions, "SAME")
            values = sigma(values + bias.reshape(1, -1, *(1,) * dimensions))
        return sigma(self.dense(values.reshape(len(x), -1)))


class FeatureBranch(eqx.Module):
    """c(x) = W features(x) + b."""

    features: AbstractBranchFeatures
    weight: Float[Array, "coefficients features"]
    bias: Float[Array, " coefficients"]

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return self.features.inputs

    def __call__(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples coefficients"]:
        return self.features(x) @ self.weight.T + self.bias[None]


def make_product(
    groups: Sequence[int],
    hidden: Sequence[int],
    *,
    activation: str,
    initialisation: str,
    dtype: jnp.dtype | type,
    key: PRNGKeyArray,
) -> ProductFeatures:
    """A network (group, hidden ...) for each group; near 1 at the start, so that products keep their size."""
    networks: list[Perceptron] = []
    for group, k in zip(groups, jr.split(key, len(groups)), strict=True):
        network = make_perceptron(
            (group, *hidden), activation=activation, initialisation=initialisation, dtype=dtype, key=k
        )
        *biases, last = network.biases
        networks.append(Perceptron(network.weights, (*biases, last + 1), activation))
    return ProductFeatures(tuple(networks), tuple(groups))


def make_convolution(
    grid_shape: Sequence[int],
    channels: Sequence[int],
    width: int,
    *,
    activation: str,
    dtype: jnp.dtype | type,
    key: PRNGKeyArray,
) -> ConvolutionFeatures:
    """Convolutions with so many channels one after the other, and a dense layer of `width`; He's variance."""
    *keys, last = jr.split(key, len(channels) + 1)
    dimensions = len(grid_shape)
    kernels: list[Array] = []
    for k, (n_in, n_out) in zip(keys, itertools.pairwise((1, *channels)), strict=True):
        deviation = math.sqrt(2 / (n_in * 3**dimensions))
        kernels.append(jr.normal(k, (n_out, n_in, *(3,) * dimensions), dtype) * jnp.asarray(deviation, dtype))
    cells = math.prod(math.ceil(size / 2 ** len(channels)) for size in grid_shape)
    dense = make_perceptron((cells * channels[-1], width), activation=activation, dtype=dtype, key=last)
    biases = tuple(jnp.zeros(n, dtype) for n in channels)
    return ConvolutionFeatures(tuple(kernels), biases, dense, tuple(grid_shape))
