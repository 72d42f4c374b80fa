"""Choosing how to encode the inputs, on validation samples alone."""

from collections.abc import Sequence

from jaxtyping import PRNGKeyArray

from ..data import AnyData, InputFunction, OperatorData
from ..regressors import AbstractRegressor
from ..training import as_fields, parse_encoding
from ._trial import Candidate, Choice, aligned_trial, choose

_MOST_SENSORS = 1000


def encoding_candidates(data: AnyData) -> tuple[str, ...]:
    """What is worth trying, simple ones first.

    A few numbers: as they are, or logarithms and powers where they are positive. A function at many sensors:
    principal coordinates, more and more of them, and linear predictions from them. Several functions: the same
    kind for each of them.
    """
    functions = data.inputs
    if len(functions) == 1 or all(f.values.shape[1] == 1 for f in functions.values()):
        names = _for_function(InputFunction(data.flat_inputs))
        return tuple(name for name in names if isinstance(data, OperatorData) or "predictive" not in name)
    lists = {name: [n for n in _for_function(f) if "predictive" not in n] for name, f in functions.items()}
    longest = max(map(len, lists.values()))
    rows = [{name: names[min(i, len(names) - 1)] for name, names in lists.items()} for i in range(longest)]
    return tuple(",".join(f"{name}={encoding}" for name, encoding in row.items()) for row in rows)


def _for_function(function: InputFunction) -> tuple[str, ...]:
    inputs = function.values
    if inputs.shape[1] > 8:
        most = min(len(inputs), inputs.shape[1])
        principal = [f"principal:{n}" for n in (1, 4, 16) if n < most]
        predictive = [f"predictive:{n}" for n in (8, 16) if n < most]
        # At very many sensors a network on all of them is slow, and no better than on their principal coordinates.
        whole = ["standardise"] if inputs.shape[1] <= _MOST_SENSORS else []
        return (*whole, *principal, *predictive)
    if (inputs > 0).all(axis=0).any():
        return ("standardise", "log", "inverse", "inverse-root")
    return ("standardise",)


def choose_encoding(
    train: OperatorData,
    validation: OperatorData,
    regressor: AbstractRegressor,
    *,
    candidates: Sequence[str] | None = None,
    key: PRNGKeyArray | int = 0,
) -> Choice:
    """Fit `regressor` behind each candidate to the outputs' principal coefficients; compare on validation.

    No trunk is needed: the principal directions of the training outputs stand in for it.
    """
    trial = aligned_trial(train, validation, as_fields(train), as_fields(validation))
    names = candidates or encoding_candidates(train)
    return choose([trial], {name: Candidate(parse_encoding(name), regressor) for name in names}, key=key)
