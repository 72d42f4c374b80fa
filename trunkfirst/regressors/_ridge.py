"""Ridge regression in closed form: linear, and with Matern kernels. Left open, ridge and length come from a
ladder by leave-one-out errors, which are exact and cost no refits.
"""

import dataclasses as dc
import itertools
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import SolveError, UnknownNameError, ValueRangeError
from ..linear import one_blas_thread
from ..networks import MATERN, KernelBranch, Perceptron
from ._abstract import AbstractRegressor, Regression, Task
from ._host import closed_form, to_host
from ._kernel_problem import KernelProblem, KernelSolution
from ._numbers import generator

Inputs = Float[np.ndarray, "samples features"]
Targets = Float[np.ndarray, "samples coefficients"]
Weights = Float[np.ndarray, " samples"]

_LINEAR_RIDGES = tuple(10.0**k for k in range(-12, 1))
_KERNEL_RIDGES = tuple(10.0**k for k in (-14, -13, -12, -11, -10, -8, -6, -4, -2))
# In units of the median distance.
_LENGTHS = tuple(2.0**k for k in range(-2, 7))


@dc.dataclass(frozen=True)
class LinearRidge(AbstractRegressor):
    """c(x) = W x + b with the penalty ridge s^2 |W|^2, where s is the largest singular value of the inputs."""

    kind: ClassVar[str] = "linear"
    ridge: float | None = None

    def __post_init__(self) -> None:
        _check_positive(ridge=self.ridge)

    def learn(self, task: Task) -> Regression:
        """Weighted least squares through the SVD of the centred inputs; the bias is not penalised."""
        with one_blas_thread():
            problem = _LinearProblem(*to_host(task))
            ridge = self.ridge or min(_LINEAR_RIDGES, key=problem.leave_one_out)
            W, b = problem.solve(ridge)
        dtype = task.targets.dtype
        branch = Perceptron((jnp.asarray(W, dtype),), (jnp.asarray(b, dtype),), "relu")
        return closed_form(branch, task)


class _LinearProblem:
    """Weighted, centred linear least squares, factorised once for every ridge."""

    def __init__(self, X: Inputs, Y: Targets, w: Weights):
        self.roots, self.share = np.sqrt(w)[:, None], w / w.sum()
        self.x_mean, self.y_mean = self.share @ X, self.share @ Y
        self.Y = (Y - self.y_mean) * self.roots
        self.U, self.s, self.V = np.linalg.svd((X - self.x_mean) * self.roots, full_matrices=False)

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
        residual = self.Y - kept @ (self.U.T @ self.Y)
        return float(np.mean((residual / np.maximum(1 - h, 1e-14)[:, None]) ** 2))

    def _filter(self, ridge: float) -> Float[np.ndarray, " rank"]:
        squares = self.s**2
        return squares / (squares + ridge * max(squares[0], np.finfo(float).tiny))


@dc.dataclass(frozen=True)
class KernelRidge(AbstractRegressor):
    """Matern kernels around the training inputs, and an offset: (K + ridge diag(1/w)) a = Y - offset, sum a = 0.

    `smoothness` is "1/2", "3/2", "5/2" or "inf", the Gaussian. The same as Gaussian-process regression with an
    unknown constant mean. Of more than `most_centres` samples a random part is used, as many as the branch says
    (`count`); length and ridge, where left open, are chosen on at most `selection_samples` of those.
    """

    kind: ClassVar[str] = "kernel"
    smoothness: str = "5/2"
    length: float | None = None
    ridge: float | None = None
    most_centres: int = 4000
    selection_samples: int = 1000

    def __post_init__(self) -> None:
        if self.smoothness not in MATERN:
            raise UnknownNameError("smoothness", self.smoothness, tuple(MATERN))
        _check_positive(
            length=self.length,
            ridge=self.ridge,
            most_centres=self.most_centres,
            selection_samples=self.selection_samples,
        )

    def learn(self, task: Task) -> Regression:
        """Choose length and ridge where they are open, then solve by Cholesky."""
        rng, dtype = generator(task.key), task.targets.dtype
        with one_blas_thread():
            X, Y, w = to_host(task)
            used = w > 0
            problem = KernelProblem(self.smoothness, X[used], Y[used], w[used]).take(self.most_centres, rng)
            length, ridge = self._choose(problem.take(self.selection_samples, rng))
            ridge, solution = self._solve(problem, length, ridge)
        branch = KernelBranch(
            jnp.asarray(problem.X, dtype),
            jnp.asarray(solution.coefficients, dtype),
            jnp.asarray(solution.offset, dtype),
            jnp.asarray(length, dtype),
            self.smoothness,
            ridge,
        )
        return closed_form(branch, task)

    def _solve(self, problem: KernelProblem, length: float, ridge: float) -> tuple[float, KernelSolution]:
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
        ladder = list(itertools.product(lengths, ridges))
        return ladder[0] if len(ladder) == 1 else min(ladder, key=lambda pair: problem.leave_one_out(*pair))


def _check_positive(**settings: float | int | None) -> None:
    for name, value in settings.items():
        if value is not None and not value > 0:
            raise ValueRangeError(f"{name} is {value}; expected more than 0, or None to have it chosen")
