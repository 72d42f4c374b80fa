"""Functions between the points where they are known: exact there, of the expected order between, no overshoot."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import has_same_bits
from scipy.interpolate import CubicSpline, LinearNDInterpolator, RegularGridInterpolator
from scipy.spatial import Delaunay

from trunkfirst.errors import DataError, UsageError
from trunkfirst.networks.grids import is_grid
from trunkfirst.networks.interpolants import (
    AbstractInterpolation,
    FlatInterpolation,
    GridSpline,
    RadialInterpolation,
    SimplexInterpolation,
)
from trunkfirst.networks.interpolate import can_interpolate, interpolate
from trunkfirst.networks.storage import PARTS, _describe, _Restorer

BOTH = pytest.mark.parametrize("smooth", [False, True])
SPACE = pytest.mark.parametrize("d", [2, 3])


def grid(*axes: Any, seed: int = 0) -> np.ndarray:
    """All combinations, in a random order."""
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    return np.random.default_rng(seed).permutation(points)


def scattered(count: int, d: int, seed: int = 0) -> np.ndarray:
    """Random points of the unit box with its corners: the convex hull is the box."""
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=d)))
    return np.concatenate([corners, np.random.default_rng(seed).random((count, d))])


def wave(points: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(3 * points.sum(axis=1)), np.exp(-points[:, 0]) * np.cos(4 * points[:, -1])], axis=1)


def random_values(points: np.ndarray) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(len(points), 4))


def at(functions: AbstractInterpolation, points: np.ndarray) -> np.ndarray:
    with jax.enable_x64(functions.dtype == jnp.float64):
        return np.asarray(eqx.filter_jit(lambda f, y: f(y))(functions, jnp.asarray(points, functions.dtype)))


def backstep() -> tuple[np.ndarray, np.ndarray]:
    """A channel with a step: 22 by 5 without a corner, small triangles near the step."""
    x = np.concatenate([np.linspace(0, 3, 10)[:-1], 3 + 19 * np.linspace(0, 1, 40) ** 1.5])
    points = np.stack(np.meshgrid(x, np.linspace(0, 5, 16) ** 1.2), axis=-1).reshape(-1, 2)
    points = points[(points[:, 0] >= 3) | (points[:, 1] >= 1)]
    triangles = Delaunay(points).simplices.astype(np.int64)
    centres = points[triangles].mean(axis=1)
    return points, triangles[(centres[:, 0] > 3) | (centres[:, 1] > 1.01)]


# -- at the points


AXES = [np.array([0.0, 0.1, 0.4, 0.5, 0.9, 1.3, 1.4]), np.linspace(-1, 3, 5), np.arange(4.0), np.array([0.0, 5.0])]


@BOTH
@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_a_grid_has_its_values(d: int, smooth: bool):
    points = grid(*AXES[:d])
    values = random_values(points)
    functions = interpolate(points, values, smooth=smooth)
    assert isinstance(functions, GridSpline)
    assert (functions.coordinates, functions.functions, functions.dtype) == (d, 4, np.float64)
    assert functions.degrees == tuple((3 if len(x) >= 4 else 1) if smooth else 1 for x in AXES[:d])
    assert np.abs(at(functions, points) - values).max() < 1e-13


@BOTH
@SPACE
def test_scattered_points_have_their_values(d: int, smooth: bool):
    points = scattered(200, d)
    values = random_values(points)
    functions = interpolate(points, values, smooth=smooth)
    assert isinstance(functions, SimplexInterpolation)
    assert (functions.coordinates, functions.functions, functions.dtype) == (d, 4, np.float64)
    assert np.abs(at(functions, points) - values).max() < 1e-12


@BOTH
def test_a_mesh_with_a_corner(smooth: bool):
    points, triangles = backstep()
    values = random_values(points)
    functions = interpolate(points, values, triangles=triangles, smooth=smooth)
    assert isinstance(functions, SimplexInterpolation)
    assert np.abs(at(functions, points) - values).max() < 1e-13
    centres = points[triangles].mean(axis=1)
    with jax.enable_x64(True):
        found = np.asarray(functions._simplex(jnp.asarray(centres)))
    assert np.array_equal(np.asarray(functions.corners)[found].mean(axis=1), centres)
    if not smooth:
        assert np.abs(at(functions, centres) - values[triangles].mean(axis=1)).max() < 1e-13


def test_triangles_that_leave_out_points_are_not_used():
    points, triangles = backstep()
    kept = triangles[(triangles != 0).all(axis=1)]
    functions = interpolate(points, random_values(points), triangles=kept, smooth=False)
    assert np.abs(at(functions, points) - random_values(points)).max() < 1e-12


def test_an_axis_of_one_value_is_constant():
    points = grid([2.0], np.linspace(0, 1, 9))
    functions = interpolate(points, wave(points), smooth=True)
    elsewhere = np.random.default_rng(0).random((20, 2))
    same = np.column_stack([np.full(20, 2.0), elsewhere[:, 1]])
    assert np.array_equal(at(functions, elsewhere), at(functions, same))


# -- between the points


def test_splines_are_those_of_scipy():
    points = grid(*AXES[:1])
    x, y = AXES[0], np.linspace(0, 1.4, 50)
    functions = interpolate(points, wave(points), smooth=True)
    assert np.abs(at(functions, y[:, None]) - CubicSpline(x, wave(x[:, None]))(y)).max() < 1e-13
    axes = AXES[:3]
    points, places = grid(*axes), np.random.default_rng(0).random((50, 3)) * [1.4, 4, 3] - [0, 1, 0]
    known = wave(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)).reshape(7, 5, 4, 2)
    found = at(interpolate(points, wave(points), smooth=False), places)
    assert np.abs(found - RegularGridInterpolator(axes, known)(places)).max() < 1e-13


@SPACE
def test_linear_functions_are_those_of_scipy(d: int):
    points, places = scattered(150, d), np.random.default_rng(5).random((300, d))
    found = at(interpolate(points, wave(points), smooth=False), places)
    # SciPy's triangulation has the same scale: the box of the points is that of the unit.
    assert np.abs(found - LinearNDInterpolator(points, wave(points))(places)).max() < 1e-12


@SPACE
def test_quadratics_are_exact(d: int):
    points, places = scattered(200, d), np.random.default_rng(5).random((300, d))

    def quadratic(y: np.ndarray) -> np.ndarray:
        return np.stack([(y**2).sum(axis=1) - y[:, 0] * y[:, 1] + 2 * y[:, 1] - 3, y[:, 0]], axis=1)

    assert (
        np.abs(at(interpolate(points, quadratic(points), smooth=True), places) - quadratic(places)).max() < 1e-11
    )


def uniform(n: int, d: int) -> np.ndarray:
    return grid(*[np.linspace(0, 1, n + 1)] * d)


def moved(n: int, d: int) -> np.ndarray:
    """A grid with every inner point moved: scattered, with a known distance."""
    points = uniform(n, d)
    is_inner = np.all((points > 0) & (points < 1), axis=1, keepdims=True)
    shift = np.random.default_rng(2).uniform(-0.2 / n, 0.2 / n, points.shape)
    return points + np.where(is_inner, shift, 0.0)


@pytest.mark.parametrize(
    ("make", "d", "n", "smooth", "least"),
    [
        (uniform, 1, 20, False, 3.5),
        (uniform, 2, 20, False, 3.5),
        (uniform, 1, 20, True, 12),
        (uniform, 2, 20, True, 12),
        (moved, 2, 16, False, 3.2),
        (moved, 2, 16, True, 6),
        (moved, 3, 7, False, 3.2),
        (moved, 3, 7, True, 6),
    ],
)
def test_the_order(make: Callable[[int, int], np.ndarray], d: int, n: int, smooth: bool, least: float):
    places = np.random.default_rng(3).random((4000, d))

    def error(n: int) -> float:
        points = make(n, d)
        found = at(interpolate(points, wave(points), smooth=smooth), places)
        return float(np.linalg.norm(found - wave(places)))

    assert error(n) / error(2 * n) > least


@pytest.mark.parametrize("points", [uniform(20, 1), uniform(20, 2), scattered(300, 2), scattered(300, 3)], ids=len)
def test_linear_functions_do_not_overshoot(points: np.ndarray):
    step = (points[:, :1] > 0.47).astype(float)
    found = at(interpolate(points, step, smooth=False), np.random.default_rng(0).random((2000, points.shape[1])))
    assert found.min() > -1e-12
    assert found.max() < 1 + 1e-12


# -- the choice


@pytest.mark.parametrize("points", [uniform(40, 1), uniform(24, 2), scattered(600, 2), scattered(900, 3)], ids=len)
def test_the_choice(points: np.ndarray):
    step, smooth = (points[:, :1] + points[:, -1:] > 0.9).astype(float), wave(points)
    assert not interpolate(points, step).is_smooth
    assert interpolate(points, smooth).is_smooth
    both = np.concatenate([smooth, step], axis=1)
    assert interpolate(points, both, importance=np.array([1.0, 1.0, 1e-4])).is_smooth
    assert not interpolate(points, both, importance=np.array([1e-4, 1e-4, 1.0])).is_smooth


def test_few_points_give_no_evidence():
    assert not interpolate(uniform(5, 1), wave(uniform(5, 1))).is_smooth
    assert not interpolate(scattered(8, 2), wave(scattered(8, 2))).is_smooth


# -- periods


THREE_PERIODS = np.array([6.0, 0.0])


def ring(points: np.ndarray) -> np.ndarray:
    """Period 2 in the first coordinate."""
    return np.sin(np.pi * points[:, :1]) * (1 + points[:, -1:])


@BOTH
@pytest.mark.parametrize("has_end", [False, True])
def test_a_periodic_grid(has_end: bool, smooth: bool):
    x = np.linspace(0.5, 2.5, 25)[: 25 if has_end else 24]
    points = grid(x, np.linspace(0, 1, 9))
    functions = interpolate(points, ring(points), periods=(2.0, 0.0), smooth=smooth)
    assert np.abs(at(functions, points) - ring(points)).max() < 1e-13
    places = np.random.default_rng(0).random((500, 2)) * [8, 1] - [4, 0]
    assert np.abs(at(functions, places) - ring(places)).max() < (1e-4 if smooth else 2e-2)
    assert np.abs(at(functions, places + THREE_PERIODS) - at(functions, places)).max() < 1e-12


@BOTH
def test_periodic_scattered_points(smooth: bool):
    points = np.random.default_rng(0).random((500, 2)) * [2, 1]
    functions = interpolate(points, ring(points), periods=(2.0, 0.0), smooth=smooth)
    assert np.abs(at(functions, points) - ring(points)).max() < 1e-12
    places = np.random.default_rng(1).random((2000, 2)) * [8, 0.9] - [4, -0.05]
    error = np.abs(at(functions, places) - ring(places))[:, 0]
    is_near_the_end = np.abs(places[:, 0] % 2 - 1) > 0.9
    assert np.sqrt(np.mean(error[is_near_the_end] ** 2)) < (0.01 if smooth else 0.03)
    assert np.sqrt(np.mean(error**2)) < (0.01 if smooth else 0.03)
    assert np.abs(at(functions, places + THREE_PERIODS) - at(functions, places)).max() < 1e-11


def test_a_mesh_of_a_whole_period_keeps_its_triangles():
    x = np.stack(np.meshgrid(np.linspace(0, 2, 21), np.linspace(0, 1, 9)), axis=-1).reshape(-1, 2)
    is_inner = np.all((x > 0) & (x < [2, 1]), axis=1, keepdims=True)
    points = x + np.where(is_inner, np.random.default_rng(0).uniform(-0.01, 0.01, x.shape), 0.0)
    triangles = Delaunay(points).simplices.astype(np.int64)
    functions = interpolate(points, ring(points), triangles=triangles, periods=[2.0, 0.0], smooth=False)
    assert isinstance(functions, SimplexInterpolation)
    assert len(functions.rows) == len(triangles)
    assert np.abs(at(functions, points + THREE_PERIODS) - ring(points)).max() < 1e-12


# -- outside


def test_outside_a_grid():
    points = uniform(10, 1)
    x = np.array([[-5.0], [-0.05], [1.05], [7.0]])
    linear = at(interpolate(points, points, smooth=False), x)
    assert np.abs(linear - x).max() < 1e-12
    cubic = at(interpolate(points, points**3, smooth=True), x)[:, 0]
    assert np.abs(cubic[1:3] - x[1:3, 0] ** 3).max() < 1e-12
    assert np.allclose(cubic[[0, 3]], [-(0.2**3), 1.2**3])  # one cell further: the end cells are two points long


@BOTH
@SPACE
def test_outside_of_all_simplices(d: int, smooth: bool):
    points = scattered(300, d)
    functions = interpolate(points, points.sum(axis=1, keepdims=True), smooth=smooth)
    near, far = at(functions, 1 + np.full((1, d), 1e-3)), at(functions, np.full((2, d), 1e6) * [[1], [-1]])
    assert abs(near[0, 0] - d * 1.001) < 1e-12
    assert np.abs(far).max() < 3 * d


# -- JAX


FUNCTIONS: dict[str, Callable[[], AbstractInterpolation]] = {
    "linear grid": lambda: interpolate(uniform(6, 2), wave(uniform(6, 2)), smooth=False),
    "cubic grid": lambda: interpolate(uniform(6, 2), wave(uniform(6, 2)), periods=(0.0, 1.2), smooth=True),
    "linear triangles": lambda: interpolate(scattered(60, 2), wave(scattered(60, 2)), smooth=False),
    "smooth triangles": lambda: interpolate(
        scattered(60, 2), wave(scattered(60, 2)), periods=(1.2, 0.0), smooth=True
    ),
    "tetrahedra": lambda: interpolate(scattered(60, 3), wave(scattered(60, 3)), smooth=True),
}
EVERY = pytest.mark.parametrize("name", FUNCTIONS)


@EVERY
def test_derivatives(name: str):
    functions = FUNCTIONS[name]()
    rng, d, h = np.random.default_rng(4), functions.coordinates, 1e-6
    points, direction = rng.random((40, d)), rng.normal(size=d)
    with jax.enable_x64(True):
        y, tangents = jnp.asarray(points), jnp.broadcast_to(direction[None], points.shape)
        _, found = jax.jvp(jax.jit(functions.__call__), (y,), (tangents,))
    expected = (at(functions, points + h * direction) - at(functions, points - h * direction)) / (2 * h)
    assert np.abs(np.asarray(found) - expected).max() < 1e-7


@EVERY
def test_batches_of_points(name: str):
    functions = FUNCTIONS[name]()
    points = np.random.default_rng(0).random((3, 7, functions.coordinates))
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(jax.vmap(functions))(jnp.asarray(points)))
    expected = at(functions, points.reshape(21, -1)).reshape(3, 7, -1)
    assert np.abs(found - expected).max() < 1e-13


@EVERY
def test_single_precision(name: str):
    functions = FUNCTIONS[name]()
    rough = jax.tree.map(lambda a: a.astype(np.float32) if eqx.is_inexact_array(a) else a, functions)
    points = np.random.default_rng(0).random((200, functions.coordinates)).astype(np.float32)
    found = at(rough, points)
    assert found.dtype == np.float32
    assert np.abs(found - at(functions, points.astype(np.float64))).max() < 2e-3


def test_values_in_single_precision_stay_so():
    points = uniform(6, 2)
    assert interpolate(points, wave(points).astype(np.float32), smooth=True).dtype == np.float32


# -- storage


def stored(functions: AbstractInterpolation) -> AbstractInterpolation:
    arrays: dict[str, np.ndarray] = {}
    description = _describe(functions, "", arrays)
    with jax.enable_x64(True):
        restorer = _Restorer(arrays, PARTS)
        back = restorer.restore(description, AbstractInterpolation)
    restorer.check_complete()
    return back


@EVERY
def test_round_trip(name: str):
    functions = FUNCTIONS[name]()
    back = stored(functions)
    assert has_same_bits(functions, back)
    assert jax.tree.structure(functions) == jax.tree.structure(back)


def test_indices_are_not_numbers():
    functions = FUNCTIONS["linear triangles"]()
    with pytest.raises(ValueError, match="no place there"):
        stored(eqx.tree_at(lambda f: f.candidates, functions, jnp.zeros((3, 2), np.float32)))


# -- what is refused, and sizes


def test_is_grid():
    points = grid([0.0, 0.1 + 0.2, 1.0], [0.0, 2.0])
    points[0, 0] += 1e-12  # rounding
    assert is_grid(points)
    assert not is_grid(points[1:])
    assert not is_grid(np.concatenate([points[1:], points[1:2]]))
    assert not is_grid(scattered(30, 2))
    assert is_grid(scattered(30, 1)[2:])


# -- planes, points that coincide, many coordinates

PLANES = {
    "line": (np.array([[1.0, -2.0]]), np.array([0.3, 7.0]), GridSpline),
    "constant coordinate": (np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), np.array([0.0, 0.0, 0.3]), None),
    "tilted plane": (np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]]), np.array([1e3, 0.0, -5.0]), None),
}


@pytest.mark.parametrize("name", PLANES)
def test_functions_on_a_plane_are_those_within_it(name: str):
    axes, origin, kind = PLANES[name]
    inside, new = scattered(60, len(axes)), scattered(9, len(axes), seed=1)
    inside = np.unique(inside, axis=0)
    functions = interpolate(inside @ axes + origin, wave(inside), smooth=True)
    assert isinstance(functions, FlatInterpolation)
    assert isinstance(functions.inner, kind or SimplexInterpolation)
    assert functions.coordinates == len(origin)
    # The coordinates used are those of the plane times a factor, which changes no value.
    expected = at(interpolate(inside, wave(inside), smooth=True), new)
    assert np.abs(at(functions, new @ axes + origin) - expected).max() < 1e-8


def test_points_that_coincide_are_merged():
    points = scattered(50, 2)
    twice = np.concatenate([points, points[5:8]])
    triangles = Delaunay(points).simplices
    both = np.where(triangles == 6, len(points) + 1, triangles)  # some triangles name the second of two points
    for options in ({}, {"triangles": both}):
        functions = interpolate(twice, wave(twice), **options)
        assert np.abs(at(functions, twice) - wave(twice)).max() < 1e-12


def test_a_jump_at_points_that_coincide_is_refused():
    points = np.concatenate([scattered(9, 2), np.zeros((1, 2))])
    values = wave(points)
    values[-1] += 1
    with pytest.raises(DataError, match="points: 0 and 13 coincide, but the outputs differ there"):
        interpolate(points, values)


def test_radial_functions_are_exact_at_the_points_and_reproduce_linear_functions():
    points = np.random.default_rng(0).random((80, 5)) * [1, 10, 0.1, 1, 1]
    linear = points @ np.arange(10.0).reshape(5, 2) + 1
    functions = interpolate(points, np.concatenate([random_values(points), linear], axis=1))
    assert isinstance(functions, RadialInterpolation)
    assert np.abs(at(functions, points)[:, :4] - random_values(points)).max() < 1e-9
    new = np.random.default_rng(1).random((9, 5)) * [1, 10, 0.1, 1, 1]
    assert np.abs(at(functions, new)[:, 4:] - (new @ np.arange(10.0).reshape(5, 2) + 1)).max() < 1e-8
    with jax.enable_x64(True):
        assert np.isfinite(jax.jacfwd(functions)(jnp.asarray(points[:3]))).all()


def test_what_can_be_interpolated():
    assert can_interpolate(scattered(100, 5))
    many = np.random.default_rng(0).random((2001, 4))
    assert not can_interpolate(many)
    many[:, 3] = many[:, 0] + many[:, 1]
    assert can_interpolate(many)


@pytest.mark.parametrize(
    ("points", "error", "words"),
    [
        (np.zeros((3, 1)), DataError, "coincide, but the outputs differ"),
        (np.random.default_rng(0).random((2001, 4)), UsageError, "do not form a grid.*choose a network trunk"),
    ],
)
def test_refusals(points: np.ndarray, error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        interpolate(points, random_values(points))


# -- in NumPy


@pytest.mark.parametrize("name", ["grid", "periodic grid", "triangles", "radial", "line in the plane"])
def test_tables_of_numpy_compute_in_numpy(name: str):
    rng = np.random.default_rng(0)
    line = rng.random((30, 1))
    points: dict[str, np.ndarray] = {
        "grid": np.stack(np.meshgrid(np.arange(7.0), np.arange(5.0)), axis=-1).reshape(-1, 2),
        "periodic grid": np.linspace(0, 1, 20, endpoint=False)[:, None],
        "triangles": rng.random((80, 2)),
        "radial": rng.random((60, 4)),
        "line in the plane": np.hstack([line, 2 * line]),
    }
    given = points[name]
    values = np.sin(3 * given[:, :1]) + given[:, -1:] * [1.0, 2.0]
    periods = (1.0,) if name == "periodic grid" else None
    functions = interpolate(given, values, periods=periods)
    at = given.min(axis=0) + rng.uniform(-0.1, 1.1, (200, given.shape[1])) * np.ptp(given, axis=0)
    with jax.enable_x64(True):
        expected = np.asarray(functions(jnp.asarray(at)))
    found = jax.tree.map(np.asarray, functions)(at)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
