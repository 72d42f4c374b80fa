"""The section "Error budget": where the error comes from, what to improve, what the theory assumes."""

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
from jaxtyping import Float

from ._experiment import Experiment
from ._history import number
from ._panel import Image, Panel
from ._run import Run
from ._style import INK, legend_above, method_label, new_figure
from ._tables import MISSING, Table, scientific
from ._types import Axes

_PARTS = {
    "total": ("total", INK, "-"),
    "trunk": ("trunk", "#0072B2", "--"),
    "sensors": ("sensors", "#E69F00", "-."),
    "branch": ("branch", "#D55E00", ":"),
}
_MEANINGS = {
    "total": "prediction minus truth",
    "trunk": "what no combination of the trunk's functions gives",
    "coefficients": "best minus predicted coefficients: sensors and branch together",
    "sensors": "best coefficients minus those from the values at the training points",
    "branch": "coefficients from the values at the training points minus those of the branch",
    "data": "what the data's own error does to the coefficients; in the sensors' part too",
}
_CHAIN = {
    "operator": "outputs of the two",
    "sensors": "sensors",
    "training": "branch at the training sample",
    "network": "predictions of the two",
}


def draw_budgets(experiment: Experiment) -> tuple[Panel, ...]:
    """A panel for every run that was diagnosed."""
    return tuple(_panel(experiment, run, index) for index, run in enumerate(experiment.runs) if run.diagnosis)


def budget_sentences(experiment: Experiment) -> tuple[str, ...]:
    """What to improve, and where that was found out."""
    found: list[str] = []
    for run in experiment.runs:
        sentence, where = _text(run, "improve", "sentence"), _text(run, "points", "where")
        if sentence and where:
            found.append(f"{_who(experiment, run)}{sentence} Judged at {where}.")
    return tuple(found)


def budget_tables(experiment: Experiment) -> tuple[Table, ...]:
    """Budget, chain and assumptions of every run that was diagnosed."""
    return tuple(
        table
        for run in experiment.runs
        if run.diagnosis
        for table in (_budget(experiment, run), _chain(experiment, run), _assumptions(experiment, run))
        if table is not None
    )


# -- tables


def _budget(experiment: Experiment, run: Run) -> Table:
    total = number(run.diagnosis, "budget", "total_squared")
    rows = tuple(
        (name.capitalize(), meaning, *_sizes(run, f"{name}_squared"), _share(run, f"{name}_squared", total))
        for name, meaning in _MEANINGS.items()
        if number(run.diagnosis, "budget", f"{name}_squared") is not None
    )
    rows += tuple(
        (words, meaning, MISSING, MISSING, _share(run, name, total))
        for name, words, meaning in (
            ("cross", "Cross term", "twice the inner product of the sensors' and the branch's vector"),
            ("remainder", "Remainder", "rounding, or what an output map that is not linear adds"),
        )
    )
    caption = (
        f"{_who(experiment, run)}Root mean squares over the test samples. The squares of trunk and coefficients "
        "add up to that of the total, with the remainder; those of sensors and branch to that of the "
        "coefficients, with the cross term."
    )
    return Table(caption, ("Part", "What it is", "Error", "Relative error", "Of the square"), rows)


def _chain(experiment: Experiment, run: Run) -> Table | None:
    path = ("budget", "chain", "relative")
    rows = tuple(
        (words.capitalize(), scientific(_root(number(run.diagnosis, *path, f"{name}_squared"))))
        for name, words in _CHAIN.items()
        if number(run.diagnosis, *path, f"{name}_squared") is not None
    )
    caption = (
        f"{_who(experiment, run)}The paper's way through the nearest training sample: four parts whose vectors "
        "sum to that of the coefficients. Where the first and the last nearly cancel, a bound by their sizes is "
        "far too large."
    )
    return Table(caption, ("Part", "Relative error"), rows) if rows else None


def _assumptions(experiment: Experiment, run: Run) -> Table | None:
    found = _mapping(run.diagnosis.get("assumptions"))
    rows = tuple(
        (name, scientific(number(found, name, "value")), str(_mapping(found[name]).get("meaning", "")))
        for name in found
    )
    caption = f"{_who(experiment, run)}What the paper's bound (thm:main) assumes, measured."
    return Table(caption, ("Quantity", "Measured", "Meaning"), rows) if rows else None


def _sizes(run: Run, name: str) -> tuple[str, str]:
    paths = (("budget", name), ("budget", "relative", name))
    return cast("tuple[str, str]", tuple(scientific(_root(number(run.diagnosis, *path))) for path in paths))


def _share(run: Run, name: str, total: float | None) -> str:
    value = number(run.diagnosis, "budget", name)
    return MISSING if value is None or not total else f"{value / total:.1%}"


def _root(square: float | None) -> float | None:
    return None if square is None else math.sqrt(max(square, 0.0))


# -- figure


def _panel(experiment: Experiment, run: Run, index: int) -> Panel:
    images = [_bars(run, index)]
    if (samples := _samples(run, index)) is not None:
        images.append(samples)
    caption = (
        "Left: the parts of the error, root mean squares relative to the outputs. Right: the same for every test "
        "sample, the worst first; where a line lies just below that of the total, that part decides the sample."
    )
    return Panel(f"{_who(experiment, run)}Where the error comes from", caption, tuple(images))


def _bars(run: Run, index: int) -> Image:
    sizes = {
        words: _root(number(run.diagnosis, "budget", "relative", f"{name}_squared")) or 0.0
        for name, (words, _, _) in _PARTS.items()
    }
    figure, axes = new_figure(width=5.2, height=3.0)
    places = range(len(sizes), 0, -1)
    edge = 1e-3 * max(sizes.values()) or 1e-16
    axes.barh(places, [max(size, edge) for size in sizes.values()], color=[c for _, c, _ in _PARTS.values()])
    for place, size in zip(places, sizes.values(), strict=True):
        axes.text(max(size, edge), place, f" {scientific(size)}", va="center", clip_on=False)
    axes.set_yticks(list(places), list(sizes))
    axes.set_xscale("log")
    axes.set_xlim(edge / 2, 8 * max(*sizes.values(), edge))
    axes.set_xlabel("Relative error (root mean square)")
    axes.grid(visible=False, axis="y")
    told = ", ".join(f"{words} {scientific(size)}" for words, size in sizes.items())
    return Image(f"budget-parts-{index}", f"Bars of the parts of the error: {told}.", figure)


def _samples(run: Run, index: int) -> Image | None:
    arrays = {name: run.budget.get(f"{name}_squared") for name in _PARTS}
    size = run.budget.get("size_squared")
    if size is None or any(array is None or array.shape != size.shape for array in arrays.values()):
        return None
    errors = {name: _relative(cast("np.ndarray", array), size) for name, array in arrays.items()}
    order = np.argsort(errors["total"])[::-1]
    figure, axes = new_figure(width=5.2, height=3.0)
    for name, (words, colour, line) in _PARTS.items():
        _line(axes, errors[name][order], words, colour, line)
    total = errors["total"][errors["total"] > 0]
    if len(total):
        axes.set_yscale("log")
        axes.set_ylim(1e-2 * np.median(total), 2 * total.max())
    axes.set_xlabel("Test samples, the worst first")
    axes.set_ylabel("Relative error")
    legend_above(figure)
    worst = scientific(float(errors["total"].max()))
    alt = f"Relative errors of {len(order)} test samples and their parts, from {worst} down."
    return Image(f"budget-samples-{index}", alt, figure)


def _line(axes: Axes, errors: Float[np.ndarray, " samples"], words: str, colour: str, line: str) -> None:
    marker = "o" if len(errors) < 40 else None
    axes.plot(np.arange(1, len(errors) + 1), errors, line, color=colour, label=words, marker=marker, markersize=3)


def _relative(squares: np.ndarray, size: np.ndarray) -> Float[np.ndarray, " samples"]:
    """Root of the mean over channels of squares over |u|^2."""
    known = np.where(size > 0, size, size.mean() or 1.0)
    return np.sqrt(np.maximum((squares / known).mean(axis=1), 0.0))


# -- words


def _who(experiment: Experiment, run: Run) -> str:
    return f"{method_label(run.method)}, seed {run.seed}: " if len(experiment.runs) > 1 else ""


def _text(run: Run, *keys: str) -> str:
    value: object = run.diagnosis
    for key in keys:
        value = _mapping(value).get(key)
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
