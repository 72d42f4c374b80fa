"""The multilayer perceptron, and the functions of trunks: made of one, principal modes, moving with the input."""

import abc
import dataclasses as dc
import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from pydantic import AfterValidator

from ..device_arrays import normal, split_key, to_device
from ..encoders import AbstractEncoder, AnyArray, Identity, is_inexact
from ..errors import UnknownNameError, UsageError, ValueRangeError
from ..memory import check_network
from .interpolants import AbstractInterpolation

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
    """The activation; for ReLU with its kink replaced by a parabola from -radius to radius."""
    if activation != "relu":
        return ACTIVATIONS[activation]

    def sigma(x: Array) -> Array:
        r = jnp.maximum(radius.astype(x.dtype), jnp.finfo(x.dtype).tiny)  # radius 0 is ReLU itself
        return jnp.clip(x + r, 0, 2 * r) ** 2 / (4 * r) + jnp.maximum(x - r, 0)

    return sigma


# Variance of the weights between layers of widths n_in and n_out.
INITIALISATIONS: dict[str, Callable[[int, int], float]] = {
    "he": lambda n_in, n_out: 2 / n_in,
    "xavier": lambda n_in, n_out: 2 / (n_in + n_out),
}


class Perceptron(eqx.Module):
    """z^1 = W^1 x + b^1, z^l = W^l sigma(z^(l-1)) + b^l; no activation on the output.

    Maps batches (..., n_0) to (..., n_L).
    """

    weights: tuple[Float[AnyArray, "... _ _"], ...]
    biases: tuple[Float[AnyArray, "... _"], ...]
    activation: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        _checked_activation(self.activation)

    def __call__(
        self, x: Float[AnyArray, "*batch n_in"], sigma: Activation | None = None
    ) -> Float[AnyArray, "*batch n_out"]:
        return self.hidden(x, sigma) @ self.weights[-1].T + self.biases[-1].reshape((1,) * (x.ndim - 1) + (-1,))

    def hidden(
        self, x: Float[AnyArray, "*batch n_in"], sigma: Activation | None = None
    ) -> Float[AnyArray, "*batch n_hidden"]:
        """The last hidden layer after its activation, or after another one, `sigma`."""
        sigma = sigma or ACTIVATIONS[self.activation]
        for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = sigma(x @ W.T + b.reshape((1,) * (x.ndim - 1) + (-1,)))
        return x

    @property
    def inputs(self) -> int:
        """The number of inputs."""
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
    rows: int = 1,
    key: PRNGKeyArray,
) -> Perceptron:
    """A perceptron with normal weights of He's or Xavier's variance and zero biases.

    `architecture` is the paper's vector, e.g. (2, 50, 50, 50, 50): two inputs, three hidden layers, 50 outputs.
    `rows` is the number of inputs that it will be evaluated at together. Raises a `ValueRangeError` for widths
    below 1, an `UnknownNameError` for unknown names and a `MemoryNeedError` for widths that do not fit.
    """
    if len(architecture) < 2 or any(width < 1 for width in architecture):
        raise ValueRangeError(f"architecture is {tuple(architecture)}; expected two or more positive widths")
    _checked_activation(activation)
    _checked_initialisation(initialisation)
    check_network(architecture, rows, bytes_per_number=jnp.dtype(dtype).itemsize)
    variance = INITIALISATIONS[initialisation]
    layers = list(itertools.pairwise(architecture))
    keys = split_key(key, len(layers))
    weights = tuple(
        to_device(normal(k, (n_out, n_in), dtype) * np.asarray(variance(n_in, n_out) ** 0.5, dtype))
        for k, (n_in, n_out) in zip(keys, layers, strict=True)
    )
    return Perceptron(weights, tuple(to_device(np.zeros(n_out, dtype)) for _, n_out in layers), activation)


def side_by_side(networks: Sequence[Perceptron]) -> Perceptron:
    """One network with the outputs of several of the same input and depth: its layers are block diagonal."""
    first, *others = zip(*(network.weights for network in networks), strict=True)
    weights = (jnp.concatenate(first), *(jsl.block_diag(*layer) for layer in others))
    biases = tuple(jnp.concatenate(layer) for layer in zip(*(network.biases for network in networks), strict=True))
    return Perceptron(weights, biases, networks[0].activation)


def _checked_activation(activation: str) -> str:
    if activation not in ACTIVATIONS:
        raise UnknownNameError("activation", activation, tuple(ACTIVATIONS))
    return activation


def _checked_initialisation(initialisation: str) -> str:
    if initialisation not in INITIALISATIONS:
        raise UnknownNameError("initialisation", initialisation, tuple(INITIALISATIONS))
    return initialisation


ActivationName: TypeAlias = Annotated[str, AfterValidator(_checked_activation)]
InitialisationName: TypeAlias = Annotated[str, AfterValidator(_checked_initialisation)]


def count_parameters(module: eqx.Module) -> int:
    """The number of trainable parameters of a module."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(module, is_inexact)))


class AbstractFunctions(eqx.Module):
    """The functions phi(y) of a trunk."""

    depends_on_input: ClassVar[bool] = False

    def __call__(self, points: Float[Array, "points coordinates"]) -> Float[Array, "points functions"]:
        return self.functions(points)

    @abc.abstractmethod
    def functions(
        self, points: Float[Array, "points coordinates"], features: Array | None = None
    ) -> Float[Array, "points functions"]:
        """All functions at the points; `features` of an input are for trunks with `depends_on_input`."""

    @property
    @abc.abstractmethod
    def coordinates(self) -> int:
        """The number of coordinates of a point."""

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """The number of functions."""

    @property
    def effective_width(self) -> int:
        """The most functions besides a constant that can be independent."""
        return self.count

    @property
    @abc.abstractmethod
    def dtype(self) -> np.dtype:
        """The precision of the functions."""

    @property
    @abc.abstractmethod
    def encoder(self) -> AbstractEncoder:
        """What happens to a point before the functions see it."""

    @abc.abstractmethod
    def after(self, encoder: AbstractEncoder) -> "AbstractFunctions":
        """The same functions of points that `encoder` encodes first, where it is meant for them."""


class Trunk(AbstractFunctions):
    """phi(y) = (1, phi_1(y), ..., phi_N(y)); `network` gives the last N from the encoded point."""

    network: Perceptron
    encoder: AbstractEncoder = Identity()  # pyright: ignore[reportIncompatibleMethodOverride]

    def functions(
        self, points: Float[Array, "points coordinates"], features: Array | None = None
    ) -> Float[Array, "points functions"]:
        del features
        functions = self.network(self.encoder(points))
        return jnp.concatenate([jnp.ones((len(points), 1), functions.dtype), functions], axis=1)

    def after(self, encoder: AbstractEncoder) -> "Trunk":
        return Trunk(self.network, encoder)

    @property
    def coordinates(self) -> int:
        return self.network.architecture[0] if self.encoder.sensors is None else self.encoder.sensors

    @property
    def count(self) -> int:
        return self.width + 1

    @property
    def dtype(self) -> np.dtype:
        return self.network.weights[0].dtype

    @property
    def width(self) -> int:
        """N, the number of functions besides the constant."""
        return self.network.architecture[-1]

    @property
    def effective_width(self) -> int:
        """The last hidden width, or N."""
        *_, hidden, width = self.network.architecture
        return min(width, hidden) if len(self.network.architecture) > 2 else width

    def __str__(self) -> str:
        return f"network {self.network.architecture}"


class Modes(AbstractFunctions):
    """Functions given by their values at the training points, exact there and interpolated between them."""

    interpolation: AbstractInterpolation

    def functions(
        self, points: Float[Array, "points coordinates"], features: Array | None = None
    ) -> Float[Array, "points functions"]:
        del features
        return self.interpolation(points)

    def values(self, points: Float[np.ndarray, "points coordinates"]) -> Float[np.ndarray, "points functions"]:
        """The same in NumPy: a program would have to be compiled for every table of modes."""
        return jax.tree.map(np.asarray, self.interpolation)(points)

    def after(self, encoder: AbstractEncoder) -> "Modes":
        """Modes are functions of the physical coordinates."""
        del encoder
        return self

    @property
    def encoder(self) -> AbstractEncoder:
        return Identity()

    @property
    def coordinates(self) -> int:
        return self.interpolation.coordinates

    @property
    def count(self) -> int:
        return self.interpolation.functions

    @property
    def dtype(self) -> np.dtype:
        return self.interpolation.dtype

    def __str__(self) -> str:
        return f"{self.count} modes"


# -- functions that move with the input


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


def moving_side_by_side(members: Sequence[MovingFunctions]) -> MovingFunctions:
    """The functions of all members, with one constant. Fronts are a member's own, and so is z unless it is f."""
    first, latents = members[0], [each.latent for each in members if each.latent is not None]
    latent = None
    if latents:
        matrix = jnp.concatenate([each.matrix for each in latents], axis=1)
        latent = Latent(matrix, side_by_side([each.network for each in latents]))
    ends = np.cumsum([first.levels.inputs - first.numbers, first.numbers, len(first.log_slopes)])
    own = (False, bool(latents), True, True)
    return MovingFunctions(
        _side_by_side([each.levels for each in members], ends[:1], own[:2]),
        jnp.concatenate([each.log_slopes for each in members]),
        _side_by_side([each.network for each in members], ends, own),
        first.numbers * max(len(latents), 1),
        latent,
        first.encoder,
    )


def _side_by_side(networks: Sequence[Perceptron], ends: np.ndarray, own: Sequence[bool]) -> Perceptron:
    """Networks of which each part of the inputs, up to these ends, is one for each or the same for all."""
    parts = zip(*(jnp.split(network.weights[0], ends, axis=1) for network in networks), strict=True)
    columns = [jsl.block_diag(*W) if is_own else jnp.concatenate(W) for W, is_own in zip(parts, own, strict=True)]
    whole = side_by_side(networks)
    return dc.replace(whole, weights=(jnp.concatenate(columns, axis=1), *whole.weights[1:]))


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
