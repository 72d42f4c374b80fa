"""The random conductivity: fields, the bilinear solver against what is known exactly, nested grids, data."""

from pathlib import Path

import numpy as np
import pytest
from test_problems_fem import order, series

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import SolveError, ValueRangeError
from trunkfirst.problems import conductivity as conductivity_problems, finite_elements
from trunkfirst.problems.conductivity import (
    MODES,
    BinaryDarcy,
    cell_diffusion,
    cell_means,
    conductivity,
    draw_modes,
    evaluate_modes,
    interpolate,
)
from trunkfirst.problems.finite_elements import grid_square
from trunkfirst.problems.generate import get_problem, make_data

NAME = "random-conductivity"
UNIT = (0.0, 1.0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def make(cache: Path, points: str | None = None, samples: int = 3, **keywords) -> OperatorData:
    return make_data(NAME, samples=samples, points=points, cache=cache, **keywords)


def centres(cells: int):
    """x and y of the cells, row by row, x fastest."""
    t = (np.arange(cells) + 0.5) / cells
    x, y = np.meshgrid(t, t)
    return x.ravel(), y.ravel()


def random_values(cells: int, seed: int = 0):
    return np.random.default_rng(seed).choice([3.0, 12.0], cells**2)


# ---- the field


def test_field_depends_on_its_seed_alone():
    assert np.array_equal(draw_modes(7), draw_modes(7))
    assert not np.array_equal(draw_modes(7), draw_modes(8))


def test_field_is_a_function_of_position():
    """Not of the grid: the centre of 3 x 3 cells is the centre of one."""
    modes = draw_modes(5)
    fine = evaluate_modes(modes, *([(np.arange(9) + 0.5) / 9] * 2))
    coarse = evaluate_modes(modes, *([(np.arange(3) + 0.5) / 3] * 2))
    assert np.allclose(fine[1::3, 1::3], coarse, rtol=0, atol=1e-12)


def test_field_has_the_covariance_of_the_benchmark():
    """Mean square of the coefficient of each normalised cosine over 400 draws: (pi^2 (j^2 + k^2) + 9)^-2."""
    squares = np.mean([draw_modes(seed)[:3, :3] ** 2 for seed in range(400)], axis=0)
    k = np.arange(3)
    norms = np.outer([1, 2, 2], [1, 2, 2])
    expected = norms / (np.pi**2 * (k[:, None] ** 2 + k**2) + 9) ** 2
    assert squares[0, 0] == 0
    assert np.abs(squares / expected - 1).ravel()[1:].max() < 5 * np.sqrt(2 / 400)  # five deviations


def test_field_has_no_flux_at_the_edges():
    ends, inside = np.array([0.0, 1e-6, 1 - 1e-6, 1.0]), np.array([0.3, 0.5])
    at_x = evaluate_modes(draw_modes(1), inside, ends)
    assert np.abs(np.diff(at_x)[:, [0, 2]]).max() < 1e-8


def test_two_values_with_equal_shares():
    a = np.stack([conductivity(seed, cells=32) for seed in range(200)])
    assert np.array_equal(np.unique(a), [3.0, 12.0])
    shares = (a == 12).mean(axis=(1, 2))
    assert abs(shares.mean() - 0.5) < 0.02
    assert shares.std() < 0.15  # the constant is left out
    assert np.abs((a == 12).mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(200)  # wherever one looks


def test_conductivity_is_where_the_field_is():
    """Point by point: rows are y, columns x."""
    modes, middles = draw_modes(4), (np.arange(10)[:, None] + 0.5) / 10
    expected = [[12 if evaluate_modes(modes, y, x).item() >= 0 else 3 for x in middles] for y in middles]
    assert np.array_equal(conductivity(4, cells=10), expected)


def test_modes_are_resolved_on_the_cells_of_the_solve():
    assert get_problem(NAME).mesh.points.shape == ((MODES + 1) ** 2, 2)


# ---- the solver


def test_smooth_manufactured_solution_converges_with_order_two():
    """u = sin(pi x) sin(2 pi y), a = 2 + sin(3 x + y): f = -a lap u - grad a . grad u."""

    def exact(x, y):
        return np.sin(np.pi * x) * np.sin(2 * np.pi * y)

    def source(x, y):
        slope = np.cos(3 * x + y)
        ux = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
        uy = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        return (2 + np.sin(3 * x + y)) * 5 * np.pi**2 * exact(x, y) - slope * (3 * ux + uy)

    between, errors = grid_square(200, UNIT).points, []
    for cells in (16, 32, 64, 128):
        x, y = centres(cells)
        nodes = grid_square(cells + 1, UNIT).points.T
        u, residual = cell_diffusion(cells).solve(2 + np.sin(3 * x + y), source(*nodes) / cells**2)
        error = interpolate(u[None], between, cells)[0] - exact(*between.T)
        errors.append(float(np.sqrt(np.mean(error**2))))
        assert residual < 1e-10
    assert abs(order(errors) - 2.0) < 0.1


def test_constant_coefficient_agrees_with_its_series():
    """-lap tau = 1 on (-1, 1)^2, so u = tau / (4 a) on the unit square."""
    cells = 64
    points = grid_square(cells + 1).points.reshape(cells + 1, cells + 1, 2)
    inside = points[1:-1, 1:-1].reshape(-1, 2)  # the series is slow at the boundary
    u, _ = cell_diffusion(cells).solve(np.full(cells**2, 3.0), np.full((cells + 1) ** 2, 1 / cells**2))
    exact = series(*inside.T, terms=200)[0] / 12
    assert np.abs(u.reshape(cells + 1, -1)[1:-1, 1:-1].ravel() - exact).max() < 2e-4 * exact.max()


def test_solver_agrees_with_scikit_fem():
    from skfem import Basis, BilinearForm, ElementQuad1, LinearForm, MeshQuad, condense, solve
    from skfem.helpers import dot

    cells, a = 12, random_values(12)
    mesh = MeshQuad.init_tensor(*[np.linspace(0, 1, cells + 1)] * 2)
    basis = Basis(mesh, ElementQuad1())
    column, row = (mesh.p[:, mesh.t].mean(axis=1) * cells).astype(int)
    form = BilinearForm(lambda u, v, w: w["a"] * dot(u.grad, v.grad))
    stiffness = form.assemble(basis, a=a[row * cells + column][:, None] * np.ones_like(basis.dx))
    expected = solve(*condense(stiffness, LinearForm(lambda v, _: v).assemble(basis), D=basis.get_dofs()))
    column, row = np.rint(mesh.p * cells).astype(int)
    u, _ = cell_diffusion(cells).solve(a, np.full((cells + 1) ** 2, 1 / cells**2))
    assert np.abs(u[row * (cells + 1) + column] - expected).max() < 1e-14


@pytest.mark.parametrize("turn", [np.transpose, np.fliplr, np.flipud, np.rot90])
def test_solution_turns_with_its_coefficient(turn):
    operator, load = cell_diffusion(16), np.full(17**2, 1 / 16**2)
    a = random_values(16).reshape(16, 16)
    u, turned = (operator.solve(v.ravel(), load)[0].reshape(17, 17) for v in (a, turn(a)))
    assert np.abs(turn(u) - turned).max() < 1e-14


def test_inverse_is_symmetric():
    """The mean of g u_f is the mean of f u_g."""
    operator, a = cell_diffusion(16), random_values(16)
    f, g = np.random.default_rng(1).normal(size=(2, 17**2))
    assert np.isclose(g @ operator.solve(a, f)[0], f @ operator.solve(a, g)[0], rtol=1e-11)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pressure_is_positive_and_between_those_of_the_two_values(seed: int):
    """Inside u > 0 (maximum principle); its mean decreases in a (u maximises 2 f u - a |grad u|^2)."""
    operator, load = cell_diffusion(32), np.full(33**2, 1 / 32**2)
    u, low, high = (
        operator.solve(a, load)[0] for a in (random_values(32, seed), *np.full((2, 1024), [[12.0], [3.0]]))
    )
    grid = u.reshape(33, 33)
    assert grid[1:-1, 1:-1].min() > 0
    assert np.abs(np.concatenate([grid[[0, -1]].ravel(), grid[:, [0, -1]].ravel()])).max() == 0
    assert low.sum() < u.sum() < high.sum()


def test_pressure_falls_as_the_coefficient_grows():
    operator, a, load = cell_diffusion(16), random_values(16), np.full(17**2, 1 / 16**2)
    assert np.allclose(operator.solve(4 * a, load)[0], operator.solve(a, load)[0] / 4, rtol=1e-12, atol=0)


def test_residual_notices_a_wrong_solution(monkeypatch: pytest.MonkeyPatch):
    solve = finite_elements.dpbsv

    def wrong(*arguments, **keywords):
        factor, solution, status = solve(*arguments, **keywords)
        return factor, solution * (1 + 1e-8), status

    monkeypatch.setattr(finite_elements, "dpbsv", wrong)
    problem = get_problem(NAME)
    with pytest.raises(SolveError, match=r"sample 7 .*expected at most 1e-10"):
        problem.solve(problem.parameters(1, seed=0), first=7)


def test_indefinite_coefficient_is_a_solve_error(monkeypatch: pytest.MonkeyPatch):
    problem = get_problem(NAME)
    parameters = problem.parameters(3, seed=0)
    bad = int(parameters[1, 0])
    monkeypatch.setattr(
        conductivity_problems, "conductivity", lambda seed: np.full((128, 128), -1.0 if seed == bad else 1.0)
    )
    with pytest.raises(SolveError, match=r"sample 41 \(seed = .*did not converge"):
        problem.solve(parameters, first=40)


def test_too_few_cells():
    with pytest.raises(ValueRangeError, match="at least 2"):
        cell_diffusion(1)


# ---- interpolation and nested grids


def test_interpolation_is_exact_for_bilinear_functions():
    def bilinear(x, y):
        return 1 + 2 * x - y + 3 * x * y

    points = np.concatenate([np.random.default_rng(0).uniform(size=(50, 2)), [[0, 0], [1, 1], [1, 0], [0.25, 1]]])
    fields = bilinear(*grid_square(9, UNIT).points.T)[None]
    assert np.allclose(interpolate(fields, points, 8)[0], bilinear(*points.T), rtol=1e-14)


def test_nested_grids_agree_to_the_bit(cache: Path):
    coarse, fine = make(cache), make(cache, "grid:32")
    assert coarse.outputs.shape == (3, 17**2)
    assert fine.outputs.shape == (3, 33**2)
    assert np.array_equal(fine.points.reshape(33, 33, 2)[::2, ::2].reshape(-1, 2), coarse.points)
    assert np.array_equal(fine.outputs.reshape(3, 33, 33)[:, ::2, ::2].reshape(3, -1), coarse.outputs)
    solved = get_problem(NAME).solve(get_problem(NAME).parameters(3, seed=0))
    assert np.array_equal(solved.reshape(3, 129, 129)[:, ::4, ::4].reshape(3, -1), fine.outputs)
    assert np.array_equal(make(cache, "grid:16").outputs, coarse.outputs)
    assert np.array_equal(fine.flat_inputs, coarse.flat_inputs)
    assert fine.triangles is not None
    assert len(fine.triangles) == 2 * 32**2


def test_random_points_lie_on_the_unit_square(cache: Path):
    data = make(cache, "random:200")
    assert 0 < data.points.min() < 0.05
    assert 0.95 < data.points.max() < 1
    assert data.outputs.min() > 0
    assert data.triangles is None


# ---- data


def test_data(cache: Path):
    data = make(cache)
    function = data.inputs["conductivity"]
    assert function.values.shape == (3, 256)
    assert function.grid_shape == (16, 16)
    assert function.sensors is not None
    assert np.array_equal(function.sensors, np.stack(centres(16), axis=1))
    assert data.triangles is not None
    assert len(data.triangles) == 2 * 16**2
    assert np.array_equal(data.labels["mean_conductivity"], function.values.mean(axis=1))
    assert data.reference_outputs is None


def test_inputs_are_means_over_the_cells_of_their_sensors(cache: Path):
    seed = int(get_problem(NAME).parameters(3, seed=0)[2, 0])
    a, x, y = conductivity(seed).ravel(), *centres(128)
    values = make(cache).inputs["conductivity"].values[2]
    for sensor, (left, bottom) in ((0, (0, 0)), (5, (5 / 16, 0)), (16 * 9 + 2, (2 / 16, 9 / 16))):
        is_near = (x > left) & (x < left + 1 / 16) & (y > bottom) & (y < bottom + 1 / 16)
        assert is_near.sum() == 64
        assert np.isclose(values[sensor], a[is_near].mean(), rtol=1e-14)
    assert cell_means(conductivity(seed)).mean() == pytest.approx(a.mean(), rel=1e-14)


def test_fewer_samples_are_the_first_of_more_and_follow_the_seed(cache: Path):
    problem = get_problem(NAME)
    many = problem.parameters(100, seed=0)
    assert np.array_equal(problem.parameters(5, seed=0), many[:5])
    assert len(np.unique(many)) == 100
    assert not np.array_equal(problem.parameters(5, seed=1), many[:5])
    assert np.array_equal(many, many.astype(np.int64))
    assert np.array_equal(make(cache, samples=2).outputs, make(cache).outputs[:2])
    with pytest.raises(ValueRangeError, match="samples is 0"):
        problem.parameters(0, seed=0)


def test_solutions_do_not_depend_on_their_block():
    problem = get_problem(NAME)
    parameters = problem.parameters(3, seed=3)
    assert np.array_equal(problem.solve(parameters)[2:], problem.solve(parameters[2:]))


# ---- binary Darcy flow


def test_binary_darcy_is_determined_by_its_input(cache: Path):
    problem = BinaryDarcy(cells=16)
    data = make_data(problem, samples=3, cache=cache)
    values = data.flat_inputs
    assert set(np.unique(values)) == {3.0, 12.0}
    assert np.array_equal(data.points, data.inputs["conductivity"].sensors)
    # The solution for the same medium, given on twice as many cells, is the same at the centres of the cells.
    medium = np.kron(values[1].reshape(16, 16), np.ones((8, 8)))
    u, _ = cell_diffusion(128).solve(medium.ravel(), np.full(129**2, 1 / 128**2))
    assert np.array_equal(data.outputs[1], u.reshape(129, 129)[4::8, 4::8].ravel())
    assert make_data(BinaryDarcy(cells=32), samples=1, cache=cache).outputs.shape == (1, 32**2)
