"""The operator: everything that is needed to predict, in physical units."""

from collections.abc import Mapping
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, PrecisionError, UsageError
from ._branch import Branch
from ._encoders import AbstractEncoder
from ._perceptron import Perceptron
from ._predict_only import PredictOnlyBranch
from ._trunk import Trunk

# Checked by hand, with messages for people: this is where they come in.
Inputs: TypeAlias = Array | np.ndarray | Mapping[str, Array | np.ndarray]
Points: TypeAlias = Array | np.ndarray

# Numbers a block of predictions may hold: 2^24 doubles are 128 MiB.
_BLOCK_NUMBERS = 2**24


class Operator(eqx.Module):
    """u(y) = phi(y)^T T c(f): the trunk phi, the transform T, and the branch c behind its encoder.

    A frozen pytree: it works under `jax.jit`, `jax.vmap` and `jax.grad`. `operator.predict` is the same for
    people with NumPy arrays.
    """

    encoder: AbstractEncoder
    branch: Branch
    trunk: Trunk
    transform: Float[Array, "functions rank"] | None = None
    """T; None stands for the identity."""
    input_names: tuple[str, ...] = eqx.field(static=True, default=("input",))

    def __call__(self, inputs: Inputs, points: Points) -> Float[Array, "samples points"]:
        """Output fields of `inputs` (samples, sensors) at `points` (points, coordinates).

        Several input functions come as a mapping by name.
        """
        return self.coefficients(inputs) @ self.basis(points).T

    def coefficients(self, inputs: Inputs) -> Float[Array, "samples rank"]:
        """c(f), the coefficients in the basis."""
        return self.branch(self.encoder(self._array("inputs", self._side_by_side(inputs), self.sensors)))

    def basis(self, points: Points) -> Float[Array, "points rank"]:
        """phi(y)^T T, the basis functions at the points."""
        functions = self.trunk(self._array("points", points, self.trunk.network.architecture[0]))
        return functions if self.transform is None else functions @ self.transform

    def fold(self) -> "Operator":
        """The same operator as a standard DeepONet: T moved into the branch's last layer, T W and T b."""
        if self.transform is None:
            return self
        if not isinstance(self.branch, Perceptron):
            raise UsageError("only an unstacked branch can take the transform into its last layer")
        *weights, W = self.branch.weights
        *biases, b = self.branch.biases
        with jax.enable_x64(self.dtype == jnp.float64):
            W, b = self.transform @ W, self.transform @ b
        branch = Perceptron((*weights, W), (*biases, b), self.branch.activation)
        return Operator(self.encoder, branch, self.trunk, None, self.input_names)

    def predict(self, inputs: Inputs, points: Points) -> Float[np.ndarray, "samples points"]:
        """Like calling the operator, but from NumPy to NumPy, in blocks of samples so that memory is bounded.

        Opens double precision by itself where the operator is in double precision.
        """
        with jax.enable_x64(self.dtype == jnp.float64):
            inputs = np.asarray(self._side_by_side(inputs))
            basis = eqx.filter_jit(Operator.basis)(self, points)
            block = max(1, _BLOCK_NUMBERS // len(basis))
            expand = _expand if isinstance(self.branch, PredictOnlyBranch) else _expand_compiled
            parts = [
                np.asarray(expand(self, inputs[start : start + block], basis))
                for start in range(0, len(inputs), block)
            ]
        return np.concatenate(parts)

    @property
    def sensors(self) -> int | None:
        """How many numbers an input has; None where neither encoder nor branch tells."""
        if self.encoder.sensors is not None:
            return self.encoder.sensors
        return self.branch.architecture[0] if isinstance(self.branch, Perceptron) else None

    @property
    def dtype(self) -> np.dtype:
        """Precision of the weights."""
        return self.trunk.network.weights[0].dtype

    def _side_by_side(self, inputs: Inputs) -> Array | np.ndarray:
        if not isinstance(inputs, Mapping):
            return inputs
        if set(inputs) != set(self.input_names):
            raise DataError(f"inputs: expected {', '.join(self.input_names)}; got {', '.join(inputs)}")
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


def _expand(operator: Operator, inputs: Array | np.ndarray, basis: Array) -> Array:
    return operator.coefficients(inputs) @ basis.T


_expand_compiled = eqx.filter_jit(_expand)
