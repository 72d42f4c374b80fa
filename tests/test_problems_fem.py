"""Finite elements against what is known exactly: manufactured solutions, closed forms, series, balances."""

import numpy as np
import pytest

from trunkfirst.problems.conductivity import (
    DiscontinuousConductivity,
    bottom_flux,
    disk_diffusion,
    in_disk,
    values_at,
)
from trunkfirst.problems.finite_elements import (
    Triangulation,
    fitted_square,
    grid_square,
    p1_basis,
    solve_poisson,
    sum_elements,
    to_skfem,
    triangulate_square,
)
from trunkfirst.problems.generate import get_problem
from trunkfirst.problems.nonlinear_darcy import MultipleInputs, QuadraticDarcy, coarse_profiles, fine_profiles

SIDES = (9, 17, 33)


def l2_error(mesh, nodal, exact) -> float:
    """L2 norm of the error of a piecewise linear function, by quadrature of order four on each triangle."""
    basis = p1_basis(mesh)
    x, y = np.asarray(basis.global_coordinates())
    return float(np.sqrt(np.sum((np.asarray(basis.interpolate(nodal)) - exact(x, y)) ** 2 * basis.dx)))


def order(errors: list[float]) -> float:
    """Observed order under halving of the mesh width."""
    return float(np.polyfit(np.arange(len(errors)), -np.log2(errors), 1)[0])


def test_linear_manufactured_solution_converges_with_order_two():
    def exact(x, y):
        return np.sin(2 * x + 0.3) * np.exp(y)

    def source(x, y):
        return 3 * exact(x, y)

    errors = []
    for side in SIDES:
        mesh = grid_square(side)
        errors.append(l2_error(mesh, solve_poisson(p1_basis(mesh), (source,), (exact,))[0], exact))
    assert abs(order(errors) - 2.0) < 0.1


def refined(mesh: Triangulation, times: int) -> Triangulation:
    """Each triangle cut into four, `times` times."""
    finer = to_skfem(mesh).refined(times)
    return Triangulation(finer.p.T, finer.t.T.astype(np.int64))


@pytest.mark.parametrize("coarse", [grid_square(9), triangulate_square(50)])
def test_nonlinear_manufactured_solution_converges_with_order_two(coarse: Triangulation):
    """p = 2 + sin(2x) cos(y): div(p grad p) = lap(p^2)/2."""

    def exact(x, y):
        return 2 + np.sin(2 * x) * np.cos(y)

    def source(x, y):
        p, px, py = exact(x, y), 2 * np.cos(2 * x) * np.cos(y), -np.sin(2 * x) * np.sin(y)
        return -3.0 * (p * -5 * np.sin(2 * x) * np.cos(y) + px**2 + py**2)  # for kappa = 3

    errors = []
    for mesh in [refined(coarse, times) for times in range(4)]:
        start = np.where(mesh.is_boundary, exact(*mesh.points.T), 2.0)[None]
        result = QuadraticDarcy.on(mesh, source).solve(start, kappa=np.array([3.0]), f=np.ones(1))
        assert result.is_converged.all()
        errors.append(l2_error(mesh, result.pressures[0], exact))
    assert abs(order(errors) - 2.0) < 0.1


def test_residual_is_half_the_jacobian_times_p():
    """B(p, p) = J(p) p / 2 for a form quadratic in p: ties the tensor to the element sums."""
    mesh = triangulate_square(137)
    operator = QuadraticDarcy.on(mesh)
    rng = np.random.default_rng(0)
    p = np.where(mesh.is_boundary, 0.0, rng.uniform(1, 2, 137))[:, None]  # J has no columns for the boundary
    r, _ = operator.residual(p, np.zeros(1), kappa=np.ones(1), f=np.zeros(1))
    inverse = operator._step(p, r)
    assert np.allclose(inverse, p[operator.unknowns] / 2, rtol=1e-10)


def test_jacobian_is_the_derivative_of_the_residual():
    mesh = triangulate_square(137)
    operator, constants = QuadraticDarcy.on(mesh), {"kappa": np.ones(1), "f": np.ones(1)}
    rng = np.random.default_rng(1)
    p, v = 1 + rng.uniform(size=(137, 1)), np.zeros((137, 1))
    v[operator.unknowns] = rng.normal(size=(len(operator.unknowns), 1))
    plus, minus = (operator.residual(p + s * v, np.zeros(1), **constants)[0] for s in (1e-3, -1e-3))
    derivative = (plus - minus) / 2e-3  # exact for a quadratic
    assert np.allclose(operator._step(p, derivative), v[operator.unknowns], atol=1e-9)


def test_offset_does_not_change_the_residual():
    mesh = triangulate_square(137)
    operator, constants = QuadraticDarcy.on(mesh), {"kappa": np.full(1, 2.0), "f": np.ones(1)}
    p = 1 + np.random.default_rng(2).uniform(size=(137, 1))
    plain, shifted = (
        operator.residual(p, np.zeros(1), **constants),
        operator.residual(p - 1.5, np.full(1, 1.5), **constants),
    )
    assert np.allclose(plain[0], shifted[0], rtol=0, atol=1e-12)
    assert np.allclose(plain[1], shifted[1], rtol=1e-12)


def series(x, y, terms: int = 1000):
    """tau and w0 (for cos x on the boundary) on the square by separation of variables."""
    a = np.pi / 2 * np.arange(1, 2 * terms, 2)[:, None]
    cosh_ratio = np.exp(a * (abs(y) - 1)) * (1 + np.exp(-2 * a * abs(y))) / (1 + np.exp(-2 * a))
    modes = cosh_ratio * np.cos(a * x)
    tau = (1 - x**2) / 2 - np.sum(2 * np.sin(a) / a**3 * modes, axis=0)
    c = np.sin(a - 2) / (a - 2) + np.sin(a + 2) / (a + 2) - 2 * np.cos(2) * np.sin(a) / a
    return tau, 0.5 + 0.5 * (np.cos(2) + np.sum(c * modes, axis=0))


def test_fine_profiles_agree_with_fourier_series():
    points = np.concatenate([triangulate_square(541).points, np.random.default_rng(0).uniform(-1, 1, (500, 2))])
    profiles = fine_profiles(points, lambda x, y: np.cos(x))
    tau, w0 = series(*points.T)
    assert np.abs(profiles.tau - tau).max() < 1e-6
    assert np.abs(profiles.w0 - w0).max() < 2e-6


@pytest.mark.parametrize(("kappa", "f", "g", "shape"), [(1.0, 1.0, 1.0, np.cos), (2.0, 5.0, 0.7, np.ones_like)])
def test_newton_converges_to_the_kirchhoff_closed_form(kappa, f, g, shape):
    constants = {"kappa": np.array([kappa]), "f": np.array([f]), "g": np.array([g])}
    errors = []
    for side in (17, 33, 65):
        mesh = grid_square(side)
        start = coarse_profiles(mesh, lambda x, y: shape(x)).pressures(**constants)
        result = QuadraticDarcy.on(mesh).solve(start, kappa=constants["kappa"], f=constants["f"])
        tau, w0 = series(*mesh.points.T)
        w = f * 2 / kappa * tau + g**2 * (w0 if shape is np.cos else 1.0)
        exact = np.where(mesh.is_boundary, result.pressures[0], np.sqrt(w))
        errors.append(float(np.sqrt(mesh.quadrature_weights @ (result.pressures[0] - exact) ** 2)))
        assert result.is_converged.all()
    assert abs(order(errors) - 2.0) < 0.1


@pytest.mark.parametrize("triple", [(0.1, 10.0, 10.0), (1.0, 1.0, 1.0), (10.0, 0.1, 0.1), (3.3, 0.7, 8.1)])
def test_scaling_law(triple):
    """p = g q(f/(kappa g^2)), q the solution with kappa = g = 1: independent solves."""
    f, kappa, g = triple
    problem = get_problem("multiple-inputs")
    p = problem.solve(np.array([[f, kappa, g]]))[0]
    q = problem.solve(np.array([[f / (kappa * g**2), 1.0, 1.0]]))[0]
    assert np.abs(p / (g * q) - 1).max() < 1e-9


def test_every_sample_of_a_block_meets_the_tolerance():
    """Nearly constant pressures, where rounding of p alone would exceed 1e-10, are among these."""
    result = MultipleInputs().newton(MultipleInputs().parameters(300, seed=0))
    assert result.residuals.max() <= 1e-10
    assert 1 <= result.steps.max() <= 6


def test_solutions_do_not_depend_on_their_block():
    problem = get_problem("multiple-inputs")
    parameters = problem.parameters(40, seed=3)
    together = problem.solve(parameters)
    alone = np.concatenate([problem.solve(row[None]) for row in parameters[::13]])
    assert np.allclose(together[::13], alone, rtol=1e-12)


def test_discontinuous_problem_at_beta_one_is_linear():
    problem = get_problem("discontinuous-conductivity")
    p = problem.solve(np.array([[1.0]]))[0]
    assert np.abs(p - (problem.mesh.points[:, 1] - 1)).max() < 1e-11


@pytest.mark.parametrize("is_fitted", [False, True], ids=["grid", "fitted"])
@pytest.mark.parametrize("beta", [0.01, 1.0, 3.0, 10.0])
def test_flux_balance(beta: float, is_fitted: bool):
    """What leaves at the bottom enters at the top, at every height in between, and none through the sides."""
    mesh = DiscontinuousConductivity(is_fitted).mesh
    operator, coefficients = disk_diffusion(mesh), np.array([1.0, beta])
    p, residual = operator.solve(coefficients, bottom_flux(mesh))
    parts = operator.contributions(coefficients, p).ravel()
    reactions = sum_elements(operator.corners, len(p)) @ parts  # kappa dp/dn, weighted by phi_i
    is_top, is_bottom = mesh.points[:, 1] == 1, mesh.points[:, 1] == -1
    assert residual < 1e-10
    assert abs(reactions[is_top].sum() - 2) < 1e-9
    assert abs(reactions[is_bottom].sum() + 2) < 1e-9
    assert np.abs(reactions[~is_top & ~is_bottom]).max() < 1e-10
    assert np.abs(p[is_top]).max() == 0
    corners = mesh.points[mesh.triangles]
    slope = np.einsum("ti,ti->t", _vertical_slopes(corners), p[mesh.triangles])
    kappa = np.where(in_disk(corners.mean(axis=1)), beta, 1.0)
    assert abs((kappa * slope) @ mesh.areas - 4) < 1e-9  # the flux 2 through each of the lines of length 2


def _vertical_slopes(corners):
    """d phi_i / dy on each triangle."""
    x = corners[:, :, 0]
    (ux, uy), (vx, vy) = (corners[:, 1] - corners[:, 0]).T, (corners[:, 2] - corners[:, 0]).T
    return (
        np.stack([x[:, 2] - x[:, 1], x[:, 0] - x[:, 2], x[:, 1] - x[:, 0]], axis=1) / (ux * vy - uy * vx)[:, None]
    )


@pytest.mark.parametrize("beta", [0.01, 10.0])
def test_a_fitted_mesh_is_of_second_order_and_the_staircase_is_not_near(beta: float):
    """At the 65 x 65 nodes, in the relative l2 norm; the reference is extrapolated from the two finest meshes."""
    grid, a = grid_square(65), np.array([1.0, beta])

    def solved(mesh: Triangulation) -> np.ndarray:
        return disk_diffusion(mesh).solve(a, bottom_flux(mesh))[0]

    meshes = {cells: fitted_square(cells, 0.5) for cells in (32, 64, 128)}
    p = {cells: values_at(mesh, grid) @ solved(mesh) for cells, mesh in meshes.items()}
    exact = p[128] + (p[128] - p[64]) / 3
    errors = {cells: np.linalg.norm(p[cells] - exact) / np.linalg.norm(exact) for cells in meshes}
    assert (
        np.log2(errors[32] / errors[64]) > 1.85
    )  # on 32 cells most nodes of the grid are between those of the mesh
    assert errors[128] < 3e-4
    staircase = np.linalg.norm(solved(grid) - exact) / np.linalg.norm(exact)
    assert staircase == pytest.approx({0.01: 4.4e-3, 10.0: 9.1e-3}[beta], rel=0.05)


def test_fitted_data_have_the_layout_of_the_paper():
    problem, beta = DiscontinuousConductivity(is_fitted=True), np.array([[1.0], [4.0]])
    data = problem.assemble(beta, problem.solve(beta))
    plain = get_problem("discontinuous-conductivity")
    other = plain.assemble(beta, plain.solve(beta))
    assert np.array_equal(data.outputs, other.outputs)
    assert np.array_equal(data.triangles, other.triangles)
    assert data.inputs["pressure"].grid_shape == (65, 65)
    difference = np.abs(data.flat_inputs - other.flat_inputs).max(axis=1)
    assert difference[0] < 1e-11  # y - 1 is linear
    assert 1e-3 < difference[1] < 1e-1


def test_more_conductive_disk_lowers_the_pressure_drop():
    problem = get_problem("discontinuous-conductivity")
    drops = -problem.solve(np.array([[0.01], [1.0], [10.0]])).min(axis=1)
    assert drops[0] > drops[1] > drops[2]


def test_discontinuous_pressure_is_symmetric():
    p = get_problem("discontinuous-conductivity").solve(np.array([[7.0]])).reshape(65, 65)
    assert np.abs(p - p[:, ::-1]).max() < 1e-11
