"""Where an operator may be asked: in the elements or the box of its training points, and one cell further."""

import dataclasses as dc
from pathlib import Path

import numpy as np
import pytest

import trunkfirst
from trunkfirst.errors import DataError
from trunkfirst.networks.training_domain import TrainingDomain
from trunkfirst.problems.finite_elements import Triangulation, triangulate_square

RNG = np.random.default_rng(0)


def grid(*counts: int) -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(0, 1, count) for count in counts), indexing="ij")
    return np.stack(axes, axis=-1).reshape(-1, len(counts))


def l_shape() -> Triangulation:
    """A square without its upper right quarter."""
    square = triangulate_square(541)
    kept = square.triangles[(square.points[square.triangles].mean(axis=1) < 0).any(axis=1)]
    used, triangles = np.unique(kept, return_inverse=True)
    return Triangulation(square.points[used], triangles.reshape(-1, 3))


@pytest.mark.parametrize(
    ("points", "inside", "outside"),
    [
        (grid(11), [[-0.099], [0.55], [1.099]], [[-0.11], [1.11], [5.0], [1e300]]),
        (grid(11, 5), [[-0.099, 1.249], [1.099, 0.0]], [[-0.11, 0.5], [0.5, 1.26]]),
        # along an axis that is measured in other units the margin is in these units
        (grid(11, 5) * [1, 1000], [[0.5, 1249.0]], [[0.5, 1260.0], [1.2, 500.0]]),
        # a coordinate that is the same everywhere
        (np.column_stack([grid(11), np.full(11, 3.0)]), [[0.5, np.float32(3.0)]], [[0.5, 3.1]]),
        (np.array([[2.0]]), [[2.0]], [[2.1]]),
    ],
)
def test_the_box_of_a_grid_and_one_cell_more(points: np.ndarray, inside: list[float], outside: list[float]):
    domain = TrainingDomain(points=points)
    assert not domain.is_outside(points).any()
    assert not domain.is_outside(np.asarray(inside)).any()
    assert domain.is_outside(np.asarray(outside)).all()


def test_scattered_points_have_the_distance_of_neighbours_as_margin():
    points = RNG.uniform(0, [1, 100], (2000, 2))
    domain = TrainingDomain(points=points)
    # the mean distance of neighbours in a Poisson process of density n is 1 / (2 sqrt(n))
    assert domain.margin == pytest.approx(np.array([1, 100]) / (2 * np.sqrt(2000)), rel=0.1)
    assert not domain.is_outside(points).any()
    assert domain.is_outside(np.array([[1.05, 50.0], [0.5, 105.0]])).all()


def test_outside_the_elements_although_inside_the_box():
    """An L has a corner that belongs to its box and not to itself."""
    mesh = l_shape()
    domain = TrainingDomain(points=mesh.points, triangles=mesh.triangles)
    centres = mesh.points[mesh.triangles].mean(axis=1)
    assert not domain.is_outside(np.concatenate([mesh.points, centres])).any()
    low, high = mesh.points.min(axis=0), mesh.points.max(axis=0)
    places = low + (high - low) * RNG.uniform(-0.2, 1.2, (500, 2))
    edge = np.linalg.norm(mesh.points[mesh.triangles[:, 0]] - mesh.points[mesh.triangles[:, 1]], axis=1).max()
    distances = np.linalg.norm(places[:, None] - mesh.points, axis=2).min(axis=1)
    is_outside = domain.is_outside(places)
    assert is_outside[distances > 2 * edge].all()
    assert (is_outside & ((places > low) & (places < high)).all(axis=1)).any()  # the notch
    assert not is_outside[distances < edge / 4].any()
    with pytest.raises(DataError, match=f"the domain is {len(mesh.triangles)} triangles"):
        domain.refuse(places, is_outside)


def test_coarse_elements_beside_fine_ones_are_inside():
    """A point in a large triangle is far from its corners, in units of the small triangles near by."""
    points = np.array([[0.0, 0.0], [1, 0], [0, 1], [-0.01, 0], [0, -0.01]])
    triangles = np.array([[0, 1, 2], [0, 3, 4]])
    domain = TrainingDomain(points=points, triangles=triangles)
    assert not domain.is_outside(np.array([[0.1, 0.1], [0.5, 0.49], [0.02, 0.9]])).any()


def test_periods_repeat_the_domain():
    domain = TrainingDomain(points=np.linspace(0, 0.9, 10)[:, None])
    assert domain.is_outside(np.array([[2.35]])).all()
    assert not domain.is_outside(np.array([[2.35], [-7.1], [0.95]]), (1.0,)).any()


@pytest.fixture(scope="module")
def result() -> "trunkfirst.FitResult":
    x, a = np.linspace(0, 1, 30), RNG.normal(size=(60, 2))
    outputs = a @ np.stack([np.sin(3 * x), x**2])
    return trunkfirst.fit(a, outputs, x[:, None], method=trunkfirst.TwoStep("modes", "linear"), progress=False)


def test_no_interval_outside_the_domain(result: "trunkfirst.FitResult", tmp_path: Path):
    """It was -0.36 +- 3e-8 at x = 5, for a domain of [0, 1]."""
    inputs, points = RNG.normal(size=(3, 2)), [[0.5], [1.03], [5.0], [1e300]]
    for operator in (result.operator, trunkfirst.load(result.operator.save(tmp_path / "model"))):
        with pytest.raises(
            DataError, match=r"2 of 4 .*points\[2\] = \(5\); the domain is x from 0 to 1 with a marg"
        ):
            operator.predict(inputs, points, interval=0.9)
        found = operator.predict(inputs, points, interval=0.9, extrapolate=True)
        assert found.is_extrapolated.tolist() == [False, False, True, True]
        assert np.array_equal(np.isnan(found.upper), np.broadcast_to(found.is_extrapolated, (3, 4)))
        assert np.array_equal(np.isnan(found.lower), np.isnan(found.upper))
        assert np.isfinite(found.values).all()


def test_a_periodic_operator_answers_in_every_period():
    x, a = np.linspace(0, 1, 32, endpoint=False), RNG.normal(size=(60, 2))
    data = trunkfirst.OperatorData(a, x[:, None], a @ np.stack([np.sin(2 * np.pi * x), np.cos(4 * np.pi * x)]))
    method = trunkfirst.TwoStep("modes", "linear", coordinates=trunkfirst.Coordinates(periods={"x": 1.0}))
    operator = trunkfirst.fit(data, method=method, intervals=False, progress=False).operator
    np.testing.assert_allclose(operator.predict(a, x[:, None] + 3), operator.predict(a), atol=1e-8)


def test_evaluation_is_free_to_look_anywhere(result: "trunkfirst.FitResult"):
    """Its points come with outputs, so that the error is measured."""
    x, a = np.linspace(-1, 2, 40), RNG.normal(size=(5, 2))
    data = trunkfirst.OperatorData(a, x[:, None], a @ np.stack([np.sin(3 * x), x**2]))
    assert trunkfirst.evaluate(result.operator, data).errors.shape == (5,)


def test_triangles_are_kept_with_the_operator(tmp_path: Path, result: "trunkfirst.FitResult"):
    mesh = l_shape()
    a = RNG.normal(size=(40, 2))
    data = trunkfirst.OperatorData(a, mesh.points, a @ mesh.points.T, triangles=mesh.triangles)
    operator = trunkfirst.fit(data, method=trunkfirst.TwoStep("modes", "linear"), intervals=False).operator
    again = trunkfirst.load(operator.save(tmp_path / "model"))
    assert again.domain == operator.domain
    places = RNG.uniform(mesh.points.min(axis=0), mesh.points.max(axis=0), (200, 2))
    is_outside = again.is_outside(places)
    assert is_outside.any()
    assert not is_outside.all()
    assert not dc.replace(again, domain=TrainingDomain()).is_outside(places).any()


def test_inputs_far_outside_the_range_of_training_warn(result: "trunkfirst.FitResult"):
    inputs = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, -1e300]])
    for method in (result.operator.predict, result.operator.gradient):
        with pytest.warns(UserWarning, match="inputs: 2 of 3 lie far outside the range of the training inputs"):
            method(inputs)
        with pytest.raises(DataError, match=r"inputs\[1, 0\] is nan; 1 of 4 values are not finite"):
            method([[0.0, 1.0], [np.nan, 1.0]])
    assert result.operator.predict(inputs, interval=0.9).is_outlier.tolist() == [False, True, True]
