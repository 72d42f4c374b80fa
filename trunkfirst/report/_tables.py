"""Tables of the report: ours beside the paper's, methods side by side, and every run."""

import math
from dataclasses import dataclass

import numpy as np

from ._experiment import Experiment
from ._paper import BEST_TRUNK_LOSS, PAPER_FIGURES, PaperFigure
from ._run import Run
from ._style import method_label

MISSING = "\u2013"  # an en dash

# heading and path in metrics.json
QUANTITIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Trunk loss (monolithic: overall loss)", ("trunk", "loss")),
    ("Lowest loss any trunk of this width allows", ("trunk", "limit")),
    ("Rank of the trunk", ("trunk", "rank")),
    ("Condition number of the trunk", ("trunk", "condition")),
    ("Trunk iterations", ("trunk", "iterations")),
    ("Branch loss", ("branch", "loss")),
    ("Branch iterations", ("branch", "iterations")),
    ("Test error, mean", ("test", "mean_relative_l2")),
    ("Test error, median", ("test", "median_relative_l2")),
    ("Test error, largest", ("test", "max_relative_l2")),
    ("Best possible test error with this trunk, mean", ("test", "optimal_mean_relative_l2")),
    ("Test error of kernel regression, mean", ("test", "kernel_mean_relative_l2")),
    ("Test error against a finer solution, mean", ("test", "reference_mean_relative_l2")),
    ("Error of the data against a finer solution", ("data", "own_error")),
    ("Validation error, mean", ("validation", "mean_relative_l2")),
    ("Trunk parameters |μ|", ("parameters", "trunk")),
    ("Free coefficients |A|", ("parameters", "coefficients")),
    ("Branch parameters |θ|", ("parameters", "branch")),
    ("Seconds for the trunk", ("trunk", "seconds")),
    ("Seconds for the branch", ("branch", "seconds")),
    ("Seconds in all", ("seconds", "total")),
)
_COUNTS = {"rank", "iterations", "coefficients"}


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
    rows = tuple(_paper_row(experiment, figure) for figure in figures)
    caption = "Ours beside the paper's. “About” marks a number that the paper gives as an order of magnitude."
    if experiment.problem == "nonlinear-conductivity":
        ours = ", ".join(f"{scientific(v)} ({method_label(m)})" for m, v in BEST_TRUNK_LOSS.items())
        caption += f" The single fit the paper plots reached {ours}."
    return Table(caption, ("Quantity", "Method", "Paper", "Ours", "Ours ÷ paper"), rows)


def methods_table(experiment: Experiment) -> Table:
    """Every metric, methods side by side, mean ± standard deviation over seeds."""
    groups = [experiment.of(method) for method in experiment.methods]
    rows = tuple(
        (heading, *(_with_spread(runs, path) for runs in groups))
        for heading, path in QUANTITIES
        if any(run.number(*path) is not None for run in experiment.runs)
    )
    several = any(len(runs) > 1 for runs in groups)
    caption = "Methods side by side" if len(groups) > 1 else "All numbers"
    caption += ", mean ± standard deviation over seeds." if several else "."
    return Table(caption, ("Quantity", *map(method_label, experiment.methods)), rows)


def runs_table(experiment: Experiment) -> Table:
    """Every run on its own."""
    shown = [
        (heading, path)
        for heading, path in QUANTITIES
        if any(run.number(*path) is not None for run in experiment.runs)
    ]
    rows = tuple(
        (method_label(run.method), str(run.seed), *(_cell(run.number(*path), path) for _, path in shown))
        for run in experiment.runs
    )
    return Table("Every run.", ("Method", "Seed", *(heading for heading, _ in shown)), rows)


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
        return _cell(values[0] if values else next((run.number(*path) for run in runs), None), path)
    left = len(runs) - len(values)
    note = f" ({left} of {len(runs)} not finite)" if left else ""
    return f"{scientific(float(np.mean(values)))} ± {scientific(float(np.std(values, ddof=1)))}{note}"


def _finite(runs: tuple[Run, ...], path: tuple[str, ...]) -> list[float]:
    numbers = (run.number(*path) for run in runs)
    return [value for value in numbers if value is not None and math.isfinite(value)]


def _cell(value: float | None, path: tuple[str, ...]) -> str:
    is_count = path[-1] in _COUNTS or path[0] == "parameters"
    if is_count and value is not None and math.isfinite(value) and value == int(value):
        return f"{int(value):,}"
    return scientific(value)
