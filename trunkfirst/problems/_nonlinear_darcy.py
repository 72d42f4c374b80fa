"""What the problems with conductivity kappa p share: -div(kappa p grad p) = f, p = g on the boundary."""

import dataclasses as dc
import functools as ft

import numpy as np
from jaxtyping import Float

from ..data import InputFunction, OperatorData
from ._forms import Field
from ._kirchhoff import Profiles, coarse_profiles, fine_profiles
from ._meshes import Triangulation, triangulate_square
from ._newton import NewtonResult, QuadraticDarcy


@dc.dataclass(frozen=True)
class NonlinearDarcy:
    """The equation on the mesh with `nodes` nodes; `shape` is g at scale 1. Equal records share a set-up."""

    nodes: int
    shape: Field

    @property
    def mesh(self) -> Triangulation:
        """The unstructured mesh."""
        return triangulate_square(self.nodes)

    def solve(
        self,
        *,
        kappa: Float[np.ndarray, " samples"],
        f: Float[np.ndarray, " samples"],
        g: Float[np.ndarray, " samples"],
    ) -> NewtonResult:
        """Newton's method for each sample from the Kirchhoff closed form; g scales the boundary values."""
        operator, start = _set_up(self)
        # a wrong parameter shows as a sample that does not converge, not as a warning
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            return operator.solve(start.pressures(kappa=kappa, f=f, g=g), kappa=kappa, f=f)

    def closed_form(
        self,
        points: Float[np.ndarray, "points 2"] | None,
        *,
        kappa: Float[np.ndarray, " samples"],
        f: Float[np.ndarray, " samples"],
        g: Float[np.ndarray, " samples"],
    ) -> Float[np.ndarray, "samples points"]:
        """The Kirchhoff closed form from the fine mesh, at `points` or at the nodes."""
        profiles = _fine_at_nodes(self) if points is None else fine_profiles(points, self.shape)
        return profiles.pressures(kappa=kappa, f=f, g=g)

    def assemble(
        self,
        inputs: dict[str, InputFunction],
        labels: dict[str, Float[np.ndarray, " samples"]],
        fields: Float[np.ndarray, "samples nodes"] | None,
        points: Float[np.ndarray, "points 2"] | None,
        **constants: Float[np.ndarray, " samples"],
    ) -> OperatorData:
        """Solved `fields` at the nodes beside the closed form as reference, or the closed form at `points`."""
        closed_form = self.closed_form(points, **constants)
        outputs = closed_form if points is not None or fields is None else fields
        return OperatorData(
            inputs=inputs,
            points=self.mesh.points if points is None else points,
            outputs=outputs,
            reference_outputs=None if outputs is closed_form else closed_form,
            triangles=self.mesh.triangles if points is None else None,
            labels=labels,
            output_name="pressure",
        )


@ft.cache
def _set_up(equation: NonlinearDarcy) -> tuple[QuadraticDarcy, Profiles]:
    return QuadraticDarcy.on(equation.mesh), coarse_profiles(equation.mesh, equation.shape)


@ft.cache
def _fine_at_nodes(equation: NonlinearDarcy) -> Profiles:
    return fine_profiles(equation.mesh.points, equation.shape)
