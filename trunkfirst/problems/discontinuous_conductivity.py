"""Section 5.2: from the pressure to a conductivity that jumps at a circle."""

import dataclasses as dc
import functools as ft

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float
from scipy.spatial import Delaunay
from skfem import ElementTriP1, FacetBasis

from ..data.operator_data import InputFunction, OperatorData
from .finite_elements import Diffusion, integral, p1_basis, p1_elements, to_skfem
from .meshes import Points, Triangulation, fitted_square, grid_square
from .problem import AbstractProblem, Fields, Parameters, PerSample, check_samples

_SIDE = 65
_RADIUS = 0.5


@dc.dataclass(frozen=True)
class DiscontinuousConductivity(AbstractProblem):
    """-div(kappa grad p) = 0 on (-1, 1)^2, kappa = beta where |x| <= 0.5, 1 elsewhere; operator p -> kappa.

    p = 0 at the top, outward flux -kappa dp/dn = 1 at the bottom, no flux through the sides: p = y - 1 for
    beta = 1. The paper takes beta = 0.01, 0.02, ..., 10 and a grid of 65 x 65 nodes. Other numbers of samples
    are equidistant in [0.01, 10]. An element belongs to the disk if its centroid does.

    On the grid the circle is a staircase: the pressure is wrong by 4e-4 to 9e-3 (relative l2, by beta), the
    conductivity at the nodes is exact. With `is_fitted` the pressure is computed on a finer mesh with nodes on the
    circle, `fitted_square(128)`, and given at the same 65 x 65 nodes.
    """

    is_fitted: bool = False

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
        return fitted_square(2 * _SIDE - 2, _RADIUS) if self.is_fitted else grid_square(_SIDE)

    def parameters(self, samples: int, *, seed: int) -> Parameters:
        del seed
        check_samples(samples)
        return np.linspace(1.0, 1000.0, samples)[:, None] / 100

    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        operator, load = disk_diffusion(self.mesh), bottom_flux(self.mesh)
        solved = [operator.solve(np.array([1.0, beta]), load) for beta in parameters[:, 0]]
        return np.stack([pressure for pressure, _ in solved]), np.array([residual for _, residual in solved])

    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        assert fields is not None  # the pressure is the input
        grid = grid_square(_SIDE)
        places = grid.points if points is None else points
        pressures = fields @ values_at(self.mesh, grid).T if self.is_fitted else fields
        return OperatorData(
            inputs={"pressure": InputFunction(pressures, sensors=grid.points, grid_shape=(_SIDE, _SIDE))},
            points=places,
            outputs=np.where(in_disk(places), parameters, 1.0),
            triangles=grid.triangles if points is None else None,
            labels=self.labels(parameters),
            output_name="conductivity",
        )


def in_disk(points: Points) -> Bool[np.ndarray, " points"]:
    """Return True where |x| <= 0.5."""
    return np.sum(points**2, axis=1) <= _RADIUS**2


@ft.cache
def disk_diffusion(mesh: Triangulation) -> Diffusion:
    """Return the operator on a mesh. Region 0 is outside the disk, 1 inside; u = 0 at the top."""
    corners, stiffness = p1_elements(p1_basis(mesh))
    regions = in_disk(mesh.points[mesh.triangles].mean(axis=1)).astype(np.int64)
    # Row by row, which keeps the band narrow; scikit-fem sorts the corners, not the triangles.
    below = np.flatnonzero(mesh.points[:, 1] < 1.0)
    return Diffusion.on(corners, stiffness, regions, below[np.lexsort(mesh.points[below].T)])


@ft.cache
def bottom_flux(mesh: Triangulation) -> Float[np.ndarray, " nodes"]:
    """Return the load: minus the integral of phi_i over the bottom, since kappa dp/dn = -1 there."""
    domain = to_skfem(mesh)
    bottom = domain.facets_satisfying(lambda x: x[1] == -1.0, boundaries_only=True)
    return -integral.assemble(FacetBasis(domain, ElementTriP1(), facets=bottom))


@ft.cache
def values_at(mesh: Triangulation, grid: Triangulation) -> sp.csr_array:
    """Return the matrix from values at the nodes of a Delaunay mesh to those of its linear functions at `grid`."""
    delaunay = Delaunay(mesh.points)
    # A node on the edge of the square must not be outside all triangles by a rounding error.
    places = grid.points * (1 - 1e-14)
    found = delaunay.find_simplex(places)
    maps = delaunay.transform[found]
    first = np.einsum("pij,pj->pi", maps[:, :2], places - maps[:, 2])
    shares = np.column_stack([first, 1 - first.sum(axis=1)])  # barycentric coordinates
    rows = np.repeat(np.arange(len(places)), 3)
    columns = delaunay.simplices[found].ravel()
    return sp.csr_array((shares.ravel(), (rows, columns)), (len(places), len(mesh.points)))
