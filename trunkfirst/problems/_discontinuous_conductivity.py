"""Section 5.2: from the pressure back to a conductivity that jumps at a circle."""

import dataclasses as dc
import functools as ft

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from skfem import ElementTriP1, FacetBasis

from ..data import InputFunction, OperatorData
from ._abstract import AbstractProblem, check_samples, check_solved
from ._banded import SymmetricBand, half_bandwidth
from ._forms import ElementMatrices, boundary_flow, element_matrices, one, to_skfem
from ._meshes import Triangulation, grid_square

_SIDE = 65
_RADIUS = 0.5
_TOLERANCE = 1e-10


@dc.dataclass(frozen=True)
class DiscontinuousConductivity(AbstractProblem):
    """-div(kappa grad p) = 0 on (-1, 1)^2, kappa = beta where |x| <= 0.5, 1 elsewhere; operator p -> kappa.

    p = 0 at the top, outward flux -kappa dp/dn = 1 at the bottom, no flux through the sides: p = y - 1 for
    beta = 1. The paper takes beta = 0.01, 0.02, ..., 10 and a grid of 65 x 65 nodes. Other numbers of samples
    are equidistant in [0.01, 10]. An element belongs to the disk if its centroid does.
    """

    name = "discontinuous-conductivity"
    title = "Inverse problem: discontinuous conductivity"
    section = "5.2"
    equation = "-div(kappa grad p) = 0, kappa = beta in the disk of radius 0.5, 1 outside"
    parameter_names = ("beta",)
    default_samples = 1000
    shard_samples = 125
    seconds_per_sample = 0.006
    needs_fields = True

    @property
    def mesh(self) -> Triangulation:
        return grid_square(_SIDE)

    def parameters(self, samples: int, *, seed: int) -> Float[np.ndarray, "samples parameters"]:
        del seed
        check_samples(samples)
        return np.linspace(1.0, 1000.0, samples)[:, None] / 100

    def solve(
        self, parameters: Float[np.ndarray, "samples parameters"], *, first: int = 0
    ) -> Float[np.ndarray, "samples nodes"]:
        operator = linear_darcy(_SIDE)
        solved = [operator.solve(float(beta)) for beta in parameters[:, 0]]
        residuals = np.array([residual for _, residual in solved])
        check_solved(self, parameters, residuals <= _TOLERANCE, residuals, first=first)
        return np.stack([pressure for pressure, _ in solved])

    def assemble(
        self,
        parameters: Float[np.ndarray, "samples parameters"],
        fields: Float[np.ndarray, "samples nodes"] | None,
        points: Float[np.ndarray, "points 2"] | None = None,
    ) -> OperatorData:
        assert fields is not None  # the pressure is the input
        places = self.mesh.points if points is None else points
        inside = in_disk(places)
        return OperatorData(
            inputs={"pressure": InputFunction(fields, sensors=self.mesh.points, grid_shape=(_SIDE, _SIDE))},
            points=places,
            outputs=np.where(inside, parameters, 1.0),
            triangles=self.mesh.triangles if points is None else None,
            labels=self.labels(parameters),
            output_name="conductivity",
        )


def in_disk(points: Float[np.ndarray, "points 2"]) -> Bool[np.ndarray, " points"]:
    """True where |x| <= 0.5."""
    return np.sum(points**2, axis=1) <= _RADIUS**2


@dc.dataclass(frozen=True, eq=False)
class LinearDarcy:
    """The discrete equation K(beta) p = b with K(beta) = K_out + beta K_in; p = 0 at the top is built in."""

    unknowns: Int[np.ndarray, " unknowns"]
    """All nodes but those at the top."""
    outside: SymmetricBand
    inside: SymmetricBand
    elements: ElementMatrices
    is_inside: Bool[np.ndarray, " triangles"]
    inflow: Float[np.ndarray, " nodes"]
    """b: minus the integral of phi_i over the bottom, since kappa dp/dn = -1 there."""

    @classmethod
    def on(cls, mesh: Triangulation) -> "LinearDarcy":
        """The operator on `mesh`."""
        local = element_matrices(mesh, one)
        is_inside = in_disk(mesh.points[mesh.triangles].mean(axis=1))
        unknowns = np.flatnonzero(mesh.points[:, 1] < 1.0)
        parts = [_stiffness(local, chosen)[unknowns][:, unknowns] for chosen in (~is_inside, is_inside)]
        width = half_bandwidth(parts[0] + parts[1])
        outside, inside = (SymmetricBand.of(part, width=width) for part in parts)
        return cls(unknowns, outside, inside, local, is_inside, -_length_of_bottom(mesh))

    def contributions(self, pressure: Float[np.ndarray, " nodes"], beta: float) -> Float[np.ndarray, " corners"]:
        """kappa grad p . grad phi_i over each triangle, for its three corners i."""
        return np.repeat(np.where(self.is_inside, beta, 1.0), 3) * (self.elements.slopes @ pressure)

    def solve(self, beta: float) -> tuple[Float[np.ndarray, " nodes"], float]:
        """The pressure, and its largest residual over the summed absolute contributions of the elements."""
        pressure = np.zeros(len(self.inflow))
        solution = self.outside.plus(beta, self.inside).solve(self.inflow[self.unknowns])
        if solution is None:
            return pressure, np.inf
        pressure[self.unknowns] = solution
        parts = self.contributions(pressure, beta)
        residual = np.abs(self.elements.sums @ parts - self.inflow)
        size = self.elements.sums @ np.abs(parts) + np.abs(self.inflow)
        return pressure, float(np.max((residual / size)[self.unknowns]))


@ft.cache
def linear_darcy(side: int) -> LinearDarcy:
    """The operator on the grid with `side` x `side` nodes, made once."""
    return LinearDarcy.on(grid_square(side))


def _stiffness(elements: ElementMatrices, chosen: Bool[np.ndarray, " triangles"]) -> sp.csr_array:
    """Diffusion over the chosen triangles alone."""
    return (elements.sums @ sp.diags_array(np.repeat(chosen, 3).astype(float)) @ elements.slopes).tocsr()


def _length_of_bottom(mesh: Triangulation) -> Float[np.ndarray, " nodes"]:
    """The integral of phi_i over the bottom y = -1."""
    domain = to_skfem(mesh)
    bottom = domain.facets_satisfying(lambda x: x[1] == -1.0, boundaries_only=True)
    return boundary_flow.assemble(FacetBasis(domain, ElementTriP1(), facets=bottom))
