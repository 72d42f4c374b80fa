"""Cross-check of the finite elements against NGSolve: the closed forms, one nonlinear solve, and the disk.

NGSolve (LGPL) is used by this script alone: `pip install ngsolve`, best in an environment of its own. Prints, for
each quantity, the largest and the mean square difference at the nodes (541, 2049 or 65 x 65), relative to the
largest value.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from trunkfirst.problems.conductivity import DiscontinuousConductivity
from trunkfirst.problems.finite_elements import one
from trunkfirst.problems.generate import get_problem
from trunkfirst.problems.nonlinear_darcy import fine_profiles

try:
    import ngsolve as ng
    from netgen.geom2d import SplineGeometry
except ImportError:
    sys.exit("this script compares with NGSolve; install it with: pip install ngsolve")

ORDER = 5
WIDTH = 0.08


def main() -> None:
    """Compare tau, w0 and the solutions of both nonlinear problems."""
    mesh = _square()
    for name, g, shape in (
        ("nonlinear-conductivity", ng.cos(ng.x), lambda x, y: np.cos(x)),
        ("multiple-inputs", ng.CF(1), one),
    ):
        points = get_problem(name).mesh.points
        profiles = fine_profiles(points, shape)
        show(f"{name}: tau (P2, fine mesh)", profiles.tau, evaluate(mesh, poisson(mesh, 1.0, ng.CF(0)), points))
        show(f"{name}: w0 (P2, fine mesh)", profiles.w0, evaluate(mesh, poisson(mesh, 0.0, g * g), points))
    beta = np.array([[1.0]])
    compare_solve("nonlinear-conductivity", beta, mesh, newton(mesh, 1.0, 1.0, ng.cos(ng.x)))
    triple = np.array([[3.0, 0.5, 0.8]])  # f, kappa, g
    compare_solve("multiple-inputs", triple, mesh, newton(mesh, 0.5, 3.0, ng.CF(0.8)))
    compare_disk()


def compare_solve(name: str, parameters: np.ndarray, mesh: Any, solution: Any) -> None:
    """Our P1 solution and our closed form, both against NGSolve's nonlinear solve."""
    problem = get_problem(name)
    exact = evaluate(mesh, solution, problem.mesh.points)
    data = problem.assemble(parameters, problem.solve(parameters))
    assert data.reference_outputs is not None
    show(f"{name} {parameters[0]}: p, P1 by Newton", data.outputs[0], exact)
    show(f"{name} {parameters[0]}: p, closed form", data.reference_outputs[0], exact)


def compare_disk() -> None:
    """The pressure of discontinuous-conductivity, on the paper's grid and on the fitted mesh, for several beta."""
    mesh = _disk_in_square()
    for beta in (0.01, 0.1, 0.5, 2.0, 10.0):
        solution = disk(mesh, beta)
        for is_fitted, words in ((False, "65 x 65 grid"), (True, "fitted mesh")):
            problem, parameters = DiscontinuousConductivity(is_fitted), np.array([[beta]])
            data = problem.assemble(parameters, problem.solve(parameters))
            exact = evaluate(mesh, solution, data.points)
            error = np.linalg.norm(data.flat_inputs[0] - exact) / np.linalg.norm(exact)
            name = f"{problem.name} [{beta}]: p, P1, {words}, relative l2 {error:.1e}"
            show(name, data.flat_inputs[0], exact)


def disk(mesh: Any, beta: float) -> Any:
    """-div(kappa grad p) = 0, kappa = beta in the disk; p = 0 at the top, outward flux 1 at the bottom."""
    space = ng.H1(mesh, order=ORDER, dirichlet="top")
    trial, test = space.TnT()
    kappa = mesh.MaterialCF({"disk": beta}, default=1.0)
    a = ng.BilinearForm(kappa * ng.grad(trial) * ng.grad(test) * ng.dx).Assemble()
    b = ng.LinearForm(-test * ng.ds("bottom")).Assemble()
    p = ng.GridFunction(space)
    p.vec.data = a.mat.Inverse(space.FreeDofs()) * b.vec
    return p


def show(title: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """One line with the largest and the root mean square difference."""
    difference = (ours - theirs) / np.abs(theirs).max()
    print(f"{title:84s} max {np.abs(difference).max():.1e}   rms {np.sqrt(np.mean(difference**2)):.1e}")


def poisson(mesh: Any, f: float, g: Any) -> Any:
    """-lap u = f, u = g on the boundary."""
    space, u = _start(mesh, g)
    trial, test = space.TnT()
    a = ng.BilinearForm(ng.grad(trial) * ng.grad(test) * ng.dx).Assemble()
    b = ng.LinearForm(ng.Parameter(f) * test * ng.dx).Assemble()  # a bare 0 would vanish from the form
    r = b.vec - a.mat * u.vec
    u.vec.data += a.mat.Inverse(space.FreeDofs()) * r
    return u


def newton(mesh: Any, kappa: float, f: float, g: Any) -> Any:
    """-div(kappa p grad p) = f, p = g on the boundary, by NGSolve's own Newton method."""
    space, p = _start(mesh, g)
    trial, test = space.TnT()
    a = ng.BilinearForm(space)
    a += (kappa * trial * ng.grad(trial) * ng.grad(test) - f * test) * ng.dx
    inside = ng.GridFunction(space)
    inside.Set(ng.CF(1.0))  # p = 0, which `Set` on the boundary leaves inside, has a singular Jacobian
    p.vec.data += ng.Projector(space.FreeDofs(), True) * inside.vec
    r, step = p.vec.CreateVector(), p.vec.CreateVector()
    for _ in range(30):
        a.Apply(p.vec, r)
        a.AssembleLinearization(p.vec)
        step.data = a.mat.Inverse(space.FreeDofs()) * r
        p.vec.data -= step
        if step.Norm() < 1e-12 * p.vec.Norm():
            return p
    raise RuntimeError("NGSolve's Newton method did not converge")


def evaluate(mesh: Any, function: Callable[[Any], float], points: np.ndarray) -> np.ndarray:
    """Values at points; those on the boundary are moved in by 1e-13, where NGSolve finds an element."""
    return np.array([function(mesh(*(point * (1 - 1e-13)))) for point in points])


def _start(mesh: Any, g: Any) -> tuple[Any, Any]:
    space = ng.H1(mesh, order=ORDER, dirichlet=".*")
    u = ng.GridFunction(space)
    u.Set(g, ng.BND)
    return space, u


def _square() -> Any:
    """The square, refined towards its corners, where the solutions behave like r^2 log r."""
    geometry = SplineGeometry()
    geometry.AddRectangle((-1, -1), (1, 1))
    mesh = ng.Mesh(geometry.GenerateMesh(maxh=WIDTH))
    for level in range(4):
        for element in mesh.Elements():
            vertices = [np.abs(mesh[vertex].point).min() for vertex in element.vertices]
            mesh.SetRefinementFlag(element, max(vertices) > 1 - WIDTH / 2**level)
        mesh.Refine()
    return mesh


def _disk_in_square() -> Any:
    """The square with a curved disk in it."""
    geometry = SplineGeometry()
    sides = ["bottom", "side", "top", "side"]
    geometry.AddRectangle((-1, -1), (1, 1), bcs=sides, leftdomain=1, rightdomain=0)
    geometry.AddCircle((0, 0), 0.5, leftdomain=2, rightdomain=1)
    geometry.SetMaterial(1, "outside")
    geometry.SetMaterial(2, "disk")
    mesh = ng.Mesh(geometry.GenerateMesh(maxh=WIDTH))
    mesh.Curve(ORDER)
    return mesh


if __name__ == "__main__":
    main()
