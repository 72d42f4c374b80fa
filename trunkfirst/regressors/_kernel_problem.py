"""Kernel ridge regression with an unpenalised offset, and its leave-one-out errors."""

import dataclasses as dc
import functools as ft

import numpy as np
import scipy.linalg
import scipy.spatial.distance
from jaxtyping import Float

from ..errors import SolveError
from ..networks import MATERN


@dc.dataclass(frozen=True, eq=False)
class KernelSolution:
    """coefficients a and offset; `inverse_diagonal` is that of the matrix C with a = C Y."""

    coefficients: Float[np.ndarray, "samples coefficients"]
    offset: Float[np.ndarray, " coefficients"]
    inverse_diagonal: Float[np.ndarray, " samples"]


@dc.dataclass(frozen=True, eq=False)
class KernelProblem:
    """Inputs X, targets Y and weights w; samples of weight 0 must be left out."""

    smoothness: str
    X: Float[np.ndarray, "samples features"]
    Y: Float[np.ndarray, "samples coefficients"]
    w: Float[np.ndarray, " samples"]

    def take(self, most: int, rng: np.random.Generator) -> "KernelProblem":
        """A random part of at most so many samples."""
        if len(self.X) <= most:
            return self
        rows = np.sort(rng.choice(len(self.X), most, replace=False))
        return KernelProblem(self.smoothness, self.X[rows], self.Y[rows], self.w[rows])

    def median_distance(self) -> float:
        """The median distance between samples that differ, 1 if none do."""
        distances = self._distances[self._distances > 0]
        return float(np.median(distances)) if len(distances) else 1.0

    def solve(self, length: float, ridge: float, *, with_diagonal: bool = False) -> KernelSolution:
        """(K + ridge diag(1/w)) a = Y - offset with sum a = 0, by Cholesky."""
        A = np.empty_like(self._distances)
        for rows in np.array_split(np.arange(len(A)), 1 + len(A) // 500):  # so that no temporary is large
            A[rows] = MATERN[self.smoothness](self._distances[rows] / length, np.exp)
        A[np.diag_indices_from(A)] += ridge / self.w
        try:
            factor = scipy.linalg.cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError as error:
            raise SolveError(
                f"the kernel matrix of length {length:.3g} is singular with ridge {ridge:.1e}; "
                "use a larger ridge or a smaller length"
            ) from error
        ones = np.ones((len(A), 1))
        solved = scipy.linalg.cho_solve((factor, True), np.hstack([self.Y, ones]), check_finite=False)
        v, total = solved[:, -1], float(solved[:, -1].sum())
        offset = solved[:, :-1].sum(axis=0) / total
        coefficients = solved[:, :-1] - v[:, None] * offset
        diagonal = _inverse_diagonal(factor) - v**2 / total if with_diagonal else np.ones(len(A))
        return KernelSolution(coefficients, offset, diagonal)

    def leave_one_out(self, length: float, ridge: float) -> float:
        """The weighted mean square of the errors at samples left out: a_i / C_ii, exactly (Dubrule 1983).

        Infinite where the kernel matrix is singular.
        """
        try:
            solution = self.solve(length, ridge, with_diagonal=True)
        except SolveError:
            return np.inf
        errors = solution.coefficients / solution.inverse_diagonal[:, None]
        return float(np.mean(self.w[:, None] * errors**2))

    @ft.cached_property
    def _distances(self) -> Float[np.ndarray, "samples samples"]:
        return scipy.spatial.distance.cdist(self.X, self.X)


def _inverse_diagonal(factor: Float[np.ndarray, "size size"]) -> Float[np.ndarray, " size"]:
    """The diagonal of (L L^T)^-1."""
    (potri,) = scipy.linalg.get_lapack_funcs(("potri",), (factor,))
    inverse, _ = potri(factor, lower=1)
    return np.diag(inverse).copy()
