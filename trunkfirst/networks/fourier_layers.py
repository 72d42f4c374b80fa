"""A branch for functions on a grid: Fourier layers give a field there, whose coefficients in the basis follow.

A Fourier layer (Li et al., Fourier neural operator, 2020) multiplies the leading Fourier coefficients of its
channels by a matrix for each wave. The transforms are products with cosines and sines, along one axis after the
other: for few modes these are as fast as an FFT, need no complex numbers, and every export knows them.
"""

import functools as ft
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..device_arrays import AnyArray, normal, split_key, to_device
from ..memory import check_network

# More samples than this are computed in batches; an export has fewer.
_MOST, _BATCH = 1024, 32


class Pointwise(eqx.Module):
    """W v + b at every point of a grid: (samples, channels, *grid)."""

    weight: Float[Array, "out channels"]
    bias: Float[Array, " out"]

    def __call__(self, v: Float[Array, "samples channels *grid"]) -> Float[Array, "samples out *grid"]:
        flat = v.reshape(*v.shape[:2], -1)
        # As a product for each sample: the gradient of one product for all takes ten times as long on a CPU.
        W = jnp.broadcast_to(self.weight[None], (len(v), *self.weight.shape))
        return (W @ flat + self.bias[None, :, None]).reshape(len(v), -1, *v.shape[2:])


class SpectralLayer(eqx.Module):
    """K v + W v + b, where K multiplies the Fourier coefficients of every wave by a complex matrix."""

    spectrum: Float[Array, "2 waves channels out"]
    """Real and imaginary parts."""
    pointwise: Pointwise

    def __call__(
        self, v: Float[Array, "samples channels *grid"], axes: "Sequence[Waves]"
    ) -> Float[Array, "samples out *grid"]:
        a, b = self.spectrum[0], self.spectrum[1]
        block = jnp.stack([jnp.stack([a, b]), jnp.stack([-b, a])])
        z = jnp.einsum("sipk,pqkio->soqk", _coefficients(v, axes), block)
        return _field(z, axes) + self.pointwise(v)


class FourierNetwork(eqx.Module):
    """Fields on a grid from fields on the same grid: a lift, Fourier layers and a head, with gelu in between.

    The coordinates of axes that are not periodic are further channels. There the period of the waves is longer
    than the axis by the share `padding`, so that fields need not be equal at its ends.
    """

    lift: tuple[Pointwise, ...]
    layers: tuple[SpectralLayer, ...]
    head: tuple[Pointwise, ...]
    modes: tuple[int, ...] = eqx.field(static=True)
    is_periodic: tuple[bool, ...] = eqx.field(static=True)
    padding: float = eqx.field(static=True)

    def __call__(self, v: Float[Array, "samples channels *grid"]) -> Float[Array, "samples fields *grid"]:
        axes = self.waves(v.shape[2:])
        v = _in_turn(self.lift, self._with_coordinates(v))
        for layer in self.layers[:-1]:
            v = jax.nn.gelu(layer(v, axes))
        return _in_turn(self.head, self.layers[-1](v, axes))

    def _with_coordinates(self, v: Float[Array, "samples channels *grid"]) -> Float[Array, "samples more *grid"]:
        if all(self.is_periodic):
            return v
        every = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in v.shape[2:]), indexing="ij"))
        fixed = jnp.asarray(every[~np.array(self.is_periodic)][None], v.dtype)
        return jnp.concatenate([v, jnp.broadcast_to(fixed, (len(v), *fixed.shape[1:]))], axis=1)

    def waves(self, shape: Sequence[int]) -> "list[Waves]":
        """The waves along every axis of a grid of this shape."""
        periods = [n * (1.0 if p else 1 + self.padding) for n, p in zip(shape, self.is_periodic, strict=True)]
        last = len(shape) - 1
        each = enumerate(zip(shape, self.modes, periods, strict=True))
        return [Waves(n, modes, period, axis == last) for axis, (n, modes, period) in each]


def _in_turn(layers: Sequence[Pointwise], v: Float[Array, "samples channels *grid"]) -> Array:
    first, *others = layers
    v = first(v)
    for layer in others:
        v = layer(jax.nn.gelu(v))
    return v


# -- Fourier coefficients: the pair of real and imaginary part is an axis before that of the waves


class Waves:
    """exp(-2 pi i k x / period) at x = 0, ..., n - 1 for |k| <= modes, on the last axis for k >= 0.

    There the field is real, and the waves of negative k are the conjugates.
    """

    def __init__(self, n: int, modes: int, period: float, is_last: bool) -> None:
        k = np.arange(0 if is_last else -modes, modes + 1)
        angles = 2 * np.pi * np.outer(np.arange(n), k) / period
        self.count, self._n = len(k), n
        self._cos, self._sin = np.cos(angles), np.sin(angles)
        self._twice = np.where(k > 0, 2.0, 1.0)

    @ft.cached_property
    def from_real(self) -> Float[np.ndarray, "n 2 waves"]:
        """From values to coefficients."""
        return np.stack([self._cos, -self._sin], axis=1) / self._n

    @ft.cached_property
    def to_real(self) -> Float[np.ndarray, "2 waves n"]:
        """From coefficients to values."""
        return np.stack([self._cos * self._twice, -self._sin * self._twice]).swapaxes(1, 2)

    @ft.cached_property
    def from_complex(self) -> Float[np.ndarray, "n 2 2 waves"]:
        """The same for complex values."""
        cos, sin = self._cos, self._sin
        return np.stack([np.stack([cos, -sin], axis=1), np.stack([sin, cos], axis=1)], axis=1) / self._n

    @ft.cached_property
    def to_complex(self) -> Float[np.ndarray, "2 waves 2 n"]:
        cos, sin = self._cos.T, self._sin.T
        return np.stack([np.stack([cos, sin], axis=1), np.stack([-sin, cos], axis=1)])


def _coefficients(v: Float[Array, "samples channels *grid"], axes: Sequence[Waves]) -> Array:
    """(samples, channels, 2, waves) for all waves of all axes."""
    *others, last = axes
    z = jnp.einsum("...n,npk->...pk", v, last.from_real.astype(v.dtype))
    for axis in reversed(others):
        z = jnp.einsum("...npk,npqj->...qjk", z, axis.from_complex.astype(v.dtype))
        z = z.reshape(*z.shape[:-2], -1)
    return z


def _field(z: Float[Array, "samples channels 2 waves"], axes: Sequence[Waves]) -> Array:
    """(samples, channels, *grid): the values of these coefficients."""
    *others, last = axes
    for axis in others:
        z = z.reshape(*z.shape[:-1], axis.count, -1)
        z = jnp.einsum("...qjk,qjpn->...npk", z, axis.to_complex.astype(z.dtype))
    return jnp.einsum("...pk,pkn->...n", z, last.to_real.astype(z.dtype))


# -- the branch


class GridSymmetries(eqx.Module):
    """Maps g with which an operator commutes; a prediction is the mean of g^-1 F(g f) over them."""

    inputs: Int[Array, "maps inputs"]
    """Which input each one is after g."""
    input_signs: Float[Array, " maps"]
    values: Int[Array, "maps values"]
    """Which value of the fields of a channel each one is after g^-1."""
    output_signs: Float[Array, "maps channels"]

    def some(self, most: int) -> "GridSymmetries":
        """At most this many of the maps, evenly spaced, the first included."""
        return self._at(np.unique(np.linspace(0, len(self.input_signs) - 1, most).astype(int)))

    def drawn(self, key: PRNGKeyArray, samples: int) -> "GridSymmetries":
        """A random map for every sample."""
        return self._at(jr.randint(key, (samples,), 0, len(self.input_signs)))

    def _at(self, maps: AnyArray) -> "GridSymmetries":
        return jax.tree.map(lambda leaf: leaf[maps], self)

    def each(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples inputs"]:
        """g f of every sample with a map of its own."""
        return jnp.take_along_axis(x, self.inputs, axis=1) * self.input_signs.astype(x.dtype)[:, None]

    def each_back(
        self, fields: Float[Array, "samples channels values"]
    ) -> Float[Array, "samples channels values"]:
        """g^-1 F of every sample."""
        found = jnp.take_along_axis(fields, self.values[:, None], axis=2)
        return found * self.output_signs.astype(fields.dtype)[:, :, None]

    def mean(
        self, fields: Callable[[Array], Float[Array, "images channels values"]], x: Float[Array, "samples inputs"]
    ) -> Float[Array, "samples channels values"]:
        """Of the fields of all images, each brought back; exports know no loop over maps."""

        def back(k: int) -> Float[Array, "values samples channels"]:
            images = x.T[self.inputs[k]].T * self.input_signs[k].astype(x.dtype)
            found = jnp.transpose(fields(images), (2, 0, 1))[self.values[k]]
            return found * self.output_signs[k].astype(found.dtype)[None, None]

        count = len(self.input_signs)
        return jnp.transpose(ft.reduce(jnp.add, map(back, range(count))) / count, (1, 2, 0))


class GridBranch(eqx.Module):
    """c(f) = offset + scale M F(f): fields F(f) on the grid of the input, and a matrix M to coefficients.

    Where the outputs are given on the same domain, M is fixed: it interpolates from the grid to the output points
    and projects onto the basis. The network computes in its own precision.
    """

    network: FourierNetwork
    projection: Float[Array, "values rank"]
    """M: from all values of the fields of an output channel."""
    mean: Float[Array, " functions"]
    deviation: Float[Array, " functions"]
    offset: Float[Array, " coefficients"]
    scale: Float[Array, ""]
    places: Int[Array, "functions cells"]
    """Which of the inputs is the value of a function at a cell."""
    shape: tuple[int, ...] = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    """The number of inputs."""
    symmetries: GridSymmetries | None = None

    def __call__(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples coefficients"]:
        if len(x) < _MOST:
            return self._together(x)
        return jax.lax.map(lambda row: self._together(row[None])[0], jnp.asarray(x), batch_size=_BATCH)

    @property
    def numbers(self) -> int:
        """About how many numbers of a sample are in memory at once."""
        maps = 1 if self.symmetries is None else len(self.symmetries.input_signs)
        return 8 * maps * math.prod(self.shape) * len(self.network.lift[-1].bias)

    def _together(self, x: Float[AnyArray, "samples inputs"]) -> Float[Array, "samples coefficients"]:
        x = jnp.asarray(x)
        return self._of(self._fields(x) if self.symmetries is None else self.symmetries.mean(self._fields, x))

    def after(
        self, x: Float[Array, "samples inputs"], maps: GridSymmetries | None
    ) -> Float[Array, "samples coefficients"]:
        """g^-1 c(g f) of every sample with its own of the `maps`, as it is trained."""
        return self._of(self._fields(x) if maps is None else maps.each_back(self._fields(maps.each(x))))

    def _of(self, fields: Float[Array, "samples channels values"]) -> Float[Array, "samples coefficients"]:
        coefficients = (fields @ self.projection).reshape(len(fields), -1)
        return self.offset[None] + self.scale * coefficients.astype(self.offset.dtype)

    def _fields(self, x: Float[Array, "samples inputs"]) -> Float[Array, "samples channels values"]:
        values = (x.T[self.places] - self.mean[:, None, None]) / self.deviation[:, None, None]
        v = jnp.transpose(values, (2, 0, 1)).reshape(len(x), -1, *self.shape)
        return self.network(v.astype(self.projection.dtype)).reshape(len(x), -1, len(self.projection))


def make_fourier_network(
    shape: Sequence[int],
    functions: int,
    fields: int,
    *,
    channels: int,
    layers: int,
    modes: int,
    is_periodic: Sequence[bool],
    padding: float,
    dtype: np.dtype,
    key: PRNGKeyArray,
) -> FourierNetwork:
    """A new network from `functions` to `fields` on a grid of this shape."""
    kept = tuple(min(modes, (n - 1) // 2) for n in shape)
    waves = math.prod(2 * m + 1 for m in kept[:-1]) * (kept[-1] + 1)
    check_network((channels, 2 * waves * layers * channels), 1, bytes_per_number=dtype.itemsize)
    keys = iter(split_key(key, 2 * layers + 4))

    def pointwise(n_in: int, n_out: int) -> Pointwise:
        W = normal(next(keys), (n_out, n_in), dtype) / math.sqrt(n_in)
        return Pointwise(to_device(W, dtype), to_device(np.zeros(n_out), dtype))

    def spectral() -> SpectralLayer:
        W = normal(next(keys), (2, waves, channels, channels), dtype) / channels
        return SpectralLayer(to_device(W, dtype), pointwise(channels, channels))

    inputs = functions + sum(not periodic for periodic in is_periodic)
    lift = (pointwise(inputs, 2 * channels), pointwise(2 * channels, channels))
    head = (pointwise(channels, 2 * channels), pointwise(2 * channels, fields))
    middle = tuple(spectral() for _ in range(layers))
    return FourierNetwork(lift, middle, head, kept, tuple(is_periodic), padding)
