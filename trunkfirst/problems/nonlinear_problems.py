"""Sections 5.1 and 5.3: from constants to the pressure, with a conductivity proportional to the pressure."""

import abc
import dataclasses as dc
import functools as ft
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from ..data.operator_data import InputFunction, OperatorData
from .finite_elements import Function, one
from .meshes import Points, Triangulation, triangulate_square
from .nonlinear_darcy import NewtonResult, Profiles, QuadraticDarcy, coarse_profiles, fine_profiles
from .problem import AbstractProblem, Fields, Parameters, PerSample, check_samples


@dc.dataclass(frozen=True)
class AbstractNonlinearDarcy(AbstractProblem):
    """-div(kappa p grad p) = f on (-1, 1)^2, p = g on the boundary, on an unstructured mesh with `nodes` nodes."""

    nodes: int
    boundary_values: ClassVar[Function]
    """The shape of g, to be multiplied by a number per sample."""
    needs_fields = False

    @abc.abstractmethod
    def constants(self, parameters: Parameters) -> dict[str, PerSample]:
        """Return kappa, f and the factor g of the boundary values."""

    @abc.abstractmethod
    def inputs(self, parameters: Parameters) -> dict[str, InputFunction]:
        """Return the input functions."""

    @property
    def mesh(self) -> Triangulation:
        return triangulate_square(self.nodes)

    def newton(self, parameters: Parameters) -> NewtonResult:
        """Solve by Newton's method from the Kirchhoff closed form on the same mesh."""
        operator, start = set_up(self.nodes, type(self).boundary_values)
        constants = self.constants(parameters)
        # a wrong parameter shows as a sample that does not converge, not as a warning
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            pressures = start.pressures(**constants)
            return operator.solve(pressures, kappa=constants["kappa"], f=constants["f"])

    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        # 100 at a time fit in the processor's cache: 5.3 takes 0.45 ms per sample, against 0.65 ms for 2,500
        results = [self.newton(parameters[i : i + 100]) for i in range(0, len(parameters), 100)]
        return np.concatenate([r.pressures for r in results]), np.concatenate([r.residuals for r in results])

    def closed_form(
        self, parameters: Parameters, points: Points | None = None
    ) -> Float[np.ndarray, "samples points"]:
        """Return the Kirchhoff closed form from a fine mesh, at `points` or at the nodes."""
        shape = type(self).boundary_values
        profiles = _fine_at_nodes(self.nodes, shape) if points is None else fine_profiles(points, shape)
        return profiles.pressures(**self.constants(parameters))

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        """Return `fields` at the nodes with the closed form as reference, or the closed form at `points`."""
        closed_form = self.closed_form(parameters, points)
        outputs = closed_form if points is not None or fields is None else fields
        return OperatorData(
            inputs=self.inputs(parameters),
            points=self.mesh.points if points is None else points,
            outputs=outputs,
            reference_outputs=None if outputs is closed_form else closed_form,
            triangles=self.mesh.triangles if points is None else None,
            labels=self.labels(parameters),
            output_name="pressure",
        )


@ft.cache
def set_up(nodes: int, boundary_values: Function) -> tuple[QuadraticDarcy, Profiles]:
    """Return the discrete operator and the profiles of the closed form, both on the mesh with `nodes` nodes."""
    mesh = triangulate_square(nodes)
    return QuadraticDarcy.on(mesh), coarse_profiles(mesh, boundary_values)


@ft.cache
def _fine_at_nodes(nodes: int, boundary_values: Function) -> Profiles:
    return fine_profiles(triangulate_square(nodes).points, boundary_values)


def cosine(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """cos x, the boundary values of 5.1."""
    del y
    return np.cos(x)


@dc.dataclass(frozen=True)
class NonlinearConductivity(AbstractNonlinearDarcy):
    """-div(beta p grad p) = 1 on (-1, 1)^2, p = cos x on the boundary; operator beta -> p.

    The paper takes beta = 1, 2, ..., 1000 and 2049 nodes. Other numbers of samples are equidistant in [1, 1000].
    """

    name = "nonlinear-conductivity"
    title = "Nonlinear conductivity"
    section = "5.1"
    equation = "-div(beta p grad p) = 1, p = cos x on the boundary"
    parameter_names = ("beta",)
    default_samples = 1000
    shard_samples = 125
    seconds_per_sample = 0.01
    boundary_values = cosine
    nodes: int = 2049

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        del seed
        check_samples(samples)
        return np.linspace(1.0, 1000.0, samples)[:, None]

    def constants(self, parameters: Parameters) -> dict[str, PerSample]:
        beta = parameters[:, 0]
        return {"kappa": beta, "f": np.ones_like(beta), "g": np.ones_like(beta)}

    def inputs(self, parameters: Parameters) -> dict[str, InputFunction]:
        return {"conductivity": InputFunction(parameters, sensors=np.zeros((1, 2)))}


@dc.dataclass(frozen=True)
class MultipleInputs(AbstractNonlinearDarcy):
    """-div(kappa p grad p) = f on (-1, 1)^2, p = g on the boundary; operator (f, kappa, g) -> p.

    The paper draws 100,000 of the 100^3 grid points of [0.1, 10]^3, without replacement, and has 541 nodes.
    With the same seed fewer samples are the first of more.
    """

    name = "multiple-inputs"
    title = "Multiple inputs and nonlinear conductivity"
    section = "5.3"
    equation = "-div(kappa p grad p) = f, p = g on the boundary"
    parameter_names = ("f", "kappa", "g")
    default_samples = 100_000
    shard_samples = 2_500
    seconds_per_sample = 0.001
    boundary_values = one
    nodes: int = 541

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        check_samples(samples, limit=100**3)
        drawn = np.random.default_rng(seed).permutation(100**3)[:samples]
        return (np.stack(np.unravel_index(drawn, (100,) * 3), axis=1) + 1) / 10

    def constants(self, parameters: Parameters) -> dict[str, PerSample]:
        return self.labels(parameters)

    def inputs(self, parameters: Parameters) -> dict[str, InputFunction]:
        return {"parameters": InputFunction(parameters)}
