"""The operator: everything that is needed to predict, in physical units."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..encoders import AbstractEncoder
from ..errors import DataError, PrecisionError, UsageError
from ..output_map import OutputMap
from ._branch import Branch
from ._features import FeatureBranch
from ._perceptron import Perceptron
from ._predict_only import PredictOnlyBranch
from ._trunk import Trunk

# Checked by hand, with messages for people: this is where they come in.
Inputs: TypeAlias = Array | np.ndarray | Mapping[str, Array | np.ndarray]
Points: TypeAlias = Array | np.ndarray
Fields: TypeAlias = Float[Array, "samples points"] | Float[Array, "samples points channels"]

# Numbers a block of predictions may hold: 2^24 doubles are 128 MiB.
_BLOCK_NUMBERS = 2**24


class Operator(eqx.Module):
    """u(y) = phi(y)^T T c(f): the trunk phi, the transform T, and the branch c behind its encoder.

    Several output channels share the trunk; each has its own `rank` coefficients. An `output` map leads from
    there to the physical output.

    A frozen pytree: it works under `jax.jit`, `jax.vmap` and `jax.grad`. `operator.predict` is the same for
    people with NumPy arrays.

    >>> import numpy as np
    >>> import trunkfirst as tf
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = tf.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> trunk = tf.ProjectedTrunk(tf.TrunkSettings((1, 20, 6), "tanh", "xavier"), iterations=50, starts=1)
    >>> operator = tf.fit(data.take(slice(0, 30)), tf.TwoStep(trunk, tf.LinearRidge())).operator
    >>> operator.predict(a[:3], np.linspace(0, 1, 200)[:, None]).shape  # any points
    (3, 200)
    >>> operator.gradient(a[:3], x[:, None]).shape  # one derivative for each coordinate
    (3, 30, 1)
    """

    encoder: AbstractEncoder
    branch: Branch
    trunk: Trunk
    transform: Float[Array, "functions rank"] | None = None
    """T; None stands for the identity."""
    input_names: tuple[str, ...] = eqx.field(static=True, default=("input",))
    output: OutputMap | None = None
    """None stands for the identity."""
    channels: int | None = eqx.field(static=True, default=None)
    """How many channels the output has; None for a field without an axis of channels."""

    def __call__(self, inputs: Inputs, points: Points) -> Fields:
        """Output fields of `inputs` (samples, sensors) at `points` (points, coordinates).

        Several input functions come as a mapping by name.
        """
        return self.fields(self.coefficients(inputs), self.basis(points), points)

    def coefficients(self, inputs: Inputs) -> Float[Array, "samples rank"]:
        """c(f), the coefficients in the basis; those of several channels side by side."""
        return self.branch(self.encoder(self._array("inputs", self._side_by_side(inputs), self.sensors)))

    def fields(self, coefficients: Array, basis: Array, points: Points) -> Fields:
        """The physical output of these coefficients, for `basis` = `self.basis(points)`."""
        if self.channels is None:
            raw = coefficients @ basis.T
        else:
            by_channel = coefficients.reshape(len(coefficients), self.channels, -1)
            raw = jnp.einsum("kcr,pr->kpc", by_channel, basis)
        return raw if self.output is None else self.output(raw, self._array("points", points, None))

    def basis(self, points: Points) -> Float[Array, "points rank"]:
        """phi(y)^T T, the basis functions at the points."""
        functions = self.trunk(self._array("points", points, self.trunk.coordinates))
        return functions if self.transform is None else functions @ self.transform

    def fold(self) -> "Operator":
        """The same operator as a standard DeepONet: T moved into the branch's last layer, T W and T b."""
        if self.transform is None:
            return self
        with jax.enable_x64(self.dtype == jnp.float64):
            T = self.transform if self.channels is None else jnp.kron(jnp.eye(self.channels), self.transform)
            branch = _with_last_layer_times(self.branch, T)
        return eqx.tree_at(lambda o: (o.branch, o.transform), self, (branch, None), is_leaf=lambda x: x is None)

    def predict(self, inputs: Inputs, points: Points) -> np.ndarray:
        """Like calling the operator, but from NumPy to NumPy, in blocks of samples so that memory is bounded.

        Opens double precision by itself where the operator is in double precision.
        """
        with jax.enable_x64(self.dtype == jnp.float64):
            inputs = np.asarray(self._side_by_side(inputs))
            basis = eqx.filter_jit(Operator.basis)(self, points)
            block = max(1, _BLOCK_NUMBERS // (len(basis) * (self.channels or 1)))
            expand = _expand if isinstance(self.branch, PredictOnlyBranch) else _expand_compiled
            parts = [
                np.asarray(expand(self, inputs[start : start + block], basis, points))
                for start in range(0, len(inputs), block)
            ]
        return np.concatenate(parts)

    def gradient(self, inputs: Inputs, points: Points) -> np.ndarray:
        """Derivatives of the outputs with respect to the coordinates of the points, from NumPy to NumPy.

        (samples, points, coordinates), with channels (samples, points, channels, coordinates): exact derivatives
        of the networks, in blocks of samples so that memory is bounded. At a kink of a ReLU trunk it is the slope
        of one side. Opens double precision by itself, as `predict` does.
        """
        with jax.enable_x64(self.dtype == jnp.float64):
            coefficients = np.asarray(self.coefficients(np.asarray(self._side_by_side(inputs))))
            at = self._array("points", points, self.trunk.coordinates)
            block = max(1, _BLOCK_NUMBERS // (at.size * (self.channels or 1)))
            parts = [
                np.asarray(_slopes(self, jnp.asarray(coefficients[start : start + block]), at))
                for start in range(0, len(coefficients), block)
            ]
        return np.concatenate(parts)

    def predict_scattered(self, inputs: Inputs, points: Points) -> np.ndarray:
        """Like `predict`, with points (samples, points, coordinates) of its own for every sample."""
        with jax.enable_x64(self.dtype == jnp.float64):
            return self.scattered_fields(np.asarray(self.coefficients(inputs)), points)

    def scattered_fields(self, coefficients: np.ndarray, points: Points) -> np.ndarray:
        """The physical outputs of these coefficients, for every sample at its own points."""
        block = max(1, _BLOCK_NUMBERS // (points.shape[1] * max(self.trunk.width, 1)))
        parts = [
            np.asarray(
                _scattered(self, jnp.asarray(coefficients[i : i + block]), jnp.asarray(points[i : i + block]))
            )
            for i in range(0, len(points), block)
        ]
        return np.concatenate(parts)

    @property
    def sensors(self) -> int | None:
        """How many numbers an input has; None where neither the encoder nor somebody else's branch tells."""
        return self.branch.inputs if self.encoder.sensors is None else self.encoder.sensors

    @property
    def dtype(self) -> np.dtype:
        """Precision of the weights."""
        return self.trunk.network.weights[0].dtype

    def check_names(self, inputs: Collection[str]) -> None:
        """The input functions must be those of training."""
        if set(inputs) != set(self.input_names):
            raise DataError(f"inputs: expected {', '.join(self.input_names)}; got {', '.join(inputs)}")

    def _side_by_side(self, inputs: Inputs) -> Array | np.ndarray:
        if not isinstance(inputs, Mapping):
            return inputs
        self.check_names(inputs)
        return jnp.concatenate([self._array(name, inputs[name], None) for name in self.input_names], axis=1)

    def _array(self, name: str, value: Array | np.ndarray, columns: int | None) -> Array:
        if self.dtype == jnp.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
            raise PrecisionError(
                "this operator is in double precision, which JAX has switched off; "
                'add jax.config.update("jax_enable_x64", True) at the top of your program, '
                "or call operator.predict(inputs, points)"
            )
        if value.ndim != 2:
            raise DataError(f"{name}: expected 2 axes (one row each), got shape {tuple(value.shape)}")
        if columns is not None and value.shape[1] != columns:
            raise DataError(f"{name}: expected {columns} numbers a row, as in training, got {value.shape[1]}")
        return jnp.asarray(value, self.dtype)


def _with_last_layer_times(branch: Branch, T: Array) -> Branch:
    if isinstance(branch, FeatureBranch):
        return FeatureBranch(branch.features, T @ branch.weight, T @ branch.bias)
    if not isinstance(branch, Perceptron):
        raise UsageError("only an unstacked branch with one last layer can take the transform into it")
    *weights, W = branch.weights
    *biases, b = branch.biases
    return Perceptron((*weights, T @ W), (*biases, T @ b), branch.activation)


def _expand(operator: Operator, inputs: Array | np.ndarray, basis: Array, points: Points) -> Array:
    return operator.fields(operator.coefficients(inputs), basis, points)


@eqx.filter_jit
def _scattered(operator: Operator, coefficients: Array, points: Array) -> Array:
    return jax.vmap(lambda c, y: operator.fields(c[None], operator.basis(y), y)[0])(coefficients, points)


@eqx.filter_jit
def _slopes(operator: Operator, coefficients: Array, points: Array) -> Array:
    """An output depends on its own point alone: one tangent moves all points along a coordinate at once."""

    def along(direction: Array) -> Array:
        tangents = jnp.broadcast_to(direction[None], points.shape)
        return jax.jvp(lambda y: operator.fields(coefficients, operator.basis(y), y), (points,), (tangents,))[1]

    return jax.vmap(along, out_axes=-1)(jnp.eye(points.shape[1], dtype=points.dtype))


_expand_compiled = eqx.filter_jit(_expand)
