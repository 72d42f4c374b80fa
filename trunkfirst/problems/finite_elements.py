"""Finite elements for Darcy's equation: weak forms by scikit-fem, and banded linear systems by LAPACK.

LAPACK's band solver takes 0.24 ms for 541 nodes and 3.1 ms for 2049; SuperLU takes 0.84 ms and 5.1 ms.
"""

import dataclasses as dc
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.linalg.lapack import dgbsv, dpbsv  # pyright: ignore[reportAttributeAccessIssue]  (compiled)
from scipy.sparse.linalg import splu
from skfem import Basis, BilinearForm, ElementTriP1, LinearForm, MeshTri, TrilinearForm
from skfem.helpers import dot

from .meshes import Triangulation

Function: TypeAlias = Callable[[Float[np.ndarray, "..."], Float[np.ndarray, "..."]], Float[np.ndarray, "..."]]
"""A function of the coordinates (x, y), arrays in, array out."""
Corners: TypeAlias = Int[np.ndarray, "elements corners"]
"""The nodes of each element."""


# ---- weak forms


@BilinearForm
def diffusion(p: Any, v: Any, _: Any) -> Any:
    """The integral of grad p . grad v."""
    return dot(p.grad, v.grad)


@TrilinearForm
def flux(q: Any, p: Any, v: Any, _: Any) -> Any:
    """The integral of q grad p . grad v."""
    return q * dot(p.grad, v.grad)


@LinearForm
def integral(v: Any, _: Any) -> Any:
    """The integral of v."""
    return v


def source_form(source: Function) -> LinearForm:
    """The integral of f v for the source f."""
    return LinearForm(lambda v, w: source(w.x[0], w.x[1]) * v)


def one(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The constant function 1."""
    del y
    return np.ones_like(x)


def to_skfem(mesh: Triangulation) -> MeshTri:
    """Return the mesh in scikit-fem's layout (coordinates first)."""
    return MeshTri(np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.triangles.T), validate=False)


def p1_basis(mesh: Triangulation) -> Basis:
    """Return the piecewise linear functions; degree of freedom k is the value at node k."""
    # order 4: exact for the forms above, and accurate enough for sources that are not constant
    return Basis(to_skfem(mesh), ElementTriP1(), intorder=4)


def p1_elements(basis: Basis) -> tuple[Corners, Float[np.ndarray, "triangles 3 3"]]:
    """Return the corners of each triangle and the integrals of grad phi_i . grad phi_j over it.

    scikit-fem sorts the corners, so that their order differs from that of the mesh.
    """
    stiffness = diffusion.coo_data(basis).data.reshape(3, 3, -1)
    return basis.element_dofs.T, np.moveaxis(stiffness, -1, 0)


def sum_elements(corners: Corners, nodes: int) -> sp.csr_array:
    """Return the matrix (nodes) x (elements * corners) that sums the contributions at each node."""
    columns = np.arange(corners.size)
    return sp.csr_array((np.ones(corners.size), (corners.ravel(), columns)), (nodes, corners.size))


def solve_poisson(
    basis: Basis, sources: tuple[Function, ...], boundary_values: tuple[Function, ...]
) -> Float[np.ndarray, "problems unknowns"]:
    """Solve -lap u = f, u = g on the boundary, for each pair of `sources` and `boundary_values`."""
    x, y = basis.doflocs
    u = np.stack([g(x, y) for g in boundary_values])
    loads = np.stack([source_form(f).assemble(basis) for f in sources])
    K = sp.csr_array(diffusion.assemble(basis))
    edge = basis.get_dofs().all()
    inside = basis.complement_dofs(edge)
    free = K[inside]
    factors = splu(free[:, inside].tocsc(), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    u[:, inside] = factors.solve((loads[:, inside] - u[:, edge] @ free[:, edge].T).T).T
    return u


# ---- banded systems


@dc.dataclass(frozen=True, eq=False)
class GeneralBand:
    """Band storage of LAPACK's `dgbsv` for matrices that share their entries (rows, columns)."""

    size: int
    width: int
    positions: Int[np.ndarray, " entries"]
    """Position of each entry in the storage, which is (unknowns, band) because LAPACK is column-major."""

    @classmethod
    def of(cls, rows: Int[np.ndarray, " entries"], columns: Int[np.ndarray, " entries"]) -> "GeneralBand":
        """Return the storage for these entries."""
        size, width = int(rows.max()) + 1, int(np.abs(rows - columns).max())
        return cls(size, width, columns * (3 * width + 1) + 2 * width + rows - columns)

    def solve(
        self, values: Float[np.ndarray, "systems entries"], right: Float[np.ndarray, "systems unknowns"]
    ) -> Float[np.ndarray, "systems unknowns"]:
        """Return the solution of each system, NaN if its matrix is singular."""
        solutions = np.full_like(right, np.nan)
        storage = np.empty((self.size, 3 * self.width + 1))  # the band, and above it what pivoting fills in
        for system in range(len(values)):
            storage.fill(0.0)
            storage.ravel()[self.positions] = values[system]
            _, _, x, status = dgbsv(self.width, self.width, storage.T, right[system], overwrite_ab=True)
            if status == 0:
                solutions[system] = x
        return solutions


@dc.dataclass(frozen=True, eq=False)
class Diffusion:
    """The discrete operator -div(a grad u) with u = 0 at all nodes but `unknowns`; a is constant on each region.

    The matrix is linear in a: its entries are `entries @ a`, and nothing is assembled for a sample.
    """

    corners: Corners
    stiffness: Float[np.ndarray, "elements corners corners"]
    """The integrals of grad phi_i . grad phi_j over each element."""
    regions: Int[np.ndarray, " elements"]
    """The region of each element, an index of a."""
    unknowns: Int[np.ndarray, " unknowns"]
    entries: sp.csr_array
    """(entries on and below the diagonal) x (regions)."""
    width: int
    positions: Int[np.ndarray, " entries"]
    """Position of each entry in LAPACK's lower band storage (unknowns, band)."""
    sums: sp.csr_array
    """(unknowns) x (elements * corners), rows of `sum_elements`."""

    @classmethod
    def on(
        cls,
        corners: Corners,
        stiffness: Float[np.ndarray, "elements corners corners"],
        regions: Int[np.ndarray, " elements"],
        unknowns: Int[np.ndarray, " unknowns"],
    ) -> "Diffusion":
        """Return the operator on these elements. The order of `unknowns` decides the width of the band."""
        nodes, local = int(corners.max()) + 1, corners.shape[1]
        number = np.full(nodes, -1)
        number[unknowns] = np.arange(len(unknowns))
        rows = np.repeat(number[corners], local, axis=1).ravel()
        columns = np.tile(number[corners], local).ravel()
        is_used = (columns >= 0) & (columns <= rows) & (stiffness.ravel() != 0)
        codes, entry = np.unique(rows[is_used] * len(unknowns) + columns[is_used], return_inverse=True)
        region = np.repeat(regions, local**2)[is_used]
        shape = (len(codes), int(regions.max()) + 1)
        entries = sp.csr_array((stiffness.ravel()[is_used], (entry, region)), shape)
        row, column = codes // len(unknowns), codes % len(unknowns)
        width = int((row - column).max())
        positions, sums = column * (width + 1) + row - column, sum_elements(corners, nodes)[unknowns].tocsr()
        return cls(corners, stiffness, regions, unknowns, entries, width, positions, sums)

    def contributions(
        self, a: Float[np.ndarray, " regions"], u: Float[np.ndarray, " nodes"]
    ) -> Float[np.ndarray, "elements corners"]:
        """Return the integral of a grad u . grad phi_i over each element, for its corners i."""
        return a[self.regions, None] * np.einsum("eij,ej->ei", self.stiffness, u[self.corners])

    def solve(
        self, a: Float[np.ndarray, " regions"], load: Float[np.ndarray, " nodes"]
    ) -> tuple[Float[np.ndarray, " nodes"], float]:
        """Return u and the largest residual of an unknown over the absolute contributions of its elements.

        `load` is the integral of the source times phi_i. The residual is infinite if the matrix is not positive
        definite.
        """
        u, right, band = np.zeros(len(load)), load[self.unknowns], np.zeros((len(self.unknowns), self.width + 1))
        band.ravel()[self.positions] = self.entries @ a
        _, solution, status = dpbsv(band.T, right, lower=1)
        if status != 0:
            return u, np.inf
        u[self.unknowns] = solution
        parts = self.contributions(a, u).ravel()
        residual, size = np.abs(self.sums @ parts - right), self.sums @ np.abs(parts) + np.abs(right)
        return u, float(np.max(residual / size))
