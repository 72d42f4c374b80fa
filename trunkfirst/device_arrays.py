"""Arrays and random numbers for JAX that need no program of their own.

Outside of a compiled function every operation of JAX is a program, compiled for each shape. What is here is copied
to the device as it is, or drawn in sizes that many shapes share.
"""

import functools as ft
import math
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

# Of modules that compute with NumPy on NumPy arrays, which compiles nothing, and with JAX on JAX arrays. Which of
# them comes out a type checker cannot know; the tests check that it is an array.
if TYPE_CHECKING:
    AnyArray: TypeAlias = Any
else:
    AnyArray = Array | np.ndarray

_FEWEST_KEYS, _FEWEST_NUMBERS = 8, 2**13


def to_device(array: Any, dtype: Any = None) -> Array:
    """An array for JAX; unlike `jnp.asarray` it compiles nothing."""
    if isinstance(array, jax.Array):
        return array if dtype is None else array.astype(dtype)
    return jax.device_put(np.asarray(array, dtype))


def seed_key(seed: int) -> PRNGKeyArray:
    """`jr.key(seed)`."""
    words = np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)
    return jr.wrap_key_data(to_device(words), impl="threefry2x32")


def split_key(key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, ...]:
    """`jr.split(key, count)`, one by one: the first of a number that many counts share."""
    return _split(key, _rounded_up(count, _FEWEST_KEYS))[:count]


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: Any) -> Any:
    """`jr.normal(key, shape, dtype)` on the host: the first of a number that many shapes share."""
    if isinstance(key, Tracer):
        return jr.normal(key, shape, dtype)
    size = math.prod(shape)
    return np.asarray(_normal(key, _rounded_up(size, _FEWEST_NUMBERS), np.dtype(dtype)))[:size].reshape(shape)


def padded_count(count: int) -> int:
    """At least `count`, by at most an eighth more, so that similar counts share compiled programs."""
    step = 2 ** max(count.bit_length() - 4, 5)
    return -(-count // step) * step


def _rounded_up(count: int, fewest: int) -> int:
    return max(1 << (count - 1).bit_length(), fewest)


@ft.partial(jax.jit, static_argnums=1)
def _split(key: PRNGKeyArray, count: int) -> tuple[PRNGKeyArray, ...]:
    return tuple(jr.split(key, count))


@ft.partial(jax.jit, static_argnums=(1, 2))
def _normal(key: PRNGKeyArray, count: int, dtype: np.dtype) -> Array:
    return jr.normal(key, (count,), dtype)
