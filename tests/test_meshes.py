"""Meshes: the paper's sizes, good triangles, the same bits each time."""

import numpy as np
import pytest

from trunkfirst.errors import ValueRangeError
from trunkfirst.problems.finite_elements import Triangulation, fitted_square, grid_square, triangulate_square
from trunkfirst.problems.generate import get_problem

PAPER_SIZES = [
    ("nonlinear-conductivity", 2049),
    ("discontinuous-conductivity", 4225),
    ("multiple-inputs", 541),
]


def edge_lengths(mesh: Triangulation):
    """Length of the edge opposite to each corner."""
    corners = mesh.points[mesh.triangles]
    return np.linalg.norm(np.roll(corners, -1, axis=1) - np.roll(corners, -2, axis=1), axis=2)


def angles(mesh: Triangulation):
    """Angle at each corner, in degrees."""
    a = edge_lengths(mesh)
    b, c = np.roll(a, -1, axis=1), np.roll(a, -2, axis=1)
    return np.degrees(np.arccos((b**2 + c**2 - a**2) / (2 * b * c)))


@pytest.mark.parametrize(("name", "nodes"), PAPER_SIZES)
def test_problems_have_the_sizes_of_the_paper(name: str, nodes: int):
    assert get_problem(name).mesh.points.shape == (nodes, 2)


@pytest.mark.parametrize("nodes", [541, 2049])
def test_triangles_of_the_paper_meshes_are_good(nodes: int):
    mesh = triangulate_square(nodes)
    assert angles(mesh).min() >= 30
    assert angles(mesh).max() <= 100
    assert edge_lengths(mesh).max() / edge_lengths(mesh).min() <= 2.5


@pytest.mark.parametrize(
    "mesh", [triangulate_square(n) for n in (25, 50, 137, 541, 1000, 2049)] + [grid_square(65)]
)
def test_mesh_fills_the_square(mesh: Triangulation):
    boundary = int(mesh.is_boundary.sum())
    assert mesh.areas.min() > 0
    assert abs(mesh.areas.sum() - 4) < 1e-12
    assert np.array_equal(np.unique(mesh.triangles), np.arange(len(mesh.points)))
    assert len(mesh.triangles) == 2 * len(mesh.points) - 2 - boundary  # Euler: no hole, no hanging node
    assert np.abs(mesh.points).max() == 1.0
    assert angles(mesh).min() > 20
    assert np.allclose(angles(mesh).sum(axis=1), 180)


@pytest.mark.parametrize("mesh", [triangulate_square(541), grid_square(9)])
def test_boundary_edges_lie_on_the_boundary(mesh: Triangulation):
    edges = np.sort(mesh.triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    unique, counts = np.unique(edges, axis=0, return_counts=True)
    outer = unique[counts == 1]
    assert counts.max() == 2
    assert np.array_equal(np.unique(outer), np.flatnonzero(mesh.is_boundary))
    lengths = np.linalg.norm(mesh.points[outer[:, 0]] - mesh.points[outer[:, 1]], axis=1)
    assert abs(lengths.sum() - 8) < 1e-12


def test_mesh_is_unstructured():
    """A structured mesh has nearly all interior nodes with six neighbours at a handful of distances."""
    mesh = triangulate_square(541)
    valences = np.bincount(mesh.triangles.ravel())[~mesh.is_boundary]
    assert {5, 6, 7} <= set(valences.tolist())
    assert len(np.unique(np.round(edge_lengths(mesh), 9))) > 500


def test_mesh_is_the_same_each_time():
    again = triangulate_square.__wrapped__(541)
    assert np.array_equal(again.points, triangulate_square(541).points)
    assert np.array_equal(again.triangles, triangulate_square(541).triangles)


def test_grid_counts_x_fastest_from_the_bottom():
    points = grid_square(65).points.reshape(65, 65, 2)
    ticks = np.linspace(-1, 1, 65)
    assert np.array_equal(points[:, :, 0], np.broadcast_to(ticks, (65, 65)))
    assert np.array_equal(points[:, :, 1], np.broadcast_to(ticks[:, None], (65, 65)))


@pytest.mark.parametrize("mesh", [triangulate_square(541), grid_square(9)])
def test_quadrature_weights_integrate_linear_functions(mesh: Triangulation):
    x, y = mesh.points.T
    weights = mesh.quadrature_weights
    assert weights.min() > 0
    assert abs(weights @ (3 + 2 * x - y) - 3) < 1e-13


def test_meshes_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        triangulate_square(541).points[0, 0] = 0.0


@pytest.mark.parametrize(("make", "size"), [(triangulate_square, 24), (grid_square, 1)])
def test_too_small_meshes_are_refused(make, size: int):
    with pytest.raises(ValueRangeError, match="at least"):
        make(size)


@pytest.mark.parametrize("cells", [16, 64, 128])
def test_no_triangle_of_a_fitted_mesh_crosses_the_circle(cells: int):
    mesh = fitted_square(cells, 0.5)
    radii = np.hypot(*np.moveaxis(mesh.points[mesh.triangles], -1, 0))
    is_inside, is_outside = (radii < 0.5 - 1e-12).any(axis=1), (radii > 0.5 + 1e-12).any(axis=1)
    assert not (is_inside & is_outside).any()
    assert mesh.areas.min() > 0
    assert mesh.areas.sum() == pytest.approx(4, rel=1e-12)
    assert angles(mesh).min() > 25
    # The triangles inside are the polygon, no more and no less.
    around = int((np.abs(np.hypot(*mesh.points.T) - 0.5) < 1e-12).sum())
    polygon = around / 2 * 0.25 * np.sin(2 * np.pi / around)
    assert mesh.areas[~is_outside].sum() == pytest.approx(polygon, rel=1e-12)
