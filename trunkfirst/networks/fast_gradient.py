"""A perceptron whose values are in double precision, and whose gradient is computed in single precision.

The backward pass takes twice the products of the forward one. A minimiser needs all digits of the value, to see
that a step lowers it, but few of the gradient. Points are the last axis here: along it the products are fastest.
"""

import functools as ft
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .layers import Perceptron, rounded

_SINGLE = np.dtype(np.float32)
_Layers: TypeAlias = tuple[tuple[Array, Array], ...]
# What the backward pass needs of every layer: its weights, its input, and the slope of its activation.
_Kept: TypeAlias = tuple[tuple[Array, Array, Array | None], ...]


def values_with_fast_gradient(
    network: Perceptron, points: Float[Array, "points n_in"], radius: Float[Array, ""], *, is_hidden: bool
) -> Float[Array, "points n_out"]:
    """The network with kinks rounded to `radius`, and with an activation on its last layer if that `is_hidden`."""
    layers = tuple(zip(network.weights, network.biases, strict=True))
    return jnp.transpose(_values((network.activation, is_hidden), layers, jnp.transpose(points), radius))


@ft.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _values(of: tuple[str, bool], layers: _Layers, x: Array, radius: Array) -> Array:
    return _forward(of, layers, x, radius)[0]


def _forward(of: tuple[str, bool], layers: _Layers, x: Array, radius: Array) -> tuple[Array, _Kept]:
    activation, is_hidden = of
    kept: _Kept = ()
    for number, (W, b) in enumerate(layers, start=1):
        z = W @ x + b[:, None]
        before, slope = x.astype(_SINGLE), None
        x = z
        if number < len(layers) or is_hidden:
            x, slope = _with_slope(activation, z, radius)
            slope = slope.astype(_SINGLE)
        kept += ((W.astype(_SINGLE), before, slope),)
    return x, kept


def _with_slope(activation: str, z: Array, radius: Array) -> tuple[Array, Array]:
    """The activation and its derivative."""
    sigma = rounded(activation, radius)
    if activation == "relu":
        r = jnp.maximum(radius.astype(z.dtype), jnp.finfo(z.dtype).tiny)
        return sigma(z), jnp.clip((z + r) / (2 * r), 0, 1)
    return jax.jvp(sigma, (z,), (jnp.ones_like(z),))


def _backward(of: tuple[str, bool], kept: _Kept, change: Array) -> tuple[_Layers, None, None]:
    del of
    # In units in which no single-precision number is too small.
    unit = jnp.maximum(jnp.max(jnp.abs(change)), jnp.finfo(change.dtype).tiny)
    d = (change / unit).astype(_SINGLE)
    gradients: _Layers = ()
    for W, before, slope in reversed(kept):
        d = d if slope is None else d * slope
        of_W, of_b = (unit * part.astype(change.dtype) for part in (d @ before.T, jnp.sum(d, axis=1)))
        gradients = ((of_W, of_b), *gradients)
        d = W.T @ d
    return gradients, None, None


_values.defvjp(_forward, _backward)
