"""Functions that are known at points, evaluated between them: splines, elements, radial functions.

All classes compute a weighted sum of the rows of a table; the rows and weights depend on the point. They are
written with few JAX primitives, all of which can be exported.
"""

import abc
import functools as ft
import itertools
import math
import operator
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .grids import wrapped
from .simplices import monomials


class AbstractInterpolation(eqx.Module):
    """Functions of points (n, coordinates), with values (n, functions)."""

    table: eqx.AbstractVar[Float[Array, "rows functions"]]

    @abc.abstractmethod
    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        """All functions at the points."""

    @property
    @abc.abstractmethod
    def coordinates(self) -> int:
        """The number of coordinates of a point."""

    @property
    @abc.abstractmethod
    def is_smooth(self) -> bool:
        """Whether the functions are smooth between the points, not linear."""

    @property
    def functions(self) -> int:
        """The number of functions."""
        return self.table.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The precision."""
        return self.table.dtype


def _rows(table: Array, index: Array) -> Array:
    return jnp.take(table, index.astype(jnp.int32), axis=0, mode="clip")


def _columns(array: Array) -> list[Array]:
    return [array[..., k] for k in range(array.shape[-1])]


def _strides(sizes: Sequence[int]) -> list[int]:
    """How far apart neighbours are along each axis, in a list whose last axis runs fastest."""
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _weighted_sum(table: Array, terms: Iterable[tuple[Array, Array]]) -> Float[Array, "n functions"]:
    """The sum of the rows of the table, for pairs of row numbers (n,) and weights (n,)."""
    return ft.reduce(jnp.add, (weight[:, None] * _rows(table, index) for index, weight in terms))


def _cell(x: Float[Array, " n"], edges: Float[Array, "blocks block"], count: int) -> Float[Array, " n"]:
    """The last of `count` edges that is not above x, or 0: first its block, then its place in the block."""
    first = jnp.sum((x[:, None] >= edges[:, 0][None]).astype(x.dtype), axis=1)
    block = jnp.maximum(first - 1, 0)
    inside = jnp.sum((x[:, None] >= _rows(edges, block)).astype(x.dtype), axis=1)
    return jnp.clip(block * edges.shape[1] + inside - 1, 0, count - 1)


class GridSpline(AbstractInterpolation):
    """Tensor products of splines of degree 0 (one value), 1 or 3 in every coordinate.

    Beyond the ends a linear function continues; a cubic one does so for one cell and is constant from there.
    """

    table: Float[Array, "rows functions"]
    """The coefficients; the last axis of the grid runs fastest."""
    edges: tuple[Float[Array, "_ _"], ...]
    """For every axis, where its cells start, in blocks."""
    cells: tuple[Float[Array, "_ _"], ...]
    """For every axis, a row for each cell; see `grids.Axis.cells`."""
    sizes: tuple[int, ...] = eqx.field(static=True)
    """The number of splines on every axis."""
    degrees: tuple[int, ...] = eqx.field(static=True)
    periods: tuple[float, ...] = eqx.field(static=True)

    @property
    def coordinates(self) -> int:
        return len(self.sizes)

    @property
    def is_smooth(self) -> bool:
        return 3 in self.degrees

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        points = jnp.asarray(points, self.dtype)
        found = [self._along(axis, x) for axis, x in enumerate(_columns(points))]
        strides = _strides(self.sizes)
        cells, splines = zip(*found, strict=True)
        first = ft.reduce(jnp.add, map(operator.mul, cells, strides)).astype(jnp.int32)

        def term(steps: tuple[int, ...]) -> tuple[Array, Array]:
            shift = sum(map(operator.mul, steps, strides))
            return first + shift, ft.reduce(jnp.multiply, (w[:, k] for w, k in zip(splines, steps, strict=True)))

        return _weighted_sum(self.table, map(term, itertools.product(*(range(p + 1) for p in self.degrees))))

    def _along(self, axis: int, x: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, "n splines"]]:
        """The cell of each x, and the splines that are not zero there."""
        degree, cells = self.degrees[axis], self.cells[axis]
        if self.periods[axis]:
            x = wrapped(x, cells[0, 0], self.periods[axis])
        cell = _cell(x, self.edges[axis], len(cells))
        row = _rows(cells, cell)
        s = (x - row[:, 0]) * row[:, 1]
        s = (jnp.clip(s, -1, 2) if degree == 3 else s)[:, None]
        splines, *lower = (row[:, 2 + k * (degree + 1) :][:, : degree + 1] for k in reversed(range(degree + 1)))
        for power in lower:
            splines = splines * s + power
        return cell, splines


class SimplexInterpolation(AbstractInterpolation):
    """sum_i b_i(y) s_i(y) over the corners x_i of the simplex of y, with barycentric coordinates b_i.

    s_i is the value u_i at x_i or, if `is_smooth`, u_i + g_i.(y - x_i) + (y - x_i).H_i (y - x_i) / 2. Outside of
    all simplices the function of the best candidate continues for about the size of that simplex, then it is
    constant.
    """

    table: Float[Array, "rows functions"]
    """Values at the points; for local quadratics followed by their derivatives, point after point."""
    corners: Float[Array, "simplices corners coordinates"]
    slopes: Float[Array, "simplices coordinates coordinates"]
    """Gradients of the barycentric coordinates of the corners 1, 2, ..."""
    rows: Int[Array, "simplices corners"]
    """The first row of each corner in the table."""
    candidates: Int[Array, "bins candidates"]
    """Simplices that touch each bin."""
    edges: tuple[Float[Array, "_ _"], ...]
    """For every axis, where its bins start, in blocks."""
    bins: tuple[int, ...] = eqx.field(static=True)
    periods: tuple[float, ...] = eqx.field(static=True)
    starts: tuple[float, ...] = eqx.field(static=True)
    """Where the periods start."""
    terms: int = eqx.field(static=True)
    """Rows of a point: 1, or as many as a quadratic has coefficients."""

    @property
    def coordinates(self) -> int:
        return len(self.bins)

    @property
    def is_smooth(self) -> bool:
        return self.terms > 1

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        y = self._in_one_period(jnp.asarray(points, self.dtype))
        return _weighted_sum(self.table, self._terms(y, self._simplex(y)))

    def _in_one_period(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n coordinates"]:
        if not any(self.periods):
            return points
        every = zip(_columns(points), self.starts, self.periods, strict=True)
        columns = [wrapped(x, start, period) if period else x for x, start, period in every]
        return jnp.stack(columns, axis=1)

    def _simplex(self, y: Float[Array, "n coordinates"]) -> Int[Array, " n"]:
        """The candidate whose smallest barycentric coordinate is the largest."""
        bins = [_cell(x, e, n) for x, e, n in zip(_columns(y), self.edges, self.bins, strict=True)]
        number = ft.reduce(jnp.add, map(operator.mul, bins, _strides(self.bins)))
        candidates = _rows(self.candidates, number)
        others = self._barycentric(y[:, None], self.corners[:, 0], candidates)
        smallest = ft.reduce(jnp.minimum, _with_first(others))
        best = jax.lax.argmax(smallest, 1, np.int32)
        is_best = best[:, None] == np.arange(candidates.shape[1], dtype=np.int32)[None]
        return jnp.sum(jnp.where(is_best, candidates, np.int32(0)), axis=1, dtype=np.int32)

    def _barycentric(self, y: Array, origins: Array, simplices: Array) -> Float[Array, "*_ coordinates"]:
        """The barycentric coordinates of the corners 1, 2, ..."""
        offset = y - _rows(origins, simplices)
        return jnp.sum(_rows(self.slopes, simplices) * offset[..., None, :], axis=offset.ndim)

    def _terms(self, y: Array, simplex: Int[Array, " n"]) -> Iterable[tuple[Array, Array]]:
        corners, rows = _rows(self.corners, simplex), _rows(self.rows, simplex)
        shares = _with_first(self._barycentric(y, self.corners[:, 0], simplex))
        # A coordinate below -1 pulls the point towards the centre. At the centre itself nothing is divided by 0.
        centre = 1 / len(shares)
        pull = (1 + centre) / jnp.maximum(centre - ft.reduce(jnp.minimum, shares), 1 + centre)
        y = y * pull[:, None] + jnp.mean(corners, axis=1) * (1 - pull)[:, None]
        for k, share in enumerate(shares):
            share = share * pull + centre * (1 - pull)
            yield rows[:, k], share
            for step, monomial in enumerate(monomials(y - corners[:, k]) if self.is_smooth else [], 1):
                yield rows[:, k] + step, share * monomial


def _with_first(others: Float[Array, "... coordinates"]) -> list[Array]:
    """All barycentric coordinates, given those of the corners 1, 2, ..."""
    return [1 - jnp.sum(others, axis=others.ndim - 1), *_columns(others)]


# -- grids


class FlatInterpolation(AbstractInterpolation):
    """Functions at points on a line or plane: `inner` sees the coordinates that all others follow from."""

    inner: AbstractInterpolation
    columns: tuple[int, ...] = eqx.field(static=True)
    all_columns: int = eqx.field(static=True)

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        return self.inner(jnp.stack([points[:, column] for column in self.columns], axis=1))

    @property
    def table(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.table

    @property
    def coordinates(self) -> int:
        return self.all_columns

    @property
    def is_smooth(self) -> bool:
        return self.inner.is_smooth


class RadialInterpolation(AbstractInterpolation):
    """Cubic radial functions around the points, and a linear function, through the values at the points."""

    table: Float[Array, "rows functions"]
    centres: Float[Array, "centres coordinates"]
    origin: Float[Array, " coordinates"]
    size: Float[Array, " coordinates"]

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        y = (points - self.origin[None]) / self.size[None]
        squares = ft.reduce(
            jnp.add, ((a[:, None] - b[None]) ** 2 for a, b in zip(y.T, self.centres.T, strict=True))
        )
        is_centre = squares == 0  # the root has no derivative there
        cubes = jnp.where(is_centre, 0.0, squares * jnp.sqrt(jnp.where(is_centre, 1.0, squares)))
        return jnp.concatenate([cubes, jnp.ones_like(y[:, :1]), y], axis=1) @ self.table

    @property
    def coordinates(self) -> int:
        return len(self.origin)

    @property
    def is_smooth(self) -> bool:
        return True
