"""The error budget of a run that was diagnosed: what to improve, its figure and its tables."""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from ..records import mapping_at, number_at, numbers_at
from .figures import (
    BLUE,
    INK,
    ORANGE,
    VERMILION,
    Image,
    Panel,
    new_figure,
    to_image,
)
from .run_files import Experiment, Run
from .tables import MISSING, Table, scientific

# Parts that are drawn: colour and line.
_LOOKS = {"total": (INK, "-"), "trunk": (BLUE, "--"), "sensors": (ORANGE, "-."), "branch": (VERMILION, ":")}
_MEANINGS = {
    "total": "prediction minus truth",
    "trunk": "what no sum of the trunk's functions can represent",
    "coefficients": "best coefficients minus predicted ones: sensors and branch together",
    "sensors": "best coefficients minus those from the values at the training points",
    "branch": "coefficients from the values at the training points minus those of the branch",
    "data": "effect of the error of the data on the coefficients; included in the sensors' part",
}
_SIGNED = {
    "cross": ("Cross term", "twice the inner product of the sensors' and the branch's vector"),
    "remainder": ("Remainder", "rounding, or the effect of an output map that is not linear"),
}
_CHAIN = {
    "operator": "Difference of the two outputs",
    "sensors": "Sensors",
    "training": "Branch at the training sample",
    "network": "Difference of the two predictions",
}


def budget_items(experiment: Experiment) -> tuple[str | Panel | Table, ...]:
    """What to improve, the figure and the tables of every run that was diagnosed."""
    diagnosed = [(index, run) for index, run in enumerate(experiment.runs) if run.diagnosis]
    names = {index: f"{run.name}: " if len(experiment.runs) > 1 else "" for index, run in diagnosed}
    sentences = [budget_sentence(run.diagnosis, names[index]) for index, run in diagnosed]
    panels = [_panel(run, names[index], index) for index, run in diagnosed]
    tables = [table for index, run in diagnosed for table in budget_tables(run.diagnosis, names[index])]
    more = [f"{names[index]}{text}" for index, run in diagnosed if (text := samples_sentence(run.diagnosis))]
    curves = [panel for index, run in diagnosed if (panel := _curve_panel(run, names[index], index))]
    return (*filter(None, sentences), *more, *panels, *curves, *tables)


def budget_sentence(diagnosis: Mapping[str, object], name: str = "") -> str:
    """What to improve, and where the errors were evaluated; empty where it is not recorded."""
    sentence, where = (
        mapping_at(diagnosis, part).get(key) for part, key in (("improve", "sentence"), ("points", "where"))
    )
    return f"{name}{sentence} Evaluated at {where}." if sentence and where else ""


def samples_sentence(diagnosis: Mapping[str, object]) -> str:
    """How many samples halve the error; empty where it is not recorded."""
    return str(mapping_at(diagnosis, "learning_curve").get("sentence", ""))


def budget_tables(diagnosis: Mapping[str, object], name: str = "") -> list[Table]:
    """The parts of the error, the paper's decomposition, and what its bound assumes, from `diagnosis.json`."""
    return [table for make in (_parts, _curve, _chain, _assumptions) if (table := make(diagnosis, name)).rows]


def _parts(diagnosis: Mapping[str, object], name: str) -> Table:
    budget = mapping_at(diagnosis, "budget")
    total = number_at(budget, "total_squared")

    def share(part: str) -> str:
        value = number_at(budget, part)
        return MISSING if value is None or not total else f"{value / total:.1%}"

    rows = [
        (part.capitalize(), meaning, error, _rms(budget, "relative", part), share(f"{part}_squared"))
        for part, meaning in _MEANINGS.items()
        if (error := _rms(budget, part)) != MISSING
    ]
    rows += [(words, meaning, MISSING, MISSING, share(part)) for part, (words, meaning) in _SIGNED.items()]
    caption = (
        f"{name}Root mean squares over the test samples. For squares, total = trunk + coefficients + remainder, "
        "and coefficients = sensors + branch + cross term."
    )
    return Table(caption, ("Part", "What it is", "Error", "Relative error", "Of the square"), tuple(rows))


def _curve(diagnosis: Mapping[str, object], name: str) -> Table:
    curve = mapping_at(diagnosis, "learning_curve")
    counts, errors = (numbers_at(curve, key) for key in ("counts", "errors"))
    rows = tuple((f"{count:,.0f}", scientific(error)) for count, error in zip(counts, errors, strict=False))
    return Table(f"{name}Errors on samples left out, with fewer samples.", ("Samples", "Relative error"), rows)


def _chain(diagnosis: Mapping[str, object], name: str) -> Table:
    relative = mapping_at(diagnosis, "budget", "chain", "relative")
    rows = tuple((words, text) for part, words in _CHAIN.items() if (text := _rms(relative, part)) != MISSING)
    caption = (
        f"{name}The paper's decomposition through the nearest training sample: four vectors whose sum is that "
        "of the coefficients. Where the first and the last nearly cancel, the sum of their norms is far larger."
    )
    return Table(caption, ("Part", "Relative error"), rows)


def _assumptions(diagnosis: Mapping[str, object], name: str) -> Table:
    found = mapping_at(diagnosis, "assumptions")
    rows = tuple(
        (each, scientific(number_at(found, each, "value")), str(mapping_at(found, each).get("meaning", "")))
        for each in found
    )
    return Table(
        f"{name}What the paper's error bound assumes, measured.", ("Quantity", "Measured", "Meaning"), rows
    )


def _root(content: Mapping[str, object], *path: str) -> float | None:
    """Root of the squared part at the end of a path."""
    square = number_at(content, *path[:-1], f"{path[-1]}_squared")
    return None if square is None else math.sqrt(max(square, 0.0))


def _rms(content: Mapping[str, object], *path: str) -> str:
    return scientific(_root(content, *path))


def _panel(run: Run, name: str, index: int) -> Panel:
    images = (_bars(run, index), _samples(run, index))
    caption = (
        "Left: the parts of the error, root mean squares relative to the outputs. Right: the same for every test "
        "sample, worst first. A line just below that of the total is the largest part of the error there."
    )
    return Panel(f"{name}Where the error comes from", caption, tuple(image for image in images if image))


def _curve_panel(run: Run, name: str, index: int) -> Panel | None:
    """The learning curve and its extrapolation, where `diagnose` has written them."""
    curve, law = (mapping_at(run.diagnosis, "learning_curve", *path) for path in ((), ("law",)))
    counts, errors = (numbers_at(curve, key) for key in ("counts", "errors"))
    places, middle, low, high = (numbers_at(law, key) for key in ("counts", "errors", "from", "to"))
    if not counts or len(counts) != len(errors) or not len(places) == len(middle) == len(low) == len(high):
        return None
    figure, axes = new_figure(width=5.2, height=3.0)
    axes.fill_between(places, low, high, color=BLUE, alpha=0.15, linewidth=0, label="80 % of resampled folds")
    axes.plot(places, middle, "--", color=BLUE, label="power law")
    axes.plot(counts, errors, "o", color=INK, label="measured")
    axes.axvline(number_at(curve, "samples") or counts[-1], color=INK, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="Samples", ylabel="Relative error")
    alt = f"Relative errors with {counts[0]:g} to {counts[-1]:g} samples, and a power law up to {places[-1]:.0f}."
    caption = (
        "Errors on samples left out, of a method in closed form, by the number of samples it was fitted to, and "
        "the fitted power law. To the right of the dotted line, the number of samples that there are, it "
        "extrapolates."
    )
    image = to_image(figure, f"learning-curve-{index}", alt, legend=3)
    return Panel(f"{name}How many samples", caption, (image,))


def _bars(run: Run, index: int) -> Image:
    sizes = {part: _root(run.diagnosis, "budget", "relative", part) or 0.0 for part in _LOOKS}
    figure, axes = new_figure(width=5.2, height=3.0)
    places = range(len(sizes), 0, -1)
    edge = 1e-3 * max(sizes.values()) or 1e-16
    lengths = [max(size, edge) for size in sizes.values()]
    bars = axes.barh(places, lengths, color=[colour for colour, _ in _LOOKS.values()])
    axes.bar_label(bars, [f" {scientific(size)}" for size in sizes.values()])
    axes.set_yticks(list(places), list(sizes))
    axes.set(xscale="log", xlim=(edge / 2, 8 * max(*sizes.values(), edge)))
    axes.set_xlabel("Relative error (root mean square)")
    axes.grid(visible=False, axis="y")
    listed = ", ".join(f"{part} {scientific(size)}" for part, size in sizes.items())
    return to_image(figure, f"budget-parts-{index}", f"Bars of the parts of the error: {listed}.")


def _samples(run: Run, index: int) -> Image | None:
    squares = {part: run.budget.get(f"{part}_squared") for part in _LOOKS}
    size = run.budget.get("size_squared")
    if size is None or any(array is None or array.shape != size.shape for array in squares.values()):
        return None
    errors = {part: _relative(array, size) for part, array in squares.items() if array is not None}
    order = np.argsort(errors["total"])[::-1]
    figure, axes = new_figure(width=5.2, height=3.0)
    marker = "o" if len(order) < 40 else None
    for part, (colour, line) in _LOOKS.items():
        places = np.arange(1, len(order) + 1)
        axes.plot(places, errors[part][order], line, color=colour, label=part, marker=marker, markersize=3)
    total = errors["total"][errors["total"] > 0]
    if len(total):
        axes.set(yscale="log", ylim=(1e-2 * np.median(total), 2 * total.max()))
    axes.set(xlabel="Test samples, worst first", ylabel="Relative error")
    worst = scientific(float(errors["total"].max()))
    alt = f"Relative errors of {len(order)} test samples and their parts, from {worst} down."
    return to_image(figure, f"budget-samples-{index}", alt, legend=2)


def _relative(squares: np.ndarray, size: np.ndarray) -> Float[np.ndarray, " samples"]:
    """Root of the mean over channels of squares over |u|^2."""
    known = np.where(size > 0, size, size.mean() or 1.0)
    return np.sqrt(np.maximum((squares / known).mean(axis=1), 0.0))
