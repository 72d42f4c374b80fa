"""Section 5.1: from a constant conductivity to the pressure, with conductivity proportional to pressure."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..data import InputFunction, OperatorData
from ._abstract import AbstractProblem, check_samples, check_solved
from ._meshes import Triangulation
from ._nonlinear_darcy import NonlinearDarcy


def _cosine(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    del y
    return np.cos(x)


_EQUATION = NonlinearDarcy(2049, _cosine)


@dc.dataclass(frozen=True)
class NonlinearConductivity(AbstractProblem):
    """-div(beta p grad p) = 1 on (-1, 1)^2, p = cos x on the boundary; operator beta -> p.

    The paper takes beta = 1, 2, ..., 1000 and 2049 nodes. Another number of samples is spread over [1, 1000].
    """

    name = "nonlinear-conductivity"
    title = "Nonlinear conductivity"
    section = "5.1"
    equation = "-div(beta p grad p) = 1, p = cos x on the boundary"
    parameter_names = ("beta",)
    default_samples = 1000
    shard_samples = 125
    seconds_per_sample = 0.01
    needs_fields = False

    @property
    def mesh(self) -> Triangulation:
        return _EQUATION.mesh

    def parameters(self, samples: int, *, seed: int) -> Float[np.ndarray, "samples parameters"]:
        del seed
        check_samples(samples)
        return np.linspace(1.0, 1000.0, samples)[:, None]

    def solve(
        self, parameters: Float[np.ndarray, "samples parameters"], *, first: int = 0
    ) -> Float[np.ndarray, "samples nodes"]:
        result = _EQUATION.solve(**_constants(parameters))
        check_solved(self, parameters, result.is_converged, result.residuals, first=first)
        return result.pressures

    def assemble(
        self,
        parameters: Float[np.ndarray, "samples parameters"],
        fields: Float[np.ndarray, "samples nodes"] | None,
        points: Float[np.ndarray, "points 2"] | None = None,
    ) -> OperatorData:
        inputs, labels = (
            {"conductivity": InputFunction(parameters, sensors=np.zeros((1, 2)))},
            self.labels(parameters),
        )
        return _EQUATION.assemble(inputs, labels, fields, points, **_constants(parameters))


def _constants(
    parameters: Float[np.ndarray, "samples parameters"],
) -> dict[str, Float[np.ndarray, " samples"]]:
    beta = parameters[:, 0]
    return {"kappa": beta, "f": np.ones_like(beta), "g": np.ones_like(beta)}
