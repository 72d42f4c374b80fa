"""Separable least squares: features(parameters) x free coefficients = targets.

With the coefficients solved for (variable projection, Golub and Pereyra 1973) only the parameters inside the
features remain. Step 1: features are the trunk functions at the output points. Step 2: the last hidden layer of
the branch at the inputs.
"""

import abc
import functools as ft
from collections.abc import Callable, Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float

from ..distributed.processes import sum_over_processes
from .loop import AbstractObjective, Parameters


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
    ridge: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-3)
    """An array, so that another ridge does not recompile."""
    scale: float = eqx.field(static=True, default=1.0)
    decay: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        A = jax.lax.stop_gradient(solve_ridge(Phi, self.targets, self.ridge))
        squares = jnp.sum((Phi @ A - self.targets) ** 2) + self.ridge**2 * jnp.sum(A**2)
        return squares / self.scale + self.decay * _squared_norm(parameters)

    def misfit(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        return jnp.sum((Phi @ self.coefficients(parameters) - self.targets) ** 2) / self.scale

    def coefficients(self, parameters: Parameters) -> Float[Array, "columns outputs"]:
        """The free coefficients A at these parameters."""
        return solve_ridge(self.features(parameters), self.targets, self.ridge)

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


def solve_ridge_in_blocks(
    blocks: Callable[[], Iterable[tuple[Float[Array, "rows columns"], Float[Array, "rows outputs"]]]],
    ridge: float,
) -> Float[Array, "columns outputs"]:
    """`solve_ridge` for more rows than memory holds: `blocks()`, called three times, yields Phi and B in blocks.

    With several processes each yields its own blocks.
    """
    gram, right = _sums((Phi.T @ Phi, Phi.T @ B) for Phi, B in blocks())
    factor = factorise(gram, ridge)
    A = jsl.cho_solve(factor, right)
    for _ in range(2):
        (misfit,) = _sums((Phi.T @ (B - Phi @ A),) for Phi, B in blocks())
        A = A + jsl.cho_solve(factor, misfit - ridge**2 * A)
    return A


def factorise(
    gram: Float[Array, "columns columns"], ridge: float | Float[Array, ""]
) -> tuple[Float[Array, "columns columns"], bool]:
    """The Cholesky factor of gram + ridge^2 I, with a few units of rounding more."""
    shift = ridge**2 + 8 * jnp.finfo(gram.dtype).eps * jnp.max(jnp.diagonal(gram))
    return jsl.cho_factor(gram + shift * jnp.eye(len(gram), dtype=gram.dtype), lower=True)


def _sums(blocks: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    own = ft.reduce(lambda sums, block: tuple(a + b for a, b in zip(sums, block, strict=True)), blocks)
    return tuple(jnp.asarray(sum_over_processes(np.asarray(part))) for part in own)
