"""The Kirchhoff transform w = p^2, which makes -div(kappa p grad p) = f linear.

With p = g on the boundary and constants kappa, f:  p = sqrt(w0 + (2 f / kappa) tau), where lap w0 = 0 with
w0 = g^2 on the boundary, and -lap tau = 1 with tau = 0 on the boundary. Two linear solves give the solution
for all constants at once: the start of Newton's method, and, on a fine mesh, the reference for its results.
"""

import dataclasses as dc

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from skfem import Basis, ElementTriP2, MeshTri

from ._forms import Field, one, p1_basis, solve_poisson
from ._meshes import Triangulation

FINE_EDGES = 96


@dc.dataclass(frozen=True, eq=False)
class Profiles:
    """tau and w0 at points, for boundary values of a given shape."""

    tau: Float[np.ndarray, " points"]
    w0: Float[np.ndarray, " points"]

    def pressures(
        self,
        *,
        kappa: Float[np.ndarray, " samples"],
        f: Float[np.ndarray, " samples"],
        g: Float[np.ndarray, " samples"],
    ) -> Float[np.ndarray, "samples points"]:
        """p = sqrt(g^2 w0 + (2 f / kappa) tau), where g scales the boundary values."""
        w = np.multiply.outer(g**2, self.w0)
        w += np.multiply.outer(2 * f / kappa, self.tau)
        return np.sqrt(w, out=w)


def coarse_profiles(mesh: Triangulation, boundary_values: Field) -> Profiles:
    """tau and w0 by P1 at the nodes of `mesh`; the boundary values themselves are exact."""
    tau, w0 = _solve(p1_basis(mesh), boundary_values)
    return Profiles(tau, w0)


def fine_profiles(points: Float[np.ndarray, "points 2"], boundary_values: Field) -> Profiles:
    """tau and w0 by P2 on a fine mesh, evaluated at `points`.

    The mesh is graded towards the sides, because both functions behave like r^2 log r at the corners.
    Against their Fourier series the values are right to 1e-6.
    """
    ticks = np.sin(0.5 * np.pi * np.linspace(-1.0, 1.0, FINE_EDGES + 1))
    basis = Basis(MeshTri.init_tensor(ticks, ticks), ElementTriP2())
    evaluate = _evaluation(basis, ticks, points)
    tau, w0 = (evaluate @ u for u in _solve(basis, boundary_values))
    # On the boundary the data are known; interpolating them would only add an error.
    is_edge = np.abs(points).max(axis=1) == 1.0
    w0[is_edge] = boundary_values(*points[is_edge].T) ** 2
    tau[is_edge] = 0.0
    return Profiles(tau, w0)


def _evaluation(
    basis: Basis, ticks: Float[np.ndarray, " ticks"], points: Float[np.ndarray, "points 2"]
) -> sp.csr_array:
    """The matrix (points) x (unknowns) that evaluates a function on a tensor mesh.

    scikit-fem's own search takes seconds on a graded mesh; on a tensor mesh the cell of a point is known.
    """
    elements = _elements_at(basis, ticks, points)
    local = basis.mapping.invF(points.T[:, :, None], tind=elements)
    shapes = [basis.elem.gbasis(basis.mapping, local, k, tind=elements)[0] for k in range(basis.Nbfun)]
    values = np.stack([np.asarray(shape)[:, 0] for shape in shapes])  # (functions, points)
    rows = np.tile(np.arange(len(points)), basis.Nbfun)
    columns = basis.element_dofs[:, elements].ravel()
    return sp.csr_array((values.ravel(), (rows, columns)), (len(points), basis.N))


def _elements_at(
    basis: Basis, ticks: Float[np.ndarray, " ticks"], points: Float[np.ndarray, "points 2"]
) -> Int[np.ndarray, " points"]:
    """The triangle around each point: of the two in its cell, the one where it lies deeper."""

    def cells(x: Float[np.ndarray, "points 2"]) -> Int[np.ndarray, " points"]:
        column, row = np.clip(np.searchsorted(ticks, x.T, side="right") - 1, 0, len(ticks) - 2)
        return row * (len(ticks) - 1) + column

    corners = basis.mesh.p[:, basis.mesh.t]
    pairs = np.argsort(cells(corners.mean(axis=1).T), kind="stable").reshape(-1, 2)[cells(points)]
    local = basis.mapping.invF(np.repeat(points.T[:, :, None], 2, axis=1), tind=pairs.ravel())
    x, y = local.reshape(2, -1, 2)
    depth = np.minimum(np.minimum(x, y), 1 - x - y)
    return np.take_along_axis(pairs, depth.argmax(axis=1)[:, None], axis=1)[:, 0]


def _solve(basis: Basis, boundary_values: Field) -> Float[np.ndarray, "2 unknowns"]:
    zero = lambda x, y: np.zeros_like(x)  # noqa: E731
    return solve_poisson(basis, (one, zero), (zero, lambda x, y: boundary_values(x, y) ** 2))
