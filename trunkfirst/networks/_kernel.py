"""A branch that is a sum of Matern kernels around training inputs."""

import functools as ft
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Of NumPy or JAX arrays: the profiles only add, multiply, and call the exponential they are given.
Profile: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]

_ROOT3, _ROOT5 = math.sqrt(3), math.sqrt(5)

# Matern kernels k(r) of unit length by their smoothness; "inf" is the Gaussian.
MATERN: dict[str, Profile] = {
    "1/2": lambda r, exp: exp(-r),
    "3/2": lambda r, exp: (1 + _ROOT3 * r) * exp(-_ROOT3 * r),
    "5/2": lambda r, exp: (1 + _ROOT5 * r + 5 / 3 * r**2) * exp(-_ROOT5 * r),
    "inf": lambda r, exp: exp(-0.5 * r**2),
}

# dk / d(r^2), which is finite at r = 0 but for "1/2", whose kink has no slope there.
_SLOPES: dict[str, Callable[[Array], Array]] = {
    "1/2": lambda r: jnp.where(r > 0, -jnp.exp(-r) / (2 * jnp.where(r > 0, r, 1.0)), 0.0),
    "3/2": lambda r: -1.5 * jnp.exp(-_ROOT3 * r),
    "5/2": lambda r: -5 / 6 * (1 + _ROOT5 * r) * jnp.exp(-_ROOT5 * r),
    "inf": lambda r: -0.5 * jnp.exp(-0.5 * r**2),
}

# Samples whose distances to all centres are in memory at once.
_BATCH = 1024


class KernelBranch(eqx.Module):
    """c(x) = offset + sum_k coefficients_k k(|x - centre_k| / length), k the Matern kernel of a `smoothness`.

    `ridge` is the one it was fitted with, for the record.
    """

    centres: Float[Array, "centres features"]
    coefficients: Float[Array, "centres coefficients"]
    offset: Float[Array, " coefficients"]
    length: Float[Array, ""]
    smoothness: str = eqx.field(static=True)
    ridge: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "samples features"]) -> Float[Array, "samples coefficients"]:
        sums = _kernel_sums(self.smoothness, x, self.centres, self.length, self.coefficients)
        return sums + self.offset[None]

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return self.centres.shape[1]

    @property
    def count(self) -> int:
        """How many training samples stand as centres."""
        return len(self.centres)


@ft.partial(jax.jit, static_argnums=0)
def _kernel_sums(
    smoothness: str,
    x: Float[Array, "samples features"],
    centres: Float[Array, "centres features"],
    length: Float[Array, ""],
    coefficients: Float[Array, "centres coefficients"],
) -> Float[Array, "samples coefficients"]:
    """sum_k coefficients_k k(|x - centre_k| / length) for every x, a batch at a time."""

    def one(x: Float[Array, " features"]) -> Float[Array, " coefficients"]:
        # Differences first: |x|^2 + |y|^2 - 2 x.y would lose half of all digits near a centre.
        squares = jnp.sum((x[None] - centres) ** 2, axis=1) / length**2
        return _matern(smoothness, squares) @ coefficients

    return jax.lax.map(one, x, batch_size=_BATCH)


def _distance(squares: Float[Array, " centres"]) -> Float[Array, " centres"]:
    """The root, with derivative 0 at 0 instead of an infinite one."""
    return jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1.0)), 0.0)


@ft.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _matern(smoothness: str, squares: Float[Array, " centres"]) -> Float[Array, " centres"]:
    """The kernel of squared distances; its derivatives are right at distance 0 too, where the root has none."""
    return MATERN[smoothness](_distance(squares), jnp.exp)


@_matern.defjvp
def _matern_jvp(smoothness: str, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (squares,), (tangent,) = primals, tangents
    return _matern(smoothness, squares), _SLOPES[smoothness](_distance(squares)) * tangent
