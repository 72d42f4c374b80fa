"""Darcy flow where the conductivity jumps: at a circle (section 5.2 of the paper), or in a random medium."""

import abc
import dataclasses as dc
import functools as ft
import math
from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float
from scipy.spatial import Delaunay
from skfem import ElementTriP1, FacetBasis

from ..data.operator_data import InputFunction, OperatorData
from ..errors import ValueRangeError
from .finite_elements import (
    Diffusion,
    Points,
    Triangulation,
    fitted_square,
    grid_square,
    integral,
    p1_basis,
    p1_elements,
    to_skfem,
)
from .problem import AbstractProblem, Fields, Parameters, PerSample, check_samples

_SIDE = 65
_RADIUS = 0.5


@dc.dataclass(frozen=True)
class DiscontinuousConductivity(AbstractProblem):
    """-div(kappa grad p) = 0 on (-1, 1)^2, kappa = beta where |x| <= 0.5, 1 elsewhere; operator p -> kappa.

    p = 0 at the top, outward flux -kappa dp/dn = 1 at the bottom, no flux through the sides: p = y - 1 for
    beta = 1. The paper takes beta = 0.01, 0.02, ..., 10 and a grid of 65 x 65 nodes. Other numbers of samples
    are equidistant in [0.01, 10]. An element belongs to the disk if its centroid does.

    On the grid the circle is a staircase: the pressure is wrong by 4e-4 to 9e-3 (relative l2, by beta), the
    conductivity at the nodes is exact. With `is_fitted` the pressure is computed on a finer mesh with nodes on the
    circle, `fitted_square(128)`, and given at the same 65 x 65 nodes.
    """

    is_fitted: bool = False

    name = "discontinuous-conductivity"
    title = "Inverse problem: discontinuous conductivity"
    section = "5.2"
    equation = "-div(kappa grad p) = 0, kappa = beta in the disk of radius 0.5, 1 outside"
    parameter_names = ("beta",)
    default_samples = 1000
    shard_samples = 125
    seconds_per_sample = 0.006
    needs_fields = True

    @property
    def mesh(self) -> Triangulation:
        return fitted_square(2 * _SIDE - 2, _RADIUS) if self.is_fitted else grid_square(_SIDE)

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        del seed
        check_samples(samples)
        return np.linspace(1.0, 1000.0, samples)[:, None] / 100

    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        operator, load = disk_diffusion(self.mesh), bottom_flux(self.mesh)
        solved = [operator.solve(np.array([1.0, beta]), load) for beta in parameters[:, 0]]
        return np.stack([pressure for pressure, _ in solved]), np.array([residual for _, residual in solved])

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        assert fields is not None  # the pressure is the input
        grid = grid_square(_SIDE)
        places = grid.points if points is None else points
        pressures = fields @ values_at(self.mesh, grid).T if self.is_fitted else fields
        return OperatorData(
            inputs={"pressure": InputFunction(pressures, sensors=grid.points, grid_shape=(_SIDE, _SIDE))},
            points=places,
            outputs=np.where(in_disk(places), parameters, 1.0),
            triangles=grid.triangles if points is None else None,
            labels=self.labels(parameters),
            output_name="conductivity",
        )


def in_disk(points: Points) -> Bool[np.ndarray, " points"]:
    """Return True where |x| <= 0.5."""
    return np.sum(points**2, axis=1) <= _RADIUS**2


@ft.cache
def disk_diffusion(mesh: Triangulation) -> Diffusion:
    """Return the operator on a mesh. Region 0 is outside the disk, 1 inside; u = 0 at the top."""
    corners, stiffness = p1_elements(p1_basis(mesh))
    regions = in_disk(mesh.points[mesh.triangles].mean(axis=1)).astype(np.int64)
    # Row by row, which keeps the band narrow; scikit-fem sorts the corners, not the triangles.
    below = np.flatnonzero(mesh.points[:, 1] < 1.0)
    return Diffusion.on(corners, stiffness, regions, below[np.lexsort(mesh.points[below].T)])


@ft.cache
def bottom_flux(mesh: Triangulation) -> Float[np.ndarray, " nodes"]:
    """Return the load: minus the integral of phi_i over the bottom, since kappa dp/dn = -1 there."""
    domain = to_skfem(mesh)
    bottom = domain.facets_satisfying(lambda x: x[1] == -1.0, boundaries_only=True)
    return -integral.assemble(FacetBasis(domain, ElementTriP1(), facets=bottom))


@ft.cache
def values_at(mesh: Triangulation, grid: Triangulation) -> sp.csr_array:
    """Return the matrix from values at the nodes of a Delaunay mesh to those of its linear functions at `grid`."""
    delaunay = Delaunay(mesh.points)
    # A node on the edge of the square must not be outside all triangles by a rounding error.
    places = grid.points * (1 - 1e-14)
    found = delaunay.find_simplex(places)
    maps = delaunay.transform[found]
    first = np.einsum("pij,pj->pi", maps[:, :2], places - maps[:, 2])
    shares = np.column_stack([first, 1 - first.sum(axis=1)])  # barycentric coordinates
    rows = np.repeat(np.arange(len(places)), 3)
    columns = delaunay.simplices[found].ravel()
    return sp.csr_array((shares.ravel(), (rows, columns)), (len(places), len(mesh.points)))


MODES = 128
"""Cosines in each direction."""
_CELLS = 128
"""Cells in each direction for the solve."""
_COARSE_CELLS = 16
"""Cells in each direction of inputs and outputs."""
_HIGH, _LOW = 12.0, 3.0
_UNIT = (0.0, 1.0)
# The integrals of grad phi_i . grad phi_j over a square of any size; the corners go around it.
_STIFFNESS = np.array([[4, -1, -2, -1], [-1, 4, -1, -2], [-2, -1, 4, -1], [-1, -2, -1, 4]]) / 6


class _TwoValuedDarcy(AbstractProblem):
    """-div(a grad u) = 1 on (0, 1)^2, u = 0 on the boundary, solved on 128 x 128 cells."""

    section = "4"
    interval = _UNIT
    default_samples = 1250  # the usual split leaves 1,000 for training
    shard_samples = 50
    seconds_per_sample = 0.05
    needs_fields = True

    @property
    def mesh(self) -> Triangulation:
        return grid_square(_CELLS + 1, _UNIT)

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        """Return one seed per sample, below 2^53 so that it is exact as a float. Fewer samples are a prefix."""
        check_samples(samples)
        return np.random.default_rng(seed).integers(2**53, size=(samples, 1)).astype(float)

    @abc.abstractmethod
    def medium(self, seed: int) -> Float[np.ndarray, "rows columns"]:
        """Return a on cells that the 128 x 128 cells of the solve divide, one row for each y."""

    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        operator, load = cell_diffusion(_CELLS), np.full((_CELLS + 1) ** 2, 1 / _CELLS**2)
        media = (self.medium(int(seed)) for seed in parameters[:, 0])
        solved = [operator.solve(np.kron(a, np.ones((_CELLS // len(a),) * 2)).ravel(), load) for a in media]
        return np.stack([u for u, _ in solved]), np.array([residual for _, residual in solved])


def _data(values: np.ndarray, fields: Fields, points: Points | None, **more: Any) -> OperatorData:
    """Data with inputs given on square cells; outputs at their centres unless there are points."""
    cells = math.isqrt(values.shape[1])
    sensors = np.stack([x.ravel() for x in np.meshgrid(_centres(cells), _centres(cells))], axis=1)
    places = sensors if points is None else points
    return OperatorData(
        inputs={"conductivity": InputFunction(values, sensors, grid_shape=(cells, cells))},
        points=places,
        outputs=interpolate(fields, places, _CELLS),
        labels={"mean_conductivity": values.mean(axis=1)},
        output_name="pressure",
        **more,
    )


@dc.dataclass(frozen=True)
class RandomConductivity(_TwoValuedDarcy):
    """-div(a grad u) = 1 on (0, 1)^2, u = 0 on the boundary; operator a -> u.

    a is 12 where a Gaussian field (`draw_modes`) is not negative, 3 elsewhere. Each sample has its own seed, and
    the field is a function of position. On 128 x 128 cells a is its value at the centre of the cell; u is the
    bilinear solution there, whatever the resolution of the outputs. It differs by 2e-3 (relative) from the
    solution on 512 x 512 cells.

    Grids are counted in cells: on N x N cells a is given in the cells, u at the (N + 1)^2 nodes. So the nodes of
    16 x 16 cells are nodes of 32 x 32, and those are nodes of 128 x 128. The input is the mean of a over each cell
    of 16 x 16, with the centres as sensors: kernel ridge from 1,000 samples has an error of 2.5 % with these, of
    3.6 % with the values at the centres. The outputs are at the nodes of 16 x 16 cells, or with
    points = "grid:32" at those of 32 x 32.
    """

    name = "random-conductivity"
    title = "Random conductivity"
    equation = "-div(a grad u) = 1, u = 0 on the boundary, a = 12 or 3 by the sign of a Gaussian field"
    parameter_names = ("seed",)

    def medium(self, seed: int) -> Float[np.ndarray, "rows columns"]:
        return conductivity(seed)

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        assert fields is not None  # there is no closed form
        values = np.stack([cell_means(self.medium(int(seed))).ravel() for seed in parameters[:, 0]])
        if points is not None:
            return _data(values, fields, points)
        coarse = grid_square(_COARSE_CELLS + 1, _UNIT)
        return _data(values, fields, coarse.points, triangles=coarse.triangles)


@dc.dataclass(frozen=True)
class BinaryDarcy(_TwoValuedDarcy):
    """-div(a grad u) = 1 on (0, 1)^2, u = 0 on the boundary; operator a -> u, both at the centres of the cells.

    a is 12 or 3 on each of `cells` x `cells` squares, by the sign of a Gaussian field at its centre. u is the
    bilinear finite-element solution on 128 x 128 squares, which divide the cells. Unlike in random-conductivity,
    where the input is a mean over cells, the input determines the output.
    """

    cells: int = 32
    """Cells in each direction: a divisor of 64, so that centres of cells are nodes of the solve."""

    name = "binary-darcy"
    title = "Binary Darcy flow"
    equation = "-div(a grad u) = 1, u = 0 on the boundary, a = 12 or 3 on every cell of a grid"
    parameter_names = ("seed", "cells")

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        """Return one seed per sample and the number of cells. Fewer samples are a prefix."""
        return np.insert(super().parameters(samples, seed=seed), 1, float(self.cells), axis=1)

    def medium(self, seed: int) -> Float[np.ndarray, "rows columns"]:
        return conductivity(seed, self.cells)

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        assert fields is not None  # there is no closed form
        return _data(np.stack([self.medium(int(seed)).ravel() for seed in parameters[:, 0]]), fields, points)


# ---- the Gaussian field, by its cosine expansion: a function of position, not of a grid


def draw_modes(seed: int) -> Float[np.ndarray, "modes modes"]:
    """Draw the coefficients of cos(pi j y) cos(pi k x) of N(0, (-Laplace + 9)^-2), no flux at the edges.

    The eigenvalues of the covariance are (pi^2 (j^2 + k^2) + 9)^-2. The constant is left out, as in the code of
    the well-known Darcy benchmark (Li et al., Fourier neural operator, 2020): with it many samples would have
    nearly only one value.
    """
    k = np.arange(MODES)
    norm = np.where(k > 0, np.sqrt(2.0), 1.0)  # of the cosines in the mean square
    deviations = np.outer(norm, norm) / (np.pi**2 * (k[:, None] ** 2 + k**2) + 9.0)
    deviations[0, 0] = 0.0
    return np.random.default_rng(seed).normal(size=(MODES, MODES)) * deviations


def evaluate_modes(
    modes: Float[np.ndarray, "modes modes"], y: Float[np.ndarray, " rows"], x: Float[np.ndarray, " columns"]
) -> Float[np.ndarray, "rows columns"]:
    """Return the field on the grid of all pairs (y, x), both in [0, 1]."""
    return _cosines(y) @ modes @ _cosines(x).T


def _cosines(t: Float[np.ndarray, " ticks"]) -> Float[np.ndarray, "ticks modes"]:
    return np.cos(np.pi * np.outer(t, np.arange(MODES)))


def conductivity(seed: int, cells: int = _CELLS) -> Float[np.ndarray, "rows columns"]:
    """Return a at the centres of `cells` x `cells` cells, one row per y."""
    field = evaluate_modes(draw_modes(seed), _centres(cells), _centres(cells))
    return np.where(field >= 0, _HIGH, _LOW)


def cell_means(a: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "coarse_rows coarse_columns"]:
    """Return the means over the coarse cells."""
    ratio = len(a) // _COARSE_CELLS
    return a.reshape(_COARSE_CELLS, ratio, _COARSE_CELLS, ratio).mean(axis=(1, 3))


def _centres(cells: int) -> Float[np.ndarray, " cells"]:
    return (np.arange(cells) + 0.5) / cells


# ---- bilinear elements


@ft.cache
def cell_diffusion(cells: int) -> Diffusion:
    """Return -div(a grad u) on `cells` x `cells` squares, u = 0 on the boundary; a is given per square.

    Nodes and squares are numbered row by row, x fastest.
    """
    if cells < 2:
        raise ValueRangeError(f"{cells} cells on a side were requested; expected at least 2")
    nodes, squares = np.arange((cells + 1) ** 2).reshape(cells + 1, cells + 1), np.arange(cells**2)
    around = (nodes[:-1, :-1], nodes[:-1, 1:], nodes[1:, 1:], nodes[1:, :-1])
    corners = np.stack([corner.ravel() for corner in around], axis=1)
    return Diffusion.on(corners, np.broadcast_to(_STIFFNESS, (cells**2, 4, 4)), squares, nodes[1:-1, 1:-1].ravel())


def interpolate(fields: Fields, points: Points, cells: int) -> Float[np.ndarray, "samples points"]:
    """Evaluate the bilinear functions with these nodal values at `points`, bit-identical at the nodes."""
    square = np.clip((points * cells).astype(np.int64), 0, cells - 1)
    (s, t), (column, row) = (points * cells - square).T, square.T
    first = row * (cells + 1) + column
    weights = ((0, (1 - s) * (1 - t)), (1, s * (1 - t)), (cells + 1, (1 - s) * t), (cells + 2, s * t))
    values = np.zeros((len(fields), len(points)))
    for offset, weight in weights:
        values += fields[:, first + offset] * weight
    return values
