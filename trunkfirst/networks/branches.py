"""Branches: the coefficients of the trunk functions as functions of an encoded input.

The paper's branch is a `Perceptron`. Others are a stack of small networks, features times a last layer (products
of networks as in MIONet, convolutions on a grid), a sum of kernels, and any fitted scikit-learn estimator.
"""

import abc
import functools as ft
import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..encoders import AnyArray, namespace
from ..errors import PredictOnlyError, ValueRangeError
from ..linear.kernels import MATERN, SLOPES, feature_groups, kernel_matrix
from .fourier_layers import GridBranch
from .layers import ACTIVATIONS, Perceptron, make_perceptron

# Samples whose distances to all centres are held in memory at once.
_BATCH = 1024


class StackedBranch(eqx.Module):
    """One small network for each coefficient (Lu et al.'s stacked DeepONet).

    `networks` is a `Perceptron` whose arrays have a leading axis of coefficients.
    """

    networks: Perceptron

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return self.networks.inputs

    def __call__(self, x: Float[AnyArray, "samples sensors"]) -> Float[Array, "samples coefficients"]:
        values = jax.vmap(lambda network: network(x))(self.networks)  # (coefficients, samples, 1)
        return values[..., 0].T


class AbstractBranchFeatures(eqx.Module):
    """The functions of an input that the last layer of a branch combines linearly."""

    @property
    @abc.abstractmethod
    def inputs(self) -> int:
        """The number of inputs."""

    @abc.abstractmethod
    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples features"]:
        """The features (samples, features)."""


class LayerFeatures(AbstractBranchFeatures):
    """The hidden layers of a perceptron, after their activation."""

    layers: Perceptron

    @property
    def inputs(self) -> int:
        return self.layers.inputs

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples features"]:
        return ACTIVATIONS[self.layers.activation](self.layers(x))


class SkipFeatures(AbstractBranchFeatures):
    """Features and the inputs themselves, so that neurons need not learn the linear part."""

    features: AbstractBranchFeatures

    @property
    def inputs(self) -> int:
        return self.features.inputs

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples features"]:
        return jnp.concatenate([self.features(x), x], axis=1)


class ProductFeatures(AbstractBranchFeatures):
    """The entrywise product of one network for each input function (MIONet).

    `groups` are the numbers of inputs of the functions.
    """

    networks: tuple[Perceptron, ...]
    groups: tuple[int, ...] = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        return sum(self.groups)

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples features"]:
        parts = jnp.split(x, list(itertools.accumulate(self.groups))[:-1], axis=1)
        values: list[Array] = [network(part) for network, part in zip(self.networks, parts, strict=True)]
        return math.prod(values[1:], start=values[0])


class ConvolutionFeatures(AbstractBranchFeatures):
    """Convolutions of width 3 and stride 2 on the grid of sensors, then a dense layer."""

    kernels: tuple[Float[Array, "..."], ...]
    biases: tuple[Float[Array, " _"], ...]
    dense: Perceptron
    grid_shape: tuple[int, ...] = eqx.field(static=True)

    @property
    def inputs(self) -> int:
        return math.prod(self.grid_shape)

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples features"]:
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
        """The number of inputs."""
        return self.features.inputs

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples coefficients"]:
        return self.features(x) @ self.weight.T + self.bias[None]


class KernelBranch(eqx.Module):
    """c(x) = offset + sum_k coefficients_k k(x, centre_k), k the Matern kernel of a `smoothness` and `length`.

    The length is one number or one for every feature. With `groups`, the numbers of features of several input
    functions, k is a product of one kernel for each; with `linear` it has the factor w_0 + sum_j w_j x_j z_j too.
    `ridge` records the one it was fitted with.
    """

    centres: Float[AnyArray, "centres features"]
    coefficients: Float[AnyArray, "centres coefficients"]
    offset: Float[AnyArray, " coefficients"]
    length: Float[AnyArray, "*lengths"]
    smoothness: str = eqx.field(static=True)
    ridge: float = eqx.field(static=True)
    linear: Float[AnyArray, " weights"] | None = None
    groups: tuple[int, ...] = eqx.field(static=True, default=())

    def __check_init__(self) -> None:
        if self.groups and sum(self.groups) != self.inputs:
            raise ValueRangeError(f"groups of {self.groups} features; expected {self.inputs} in all")

    def __call__(self, x: Float[AnyArray, "samples features"]) -> Float[AnyArray, "samples coefficients"]:
        if isinstance(x, np.ndarray):
            return self._on_host(x)
        kind = (self.smoothness, self.groups)
        sums = _kernel_sums(kind, x, self.centres, self.length, self.linear, self.coefficients)
        return sums + self.offset[None]

    def _on_host(self, x: Float[np.ndarray, "samples features"]) -> Float[np.ndarray, "samples coefficients"]:
        """The same with NumPy, in batches."""
        centres, length, coefficients = map(np.asarray, (self.centres, self.length, self.coefficients))
        linear = None if self.linear is None else np.asarray(self.linear)
        sums = [
            kernel_matrix(self.smoothness, rows, centres, length, groups=self.groups, linear=linear) @ coefficients
            for rows in np.split(x, range(_BATCH, len(x), _BATCH))
        ]
        return (np.concatenate(sums) + np.asarray(self.offset)).astype(coefficients.dtype)

    @property
    def inputs(self) -> int:
        """The number of inputs."""
        return self.centres.shape[1]

    @property
    def count(self) -> int:
        """The number of centres."""
        return len(self.centres)


@ft.partial(jax.jit, static_argnums=0)
def _kernel_sums(
    kind: tuple[str, tuple[int, ...]],
    x: Float[Array, "samples features"],
    centres: Float[Array, "centres features"],
    length: Float[Array, "*lengths"],
    linear: Float[Array, " weights"] | None,
    coefficients: Float[Array, "centres coefficients"],
) -> Float[Array, "samples coefficients"]:
    """sum_k coefficients_k k(x, centre_k) for every x, in batches."""
    smoothness, groups = kind

    def one(x: Float[Array, " features"]) -> Float[Array, " coefficients"]:
        # Differences first: |x|^2 + |y|^2 - 2 x.y would lose half of the digits near a centre.
        differences = x[None] - centres
        squares = [_scaled_squares(differences, length, part) for part in feature_groups(groups, len(x))]
        kernel = math.prod(_matern(smoothness, each) for each in squares)
        if linear is not None:
            kernel = kernel * (linear[:1] + centres @ (linear[1:] * x))
        return kernel @ coefficients

    return jax.lax.map(one, x, batch_size=_BATCH)


def _scaled_squares(
    differences: Float[Array, "centres features"], length: Float[Array, "*lengths"], part: slice
) -> Float[Array, " centres"]:
    """Squared distances in some features."""
    if length.ndim:
        return jnp.sum((differences[:, part] / length[part][None]) ** 2, axis=1)
    return jnp.sum(differences[:, part] ** 2, axis=1) / length**2


def _distance(squares: Float[Array, " centres"]) -> Float[Array, " centres"]:
    """The root, with derivative 0 instead of infinity at 0."""
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _matern(smoothness: str, squares: Float[Array, " centres"]) -> Float[Array, " centres"]:
    """The kernel of squared distances; its derivatives are right also at distance 0, where the root has none."""
    return MATERN[smoothness](_distance(squares), jnp.exp)


@_matern.defjvp
def _matern_jvp(smoothness: str, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (squares,), (tangent,) = primals, tangents
    return _matern(smoothness, squares), SLOPES[smoothness](_distance(squares), jnp) * tangent


@runtime_checkable
class Estimator(Protocol):
    """A regressor in the sense of scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


class PredictOnlyBranch(eqx.Module):
    """A fitted estimator as a branch. It only predicts: no `jit`, `grad`, saving or export."""

    estimator: Estimator = eqx.field(static=True)

    @property
    def inputs(self) -> int | None:
        """The number of inputs, if the estimator knows it."""
        return getattr(self.estimator, "n_features_in_", None)

    def __call__(self, x: Float[AnyArray, "samples features"]) -> Float[AnyArray, "samples coefficients"]:
        if isinstance(x, Tracer):
            raise PredictOnlyError(self.refusal("traced by jit, vmap or grad; call operator.predict instead"))
        values = np.asarray(self.estimator.predict(np.asarray(x)))
        return namespace(x).asarray(values.reshape(len(x), -1), x.dtype)

    def refusal(self, what: str) -> str:
        """The message that refuses `what`."""
        return (
            f"the branch of this operator is a {type(self.estimator).__name__}, which predicts only: it cannot be "
            f"{what}, or fit the branch with a regressor of this library"
        )


Branch: TypeAlias = Perceptron | StackedBranch | FeatureBranch | KernelBranch | GridBranch | PredictOnlyBranch


def make_branch(
    architecture: Sequence[int],
    *,
    stacked: bool = False,
    activation: str = "relu",
    initialisation: str = "he",
    dtype: jnp.dtype | type = jnp.float64,
    key: PRNGKeyArray,
) -> Branch:
    """A branch of the paper's form (sensors, n_1, ..., N + 1), or a stack of N + 1 (sensors, n_1, ..., 1)."""

    def make(key: PRNGKeyArray, widths: Sequence[int]) -> Perceptron:
        return make_perceptron(widths, activation=activation, initialisation=initialisation, dtype=dtype, key=key)

    if not stacked:
        return make(key, architecture)
    *hidden, coefficients = architecture
    return StackedBranch(jax.vmap(lambda k: make(k, (*hidden, 1)))(jr.split(key, coefficients)))


def make_product(
    groups: Sequence[int],
    hidden: Sequence[int],
    *,
    activation: str,
    initialisation: str,
    dtype: jnp.dtype | type,
    key: PRNGKeyArray,
) -> ProductFeatures:
    """A network (group, hidden ...) for each group, with outputs near 1, so that products keep their size."""
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
    """Convolutions with these numbers of channels and a dense layer of `width`, with He's variance."""
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
