"""The interface of a problem: parameters, a finite-element solve, operator data."""

import abc
import dataclasses as dc
from typing import ClassVar, TypeAlias

import numpy as np
from jaxtyping import Float

from ..data.operator_data import OperatorData
from ..errors import SolveError, ValueRangeError
from .finite_elements import Points, Triangulation

Parameters: TypeAlias = Float[np.ndarray, "samples parameters"]
PerSample: TypeAlias = Float[np.ndarray, " samples"]
Fields: TypeAlias = Float[np.ndarray, "samples nodes"]

TOLERANCE = 1e-10
"""Largest relative residual of a solved sample."""


class AbstractProblem(abc.ABC):
    """A parametrised boundary value problem on a square.

    A sample is a row of `parameters` (samples, parameters). Its field is the pressure at the nodes of `mesh`.
    """

    # description
    name: ClassVar[str]
    title: ClassVar[str]
    section: ClassVar[str]
    """Section of the paper, e.g. "5.1"."""
    equation: ClassVar[str]
    parameter_names: ClassVar[tuple[str, ...]]
    interval: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    """The square is the product of this interval with itself."""
    # sizes
    default_samples: ClassVar[int]
    """The number of samples in the paper, for its problems."""
    shard_samples: ClassVar[int]
    """Samples per shard: solved and written together."""
    seconds_per_sample: ClassVar[float]
    """Rough cost of a solve; decides whether worker processes are started."""
    needs_fields: ClassVar[bool]
    """True if any output points need the pressure: it is the input, or it has no closed form."""

    @property
    @abc.abstractmethod
    def mesh(self) -> Triangulation:
        """The mesh on which the pressure is computed."""

    @property
    def output_numbers(self) -> int:
        """Output values of a sample."""
        return len(self.mesh.points)

    @abc.abstractmethod
    def parameters(self, samples: int, *, seed: int) -> Parameters:
        """Return the parameters of the samples. Without random parameters `seed` has no effect."""

    @abc.abstractmethod
    def solve_unchecked(self, parameters: Parameters) -> tuple[Fields, PerSample]:
        """Return the pressures at the nodes and the relative residual of each sample."""

    @abc.abstractmethod
    def assemble(
        self, parameters: Parameters, fields: Fields | None, points: Points | None = None
    ) -> OperatorData:
        """Return operator data at `points`, by default at the problem's own nodes.

        `fields` (samples, nodes) may be None if they are not needed.
        """

    def solve(self, parameters: Parameters, *, first: int = 0) -> Fields:
        """Return the pressures (samples, nodes); `first` is the number of the first sample in messages.

        Raises a `SolveError` that names the first sample that did not converge.
        """
        fields, residuals = self.solve_unchecked(parameters)
        is_solved = residuals <= TOLERANCE  # false for NaN
        if not is_solved.all():
            bad = int(np.argmin(is_solved))
            values = zip(self.parameter_names, parameters[bad], strict=True)
            named = ", ".join(f"{name} = {value:.6g}" for name, value in values)
            raise SolveError(
                f"{self.name}: the solve of sample {first + bad} ({named}) did not converge: "
                f"relative residual {residuals[bad]:.2e}, expected at most {TOLERANCE:.0e}; "
                f"{int((~is_solved).sum())} of the {len(is_solved)} samples of this block failed; "
                "check that all parameters are positive and finite"
            )
        return fields

    def labels(self, parameters: Parameters) -> dict[str, PerSample]:
        """Return the parameters by name."""
        return dict(zip(self.parameter_names, parameters.T.copy(), strict=True))


@dc.dataclass(frozen=True)
class AbstractExactProblem(abc.ABC):
    """A problem whose solution is known exactly, at points of its own; nothing is solved or cached."""

    name: str
    title: str
    default_samples: int
    output_numbers: int
    """Output values of a sample."""

    @abc.abstractmethod
    def make(self, samples: int, *, seed: int) -> OperatorData:
        """Return the operator data of samples that are drawn with `seed`."""


def check_samples(samples: int, *, limit: int | None = None) -> None:
    """Raise unless the number of samples is positive and at most `limit`."""
    if samples < 1 or (limit is not None and samples > limit):
        most = "" if limit is None else f" and at most {limit}"
        raise ValueRangeError(f"samples is {samples}; expected at least 1{most}")
