"""What a problem is: parameters, a finite-element solve, and the operator data made of them."""

import abc
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from ..data import OperatorData
from ..errors import SolveError, ValueRangeError
from ._meshes import Triangulation


class AbstractProblem(abc.ABC):
    """A parametrised boundary value problem on a square.

    A sample is a row of `parameters` (samples, parameters); its field is the pressure at the nodes of `mesh`.
    """

    # words
    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[str]
    """Where the paper has it, e.g. "5.1"."""
    equation: ClassVar[str]
    parameter_names: ClassVar[tuple[str, ...]]
    interval: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    """The square is the product of this interval with itself."""
    # sizes
    default_samples: ClassVar[int]
    """The number of samples of the paper, where it has the problem."""
    shard_samples: ClassVar[int]
    """Samples solved and written at a time."""
    seconds_per_sample: ClassVar[float]
    """Rough cost of a solve, only to decide whether other processes are worth starting."""
    needs_fields: ClassVar[bool]
    """True if the pressure is needed for any output points: it is the input, or it has no closed form."""

    @property
    @abc.abstractmethod
    def mesh(self) -> Triangulation:
        """The mesh on which the pressure is solved for; in the paper's problems of the paper's size."""

    @abc.abstractmethod
    def parameters(self, samples: int, *, seed: int) -> Float[np.ndarray, "samples parameters"]:
        """The parameters of the samples; where nothing is drawn, `seed` has no effect."""

    @abc.abstractmethod
    def solve(
        self, parameters: Float[np.ndarray, "samples parameters"], *, first: int = 0
    ) -> Float[np.ndarray, "samples nodes"]:
        """Pressures at the nodes. A sample that fails is a `SolveError`; `first` numbers the first sample."""

    @abc.abstractmethod
    def assemble(
        self,
        parameters: Float[np.ndarray, "samples parameters"],
        fields: Float[np.ndarray, "samples nodes"] | None,
        points: Float[np.ndarray, "points 2"] | None = None,
    ) -> OperatorData:
        """Operator data at `points`, else at the problem's own nodes; `fields` may be None where not needed."""

    def labels(
        self, parameters: Float[np.ndarray, "samples parameters"]
    ) -> dict[str, Float[np.ndarray, " samples"]]:
        """The parameters by name."""
        return dict(zip(self.parameter_names, parameters.T.copy(), strict=True))

    def quadrature_weights(self) -> Float[np.ndarray, " nodes"]:
        """Weights that turn nodal values into a mean over the square; they sum to 1.

        The paper's errors and losses are plain means over the nodes, so the data carry no weights.
        """
        return self.mesh.quadrature_weights


def check_solved(
    problem: AbstractProblem,
    parameters: Float[np.ndarray, "samples parameters"],
    is_solved: Bool[np.ndarray, " samples"],
    residuals: Float[np.ndarray, " samples"],
    *,
    first: int,
) -> None:
    """Raise a `SolveError` that names the first sample that is not solved."""
    if is_solved.all():
        return
    bad = int(np.argmin(is_solved))
    named = ", ".join(f"{k} = {v:.6g}" for k, v in zip(problem.parameter_names, parameters[bad], strict=True))
    raise SolveError(
        f"{problem.name}: the solve of sample {first + bad} ({named}) did not converge: relative residual "
        f"{residuals[bad]:.2e}, expected at most 1e-10; {int((~is_solved).sum())} of the {len(is_solved)} "
        "samples of this block failed; check that all parameters are positive and finite"
    )


def check_samples(samples: int, *, limit: int | None = None) -> None:
    """The number of samples must be positive, and at most `limit`."""
    if samples < 1 or (limit is not None and samples > limit):
        most = "" if limit is None else f" and at most {limit}"
        raise ValueRangeError(f"samples is {samples}; expected at least 1{most}")
