"""A DeepONet: trunk, transform and branch with what encodes their inputs, as pure functions for JAX."""

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..data.operator_data import values_of
from ..encoders import AbstractEncoder, to_host
from ..errors import DataError, PrecisionError, UsageError
from ..linear.blocked_qr import row_blocks
from ..outputs import OutputMap
from .branches import Branch, FeatureBranch, KernelBranch, PredictOnlyBranch
from .layers import AbstractFunctions, Modes, Perceptron
from .training_domain import check_names

# The most numbers in a block of predictions: 2^24 doubles are 128 MiB.
_BLOCK_NUMBERS = 2**24

_Network = TypeVar("_Network", bound="DeepONet")

# Lists or arrays of numbers; checked in the methods, with messages that name the array and the axis.
Inputs: TypeAlias = Any
Points: TypeAlias = Any
Fields: TypeAlias = Float[Array, "samples points"] | Float[Array, "samples points channels"]


class DeepONet(eqx.Module):
    """u(y) = phi(y)^T T c(f): the trunk phi, the transform T, and the branch c of the encoded input f.

    Several output channels share the trunk; each has its own `rank` coefficients. An `output` map leads from there
    to the physical output.
    """

    encoder: AbstractEncoder
    branch: Branch
    trunk: AbstractFunctions
    transform: Float[Array, "functions rank"] | None = None
    """T; None is the identity."""
    input_names: tuple[str, ...] = eqx.field(static=True, default=("input",))
    output: OutputMap | None = None
    """None is the identity."""
    channels: int | None = eqx.field(static=True, default=None)
    """The number of channels; None for fields without an axis of channels."""

    def __call__(self, inputs: Inputs, points: Points) -> Fields:
        """Output fields of `inputs` (samples, sensors) at `points` (points, coordinates), as JAX arrays.

        `inputs` may be a mapping from the names of the input functions to arrays.
        """
        features = self.features(inputs)
        return self.fields(self.branch(features), self.basis(points, features), points)

    def features(self, inputs: Inputs) -> Float[Array, "samples features"]:
        """f, the encoded inputs."""
        inputs = values_of(inputs)
        if isinstance(inputs, Mapping):
            check_names(inputs, self.input_names)
            inputs = jnp.concatenate([self.array(name, inputs[name], None) for name in self.input_names], axis=1)
        return self.encoder(self.array("inputs", inputs, self.sensors))

    def coefficients(self, inputs: Inputs) -> Float[Array, "samples rank"]:
        """c(f), the coefficients in the basis; those of several channels one after the other."""
        return self.branch(self.features(inputs))

    def fields(self, coefficients: Array, basis: Array, points: Points) -> Fields:
        """The physical output of these coefficients, for `basis` = `self.basis(points)`.

        A basis that depends on the input has an axis of samples first.
        """
        by_channel = coefficients.reshape(len(coefficients), self.channels or 1, -1)
        if basis.ndim == 3:
            raw = basis @ jnp.swapaxes(by_channel, 1, 2)
            raw = jnp.sum(raw, axis=-1) if self.channels is None else raw  # of one channel
        elif self.channels is None:
            raw = coefficients @ basis.T
        else:
            raw = jnp.einsum("kcr,pr->kpc", by_channel, basis)
        return raw if self.output is None else self.output(raw, self.array("points", points, None))

    def basis(
        self, points: Points, features: Float[Array, "samples features"] | None = None
    ) -> Float[Array, "*samples points rank"]:
        """phi(y)^T T, the basis functions at the points.

        Where the trunk `depends_on_input` they are those of every input, `features` = `self.features(inputs)`.
        """
        functions = self.trunk.functions(self.array("points", points, self.trunk.coordinates), features)
        return functions if self.transform is None else functions @ self.transform

    def fold(self: _Network) -> _Network:
        """The same operator as a standard DeepONet: T moved into the branch's last layer, T W and T b."""
        if self.transform is None:
            return self
        with jax.enable_x64(self.dtype == jnp.float64):
            T = self.transform if self.channels is None else jnp.kron(jnp.eye(self.channels), self.transform)
            branch = _with_last_layer_times(self.branch, T)
        return dc.replace(self, branch=branch, transform=None)

    @property
    def sensors(self) -> int | None:
        """The number of values of an input; None if neither the encoder nor a foreign estimator knows it."""
        return self.branch.inputs if self.encoder.sensors is None else self.encoder.sensors

    @property
    def rank(self) -> int:
        """The number of basis functions."""
        return self.trunk.count if self.transform is None else self.transform.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The precision of the weights."""
        return self.trunk.dtype

    @property
    def layer_width(self) -> int:
        """Floats at a point and for a sample while a basis that depends on the input is computed."""
        widths = [leaf.size for leaf in jax.tree.leaves(self.trunk) if leaf.ndim == 1]
        return max(widths) if self.trunk.depends_on_input else 1

    def array(self, name: str, value: ArrayLike, columns: int | None) -> Array:
        """For JAX, where values are not known yet: checks of precision and sizes alone."""
        if self.dtype == jnp.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            raise PrecisionError(
                "this operator is in double precision, which JAX has switched off; "
                'add jax.config.update("jax_enable_x64", True) at the top of your program, '
                "or call operator.predict(inputs, points)"
            )
        array = jnp.asarray(value, self.dtype)
        if array.ndim != 2:
            raise DataError(f"{name}: expected 2 axes (one row each), got shape {array.shape}")
        if columns is not None and array.shape[1] != columns:
            raise DataError(f"{name}: expected {columns} columns on axis 1, as in training, got {array.shape[1]}")
        return array


def _with_last_layer_times(branch: Branch, T: Array) -> Branch:
    if isinstance(branch, FeatureBranch):
        return FeatureBranch(branch.features, T @ branch.weight, T @ branch.bias)
    if not isinstance(branch, Perceptron):
        raise UsageError("only an unstacked branch with one last layer can take the transform into it")
    *weights, W = branch.weights
    *biases, b = branch.biases
    return Perceptron((*weights, T @ W), (*biases, T @ b), branch.activation)


def sample_blocks(count: int, numbers: int) -> list[slice]:
    """Blocks of samples, `numbers` floats each sample."""
    size = max(1, _BLOCK_NUMBERS // numbers)
    return [slice(start, start + size) for start in range(0, count, size)]


def fields_at(network: DeepONet, inputs: Inputs, basis: Array | None, points: Points) -> Array:
    """Output fields, with the basis at the points where it is known already."""
    if basis is None:
        return network(inputs, points)
    return network.fields(network.coefficients(inputs), basis, points)


@eqx.filter_jit
def sensitivities(network: DeepONet, inputs: Array, basis: Array | None, points: Points) -> Array:
    """Derivatives of the outputs of one sample by its inputs, on the last axis."""
    return jax.jacfwd(lambda x: fields_at(network, x[None], basis, points)[0])(inputs)


# -- closed forms, in NumPy: a program would have to be compiled for every table of modes


def is_closed_form(network: DeepONet) -> bool:
    """Whether NumPy computes all of it: modes, and a branch that is linear, of kernels, or an estimator."""
    branch = network.branch
    is_linear = isinstance(branch, Perceptron) and len(branch.weights) == 1
    return isinstance(network.trunk, Modes) and (is_linear or isinstance(branch, KernelBranch | PredictOnlyBranch))


def closed_form_fields(
    network: DeepONet, inputs: np.ndarray, points: np.ndarray, blocks: Sequence[slice]
) -> np.ndarray:
    """The outputs of a closed form, `network(inputs, points)`, a block of samples at a time."""
    basis, coefficients = _modes_on_host(network, points), _coefficients_on_host(network, inputs)
    return np.concatenate([_fields_on_host(network, coefficients[b], basis, points) for b in blocks])


def _coefficients_on_host(network: DeepONet, inputs: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        features = np.asarray(to_host(network.encoder)(np.asarray(inputs, network.dtype)))
        return np.asarray(to_host(network.branch)(features))


def _modes_on_host(network: DeepONet, points: np.ndarray) -> np.ndarray:
    """The basis of modes."""
    assert isinstance(network.trunk, Modes)
    values = np.concatenate([network.trunk.values(points[block]) for block in row_blocks(len(points))])
    return values if network.transform is None else values @ np.asarray(network.transform)


def _fields_on_host(
    network: DeepONet, coefficients: np.ndarray, basis: np.ndarray, points: np.ndarray
) -> np.ndarray:
    """`network.fields`; basis and points are those of all samples, or have an axis of samples first."""
    coefficients, shape = coefficients.astype(network.dtype), (len(coefficients), network.channels or 1, -1)
    if basis.ndim == 3:
        raw = basis @ coefficients.reshape(shape).swapaxes(1, 2)
    else:
        raw = (coefficients.reshape(-1, basis.shape[1]) @ basis.T).reshape(shape).swapaxes(1, 2)
    raw = raw[..., 0] if network.channels is None else raw
    if network.output is None:
        return raw
    output, places = to_host(network.output), np.asarray(points, network.dtype)
    with np.errstate(all="ignore"):
        if points.ndim == 2:
            return output(raw, places)
        return np.concatenate([output(raw[sample : sample + 1], own) for sample, own in enumerate(places)])


# -- every sample at its own points


def predict_at_own_points(network: DeepONet, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The outputs of every sample at its own points."""
    if is_closed_form(network):
        return scattered_fields(network, _coefficients_on_host(network, inputs), points)
    features = network.features(inputs)
    return scattered_fields(network, np.asarray(network.branch(features)), points, features)


def scattered_fields(
    network: DeepONet, coefficients: np.ndarray, points: np.ndarray, features: Array | None = None
) -> np.ndarray:
    """The same of these coefficients; a trunk that moves with the input needs the encoded inputs, `features`."""
    blocks = sample_blocks(len(points), points.shape[1] * network.trunk.count)
    if isinstance(network.trunk, Modes):
        return np.concatenate([_modes_at_own_points(network, coefficients[b], points[b]) for b in blocks])
    parts = [
        (jnp.asarray(coefficients[b]), jnp.asarray(points[b]), None if features is None else features[b])
        for b in blocks
    ]
    return np.concatenate([np.asarray(_fields_at_own_points(network, *part)) for part in parts])


def _modes_at_own_points(network: DeepONet, coefficients: np.ndarray, points: np.ndarray) -> np.ndarray:
    basis = _modes_on_host(network, points.reshape(-1, points.shape[2]))
    return _fields_on_host(network, coefficients, basis.reshape(*points.shape[:2], -1), points)


@eqx.filter_jit
def _fields_at_own_points(network: DeepONet, coefficients: Array, points: Array, features: Array | None) -> Array:
    def field(c: Array, y: Array, f: Array | None) -> Array:
        return network.fields(c[None], network.basis(y, None if f is None else f[None]), y)[0]

    return jax.vmap(field)(coefficients, points, features)


@eqx.filter_jit
def slopes(network: DeepONet, coefficients: Array, features: Array, points: Array) -> Array:
    """Derivatives by the coordinates. An output depends only on its own point, so one tangent moves them all."""

    def along(direction: Array) -> Array:
        tangents = jnp.broadcast_to(direction[None], points.shape)
        return jax.jvp(
            lambda y: network.fields(coefficients, network.basis(y, features), y), (points,), (tangents,)
        )[1]

    return jax.vmap(along, out_axes=-1)(jnp.eye(points.shape[1], dtype=points.dtype))


def bounded_basis(network: DeepONet, points: Points) -> Float[np.ndarray, "points rank"]:
    """The basis functions at the points as a measurement sees them: times d(y) where boundary values are fixed."""
    with jax.enable_x64(network.dtype == jnp.float64):
        basis = np.asarray(network.basis(points), float)
        if network.output is None or network.output.boundary is None:
            return basis
        return basis * np.asarray(network.output.boundary(jnp.asarray(points)), float)[:, None]


compiled_fields = eqx.filter_jit(fields_at)
