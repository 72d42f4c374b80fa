"""Newton's method for -div(kappa p grad p) = f with piecewise linear elements, many samples at a time.

The residual r(p) = kappa B(p, p) - f b is quadratic in the nodal values p, with the trilinear form
B(q, p)_i = integral of q grad p . grad phi_i. So the Jacobian is linear in p: its entries are S p with one
sparse matrix S, made once, and nothing is assembled in a Newton step.
"""

import dataclasses as dc

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int

from ._banded import GeneralBand, number_for_band
from ._forms import Field, element_matrices, flux, one, p1_basis
from ._meshes import Triangulation

TOLERANCE = 1e-10
MAXIMUM_STEPS = 20


@dc.dataclass(frozen=True, eq=False)
class NewtonResult:
    """What Newton's method ends with, sample by sample."""

    pressures: Float[np.ndarray, "samples nodes"]
    residuals: Float[np.ndarray, " samples"]
    """Largest residual of a node over the sum of the absolute contributions of its elements."""
    steps: Int[np.ndarray, " samples"]

    @property
    def is_converged(self) -> Bool[np.ndarray, " samples"]:
        """False also where the residual is not a number."""
        return self.residuals <= TOLERANCE


@dc.dataclass(frozen=True, eq=False)
class QuadraticDarcy:
    """The discrete operator on one mesh. Boundary values are part of p; only interior nodes are unknown."""

    # unknowns
    unknowns: Int[np.ndarray, " unknowns"]
    """Interior nodes in the order of the band."""
    band: GeneralBand
    # Jacobian
    jacobian: sp.csr_array
    """S: (entries of the Jacobian) x (nodes)."""
    # residual, element by element
    means: sp.csr_array
    """(triangles) x (nodes): the mean of p over a triangle."""
    slopes: sp.csr_array
    """(corners) x (nodes): the integral of grad p . grad phi_i over a triangle, for its three corners i."""
    sums: sp.csr_array
    """(unknowns) x (corners): adds up what the elements give to a node."""
    source: Float[np.ndarray, " unknowns"]
    """b: the integral of the source times phi_i."""
    source_size: Float[np.ndarray, " unknowns"]
    """The same with the absolute contributions of the elements."""

    @classmethod
    def on(cls, mesh: Triangulation, source: Field = one) -> "QuadraticDarcy":
        """The operator on `mesh`; `source` is the shape of f, to be multiplied by a number a sample."""
        unknowns = _unknowns(mesh)
        trilinear = flux.coo_data(p1_basis(mesh))
        band, S = _jacobian(trilinear.indices.astype(np.int64), trilinear.data, unknowns, len(mesh.points))
        local = element_matrices(mesh, source)
        sums = local.sums[unknowns].tocsr()
        b, size = sums @ local.loads, sums @ np.abs(local.loads)
        return cls(unknowns, band, S, _means(mesh), local.slopes, sums, b, size)

    def residual(
        self,
        u: Float[np.ndarray, "nodes samples"],
        offset: Float[np.ndarray, " samples"],
        *,
        kappa: Float[np.ndarray, " samples"],
        f: Float[np.ndarray, " samples"],
    ) -> tuple[Float[np.ndarray, "unknowns samples"], Float[np.ndarray, "unknowns samples"]]:
        """Residual of p = offset + u at the unknowns, and the summed absolute contributions of the elements.

        Flux and source count separately: in the middle of a symmetric grid they cancel in each element, and
        their difference is rounding error alone. The offset is there because a large constant in p has no
        slope but its rounding errors do: where p is nearly constant they alone exceed 1e-10.
        """
        parts = self.slopes @ u
        parts.reshape(-1, 3, u.shape[1])[:] *= (kappa * (offset + self.means @ u))[:, None, :]
        flow, flow_size = self.sums @ parts, self.sums @ np.abs(parts, out=parts)
        return flow - np.multiply.outer(self.source, f), flow_size + np.multiply.outer(self.source_size, np.abs(f))

    def solve(
        self,
        start: Float[np.ndarray, "samples nodes"],
        *,
        kappa: Float[np.ndarray, " samples"],
        f: Float[np.ndarray, " samples"],
    ) -> NewtonResult:
        """Newton's method from `start`, which carries the boundary values; each sample has its own steps."""
        offset = start.mean(axis=1)
        u = np.ascontiguousarray((start - offset[:, None]).T)
        residuals, steps = np.full(len(start), np.inf), np.zeros(len(start), dtype=np.int64)
        active = np.arange(len(start))
        for _ in range(MAXIMUM_STEPS + 1):
            r, size = self.residual(u[:, active], offset[active], kappa=kappa[active], f=f[active])
            residuals[active] = np.max(np.abs(r) / size, axis=0)
            is_open = residuals[active] > TOLERANCE  # false for NaN: such a sample is given up
            active, r = active[is_open], r[:, is_open]
            if len(active) == 0 or steps.max() == MAXIMUM_STEPS:
                break
            u[np.ix_(self.unknowns, active)] -= self._step(offset[active] + u[:, active], r / kappa[active])
            steps[active] += 1
        return NewtonResult(offset[:, None] + u.T, residuals, steps)

    def _step(
        self, p: Float[np.ndarray, "nodes samples"], r: Float[np.ndarray, "unknowns samples"]
    ) -> Float[np.ndarray, "unknowns samples"]:
        """J(p)^{-1} r, one banded system a sample; NaN where J is singular."""
        entries = np.ascontiguousarray((self.jacobian @ p).T)
        return self.band.solve(entries, np.ascontiguousarray(r.T)).T


def _unknowns(mesh: Triangulation) -> Int[np.ndarray, " unknowns"]:
    """Interior nodes, numbered for a small band."""
    nodes, corners = len(mesh.points), mesh.triangles
    rows, columns = np.repeat(corners, 3, axis=1).ravel(), np.tile(corners, 3).ravel()
    neighbours = sp.csr_array((np.ones(len(rows)), (rows, columns)), (nodes, nodes))
    inside = np.flatnonzero(~mesh.is_boundary)
    return inside[number_for_band(neighbours[inside][:, inside].tocsr())]


def _jacobian(
    indices: Int[np.ndarray, "3 terms"],
    values: Float[np.ndarray, " terms"],
    unknowns: Int[np.ndarray, " unknowns"],
    nodes: int,
) -> tuple[GeneralBand, sp.csr_array]:
    """J_ij = sum over k of (B_ijk + B_ikj) p_k, for unknowns i and j, as S p in the order of the band."""
    i, j, k = indices
    rows, columns, factors = np.tile(i, 2), np.concatenate([j, k]), np.concatenate([k, j])
    number = np.full(nodes, -1, dtype=np.int64)
    number[unknowns] = np.arange(len(unknowns))
    is_used = (number[rows] >= 0) & (number[columns] >= 0)
    codes = number[rows[is_used]] * len(unknowns) + number[columns[is_used]]
    entries, entry = np.unique(codes, return_inverse=True)
    S = sp.csr_array((np.tile(values, 2)[is_used], (entry, factors[is_used])), (len(entries), nodes))
    return GeneralBand.of(entries // len(unknowns), entries % len(unknowns)), S


def _means(mesh: Triangulation) -> sp.csr_array:
    """(triangles) x (nodes): the mean of p over a triangle is the mean of its corners."""
    count = len(mesh.triangles)
    rows, columns = np.repeat(np.arange(count), 3), mesh.triangles.ravel()
    return sp.csr_array((np.full(3 * count, 1 / 3), (rows, columns)), (count, len(mesh.points)))
