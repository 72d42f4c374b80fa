"""The problems by name."""

from ..errors import UnknownNameError
from ._abstract import AbstractProblem
from ._discontinuous_conductivity import DiscontinuousConductivity
from ._multiple_inputs import MultipleInputs
from ._nonlinear_conductivity import NonlinearConductivity
from ._random_conductivity import RandomConductivity

_PROBLEMS: dict[str, AbstractProblem] = {
    problem.name: problem
    for problem in (NonlinearConductivity(), DiscontinuousConductivity(), MultipleInputs(), RandomConductivity())
}


def problem_names() -> tuple[str, ...]:
    """Names of all problems: the paper's in its order, then ours."""
    return tuple(_PROBLEMS)


def get_problem(name: str) -> AbstractProblem:
    """The problem called `name`."""
    if name not in _PROBLEMS:
        raise UnknownNameError("problem", name, problem_names())
    return _PROBLEMS[name]
