"""Which encoder (and branch, where that was open) was chosen and why: all candidates with their errors."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from ._experiment import Experiment
from ._history import number
from ._run import Run
from ._style import method_label
from ._tables import Table, scientific

_ENCODERS = {
    "none": "the numbers as they are",
    "standardise": "every number shifted and scaled to mean 0 and deviation 1",
    "log": "logarithms of positive numbers, standardised",
    "inverse": "1/x of positive numbers, standardised",
    "inverse-root": "1/√x of positive numbers, standardised",
    "principal": "the first {} principal coordinates of the input",
    "predictive": "a few linear predictions of the output from {} principal coordinates",
    "legendre": "the first {} Legendre coefficients",
    "chebyshev": "the first {} Chebyshev coefficients",
    "fourier": "the first {} Fourier coefficients",
}
_BRANCHES = {
    "network": "a network",
    "convolution": "a convolutional network",
    "active-neurons": "active-neuron least squares",
    "kernel": "a kernel regression",
    "linear": "a linear regression",
}
_WEIGHTS = {"relative": "samples weighted relative to their size", "none": "all samples alike"}
_HOW = (
    "Each candidate was tried in a short training of the branch and judged on the validation samples; "
    "test samples had no say."
)


@dataclass(frozen=True)
class Choice:
    """The chosen candidate and the validation errors of all, NaN where one failed; the best network of them."""

    name: str
    errors: tuple[tuple[str, float], ...]
    best_network: str | None


def choice_tables(experiment: Experiment) -> tuple[Table, ...]:
    """One table for each choice that was made; runs of a comparison share theirs."""
    choices: dict[Choice, list[Run]] = {}
    for run in experiment.runs:
        choice = _choice(run)
        if choice is not None:
            choices.setdefault(choice, []).append(run)
    return tuple(_table(choice, runs if len(choices) > 1 else []) for choice, runs in choices.items())


def _choice(run: Run) -> Choice | None:
    chosen = _mapping(run.metrics.get("chosen"))
    name, errors = chosen.get("candidate", chosen.get("encoder")), _mapping(chosen.get("validation_errors"))
    if not isinstance(name, str) or not errors:
        return None
    found = {key: number(errors, key) for key in errors}
    network = chosen.get("best_network")
    return Choice(
        name,
        tuple((key, math.nan if error is None else error) for key, error in found.items()),
        network if isinstance(network, str) else None,
    )


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _table(choice: Choice, runs: list[Run]) -> Table:
    ranked = sorted(choice.errors, key=lambda item: (math.isnan(item[1]), item[1]))
    rows = tuple(
        (name, _meaning(name), scientific(error), "✓ chosen" if name == choice.name else "")
        for name, error in ranked
    )
    who = ", ".join(f"{method_label(run.method)} seed {run.seed}" for run in runs)
    caption = (f"{who}: " if who else "") + " ".join(filter(None, (_why(choice, ranked), _network(choice), _HOW)))
    return Table(caption, ("Candidate", "What it means", "Validation error, mean", "Choice"), rows)


def _why(choice: Choice, ranked: list[tuple[str, float]]) -> str:
    """One sentence: the best, or a simpler one nearly as good."""
    error, (best, smallest) = dict(choice.errors).get(choice.name, math.nan), ranked[0]
    what = "The branch is" if choice.name.split(", ")[0] in _BRANCHES else "The input is encoded by"
    if len(ranked) == 1:
        return f"{what} “{choice.name}”, the only candidate for inputs of this kind."
    if math.isnan(error) or math.isnan(smallest):
        return f"{what} “{choice.name}”; the candidates gave no finite validation error."
    if choice.name == best:
        return (
            f"{what} “{choice.name}”, because its validation error of {scientific(error)} is the smallest of "
            f"{len(ranked)} candidates."
        )
    return (
        f"{what} “{choice.name}”, because with a validation error of {scientific(error)} it is the simplest that "
        f"does nearly as well as the best (“{best}”, {scientific(smallest)})."
    )


def _network(choice: Choice) -> str:
    """What the best network reached, where something else was chosen."""
    if choice.best_network is None or choice.best_network == choice.name:
        return ""
    error = dict(choice.errors).get(choice.best_network)
    return f"The best network among them is “{choice.best_network}” with {scientific(error)}."


def _meaning(name: str) -> str:
    """`kernel, log, none` in words: a branch, an encoder, weights, a decay, each but the encoder optional."""
    words = name.split(", ")
    branch = f"{_BRANCHES[words.pop(0)]} on " if words[0] in _BRANCHES else ""
    encoder = "; ".join(_encoder(part) for part in words.pop(0).split(",")) if words else ""
    return ", ".join([branch + encoder, *(_WEIGHTS.get(word, word) for word in words)])


def _encoder(text: str) -> str:
    """One encoder, or `f=log`: the one of an input function."""
    function, _, encoder = text.rpartition("=")
    kind, _, count = encoder.partition(":")
    return (f"{function}: " if function else "") + _ENCODERS.get(kind, encoder).format(count)
