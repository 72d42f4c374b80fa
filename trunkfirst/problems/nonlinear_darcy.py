"""-div(kappa p grad p) = f, p = g on the boundary: Newton's method, and the closed form that checks it.

The residual r(p) = kappa B(p, p) - f b is quadratic in the nodal values p, with the trilinear form
B(q, p)_i = integral of q grad p . grad phi_i. So the Jacobian is linear in p: its entries are S p with one
sparse matrix S, made once, and nothing is assembled in a Newton step.

The Kirchhoff transform w = p^2 makes the equation linear. For constants kappa and f,
p = sqrt(w0 + (2 f / kappa) tau), where lap w0 = 0 with w0 = g^2 on the boundary, and -lap tau = 1 with tau = 0
there. Two linear solves give it for all constants: the start of Newton's method, and the reference on a fine mesh.
"""

import abc
import dataclasses as dc
import functools as ft
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import reverse_cuthill_mckee
from skfem import Basis, ElementTriP2, MeshTri

from ..data.array_checks import sample_blocks
from ..data.operator_data import InputFunction, OperatorData
from .finite_elements import (
    Corners,
    Function,
    GeneralBand,
    Points,
    Triangulation,
    flux,
    one,
    p1_basis,
    p1_elements,
    solve_poisson,
    source_form,
    sum_elements,
    triangulate_square,
)
from .problem import TOLERANCE, AbstractProblem, Fields, Parameters, PerSample, check_samples

MAXIMUM_STEPS = 20
FINE_EDGES = 96


# ---- Newton's method


@dc.dataclass(frozen=True, eq=False)
class NewtonResult:
    """The result of Newton's method for each sample."""

    pressures: Float[np.ndarray, "samples nodes"]
    residuals: PerSample
    """Largest residual of a node over the summed absolute contributions of its elements."""
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
    """(corners) x (nodes), see `_slopes`."""
    sums: sp.csr_array
    """(unknowns) x (corners): sums the contributions of the elements at a node."""
    source: Float[np.ndarray, " unknowns"]
    """b: the integral of the source times phi_i."""
    source_size: Float[np.ndarray, " unknowns"]
    """The same with the absolute contributions of the elements."""

    @classmethod
    def on(cls, mesh: Triangulation, source: Function = one) -> "QuadraticDarcy":
        """Return the operator on `mesh`; `source` is the shape of f, to be multiplied by a number per sample."""
        basis, nodes, unknowns = p1_basis(mesh), len(mesh.points), _unknowns(mesh)
        trilinear = flux.coo_data(basis)
        band, S = _jacobian(trilinear.indices.astype(np.int64), trilinear.data, unknowns, nodes)
        corners, stiffness = p1_elements(basis)
        sums = sum_elements(corners, nodes)[unknowns].tocsr()
        loads = source_form(source).coo_data(basis).data.reshape(3, -1).T.ravel()
        b, size = sums @ loads, sums @ np.abs(loads)
        return cls(unknowns, band, S, _means(mesh), _slopes(corners, stiffness, nodes), sums, b, size)

    def residual(
        self,
        u: Float[np.ndarray, "nodes samples"],
        offset: PerSample,
        *,
        kappa: PerSample,
        f: PerSample,
    ) -> tuple[Float[np.ndarray, "unknowns samples"], Float[np.ndarray, "unknowns samples"]]:
        """Return the residual of p = offset + u at the unknowns, and the summed absolute contributions there.

        Flux and source are summed separately: in the middle of a symmetric grid they cancel in each element, and
        only rounding errors would be left. The offset is separate because a large constant in p has no slope, but
        its rounding errors do: where p is nearly constant they alone exceed 1e-10.
        """
        parts = self.slopes @ u
        parts.reshape(-1, 3, u.shape[1])[:] *= (kappa * (offset + self.means @ u))[:, None, :]
        flow, flow_size = self.sums @ parts, self.sums @ np.abs(parts, out=parts)
        return flow - np.multiply.outer(self.source, f), flow_size + np.multiply.outer(self.source_size, np.abs(f))

    def solve(
        self,
        start: Float[np.ndarray, "samples nodes"],
        *,
        kappa: PerSample,
        f: PerSample,
    ) -> NewtonResult:
        """Iterate from `start`, which contains the boundary values. Each sample stops by itself."""
        offset = start.mean(axis=1)
        u = np.ascontiguousarray((start - offset[:, None]).T)
        residuals, steps = np.full(len(start), np.inf), np.zeros(len(start), dtype=np.int64)
        active = np.arange(len(start))
        for _ in range(MAXIMUM_STEPS + 1):
            r, size = self.residual(u[:, active], offset[active], kappa=kappa[active], f=f[active])
            residuals[active] = np.max(np.abs(r) / size, axis=0)
            is_open = residuals[active] > TOLERANCE  # false for NaN: no further steps
            active, r = active[is_open], r[:, is_open]
            if len(active) == 0 or steps.max() == MAXIMUM_STEPS:
                break
            u[np.ix_(self.unknowns, active)] -= self._step(offset[active] + u[:, active], r / kappa[active])
            steps[active] += 1
        return NewtonResult(offset[:, None] + u.T, residuals, steps)

    def _step(
        self, p: Float[np.ndarray, "nodes samples"], r: Float[np.ndarray, "unknowns samples"]
    ) -> Float[np.ndarray, "unknowns samples"]:
        """J(p)^{-1} r, one banded system per sample; NaN where J is singular."""
        entries = np.ascontiguousarray((self.jacobian @ p).T)
        return self.band.solve(entries, np.ascontiguousarray(r.T)).T


def _unknowns(mesh: Triangulation) -> Int[np.ndarray, " unknowns"]:
    """Interior nodes in reverse Cuthill-McKee order, for a small band."""
    nodes, corners = len(mesh.points), mesh.triangles
    rows, columns = np.repeat(corners, 3, axis=1).ravel(), np.tile(corners, 3).ravel()
    neighbours = sp.csr_array((np.ones(len(rows)), (rows, columns)), (nodes, nodes))
    inside = np.flatnonzero(~mesh.is_boundary)
    return inside[reverse_cuthill_mckee(neighbours[inside][:, inside].tocsr(), symmetric_mode=True)]


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


def _slopes(corners: Corners, stiffness: Float[np.ndarray, "triangles 3 3"], nodes: int) -> sp.csr_array:
    """(corners) x (nodes): the integral of grad p . grad phi_i over a triangle, for its three corners i."""
    rows, columns = np.repeat(np.arange(corners.size), 3), np.repeat(corners, 3, axis=0).ravel()
    return sp.csr_array((stiffness.ravel(), (rows, columns)), (corners.size, nodes))


def _means(mesh: Triangulation) -> sp.csr_array:
    """(triangles) x (nodes): the mean of p over a triangle."""
    count = len(mesh.triangles)
    rows, columns = np.repeat(np.arange(count), 3), mesh.triangles.ravel()
    return sp.csr_array((np.full(3 * count, 1 / 3), (rows, columns)), (count, len(mesh.points)))


# ---- the Kirchhoff closed form


@dc.dataclass(frozen=True, eq=False)
class Profiles:
    """tau and w0 at points, for boundary values of a given shape."""

    tau: Float[np.ndarray, " points"]
    w0: Float[np.ndarray, " points"]

    def pressures(self, *, kappa: PerSample, f: PerSample, g: PerSample) -> Float[np.ndarray, "samples points"]:
        """Return p = sqrt(g^2 w0 + (2 f / kappa) tau), where g scales the boundary values."""
        w = np.multiply.outer(g**2, self.w0)
        for block in sample_blocks(w.shape):
            w[block] += np.multiply.outer((2 * f / kappa)[block], self.tau)
        return np.sqrt(w, out=w)


def coarse_profiles(mesh: Triangulation, boundary_values: Function) -> Profiles:
    """Return tau and w0 by P1 at the nodes of `mesh`. The boundary values are exact."""
    tau, w0 = _solve(p1_basis(mesh), boundary_values)
    return Profiles(tau, w0)


def fine_profiles(points: Points, boundary_values: Function) -> Profiles:
    """Return tau and w0 by P2 on a fine mesh, evaluated at `points`.

    The mesh is graded towards the sides, because both functions behave like r^2 log r at the corners. The values
    agree with the Fourier series to 1e-6.
    """
    ticks = np.sin(0.5 * np.pi * np.linspace(-1.0, 1.0, FINE_EDGES + 1))
    basis = Basis(MeshTri.init_tensor(ticks, ticks), ElementTriP2())
    evaluate = _evaluation(basis, ticks, points)
    tau, w0 = (evaluate @ u for u in _solve(basis, boundary_values))
    # on the boundary the exact values are known
    is_edge = np.abs(points).max(axis=1) == 1.0
    w0[is_edge] = boundary_values(*points[is_edge].T) ** 2
    tau[is_edge] = 0.0
    return Profiles(tau, w0)


def _evaluation(basis: Basis, ticks: Float[np.ndarray, " ticks"], points: Points) -> sp.csr_array:
    """Return the matrix (points) x (unknowns) that evaluates a function on a tensor mesh.

    scikit-fem's search takes seconds on a graded mesh. On a tensor mesh the cell of a point is known.
    """
    elements = _elements_at(basis, ticks, points)
    local = basis.mapping.invF(points.T[:, :, None], tind=elements)
    shapes = [basis.elem.gbasis(basis.mapping, local, k, tind=elements)[0] for k in range(basis.Nbfun)]
    values = np.stack([np.asarray(shape)[:, 0] for shape in shapes])  # (functions, points)
    rows = np.tile(np.arange(len(points)), basis.Nbfun)
    columns = basis.element_dofs[:, elements].ravel()
    return sp.csr_array((values.ravel(), (rows, columns)), (len(points), basis.N))


def _elements_at(basis: Basis, ticks: Float[np.ndarray, " ticks"], points: Points) -> Int[np.ndarray, " points"]:
    """Of the two triangles in the cell of each point, the one that contains it."""

    def cells(x: Points) -> Int[np.ndarray, " points"]:
        column, row = np.clip(np.searchsorted(ticks, x.T, side="right") - 1, 0, len(ticks) - 2)
        return row * (len(ticks) - 1) + column

    corners = basis.mesh.p[:, basis.mesh.t]
    pairs = np.argsort(cells(corners.mean(axis=1).T), kind="stable").reshape(-1, 2)[cells(points)]
    local = basis.mapping.invF(np.repeat(points.T[:, :, None], 2, axis=1), tind=pairs.ravel())
    x, y = local.reshape(2, -1, 2)
    depth = np.minimum(np.minimum(x, y), 1 - x - y)
    return np.take_along_axis(pairs, depth.argmax(axis=1)[:, None], axis=1)[:, 0]


def _solve(basis: Basis, boundary_values: Function) -> Float[np.ndarray, "2 unknowns"]:
    zero = lambda x, y: np.zeros_like(x)  # noqa: E731
    return solve_poisson(basis, (one, zero), (zero, lambda x, y: boundary_values(x, y) ** 2))


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
        exact, solved = self.closed_form(parameters, points), fields if points is None else None
        return OperatorData(
            inputs=self.inputs(parameters),
            points=self.mesh.points if points is None else points,
            outputs=exact if solved is None else solved,
            reference_outputs=None if solved is None else exact,
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
