"""Deterministic triangulations of a square, by default (-1, 1)^2."""

import dataclasses as dc
import functools as ft
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import Delaunay

from ..errors import ValueRangeError

Points: TypeAlias = Float[np.ndarray, "points 2"]

# Offsets of the low-discrepancy start. Those of the two meshes of the paper were chosen from 40 and 16 candidates
# for the largest smallest angle.
_OFFSETS = {541: 0.225, 2049: 0.6875}
_DEFAULT_OFFSET = 0.5
_SMOOTHING_STEPS = {541: 60}
_DEFAULT_SMOOTHING_STEPS = 40


@dc.dataclass(frozen=True, eq=False)
class Triangulation:
    """Nodes and counter-clockwise triangles of a square."""

    points: Float[np.ndarray, "nodes 2"]
    triangles: Int[np.ndarray, "triangles 3"]

    @property
    def is_boundary(self) -> Bool[np.ndarray, " nodes"]:
        """True for the nodes on an edge of the square. Their coordinate there is exact."""
        ends = np.stack([self.points.min(axis=0), self.points.max(axis=0)])
        return (self.points[:, None] == ends).any(axis=(1, 2))

    @property
    def areas(self) -> Float[np.ndarray, " triangles"]:
        """Signed areas, positive for counter-clockwise triangles."""
        a, b, c = np.moveaxis(self.points[self.triangles], 1, 0)
        (ux, uy), (vx, vy) = (b - a).T, (c - a).T
        return 0.5 * (ux * vy - uy * vx)

    @property
    def quadrature_weights(self) -> Float[np.ndarray, " nodes"]:
        """Lumped mass of each node over the area of the square: the weights of a mean, with sum 1."""
        shares = np.repeat(self.areas / 3, 3)
        masses = np.bincount(self.triangles.ravel(), shares, len(self.points))
        return masses / masses.sum()


@ft.cache
def triangulate_square(nodes: int) -> Triangulation:
    """Return an unstructured triangulation with exactly `nodes` nodes. It is deterministic.

    The boundary has equidistant nodes. Interior nodes start from a low-discrepancy sequence. A fixed number of
    Delaunay triangulations follows; after each, every interior node moves to the area-weighted mean of the
    centroids of its triangles (centroidal patch smoothing: Chen and Holst, 2011).

    In the meshes of the paper, 541 and 2049 nodes, angles lie between 30 and 100 degrees and the longest edge is
    at most 2.5 times the shortest. For other sizes angles stay above 20 degrees.
    """
    if nodes < 25:
        raise ValueRangeError(f"a triangulation with {nodes} nodes was requested; expected at least 25")
    side = _edges_on_a_side(nodes)
    boundary = _boundary_nodes(side)
    points = np.concatenate([boundary, _spread(nodes - len(boundary), _OFFSETS.get(nodes, _DEFAULT_OFFSET), side)])
    for _ in range(_SMOOTHING_STEPS.get(nodes, _DEFAULT_SMOOTHING_STEPS)):
        centres = _patch_centres(_delaunay(points))
        points = np.concatenate([boundary, centres[len(boundary) :]])
    return _frozen(_delaunay(points))


@ft.cache
def grid_square(side: int, interval: tuple[float, float] = (-1.0, 1.0)) -> Triangulation:
    """Return a structured grid of `side` x `side` nodes, row by row from the bottom, x fastest.

    The diagonals of the cells alternate, so that the mesh has the symmetries of the square when `side` is odd.
    All angles are 45 or 90 degrees.
    """
    if side < 2:
        raise ValueRangeError(f"a grid with {side} nodes on a side was requested; expected at least 2")
    ticks = np.linspace(*interval, side)
    x, y = np.meshgrid(ticks, ticks)
    row, column = (index.ravel() for index in np.mgrid[: side - 1, : side - 1])
    lower_left = row * side + column
    a, b, c, d = lower_left, lower_left + 1, lower_left + side + 1, lower_left + side
    rising, falling = [(a, b, c), (a, c, d)], [(a, b, d), (b, c, d)]
    pairs = [np.stack(pair, axis=-1) for half in (rising, falling) for pair in half]
    is_rising = ((row + column) % 2 == 0)[:, None]
    triangles = np.concatenate([np.where(is_rising, pairs[0], pairs[2]), np.where(is_rising, pairs[1], pairs[3])])
    return _frozen(Triangulation(np.stack([x.ravel(), y.ravel()], axis=1), triangles))


@ft.cache
def fitted_square(cells: int, radius: float) -> Triangulation:
    """Return a mesh of (-1, 1)^2 with nodes on the circle of `radius` around the origin: no triangle crosses it.

    It is the grid of `cells` x `cells`, without the nodes that are nearer to the circle than six tenths of its
    width, and equidistant nodes on the circle instead. Its Delaunay triangles keep the chords of the circle,
    because no node is in a disk that has a chord as diameter.
    """
    h = 2 / cells
    grid = grid_square(cells + 1).points
    around = max(int(np.ceil(2 * np.pi * radius / h)), 8)
    angles = 2 * np.pi * np.arange(around) / around
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kept = grid[np.abs(np.hypot(*grid.T) - radius) > 0.6 * h]
    return _frozen(_delaunay(np.concatenate([kept, circle])))


def _frozen(mesh: Triangulation) -> Triangulation:
    """Make the arrays read-only: cached meshes are shared."""
    mesh.points.flags.writeable = False
    mesh.triangles.flags.writeable = False
    return mesh


def _edges_on_a_side(nodes: int) -> int:
    """Return the number m of edges on a side for which triangles are close to equilateral.

    4/sqrt(3) m^2 equilateral triangles with edges 2/m fill the square. By Euler's formula
    nodes = (triangles + 2 + 4 m)/2: a quadratic equation for m, rounded down.
    """
    return int((np.sqrt(16 + 32 / np.sqrt(3) * (nodes - 1)) - 4) * np.sqrt(3) / 8)


def _boundary_nodes(side: int) -> Float[np.ndarray, "boundary 2"]:
    """Equidistant nodes around the square, counter-clockwise, exactly on its edges."""
    s, one = -1 + 2 * np.arange(side) / side, np.ones(side)
    edges = [(s, -one), (one, s), (-s, one), (-one, -s)]
    return np.concatenate([np.stack(edge, axis=1) for edge in edges])


def _spread(count: int, offset: float, side: int) -> Float[np.ndarray, "count 2"]:
    """Points of Roberts' R2 sequence (steps 1/r, 1/r^2 with r^3 = r + 1), half an edge off the boundary."""
    r = 1.32471795724474602596
    unit = (offset + np.arange(1, count + 1)[:, None] * np.array([1 / r, 1 / r**2])) % 1
    return (2 * unit - 1) * (1 - 1 / side)


def _delaunay(points: Float[np.ndarray, "nodes 2"]) -> Triangulation:
    triangles = Delaunay(points).simplices.astype(np.int64)
    is_clockwise = Triangulation(points, triangles).areas < 0
    triangles[is_clockwise] = triangles[is_clockwise][:, ::-1]
    return Triangulation(points, triangles)


def _patch_centres(mesh: Triangulation) -> Float[np.ndarray, "nodes 2"]:
    """Area-weighted mean of the centroids of the triangles at each node."""
    corners, nodes = mesh.triangles.ravel(), len(mesh.points)
    moments = mesh.areas[:, None] * mesh.points[mesh.triangles].mean(axis=1)
    sums = [np.bincount(corners, np.repeat(moment, 3), nodes) for moment in moments.T]
    return np.stack(sums, axis=1) / np.bincount(corners, np.repeat(mesh.areas, 3), nodes)[:, None]
