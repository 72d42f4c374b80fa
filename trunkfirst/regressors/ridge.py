"""Ridge regression in closed form, computed with NumPy and SciPy: linear, and with Matern kernels.

Where ridge and length are left open they are chosen from a grid by leave-one-out errors, which are exact and need
no refits. A length for every input is found by marginal likelihood.
"""

import contextlib
import dataclasses as dc
import functools as ft
import itertools
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from ..errors import SettingError, SolveError
from ..linear.blocked_qr import one_blas_thread
from ..linear.kernels import MATERN, distances, find_kernel, kernel_matrix
from ..networks.branches import KernelBranch
from ..networks.layers import Perceptron
from ..settings import Field, kind_field, record
from .base import AbstractRegressor, Regression, Task, generator

Inputs = Float[np.ndarray, "samples features"]
Targets = Float[np.ndarray, "samples coefficients"]
Weights = Float[np.ndarray, " samples"]
Solution = Float[np.ndarray, "_ coefficients"]
Rows = Int[np.ndarray, " _"]

_LINEAR_RIDGES = tuple(10.0**k for k in range(-16, 1))
_KERNEL_RIDGES = tuple(10.0**k for k in (-12, -11, -10, -8, -6, -4, -2, 0))
_SMALL_RIDGES = (1e-13, 1e-14)
# Directions of the targets that decide on length and ridge.
_MOST_DIRECTIONS, _SUBSPACE_STEPS = 64, 2
# Ridges below this share of the largest eigenvalue are lost in rounding.
_EIGENVALUES = 1e-15
# In units of the median distance.
_LENGTHS = tuple(4.0**k for k in range(-1, 4))
# Samples of a block, and those that decide whether all are used; the most of samples x centres^2 for that.
_BLOCK, _HELD, _MOST_WORK = 2000, 500, 4e10
_ANY_RIDGES = tuple(10.0**k for k in range(-14, 0))
# The most samples that a length for every input is found on.
_MAX_FOR_LIKELIHOOD = 500

Length = float | Float[np.ndarray, " features"]


@record
class Linear(AbstractRegressor):
    """Ridge regression c(x) = W x + b, penalty ridge s^2 |W|^2 with the largest singular value s of the inputs.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(trunkfirst.ModesTrunk(), Linear()).branch.kind
    'linear'
    """

    ridge: float | None = Field(default=None, gt=0, description="ridge; chosen by leave-one-out if left out")
    kind: Literal["linear"] = kind_field("linear")

    def learn(self, task: Task) -> Regression:
        """Weighted least squares through the SVD of the centred inputs; the bias is not penalised."""
        with one_blas_thread():
            problem = _LinearProblem(*task.to_host())
            ridge = self.ridge or min(_LINEAR_RIDGES, key=problem.leave_one_out)
            W, b = problem.solve(ridge)
        dtype = task.targets.dtype
        return task.closed_form(Perceptron((W.astype(dtype),), (b.astype(dtype),), "relu"))


class _LinearProblem:
    """Weighted, centred linear least squares, factorised once for every ridge."""

    def __init__(self, X: Inputs, Y: Targets, w: Weights):
        self.roots, self.share = np.sqrt(w)[:, None], w / w.sum()
        self.x_mean, self.y_mean = self.share @ X, self.share @ Y
        self.Y = (Y - self.y_mean) * self.roots
        self.U, self.s, self.V = np.linalg.svd((X - self.x_mean) * self.roots, full_matrices=False)
        self.leading = self.Y @ _leading_directions(self.Y)

    def solve(
        self, ridge: float
    ) -> tuple[Float[np.ndarray, "coefficients features"], Float[np.ndarray, " coefficients"]]:
        """W and b."""
        inverse = self._filter(ridge) / np.where(self.s > 0, self.s, 1.0)
        W = (self.V.T * inverse) @ (self.U.T @ self.Y)
        return W.T, self.y_mean - self.x_mean @ W

    def leave_one_out(self, ridge: float) -> float:
        """The weighted mean square of the errors at samples left out, with the penalty of all samples.

        A residual grows by 1 / (1 - h) when its sample is left out, h its own share in its fitted value.
        """
        kept = self.U * self._filter(ridge)
        h = self.share + np.sum(kept * self.U, axis=1)
        residual = self.leading - kept @ (self.U.T @ self.leading)
        return float(np.sum((residual / np.maximum(1 - h, 1e-14)[:, None]) ** 2)) / self.Y.size

    def _filter(self, ridge: float) -> Float[np.ndarray, " rank"]:
        squares = self.s**2
        return squares / (squares + ridge * (squares[0] or 1.0))


@dc.dataclass(frozen=True, eq=False)
class KernelProblem:
    """Inputs X, targets Y and weights w; samples of weight 0 must be left out.

    `groups` and `linear` are those of the kernel: see `kernel_matrix`.
    """

    smoothness: str
    X: Inputs
    Y: Targets
    w: Weights
    groups: tuple[int, ...] = ()
    linear: Float[np.ndarray, " weights"] | None = None

    def take(self, count: int, rng: np.random.Generator) -> "KernelProblem":
        """A random part of at most `count` samples."""
        if len(self.X) <= count:
            return self
        return self.rows(np.sort(rng.choice(len(self.X), count, replace=False)))

    def rows(self, rows: Rows) -> "KernelProblem":
        """These samples."""
        return dc.replace(self, X=self.X[rows], Y=self.Y[rows], w=self.w[rows])

    def median_distance(self) -> float:
        """The median distance between samples that differ, 1 if none do."""
        found = self._distances[self._distances > 0]
        return float(np.median(found)) if len(found) else 1.0

    @property
    def offset(self) -> Float[np.ndarray, " coefficients"]:
        """The weighted mean of the targets."""
        return np.average(self.Y, axis=0, weights=self.w)

    def solve(self, length: Length, ridge: float) -> Targets:
        """The coefficients a of (K + ridge diag(1/w)) a = Y - offset, by Cholesky."""
        factor = self._factor(length, ridge)
        return scipy.linalg.cho_solve((factor, True), self.Y - self.offset, check_finite=False)

    def fit_to(self, others: "KernelProblem", length: Length, ridge: float) -> Targets:
        """The coefficients a of these centres with the least |Y - offset - K a|_w^2 + ridge a^T K a over `others`.

        In the orthonormal basis of the kernels, so that it is as well conditioned as `solve`.
        """
        factor = self._factor_with_any(length)
        A, B = np.zeros((len(self.X), len(self.X))), np.zeros((len(self.X), self.Y.shape[1]))
        for rows in np.array_split(np.arange(len(others.X)), 1 + len(others.X) // _BLOCK):
            roots = np.sqrt(others.w[rows])
            P = scipy.linalg.solve_triangular(factor, self.values_at(others.X[rows], length).T, lower=True) * roots
            A += P @ P.T
            B += P @ (roots[:, None] * (others.Y[rows] - self.offset))
        A[np.diag_indices_from(A)] += max(ridge, np.finfo(float).eps * float(np.trace(A)))
        solved = scipy.linalg.cho_solve(scipy.linalg.cho_factor(A, lower=True), B)
        return scipy.linalg.solve_triangular(factor, solved, lower=True, trans=1)

    def _factor_with_any(self, length: Length) -> Float[np.ndarray, "samples samples"]:
        """With the smallest ridge that makes the matrix regular."""
        for ridge in _ANY_RIDGES:
            with contextlib.suppress(SolveError):
                return self._factor(length, ridge)
        return self._factor(length, 1.0)

    def values_at(self, X: Float[np.ndarray, "_ features"], length: Length) -> Float[np.ndarray, "_ centres"]:
        """The kernels of all samples at X."""
        return kernel_matrix(
            self.smoothness, X, self.X, np.asarray(length), groups=self.groups, linear=self.linear
        )

    def _factor(self, length: Length, ridge: float) -> Float[np.ndarray, "samples samples"]:
        A = np.empty((len(self.X), len(self.X)), order="F")  # which LAPACK overwrites
        for rows in np.array_split(np.arange(len(A)), 1 + len(A) // 500):  # so that no temporary is large
            A[:, rows] = self._kernel(rows, length).T
        A[np.diag_indices_from(A)] += ridge / self.w
        (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (A,))
        factor, failed = potrf(A, lower=1, clean=1, overwrite_a=1)
        if failed:
            raise SolveError(
                f"the kernel matrix of length {np.median(length):.3g} is singular with ridge {ridge:.1e}; "
                "use a larger ridge or a smaller length"
            )
        return factor

    def leave_one_out(self, length: Length, ridge: float) -> float:
        """The weighted mean norm of the errors at samples left out, a_i / C_ii with a = C (Y - offset).

        Infinite where the kernel matrix is singular.
        """
        try:
            factor = self._factor(length, ridge)
        except SolveError:
            return np.inf
        (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (factor,))
        a = scipy.linalg.cho_solve((factor, True), self._leading, check_finite=False)
        return self._mean_norm(a / np.diag(potri(factor, lower=1)[0])[:, None])

    def leave_one_out_grid(self, length: Length, ridges: Sequence[float]) -> list[float]:
        """The same for many ridges, by the eigenvalues of S K S with S^2 = diag(w): little more than for one.

        Rounding spoils it for smaller ridges than `leave_one_out`; there it is infinite.
        """
        roots = np.sqrt(self.w)[:, None]
        values, Q = scipy.linalg.eigh(roots * self._kernel(np.arange(len(self.X)), length) * roots.T)
        Z, Q = Q.T @ (roots * self._leading), Q * roots
        is_sound = [ridge > _EIGENVALUES * values[-1] for ridge in ridges]
        shifted = [np.maximum(values, 0.0)[:, None] + ridge for ridge in ridges]
        errors = [Q @ (Z / d) / (Q**2 @ (1 / d)) for d in shifted]
        return [self._mean_norm(each) if ok else np.inf for ok, each in zip(is_sound, errors, strict=True)]

    def _mean_norm(self, errors: Float[np.ndarray, "samples directions"]) -> float:
        """Of the errors of samples: a mean of squares would be decided by the few at the edge of all samples."""
        return float(np.mean(np.sqrt(self.w * np.sum(errors**2, axis=1))))

    @ft.cached_property
    def _leading(self) -> Float[np.ndarray, "samples directions"]:
        """The targets in their leading directions, which decide as all of them do."""
        centred = self.Y - self.offset
        return centred @ _leading_directions(centred * np.sqrt(self.w)[:, None])

    def _kernel(self, rows: Int[np.ndarray, " rows"], length: Length) -> Float[np.ndarray, "rows samples"]:
        if isinstance(length, np.ndarray) or len(self.X) > _BLOCK:
            return self.values_at(self.X[rows], length)
        return MATERN[self.smoothness](self._distances[rows] / length, np.exp)

    @ft.cached_property
    def _distances(self) -> Float[np.ndarray, "samples samples"]:
        return distances(self.X, self.X)


def _part(samples: int, most: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """At most this many random samples, all in order if they are fewer, and some of the others."""
    if samples <= most:
        return np.arange(samples), np.arange(0)
    order = rng.permutation(samples)
    return order[:most], np.sort(order[most:][:_HELD])


def _with_all(
    whole: KernelProblem, part: KernelProblem, fitted: Solution, length: Length, ridge: float, held: Rows
) -> tuple[KernelProblem, Solution]:
    """A part of the samples and its coefficients, or fewer centres fitted to all but `held`, which decide."""
    centres = part.rows(np.arange(min(len(part.X), int(np.sqrt(_MOST_WORK / len(whole.X))))))
    others, rest = whole.rows(held), whole.rows(np.setdiff1d(np.arange(len(whole.X)), held))
    solution = centres.fit_to(rest, length, ridge)

    def error(problem: KernelProblem, coefficients: Solution) -> float:
        missed = others.Y - problem.offset - problem.values_at(others.X, length) @ coefficients
        return float(np.mean(np.sqrt(others.w * np.sum(missed**2, axis=1))))

    return (centres, solution) if error(centres, solution) < error(part, fitted) else (part, fitted)


def _leading_directions(Y: Targets) -> Float[np.ndarray, "coefficients directions"]:
    """An orthonormal basis of the leading directions of targets, if they are many, by subspace iteration."""
    count = Y.shape[1]
    if count <= _MOST_DIRECTIONS:
        return np.eye(count)
    basis = np.random.default_rng(0).normal(size=(count, _MOST_DIRECTIONS))
    for _ in range(_SUBSPACE_STEPS):
        basis, _ = np.linalg.qr(Y.T @ (Y @ basis))
    return basis


@record
class Kernel(AbstractRegressor):
    """Kernel ridge regression with Matern kernels: (K + ridge diag(1/w)) a = Y - offset.

    This is Gaussian-process regression around the weighted mean of the targets. With more than `max_centres`
    samples, either a random part of them is used, or fewer of them are centres of a least-squares fit to all
    samples (a sparse Gaussian process), whichever has the smaller error on other samples. `count` of the branch is
    the number of centres.

    With a length scale for each input, length scales and ridge maximise the marginal likelihood: unimportant
    inputs get long ones. With several input functions the kernel is a product over them.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(trunkfirst.ModesTrunk(), Kernel(lengths="each")).branch.lengths
    'each'
    """

    smoothness: Literal["1/2", "3/2", "5/2", "inf"] = Field(
        default="5/2", description="1/2, 3/2, 5/2, or inf (Gaussian)"
    )
    length: float | None = Field(
        default=None, gt=0, description="length scale; chosen by leave-one-out if left out"
    )
    ridge: float | None = Field(
        default=None, gt=0, description="ridge; chosen by leave-one-out, or with the length scales, if left out"
    )
    max_centres: int = Field(
        default=4000, ge=1, description="largest number of centres, which are training samples"
    )
    selection_samples: int = Field(
        default=500, ge=1, description="samples on which length scales and ridge are chosen"
    )
    lengths: Literal["one", "each"] = Field(
        default="one", description="one length scale for all inputs, or each its own, by marginal likelihood"
    )
    linear_factor: bool = Field(
        default=False,
        description="multiply the kernel by w_0 + sum_j w_j x_j z_j, so that inputs can enter linearly; "
        "needs a length for each",
    )
    kind: Literal["kernel"] = kind_field("kernel")

    def __post_init__(self) -> None:
        if self.lengths == "each" and self.length is not None:
            raise SettingError(f'length is {self.length}; with lengths = "each" all are found: leave it out')
        if self.lengths == "one" and self.linear_factor:
            raise SettingError('linear_factor needs lengths = "each"')

    def learn(self, task: Task) -> Regression:
        """Choose length and ridge where they are open, then solve by Cholesky."""
        rng, dtype = generator(task.key), task.targets.dtype
        with one_blas_thread():
            X, Y, w = task.to_host()
            used = w > 0
            whole = KernelProblem(self.smoothness, X[used], Y[used], w[used])
            used_rows, held = _part(len(whole.X), self.max_centres, rng)
            problem = whole.rows(used_rows)
            if self.lengths == "each":
                problem, length, ridge = self._find(problem, task.layout.groups, rng)
            else:
                length, ridge = self._choose(problem.take(self.selection_samples, rng))
            ridge, coefficients = self._solve(problem, length, ridge)
            if len(held):
                problem, coefficients = _with_all(whole, problem, coefficients, length, ridge, held)
        branch = KernelBranch(
            problem.X.astype(dtype),
            coefficients.astype(dtype),
            problem.offset.astype(dtype),
            np.asarray(length, dtype),
            self.smoothness,
            ridge,
            None if problem.linear is None else problem.linear.astype(dtype),
            problem.groups,
        )
        residual = ridge * coefficients / problem.w[:, None] if len(problem.X) == len(X) else None
        return task.closed_form(branch, residual)

    def _solve(self, problem: KernelProblem, length: Length, ridge: float) -> tuple[float, Targets]:
        """Solve; more samples may need more ridge than the few it was chosen on."""
        while True:
            try:
                return ridge, problem.solve(length, ridge)
            except SolveError:
                if self.ridge is not None or ridge >= 1:
                    raise
                ridge *= 10

    def _choose(self, problem: KernelProblem) -> tuple[float, float]:
        unit = problem.median_distance() if self.length is None else 1.0
        lengths = [unit * k for k in _LENGTHS] if self.length is None else [self.length]
        ridges = _KERNEL_RIDGES if self.ridge is None else (self.ridge,)
        if len(lengths) == len(ridges) == 1:
            return lengths[0], ridges[0]
        grid = [
            (error, length, ridge)
            for length in lengths
            for ridge, error in zip(ridges, problem.leave_one_out_grid(length, ridges), strict=True)
        ]
        _, length, ridge = min(grid)
        # Once more around the best, on a finer grid and for smaller ridges.
        if self.length is None:
            lengths = [length / 2, length, 2 * length]
        if self.ridge is None:
            ridges = sorted({ridge / 10, ridge / 3, ridge, 3 * ridge, *(r for r in _SMALL_RIDGES if r < ridge)})
        pairs = itertools.product(lengths, ridges)
        return min(pairs, key=lambda pair: problem.leave_one_out(*pair))

    def _find(
        self, problem: KernelProblem, groups: tuple[int, ...], rng: np.random.Generator
    ) -> tuple[KernelProblem, Float[np.ndarray, " features"], float]:
        """The problem with the kernel of the greatest likelihood, its lengths and its ridge."""
        groups = groups if len(groups) > 1 else ()
        some = problem.take(min(self.selection_samples, _MAX_FOR_LIKELIHOOD), rng)
        found = find_kernel(
            self.smoothness,
            some.X,
            some.Y,
            some.w,
            groups=groups,
            is_linear=self.linear_factor,
            nugget=self.ridge,
        )
        return dc.replace(problem, groups=groups, linear=found.linear), found.lengths, found.nugget
