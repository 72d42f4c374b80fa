"""Weak forms of Darcy's equation, written as the mathematics, and their pieces assembled by scikit-fem."""

import dataclasses as dc
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.sparse.linalg import splu
from skfem import Basis, BilinearForm, ElementTriP1, LinearForm, MeshTri, TrilinearForm
from skfem.helpers import dot

from ._meshes import Triangulation

Field: TypeAlias = Callable[[Float[np.ndarray, "..."], Float[np.ndarray, "..."]], Float[np.ndarray, "..."]]
"""A function of the coordinates (x, y), arrays in, array out."""


@BilinearForm
def diffusion(p: Any, v: Any, _: Any) -> Any:
    """The integral of grad p . grad v."""
    return dot(p.grad, v.grad)


@TrilinearForm
def flux(q: Any, p: Any, v: Any, _: Any) -> Any:
    """The integral of q grad p . grad v: the nonlinear flux of pressure p where the conductivity is q = p."""
    return q * dot(p.grad, v.grad)


@LinearForm
def boundary_flow(v: Any, _: Any) -> Any:
    """The integral of v over a part of the boundary."""
    return v


def source_form(source: Field) -> LinearForm:
    """The integral of f v for the source f."""
    return LinearForm(lambda v, w: source(w.x[0], w.x[1]) * v)


def one(x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The constant field 1."""
    del y
    return np.ones_like(x)


def p1_basis(mesh: Triangulation) -> Basis:
    """Piecewise linear functions; degree of freedom k is the value at node k."""
    # order 4: exact for the forms above, and sources that are not constant lose nothing against order h^2
    return Basis(to_skfem(mesh), ElementTriP1(), intorder=4)


def to_skfem(mesh: Triangulation) -> MeshTri:
    """The same nodes and triangles in scikit-fem's layout (coordinates first)."""
    return MeshTri(np.ascontiguousarray(mesh.points.T), np.ascontiguousarray(mesh.triangles.T), validate=False)


@dc.dataclass(frozen=True, eq=False)
class ElementMatrices:
    """What each triangle gives to each of its three corners; a corner is a row, corners = 3 triangles."""

    slopes: sp.csr_array
    """(corners) x (nodes): applied to p, the integral of grad p . grad phi_i over corner i's triangle."""
    sums: sp.csr_array
    """(nodes) x (corners): adds up the contributions of the triangles around a node."""
    loads: Float[np.ndarray, " corners"]
    """The integral of the source times phi_i over the triangle of corner i."""


def element_matrices(mesh: Triangulation, source: Field) -> ElementMatrices:
    """Diffusion and source of P1, element by element."""
    basis = p1_basis(mesh)
    stiffness = diffusion.coo_data(basis).data.reshape(3, 3, -1)  # symmetric in the first two
    loads = source_form(source).coo_data(basis).data.reshape(3, -1)
    corners = basis.element_dofs.T  # (triangles, 3)
    row = np.arange(corners.size)
    columns = np.repeat(corners, 3, axis=0).ravel()
    shape = (corners.size, basis.N)
    slopes = sp.csr_array((np.moveaxis(stiffness, -1, 0).ravel(), (np.repeat(row, 3), columns)), shape)
    sums = sp.csr_array((np.ones(corners.size), (corners.ravel(), row)), shape[::-1])
    return ElementMatrices(slopes, sums, loads.T.ravel())


def solve_poisson(
    basis: Basis,
    sources: tuple[Field, ...],
    boundary_values: tuple[Field, ...],
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
