"""Functions that are known at points, evaluated between them: splines, elements, radial functions.

All classes compute a weighted sum of the rows of a table; the rows and weights depend on the point. They are
written with few JAX primitives, all of which can be exported. With tables of NumPy they compute in NumPy, so that
nothing is compiled for tables that are used once.
"""

import abc
import functools as ft
import itertools
import math
import operator
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from ..encoders import AnyArray, namespace
from .grids import wrapped
from .simplices import monomials


class AbstractInterpolation(eqx.Module):
    """Functions of points (n, coordinates), with values (n, functions)."""

    table: eqx.AbstractVar[Float[AnyArray, "rows functions"]]

    @abc.abstractmethod
    def __call__(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n functions"]:
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


def _rows(table: AnyArray, index: AnyArray) -> AnyArray:
    return namespace(table).take(table, index.astype(np.int32), axis=0, mode="clip")


def _columns(array: AnyArray) -> list[AnyArray]:
    return [array[..., k] for k in range(array.shape[-1])]


def _strides(sizes: Sequence[int]) -> list[int]:
    """How far apart neighbours are along each axis, in a list whose last axis runs fastest."""
    return [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


def _weighted_sum(table: AnyArray, terms: Iterable[tuple[AnyArray, AnyArray]]) -> Float[AnyArray, "n functions"]:
    """The sum of the rows of the table, for pairs of row numbers (n,) and weights (n,)."""
    return ft.reduce(operator.add, (weight[:, None] * _rows(table, index) for index, weight in terms))


def _cell(x: Float[AnyArray, " n"], edges: Float[AnyArray, "blocks block"], count: int) -> Float[AnyArray, " n"]:
    """The last of `count` edges that is not above x, or 0: first its block, then its place in the block."""
    xp = namespace(edges)
    first = xp.sum((x[:, None] >= edges[:, 0][None]).astype(x.dtype), axis=1)
    block = xp.maximum(first - 1, 0)
    inside = xp.sum((x[:, None] >= _rows(edges, block)).astype(x.dtype), axis=1)
    return xp.clip(block * edges.shape[1] + inside - 1, 0, count - 1)


class GridSpline(AbstractInterpolation):
    """Tensor products of splines of degree 0 (one value), 1 or 3 in every coordinate.

    Beyond the ends a linear function continues; a cubic one does so for one cell and is constant from there.
    """

    table: Float[AnyArray, "rows functions"]
    """The coefficients; the last axis of the grid runs fastest."""
    edges: tuple[Float[AnyArray, "_ _"], ...]
    """For every axis, where its cells start, in blocks."""
    cells: tuple[Float[AnyArray, "_ _"], ...]
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

    def __call__(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n functions"]:
        points = namespace(self.table).asarray(points, self.dtype)
        found = [self._along(axis, x) for axis, x in enumerate(_columns(points))]
        strides = _strides(self.sizes)
        cells, splines = zip(*found, strict=True)
        first = ft.reduce(operator.add, map(operator.mul, cells, strides)).astype(np.int32)

        def term(steps: tuple[int, ...]) -> tuple[AnyArray, AnyArray]:
            shift = sum(map(operator.mul, steps, strides))
            return first + shift, ft.reduce(operator.mul, (w[:, k] for w, k in zip(splines, steps, strict=True)))

        return _weighted_sum(self.table, map(term, itertools.product(*(range(p + 1) for p in self.degrees))))

    def _along(
        self, axis: int, x: Float[AnyArray, " n"]
    ) -> tuple[Float[AnyArray, " n"], Float[AnyArray, "n splines"]]:
        """The cell of each x, and the splines that are not zero there."""
        degree, cells = self.degrees[axis], self.cells[axis]
        if self.periods[axis]:
            x = wrapped(x, cells[0, 0], self.periods[axis])
        cell = _cell(x, self.edges[axis], len(cells))
        row = _rows(cells, cell)
        s = (x - row[:, 0]) * row[:, 1]
        s = (namespace(cells).clip(s, -1, 2) if degree == 3 else s)[:, None]
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

    table: Float[AnyArray, "rows functions"]
    """Values at the points; for local quadratics followed by their derivatives, point after point."""
    corners: Float[AnyArray, "simplices corners coordinates"]
    slopes: Float[AnyArray, "simplices coordinates coordinates"]
    """Gradients of the barycentric coordinates of the corners 1, 2, ..."""
    rows: Int[AnyArray, "simplices corners"]
    """The first row of each corner in the table."""
    candidates: Int[AnyArray, "bins candidates"]
    """Simplices that touch each bin."""
    edges: tuple[Float[AnyArray, "_ _"], ...]
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

    def __call__(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n functions"]:
        y = self._in_one_period(namespace(self.table).asarray(points, self.dtype))
        return _weighted_sum(self.table, self._terms(y, self._simplex(y)))

    def _in_one_period(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n coordinates"]:
        if not any(self.periods):
            return points
        every = zip(_columns(points), self.starts, self.periods, strict=True)
        columns = [wrapped(x, start, period) if period else x for x, start, period in every]
        return namespace(self.table).stack(columns, axis=1)

    def _simplex(self, y: Float[AnyArray, "n coordinates"]) -> Int[AnyArray, " n"]:
        """The candidate whose smallest barycentric coordinate is the largest."""
        bins = [_cell(x, e, n) for x, e, n in zip(_columns(y), self.edges, self.bins, strict=True)]
        number = ft.reduce(operator.add, map(operator.mul, bins, _strides(self.bins)))
        candidates = _rows(self.candidates, number)
        others = self._barycentric(y[:, None], self.corners[:, 0], candidates)
        xp = namespace(self.table)
        smallest = ft.reduce(xp.minimum, _with_first(others))
        best = smallest.argmax(axis=1) if xp is np else jax.lax.argmax(smallest, 1, np.int32)
        is_best = best[:, None] == np.arange(candidates.shape[1], dtype=np.int32)[None]
        return xp.sum(xp.where(is_best, candidates, np.int32(0)), axis=1, dtype=np.int32)

    def _barycentric(
        self, y: AnyArray, origins: AnyArray, simplices: AnyArray
    ) -> Float[AnyArray, "*_ coordinates"]:
        """The barycentric coordinates of the corners 1, 2, ..."""
        offset = y - _rows(origins, simplices)
        return (_rows(self.slopes, simplices) * offset[..., None, :]).sum(axis=offset.ndim)

    def _terms(self, y: AnyArray, simplex: Int[AnyArray, " n"]) -> Iterable[tuple[AnyArray, AnyArray]]:
        corners, rows = _rows(self.corners, simplex), _rows(self.rows, simplex)
        shares = _with_first(self._barycentric(y, self.corners[:, 0], simplex))
        # A coordinate below -1 pulls the point towards the centre. At the centre itself nothing is divided by 0.
        centre = 1 / len(shares)
        xp = namespace(self.table)
        pull = (1 + centre) / xp.maximum(centre - ft.reduce(xp.minimum, shares), 1 + centre)
        y = y * pull[:, None] + corners.mean(axis=1) * (1 - pull)[:, None]
        for k, share in enumerate(shares):
            share = share * pull + centre * (1 - pull)
            yield rows[:, k], share
            for step, monomial in enumerate(monomials(y - corners[:, k]) if self.is_smooth else [], 1):
                yield rows[:, k] + step, share * monomial


def _with_first(others: Float[AnyArray, "... coordinates"]) -> list[AnyArray]:
    """All barycentric coordinates, given those of the corners 1, 2, ..."""
    return [1 - others.sum(axis=others.ndim - 1), *_columns(others)]


class FlatInterpolation(AbstractInterpolation):
    """Functions at points on a line or plane: `inner` sees the coordinates that all others follow from."""

    inner: AbstractInterpolation
    columns: tuple[int, ...] = eqx.field(static=True)
    all_columns: int = eqx.field(static=True)

    def __call__(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n functions"]:
        xp = namespace(self.table)
        return self.inner(xp.stack([points[:, column] for column in self.columns], axis=1))

    @property
    def table(self) -> AnyArray:
        return self.inner.table

    @property
    def coordinates(self) -> int:
        return self.all_columns

    @property
    def is_smooth(self) -> bool:
        return self.inner.is_smooth


class RadialInterpolation(AbstractInterpolation):
    """Cubic radial functions around the points, and a linear function, through the values at the points."""

    table: Float[AnyArray, "rows functions"]
    centres: Float[AnyArray, "centres coordinates"]
    origin: Float[AnyArray, " coordinates"]
    size: Float[AnyArray, " coordinates"]

    def __call__(self, points: Float[AnyArray, "n coordinates"]) -> Float[AnyArray, "n functions"]:
        xp = namespace(self.table)
        y = (points - self.origin[None]) / self.size[None]
        squares = ft.reduce(
            operator.add, ((a[:, None] - b[None]) ** 2 for a, b in zip(y.T, self.centres.T, strict=True))
        )
        is_centre = squares == 0  # the root has no derivative there
        cubes = xp.where(is_centre, 0.0, squares * xp.sqrt(xp.where(is_centre, 1.0, squares)))
        return xp.concatenate([cubes, xp.ones_like(y[:, :1]), y], axis=1) @ self.table

    @property
    def coordinates(self) -> int:
        return len(self.origin)

    @property
    def is_smooth(self) -> bool:
        return True
