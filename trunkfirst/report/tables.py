"""Tables of the report: our numbers next to the paper's, methods side by side, every run, and model selection."""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..records import BASELINES, CandidateSettings, Choice, Claim, mapping_at
from .figures import method_label
from .run_files import Experiment, Run, is_limited_by_network, loss_over_limit

MISSING = "\u2013"  # an en dash
NO_TRUNK = "no trunk, Matern kernel ridge"
LIMITED_BY_NETWORK = "limited by the network"

Path = tuple[str, ...]
TEST: Path = ("test", "mean_relative_l2")
KERNEL: Path = ("test", "kernel_mean_relative_l2")
VALIDATION: Path = ("validation", "mean_relative_l2")
TRUNK: Path = ("trunk", "loss")
BRANCH: Path = ("branch", "loss")
_RATIO: Path = ("trunk", "loss ÷ limit")  # computed here, not in metrics.json
# heading and path in metrics.json
_QUANTITIES: tuple[tuple[str, Path], ...] = (
    ("Test error, mean", TEST),
    (f"Test error, mean, {NO_TRUNK}", KERNEL),
    ("Test error, median", ("test", "median_relative_l2")),
    ("Test error, largest", ("test", "max_relative_l2")),
    ("Best possible test error with this trunk, mean", ("test", "optimal_mean_relative_l2")),
    ("Test error against a finer solution, mean", ("test", "reference_mean_relative_l2")),
    ("Error of the data against a finer solution", ("data", "own_error")),
    ("Validation error, mean", VALIDATION),
    *((f"Validation error, mean, {name}", ("baseline", kind)) for kind, name in BASELINES.items()),
    ("Trunk loss (monolithic: overall loss)", TRUNK),
    ("Lowest possible loss of a trunk of this width", ("trunk", "limit")),
    ("Upper bound of it (for p = 1; the number above is a lower bound)", ("trunk", "limit_upper")),
    ("Trunk loss ÷ lowest loss", _RATIO),
    ("Rank of the trunk", ("trunk", "rank")),
    ("Condition number of the trunk", ("trunk", "condition")),
    ("Trunk iterations", ("trunk", "iterations")),
    ("Branch loss", BRANCH),
    ("Branch iterations", ("branch", "iterations")),
    ("Trunk parameters |μ|", ("parameters", "trunk")),
    ("Free coefficients |A|", ("parameters", "coefficients")),
    ("Branch parameters |θ|", ("parameters", "branch")),
    ("Seconds for the trunk", ("trunk", "seconds")),
    ("Seconds for the branch", ("branch", "seconds")),
    ("Total seconds, including evaluation, without a reused trunk", ("seconds", "total")),
)
_WRITTEN_OUT = {"rank", "iterations", "parameters", "seconds"}  # counts and seconds


@dataclass(frozen=True)
class Table:
    """Text in rows; the first cell of a row is its heading. `style` names classes of the page's style sheet."""

    kind: ClassVar[str] = "table"
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    style: str = ""
    summary: str = ""
    """Where it is given, the table is folded away under this line."""


def scientific(value: float | None) -> str:
    """Three significant digits: `2.11e-7`, `1.26`, `126`; a dash for None, `not finite` for NaN and infinity."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "not finite"
    mantissa, exponent = f"{value:.2e}".split("e")
    places = int(exponent)
    return f"{value:.{2 - places}f}" if 0 <= places <= 2 else f"{mantissa}e{places}"


def mean_of(runs: tuple[Run, ...], *path: str) -> float | None:
    """Mean of a metric over the runs that have a finite one; `("baseline", kind)` is the error of a baseline."""
    values = _finite(runs, path)
    return float(np.mean(values)) if values else None


# -- the paper


@dataclass(frozen=True)
class PaperFigure:
    """A number of the paper's section 5 and the path in `metrics.json` of ours.

    `is_level` marks a number given as an order of magnitude only ("the level of 1e-6").
    """

    quantity: str
    method: str
    path: Path
    value: float
    is_level: bool = False


PAPER_FIGURES = {
    "nonlinear-conductivity": (
        PaperFigure("Trunk loss (paper: mean of five seeds)", "two-step", TRUNK, 2.11e-7),
        PaperFigure("Overall loss (paper: mean of five seeds)", "monolithic", TRUNK, 1.84e-5),
        PaperFigure("Branch loss", "two-step", BRANCH, 1e-9, is_level=True),
    ),
    "discontinuous-conductivity": (
        PaperFigure("Mean relative test error", "two-step", TEST, 4.14e-4),
        PaperFigure("Mean relative test error", "monolithic", TEST, 1.48e-1),
        PaperFigure("Trunk loss", "two-step", TRUNK, 1e-6, is_level=True),
        PaperFigure("Overall loss", "monolithic", TRUNK, 1e-1, is_level=True),
        PaperFigure("Branch loss (active-neuron least squares)", "two-step", BRANCH, 1.02e-5),
    ),
    "multiple-inputs": (
        PaperFigure("Mean relative test error", "two-step", TEST, 2.9e-4),
        PaperFigure("Mean relative test error", "monolithic", TEST, 2.5e-3),
        PaperFigure("Trunk loss", "two-step", TRUNK, 1e-7, is_level=True),
        PaperFigure("Overall loss", "monolithic", TRUNK, 1e-4, is_level=True),
        PaperFigure("Branch loss", "two-step", BRANCH, 1e-6, is_level=True),
    ),
}
# Smallest loss of the single fit that the paper plots for its first example.
_PLOTTED_TRUNK_LOSS = {"two-step": 2.33e-7, "monolithic": 2.08e-5}


def paper_tables(experiment: Experiment) -> tuple[Table, ...]:
    """Our numbers next to the paper's, and its claims; nothing for problems that the paper does not have."""
    figures = PAPER_FIGURES.get(experiment.problem, ())
    tables = [_paper_table(experiment, figures)] if figures else []
    if experiment.claims:
        tables.append(claims_table("Claims of the paper, and whether they hold here.", experiment.claims))
    return tuple(tables)


def claims_table(
    caption: str, claims: tuple[Claim, ...], header: tuple[str, ...] = ("Claim", "Paper", "Ours", "Holds")
) -> Table:
    """Claims with the expected number, the one found, and whether they hold."""
    said = {True: "✓ yes", False: "✗ no", None: "not tested"}
    rows = tuple((claim.claim, claim.paper, claim.ours, said[claim.holds]) for claim in claims)
    return Table(caption, header, rows)


def _paper_table(experiment: Experiment, figures: tuple[PaperFigure, ...]) -> Table:
    rows = tuple(_paper_row(experiment, figure) for figure in figures)
    kernel = mean_of(experiment.runs, *KERNEL)
    if kernel is not None:
        rows += (("Mean relative test error", NO_TRUNK, MISSING, scientific(kernel), MISSING),)
    caption = (
        "Our numbers and those of the paper. “About” marks numbers that the paper gives as an order of magnitude."
    )
    if experiment.problem == "nonlinear-conductivity":
        plotted = ", ".join(f"{scientific(v)} ({method_label(m)})" for m, v in _PLOTTED_TRUNK_LOSS.items())
        caption += f" The single fit that the paper plots reached {plotted}."
    return Table(caption, ("Quantity", "Method", "Paper", "Ours", "Ours ÷ paper"), rows, "figures")


def _paper_row(experiment: Experiment, figure: PaperFigure) -> tuple[str, ...]:
    runs = experiment.of(figure.method)
    ours = mean_of(runs, *figure.path)
    paper = ("about " if figure.is_level else "") + scientific(figure.value)
    ratio = None if ours is None else ours / figure.value
    text = _with_spread(runs, figure.path) if runs else "not run"
    return (figure.quantity, method_label(figure.method), paper, text, scientific(ratio))


# -- methods and runs


def methods_table(experiment: Experiment) -> Table:
    """Every metric, methods side by side, mean ± standard deviation over seeds."""
    groups = [experiment.of(method) for method in experiment.methods]
    rows = tuple((heading, *(_with_spread(runs, path) for runs in groups)) for heading, path in _shown(experiment))
    if _has_unfinished(experiment):
        rows = (("Status", *map(_status, groups)), *rows)
    caption = "Methods side by side" if len(groups) > 1 else "All numbers"
    caption += ", mean ± standard deviation over seeds." if any(len(runs) > 1 for runs in groups) else "."
    return Table(caption, ("Quantity", *map(method_label, experiment.methods)), rows, "figures")


def runs_table(experiment: Experiment) -> Table:
    """Every run on its own; with its status where not all were finished."""
    shown, has_status = _shown(experiment), _has_unfinished(experiment)
    header = ("Method", "Seed", *(["Status"] if has_status else []), *(heading for heading, _ in shown))
    rows = tuple(
        (
            method_label(run.method),
            str(run.seed),
            *([run.status] if has_status else []),
            *(_cell(run, path) for _, path in shown),
        )
        for run in experiment.runs
    )
    return Table("Every run.", header, rows, "figures wide", summary="Every run on its own")


def _shown(experiment: Experiment) -> list[tuple[str, Path]]:
    """The quantities that at least one run has."""
    return [each for each in _QUANTITIES if any(_is_shown(run, each[1]) for run in experiment.runs)]


def _is_shown(run: Run, path: Path) -> bool:
    return (_number(run, path) or 0) > 1 if path[-1] == "iterations" else _cell(run, path) != MISSING


def _has_unfinished(experiment: Experiment) -> bool:
    return any(run.status != "finished" for run in experiment.runs)


def _status(runs: tuple[Run, ...]) -> str:
    """`finished`, or how many runs were not: `1 of 5 diverged`."""
    if len(runs) == 1:
        return runs[0].status
    counts = Counter(run.status for run in runs if run.status != "finished")
    return ", ".join(f"{count} of {len(runs)} {status}" for status, count in counts.items()) or "finished"


def _with_spread(runs: tuple[Run, ...], path: Path) -> str:
    values = _finite(runs, path)
    if len(set(values)) < 2:
        return _text(values[0], path) if values else next((_cell(run, path) for run in runs), MISSING)
    left = len(runs) - len(values)
    note = f" ({left} of {len(runs)} not finite)" if left else ""
    return f"{_text(float(np.mean(values)), path)} ± {_text(float(np.std(values, ddof=1)), path)}{note}"


def _finite(runs: tuple[Run, ...], path: Path) -> list[float]:
    numbers = (_number(run, path) for run in runs)
    return [value for value in numbers if value is not None and math.isfinite(value)]


def _number(run: Run, path: Path) -> float | None:
    if path == _RATIO:
        return loss_over_limit(run)
    if path[0] == "baseline":
        return run.baseline[path[1]].mean_relative_l2 if path[1] in run.baseline else None
    return run.number(*path)


def _cell(run: Run, path: Path) -> str:
    if path == _RATIO and is_limited_by_network(run):
        return LIMITED_BY_NETWORK
    return _text(_number(run, path), path)


def _text(value: float | None, path: Path) -> str:
    if value is None or not math.isfinite(value) or not _WRITTEN_OUT & {path[0], path[-1]}:
        return scientific(value)
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


# -- model selection

_ENCODERS = {
    "none": "raw values",
    "standardise": "values standardised to mean 0 and deviation 1",
    "log": "logarithms of positive values, standardised",
    "inverse": "1/x of positive values, standardised",
    "inverse-root": "1/√x of positive values, standardised",
    "power": "a power of each positive value, standardised",
    "principal": "the first {} principal components of the input",
    "predictive": "a few linear predictions of the outputs from {} principal components",
    "legendre": "the first {} Legendre coefficients",
    "chebyshev": "the first {} Chebyshev coefficients",
    "fourier": "the first {} Fourier coefficients",
}
_BRANCHES = {
    "network": "network",
    "convolution": "convolutional network",
    "active-neurons": "active-neuron least squares",
    "fourier": "Fourier layers on the grid of the input",
    "linear": "linear regression",
} | {
    f"{smoothness}{kernel}": f"{smoothness}{words}"
    for smoothness in ("", "Gaussian ", "Matern 3/2 ", "Matern 1/2 ")
    for kernel, words in {
        "kernel": "kernel regression",
        "ARD kernel": "kernel regression with a length scale for each input",
        "ARD kernel x linear": "kernel regression with a length scale for each input and a linear factor",
    }.items()
}
_WEIGHTS = {"relative": "samples weighted by relative error", "none": "samples weighted equally"}
_NEARLY = 1.25  # a simpler candidate is preferred where its error is at most about this multiple of the smallest
_NETWORKS = ("network", "convolution", "active-neurons", "fourier", "joint")
_HOW = (
    "Each candidate was evaluated on samples that it was not fitted to. Networks were trained with few "
    "iterations. Test samples were not used."
)
_IN_FOLDS = (
    "These are errors of the whole operator on samples left out; everything, the trunk included, was fitted to "
    "the others. Closed forms were compared with each part left out in turn. Networks were trained with few "
    "iterations and the first part left out, and compared on one half of it. Test samples were not used."
)
_SCREENING = "Networks whose hidden layers were not trained were used only to select encoders."


def choice_tables(experiment: Experiment) -> tuple[Table, ...]:
    """The candidates of every search and their validation errors; runs of a comparison share theirs."""
    choices: list[tuple[Choice, list[str]]] = []
    for run in experiment.runs:
        choice = Choice.from_json(mapping_at(run.metrics, "chosen"))
        choice = None if choice is None else replace(choice, baseline=tuple(run.baseline.values()))
        known = next((names for other, names in choices if other == choice), None)
        if choice is not None and known is None:
            choices.append((choice, [run.name]))
        elif known is not None:
            known.append(run.name)
    return tuple(_choice_table(choice, names if len(choices) > 1 else []) for choice, names in choices)


def _choice_table(choice: Choice, names: list[str]) -> Table:
    ranked = sorted(choice.errors, key=lambda name: (math.isnan(choice.errors[name]), choice.errors[name]))
    settings = {name: [_describe(choice, name)] if choice.candidates else [] for name in ranked}
    rows = tuple(
        (name, *settings[name], scientific(choice.errors[name]), "✓ chosen" if name == choice.name else "")
        for name in ranked
    )
    header = ("Candidate", *(["Settings"] if choice.candidates else []), "Validation error, mean", "Choice")
    screening = _SCREENING if any(not each.is_trained for each in choice.candidates.values()) else ""
    how = _IN_FOLDS if choice.baseline else _HOW
    sentences = filter(None, (_why(choice, ranked), _best_network(choice), how, screening))
    caption = (f"{'; '.join(names)}: " if names else "") + " ".join(sentences)
    return Table(caption, header, rows)


def _why(choice: Choice, ranked: list[str]) -> str:
    untrained = {name for name, settings in choice.candidates.items() if not settings.is_trained}
    # A baseline is a candidate only where everything is open.
    others = untrained | set(BASELINES.values()) - {choice.name}
    compared = [name for name in ranked if name not in others] or ranked
    error, smallest = choice.errors.get(choice.name, math.nan), choice.errors[compared[0]]
    chosen = f"“{choice.name}” was chosen"
    if len(compared) == 1:
        return f"{chosen}, the only candidate for inputs of this kind."
    if math.isnan(error) or math.isnan(smallest):
        return f"{chosen}; no candidate has a finite validation error."
    chosen += f": its validation error of {scientific(error)}"
    if error == smallest:
        return f"{chosen} is the smallest of {len(compared)} candidates."
    if choice.baseline and _is_trained(choice, choice.name) != _is_trained(choice, compared[0]):
        best = f"“{compared[0]}” ({scientific(smallest)})"
        return f"{chosen} is not the smallest, but {best} is not clearly better on the samples that both have."
    if error > _NEARLY * smallest:
        return f"{chosen} is the smallest of the candidates that were trained."
    best = f"“{compared[0]}”, {scientific(smallest)}"
    return f"{chosen} is nearly that of the best ({best}), and it is the simplest such candidate."


def _is_trained(choice: Choice, name: str) -> bool:
    """Whether a candidate was trained by iterations, and so measured on the first part alone."""
    is_network = name in choice.candidates and choice.candidates[name].branch in _NETWORKS
    return is_network or name.endswith("network trunk")


def _best_network(choice: Choice) -> str:
    """What the best network reached, where something else was chosen."""
    if choice.best_network is None or choice.best_network == choice.name:
        return ""
    error = scientific(choice.errors.get(choice.best_network))
    return f"The best network is “{choice.best_network}” with {error}."


def _describe(choice: Choice, name: str) -> str:
    """The settings in which candidates differ, in words."""
    if name not in choice.candidates:
        return MISSING
    settings, others = choice.candidates[name], choice.candidates.values()
    differing = {key for key in ("branch", "weights") if len({getattr(other, key) for other in others}) > 1}
    parts = [_encoders(settings.encoder)]
    if "branch" in differing:
        parts = [f"{_BRANCHES.get(settings.branch, settings.branch)} on {parts[0]}"]
    if "weights" in differing:
        parts.append(_WEIGHTS.get(settings.weights, settings.weights))
    return ", ".join([*parts, *_extras(settings)])


def _extras(settings: CandidateSettings) -> list[str]:
    decay = [f"decay {settings.decay:g}"] if settings.decay else []
    return decay if settings.is_trained else [*decay, "hidden layers not trained"]


def _encoders(setting: str) -> str:
    """`branch.encoder` in words: one encoder, or one for each input function as in `f=log,g=principal:2`."""
    words: list[str] = []
    for part in setting.split(","):
        function, _, encoder = part.rpartition("=")
        kind, _, count = encoder.partition(":")
        text = _ENCODERS[kind].format(count) if kind in _ENCODERS else encoder
        words.append(f"{function}: {text}" if function else text)
    return "; ".join(words)
