"""Tables of the report: ours beside the paper's, methods side by side, and every run."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from ._experiment import Experiment
from ._paper import BEST_TRUNK_LOSS, PAPER_FIGURES, PaperFigure
from ._run import Run
from ._style import method_label

MISSING = "\u2013"  # an en dash
NO_TRUNK = "no trunk, Matern kernel ridge"
LIMITED_BY_NETWORK = "limited by the network"

_KERNEL = ("test", "kernel_mean_relative_l2")
# Not in metrics.json: trunk loss over its limit, where the limit is more than rounding.
RATIO = ("trunk", "loss ÷ limit")
# heading and path in metrics.json
QUANTITIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Trunk loss (monolithic: overall loss)", ("trunk", "loss")),
    ("Lowest loss any trunk of this width allows", ("trunk", "limit")),
    ("The same at most (p = 1: the number above is a lower bound)", ("trunk", "limit_upper")),
    ("Trunk loss ÷ lowest loss", RATIO),
    ("Rank of the trunk", ("trunk", "rank")),
    ("Condition number of the trunk", ("trunk", "condition")),
    ("Trunk iterations", ("trunk", "iterations")),
    ("Branch loss", ("branch", "loss")),
    ("Branch iterations", ("branch", "iterations")),
    ("Test error, mean", ("test", "mean_relative_l2")),
    (f"Test error, mean, {NO_TRUNK}", _KERNEL),
    ("Test error, median", ("test", "median_relative_l2")),
    ("Test error, largest", ("test", "max_relative_l2")),
    ("Best possible test error with this trunk, mean", ("test", "optimal_mean_relative_l2")),
    ("Test error against a finer solution, mean", ("test", "reference_mean_relative_l2")),
    ("Error of the data against a finer solution", ("data", "own_error")),
    ("Validation error, mean", ("validation", "mean_relative_l2")),
    ("Trunk parameters |μ|", ("parameters", "trunk")),
    ("Free coefficients |A|", ("parameters", "coefficients")),
    ("Branch parameters |θ|", ("parameters", "branch")),
    ("Seconds for the trunk", ("trunk", "seconds")),
    ("Seconds for the branch", ("branch", "seconds")),
    ("Seconds in all, with evaluation and without a trunk taken over", ("seconds", "total")),
)
# counts and seconds: written out
_PLAIN = {"rank", "iterations", "parameters", "seconds"}


@dataclass(frozen=True)
class Table:
    """Text in rows; the first cell of a row is its heading."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def scientific(value: float | None) -> str:
    """Three significant digits: `2.11e-7`. Nothing and NaN are said in words."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "not finite"
    mantissa, exponent = f"{value:.2e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def mean_of(runs: tuple[Run, ...], *path: str) -> float | None:
    """Mean of a metric over the runs that have a finite one."""
    values = _finite(runs, path)
    return float(np.mean(values)) if values else None


def paper_table(experiment: Experiment) -> Table | None:
    """Our figures beside the paper's, None for problems the paper does not have."""
    figures = PAPER_FIGURES.get(experiment.problem)
    if figures is None:
        return None
    rows = tuple(_paper_row(experiment, figure) for figure in figures) + _kernel_rows(experiment)
    caption = "Ours beside the paper's. “About” marks a number that the paper gives as an order of magnitude."
    if experiment.problem == "nonlinear-conductivity":
        ours = ", ".join(f"{scientific(v)} ({method_label(m)})" for m, v in BEST_TRUNK_LOSS.items())
        caption += f" The single fit the paper plots reached {ours}."
    return Table(caption, ("Quantity", "Method", "Paper", "Ours", "Ours ÷ paper"), rows)


def methods_table(experiment: Experiment) -> Table:
    """Every metric, methods side by side, mean ± standard deviation over seeds."""
    groups = [experiment.of(method) for method in experiment.methods]
    rows = tuple((heading, *(_with_spread(runs, path) for runs in groups)) for heading, path in _shown(experiment))
    if has_unfinished(experiment):
        rows = (("Status", *map(_status, groups)), *rows)
    several = any(len(runs) > 1 for runs in groups)
    caption = "Methods side by side" if len(groups) > 1 else "All numbers"
    caption += ", mean ± standard deviation over seeds." if several else "."
    return Table(caption, ("Quantity", *map(method_label, experiment.methods)), rows)


def runs_table(experiment: Experiment) -> Table:
    """Every run on its own; with its status where not all were finished."""
    shown = _shown(experiment)
    states = has_unfinished(experiment)
    rows = tuple(
        (
            method_label(run.method),
            str(run.seed),
            *([run.status] if states else []),
            *(_cell(run, path) for _, path in shown),
        )
        for run in experiment.runs
    )
    header = ("Method", "Seed", *(["Status"] if states else []), *(heading for heading, _ in shown))
    return Table("Every run.", header, rows)


def has_unfinished(experiment: Experiment) -> bool:
    """Whether any run diverged or was interrupted."""
    return any(run.status != "finished" for run in experiment.runs)


def is_limited_by_network(run: Run) -> bool | None:
    """Whether more functions in the trunk could not help; None where it was not recorded."""
    trunk = run.metrics.get("trunk")
    found = (
        cast("Mapping[str, object]", trunk).get("is_limited_by_network") if isinstance(trunk, Mapping) else None
    )
    return found if isinstance(found, bool) else None


def loss_over_limit(run: Run) -> float | None:
    """Trunk loss over the lowest possible, where that is known (p = 2) and more than rounding."""
    loss, limit = run.number("trunk", "loss"), run.number("trunk", "limit")
    is_known = is_limited_by_network(run) is False and run.number("trunk", "limit_upper") is None
    return loss / limit if is_known and loss is not None and limit else None


def _shown(experiment: Experiment) -> list[tuple[str, tuple[str, ...]]]:
    """The quantities that at least one run has."""
    return [
        (heading, path)
        for heading, path in QUANTITIES
        if any(_cell(run, path) != MISSING for run in experiment.runs)
    ]


def _status(runs: tuple[Run, ...]) -> str:
    """`finished`, or how many runs were not: `1 of 5 diverged`."""
    counts = Counter(run.status for run in runs if run.status != "finished")
    if len(runs) == 1:
        return runs[0].status
    return ", ".join(f"{count} of {len(runs)} {status}" for status, count in counts.items()) or "finished"


def _kernel_rows(experiment: Experiment) -> tuple[tuple[str, ...], ...]:
    """What a good regression without any trunk reaches on the same samples."""
    error = mean_of(experiment.runs, *_KERNEL)
    return () if error is None else (("Mean relative test error", NO_TRUNK, MISSING, scientific(error), MISSING),)


def _paper_row(experiment: Experiment, figure: PaperFigure) -> tuple[str, ...]:
    runs = experiment.of(figure.method)
    ours = mean_of(runs, *figure.path)
    said = ("about " if figure.is_level else "") + scientific(figure.value)
    mine = _with_spread(runs, figure.path) if runs else "not run"
    ratio = None if ours is None else ours / figure.value
    return (figure.quantity.capitalize(), method_label(figure.method), said, mine, scientific(ratio))


def _with_spread(runs: tuple[Run, ...], path: tuple[str, ...]) -> str:
    values = _finite(runs, path)
    if len(values) < 2 or len(set(values)) == 1:
        return _text(values[0], path) if values else next((_cell(run, path) for run in runs), MISSING)
    left = len(runs) - len(values)
    note = f" ({left} of {len(runs)} not finite)" if left else ""
    mean, spread = float(np.mean(values)), float(np.std(values, ddof=1))
    return f"{_text(mean, path)} ± {_text(spread, path)}{note}"


def _finite(runs: tuple[Run, ...], path: tuple[str, ...]) -> list[float]:
    numbers = (_number(run, path) for run in runs)
    return [value for value in numbers if value is not None and math.isfinite(value)]


def _number(run: Run, path: tuple[str, ...]) -> float | None:
    return loss_over_limit(run) if path == RATIO else run.number(*path)


def _cell(run: Run, path: tuple[str, ...]) -> str:
    if path == RATIO and is_limited_by_network(run):
        return LIMITED_BY_NETWORK
    return _text(_number(run, path), path)


def _text(value: float | None, path: tuple[str, ...]) -> str:
    if value is None or not math.isfinite(value) or not _PLAIN & {path[0], path[-1]}:
        return scientific(value)
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"
