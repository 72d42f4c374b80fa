"""Separable least squares: features(parameters) x free coefficients = targets.

With the coefficients solved for (variable projection, Golub and Pereyra 1973) only the parameters inside the
features remain. Step 1: features are the trunk functions at the output points. Step 2: the last hidden layer of
the branch at the inputs.
"""

import abc
import functools as ft
from collections.abc import Callable, Iterable
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from ..device_arrays import to_device
from ..distributed.processes import sum_over_processes
from .loop import AbstractObjective, Parameters

_Sums: TypeAlias = tuple[np.ndarray, ...]
_Block: TypeAlias = tuple[Float[np.ndarray, "rows columns"], Float[np.ndarray, "rows outputs"]]
_Blocks: TypeAlias = Callable[[], Iterable[_Block]]


class AbstractFeatures(eqx.Module):
    """Phi as a function of the parameters; a module, so that its arrays are data for the compiler."""

    @abc.abstractmethod
    def __call__(self, parameters: Parameters) -> Float[Array, "rows columns"]:
        """Phi (rows, columns)."""


class SeparableProblem(AbstractObjective):
    """F(parameters) = min over A of |Phi A - B|^2 + ridge^2 |A|^2, divided by `scale`, + decay |parameters|^2.

    `features(parameters)` returns Phi (rows, columns); `targets` is B (rows, outputs); both include the weights of
    rows. By the envelope theorem the gradient is that of |Phi A - B|^2 + ridge^2 |A|^2 at the solved A, held
    fixed: no factorisation is ever differentiated.
    """

    features: AbstractFeatures
    targets: Float[Array, "rows outputs"]
    # Arrays, so that other numbers do not recompile.
    ridge: Float[Array, ""] = eqx.field(converter=to_device, default=1e-3)
    scale: Float[Array, ""] = eqx.field(converter=to_device, default=1.0)
    decay: Float[Array, ""] = eqx.field(converter=to_device, default=0.0)

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        ridge, scale, decay = (number.astype(Phi.dtype) for number in (self.ridge, self.scale, self.decay))
        A = jax.lax.stop_gradient(solve_ridge(Phi, self.targets, ridge))
        squares = jnp.sum((Phi @ A - self.targets) ** 2) + ridge**2 * jnp.sum(A**2)
        return squares / scale + decay * _squared_norm(parameters)

    def misfit(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        squares = jnp.sum((Phi @ self.coefficients(parameters) - self.targets) ** 2)
        return squares / self.scale.astype(Phi.dtype)

    def coefficients(self, parameters: Parameters) -> Float[Array, "columns outputs"]:
        """The free coefficients A at these parameters."""
        Phi = self.features(parameters)
        return solve_ridge(Phi, self.targets, self.ridge.astype(Phi.dtype))

    @eqx.filter_jit
    def solve(self, parameters: Parameters) -> Float[Array, "columns outputs"]:
        """The free coefficients, compiled."""
        return self.coefficients(parameters)


def _squared_norm(parameters: Parameters) -> Float[Array, ""]:
    leaves = jax.tree.leaves(eqx.filter(parameters, eqx.is_inexact_array))
    return jnp.sum(jnp.stack([jnp.sum(leaf**2) for leaf in leaves]))


def solve_ridge(
    Phi: Float[Array, "rows columns"], B: Float[Array, "rows outputs"], ridge: float | Float[Array, ""]
) -> Float[Array, "columns outputs"]:
    """A = argmin |Phi A - B|^2 + ridge^2 |A|^2.

    Cholesky of the normal equations and two steps of iterative refinement with residuals of the original problem,
    which recover the digits lost by squaring the condition number, in a tenth of the time of a QR.
    """
    factor = factorise(Phi.T @ Phi, ridge)
    A = jsl.cho_solve(factor, Phi.T @ B)
    for _ in range(2):
        A = A + jsl.cho_solve(factor, Phi.T @ (B - Phi @ A) - ridge**2 * A)
    return A


def solve_ridge_in_blocks(blocks: _Blocks, ridge: float) -> Float[np.ndarray, "columns outputs"]:
    """`solve_ridge` with NumPy, in blocks: `blocks()`, called three times, yields parts of Phi and B.

    With several processes each yields its own blocks.
    """
    return _solve_in_blocks(blocks, ridge, _summed_over_processes)


def _solve_in_blocks(
    blocks: _Blocks, ridge: float, gather: Callable[[_Sums], _Sums]
) -> Float[np.ndarray, "columns outputs"]:
    gram, right = gather(_sums((Phi.T @ Phi, Phi.T @ B) for Phi, B in blocks()))
    if not np.isfinite(gram).all():
        return np.full_like(right, np.nan)
    factor = _factorise_on_host(gram, ridge)
    A = scipy.linalg.cho_solve(factor, right, check_finite=False)
    for _ in range(2):
        (misfit,) = gather(_sums((Phi.T @ (B - Phi @ A),) for Phi, B in blocks()))
        A = A + scipy.linalg.cho_solve(factor, misfit - ridge**2 * A, check_finite=False)
    return A


def solve_ridge_on_host(
    Phi: Float[np.ndarray, "rows columns"], B: Float[np.ndarray, "rows outputs"], ridge: float
) -> Float[np.ndarray, "columns outputs"]:
    """`solve_ridge` with NumPy, which compiles nothing; every process has all rows."""
    return _solve_in_blocks(lambda: [(Phi, B)], ridge, tuple)


def factorise(
    gram: Float[Array, "columns columns"], ridge: float | Float[Array, ""]
) -> tuple[Float[Array, "columns columns"], bool]:
    """The Cholesky factor of gram + ridge^2 I, with a few units of rounding more."""
    shift = ridge**2 + 8 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    return jsl.cho_factor(gram + shift * jnp.eye(len(gram), dtype=gram.dtype), lower=True)


def _factorise_on_host(gram: np.ndarray, ridge: float, eps: float = 8.0) -> tuple[np.ndarray, bool]:
    """The same with NumPy, and more units of rounding where so few do not make it positive."""
    shift = ridge**2 + eps * np.finfo(gram.dtype).eps * gram.diagonal().max()
    try:
        shifted = gram + np.asarray(shift, gram.dtype) * np.eye(len(gram), dtype=gram.dtype)
        return scipy.linalg.cholesky(shifted, lower=True), True
    except np.linalg.LinAlgError:
        return _factorise_on_host(gram, ridge, 8 * eps)


def _sums(blocks: Iterable[_Sums]) -> _Sums:
    return ft.reduce(lambda sums, block: tuple(a + b for a, b in zip(sums, block, strict=True)), blocks)


def _summed_over_processes(sums: _Sums) -> _Sums:
    return tuple(np.asarray(sum_over_processes(part)) for part in sums)
