"""Errors on unseen samples: against training time, by a sample's label, as a histogram, and the error budget."""

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from ..records import EvaluationRecord, mapping_at, number_at
from .figures import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    VERMILION,
    Axes,
    Drawn,
    Image,
    Look,
    Omission,
    Panel,
    draw_band,
    mean_and_spread,
    method_label,
    method_names,
    method_style,
    new_figure,
    plain,
    to_image,
)
from .report_text import Wording
from .run_files import Experiment, Run
from .tables import KERNEL, MISSING, NO_TRUNK, TEST, Table, mean_of, scientific

Errors = Float[np.ndarray, " samples"]

_NO_ERRORS = "no run has finite errors on test samples."
_SAME_TRUNK = " Without QR the trunk is the same, and so is its best possible error, except for what QR drops."


# -- against time


def draw_cost(experiment: Experiment) -> Drawn:
    """One mark for each run, the kernel baseline as a line; None for a single run."""
    if len(experiment.runs) < 2:
        return None
    title = "Test error against training time"
    marks = _seconds_and_errors(experiment)
    if not marks:
        return Omission(title, "no run has both a finite test error and the seconds of its training.")
    figure, axes = new_figure(width=6.8)
    for method, places in marks.items():
        axes.plot(*zip(*places, strict=True), **method_style(method).marks(8))
    kernel = mean_of(experiment.runs, *KERNEL)
    if kernel:
        axes.axhline(kernel, color=GREY, linestyle=(0, (1, 1.5)), linewidth=2, label=NO_TRUNK)
    longest = max(seconds for places in marks.values() for seconds, _ in places)
    axes.set(yscale="log", xlim=(0, 1.08 * longest), xlabel="Total training time (seconds)")
    axes.set_ylabel("Mean relative $\\ell_2$ test error")
    caption = (
        "One mark is one run: further left is faster, lower is more accurate. The time includes the trunk with "
        "its starts and the branch; a trunk that two methods share is counted for both."
    )
    if kernel:
        caption += (
            f" The dotted line at {scientific(kernel)} is a regression that trains no network ({NO_TRUNK}): a "
            "method above it is less accurate than the data allow."
        )
    alt = "; ".join(
        f"{method_label(method)} {scientific(error)} after {seconds:.3g} seconds"
        for method, places in marks.items()
        for seconds, error in places
    )
    image = to_image(figure, "error-time", f"Test error against training time: {alt}.", legend=2)
    return Panel(title, caption, (image,))


def _seconds_and_errors(experiment: Experiment) -> dict[str, list[tuple[float, float]]]:
    """Seconds and mean test error of every run that has both, by method."""
    marks: dict[str, list[tuple[float, float]]] = {}
    for run in experiment.runs:
        seconds, error = run.training_seconds, mean_of((run,), *TEST)
        if seconds is not None and error:
            marks.setdefault(run.method, []).append((seconds, error))
    return marks


# -- against the label of a sample


def draw_errors(experiment: Experiment, wording: Wording) -> Drawn:
    """Errors of the first seed sample by sample, with the conditional optima."""
    title = "Error of each test sample"
    first = _first_tested(experiment)
    if not first:
        return Omission(title, _NO_ERRORS)
    label = _only_label(next(iter(first.values())))
    if label is None:
        return Omission(title, "test samples are not labelled by a single number; see the histogram.")
    figure, axes = new_figure(width=6.8, height=4.1)
    for method, evaluation in first.items():
        _scatter(axes, method, evaluation, label)
    _label_axes(axes, wording.label(label))
    seed = min(run.seed for run, _ in _tested(experiment))
    caption = (
        "Relative error: the norm of prediction minus target, divided by the norm of the target, over all points "
        f"of one sample; 1.00e-2 is one per cent. One mark is one test sample (seed {seed}). Hollow marks are the "
        "best possible error with this trunk, reached by a perfect branch; computing it needs the target. A "
        "method near its own hollow marks has a well-trained branch; low hollow marks mean a well-trained trunk."
        + (_SAME_TRUNK if "two-step-without-qr" in first else "")
    )
    alt = f"Relative test error against {wording.label(label)} for {method_names(first)}."
    return Panel(title, caption, (to_image(figure, "errors", alt, legend=2),))


def draw_mean_errors(experiment: Experiment, wording: Wording) -> Drawn:
    """Mean over seeds with one standard deviation shaded; None for samples without a single label."""
    title = "Mean error over seeds"
    first = _first_tested(experiment)
    label = _only_label(next(iter(first.values()))) if first else None
    if label is None:
        return None
    if len(experiment.seeds) < 2:
        return Omission(
            title, "it needs several seeds, and here is one; compare with --seeds 5, as the paper does."
        )
    groups = _repeated(experiment)
    if not groups:
        return Omission(title, "no method has finite errors of two seeds on the same test samples.")
    figure, axes = new_figure(height=4.1)
    for method, (values, errors) in groups.items():
        marker = method_style(method).marker
        draw_band(axes, method, values, errors, marker=marker, markersize=5, linewidth=1.2)
    _label_axes(axes, wording.label(label))
    means = [mean_and_spread(errors) for _, errors in groups.values()]
    bottom, top = min(mean.min() for mean, _ in means), max((mean + spread).max() for mean, spread in means)
    axes.set_ylim(bottom / 2.5, top * 2.5)
    counts = ", ".join(f"{len(errors)} of {method_label(method)}" for method, (_, errors) in groups.items())
    caption = (
        f"The same errors averaged over independent starts (seeds): {counts}. Shaded: one standard deviation "
        "about the mean, to the lower edge where it exceeds the mean. A narrow band: the start hardly matters."
    )
    alt = f"Mean relative test error with one standard deviation for {method_names(groups)}."
    return Panel(title, caption, (to_image(figure, "errors-mean", alt, legend=2),))


def _tested(experiment: Experiment) -> list[tuple[Run, EvaluationRecord]]:
    return [(run, run.tested) for run in experiment.runs if run.tested is not None]


def _first_tested(experiment: Experiment) -> dict[str, EvaluationRecord]:
    """The evaluation of each method's lowest seed that has one."""
    first: dict[str, EvaluationRecord] = {}
    for run, evaluation in _tested(experiment):
        first.setdefault(run.method, evaluation)
    return first


def _only_label(evaluation: EvaluationRecord) -> str | None:
    return next(iter(evaluation.labels)) if len(evaluation.labels) == 1 else None


def _repeated(experiment: Experiment) -> dict[str, tuple[Errors, Float[np.ndarray, "seeds samples"]]]:
    """Sorted labels and errors of methods with two seeds or more on the same test samples."""
    groups: dict[str, tuple[np.ndarray, list[np.ndarray]]] = {}
    for run, evaluation in _tested(experiment):
        label = _only_label(evaluation)
        if label is None:
            continue
        order = np.argsort(evaluation.labels[label], kind="stable")
        values, errors = groups.setdefault(run.method, (evaluation.labels[label][order], []))
        if np.array_equal(values, evaluation.labels[label][order]):
            errors.append(evaluation.errors[order])
    return {m: (values, np.stack(errors)) for m, (values, errors) in groups.items() if len(errors) > 1}


def _scatter(axes: Axes, method: str, evaluation: EvaluationRecord, label: str) -> None:
    style, values = method_style(method), evaluation.labels[label]
    if evaluation.optimal_errors is not None and method != "two-step-without-qr":
        # Without QR the trunk, and so its optimum, is the one of two-step with the same seed.
        axes.plot(values, _positive(evaluation.optimal_errors), **style.hollow_marks())
    axes.plot(values, _positive(evaluation.errors), **style.marks(5))


def _label_axes(axes: Axes, label: str) -> None:
    axes.set(yscale="log", xlabel=plain(label[:1].upper() + label[1:]))
    axes.set_ylabel("Relative $\\ell_2$ error (dimensionless)")


def _positive(errors: Errors) -> Errors:
    return np.where(errors > 0, errors, np.nan)


# -- histogram


def draw_histogram(experiment: Experiment) -> Drawn:
    """Number of test samples by the order of magnitude of their error, every seed on its own."""
    title = "Histogram of errors"
    found: dict[str, list[Errors]] = {}
    for run, evaluation in _tested(experiment):
        errors = np.log10(evaluation.errors[evaluation.errors > 0])
        if len(errors):
            found.setdefault(run.method, []).append(errors)
    if not found:
        return Omission(title, _NO_ERRORS)
    figure, axes = new_figure()
    _draw_bars(axes, found)
    sizes = ", ".join(f"{_counts(each)} of {method_label(method)}" for method, each in found.items())
    several = "; one outline for each seed" if any(len(each) > 1 for each in found.values()) else ""
    caption = (
        "Number of test samples by order of magnitude of the error: -3 on the axis is an error of 1.00e-3, and "
        f"further left is better{several}. Vertical lines: the median. Counted: {sizes}."
    )
    alt = f"Histogram of the decimal logarithm of relative test errors for {method_names(found)}."
    return Panel(title, caption, (to_image(figure, "errors-histogram", alt, legend=2),))


def _counts(each: list[Errors]) -> str:
    """`100 errors`, or `100 errors for each of 5 seeds`."""
    sizes = sorted({len(errors) for errors in each})
    counts = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
    return f"{counts} errors" + (f" for each of {len(each)} seeds" if len(each) > 1 else "")


def _draw_bars(axes: Axes, found: dict[str, list[Errors]]) -> None:
    """Counts in common bins; their number is what one seed of one method allows."""
    everything = np.concatenate([errors for each in found.values() for errors in each])
    largest = max(len(errors) for each in found.values() for errors in each)
    edges = np.histogram_bin_edges(everything, bins=min(50, max(10, largest // 10)))
    for method, each in found.items():
        style = method_style(method)
        outline: Look = {"color": style.colour, "linestyle": style.line}
        for place, errors in enumerate(each):
            counts = np.histogram(errors, edges)[0]
            axes.stairs(counts, edges, fill=True, alpha=0.25 / len(each), color=style.colour, hatch=style.hatch)
            label = None if place else plain(style.name)
            axes.stairs(counts, edges, **outline, linewidth=1.6 if len(each) == 1 else 1.0, label=label)
            axes.axvline(float(np.median(errors)), **outline, linewidth=1.2 if len(each) == 1 else 0.8)
    axes.set(xlabel="$\\log_{10}$ of the relative $\\ell_2$ error", ylabel="Number of test samples")


# -- the error budget

# Parts that are drawn: colour and line.
_LOOKS = {"total": (INK, "-"), "trunk": (BLUE, "--"), "sensors": (ORANGE, "-."), "branch": (VERMILION, ":")}
_MEANINGS = {
    "total": "prediction minus truth",
    "trunk": "what no combination of the trunk's functions represents",
    "coefficients": "best minus predicted coefficients: sensors and branch together",
    "sensors": "best coefficients minus those from the values at the training points",
    "branch": "coefficients from the values at the training points minus those of the branch",
    "data": "effect of the data's own error on the coefficients; included in the sensors' part",
}
_SIGNED = {
    "cross": ("Cross term", "twice the inner product of the sensors' and the branch's vector"),
    "remainder": ("Remainder", "rounding, or the effect of an output map that is not linear"),
}
_CHAIN = {
    "operator": "Outputs of the two",
    "sensors": "Sensors",
    "training": "Branch at the training sample",
    "network": "Predictions of the two",
}


def budget_items(experiment: Experiment) -> tuple[str | Panel | Table, ...]:
    """What to improve, the figure and the tables of every run that was diagnosed."""
    diagnosed = [(index, run) for index, run in enumerate(experiment.runs) if run.diagnosis]
    names = {index: f"{run.name}: " if len(experiment.runs) > 1 else "" for index, run in diagnosed}
    sentences = [budget_sentence(run.diagnosis, names[index]) for index, run in diagnosed]
    panels = [_panel(run, names[index], index) for index, run in diagnosed]
    tables = [table for index, run in diagnosed for table in budget_tables(run.diagnosis, names[index])]
    more = [f"{names[index]}{text}" for index, run in diagnosed if (text := samples_sentence(run.diagnosis))]
    return (*filter(None, sentences), *more, *panels, *tables)


def budget_sentence(diagnosis: Mapping[str, object], name: str = "") -> str:
    """What to improve, and where the errors were evaluated; empty where it is not recorded."""
    sentence, where = (
        mapping_at(diagnosis, part).get(key) for part, key in (("improve", "sentence"), ("points", "where"))
    )
    return f"{name}{sentence} Evaluated at {where}." if sentence and where else ""


def samples_sentence(diagnosis: Mapping[str, object]) -> str:
    """How many samples halve the error; empty where it is not recorded."""
    return str(mapping_at(diagnosis, "learning_curve").get("sentence", ""))


# -- tables


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
        f"{name}Root mean squares over the test samples. The squares of trunk and coefficients add up to that of "
        "the total, with the remainder; those of sensors and branch to that of the coefficients, with the cross "
        "term."
    )
    return Table(caption, ("Part", "What it is", "Error", "Relative error", "Of the square"), tuple(rows))


def _curve(diagnosis: Mapping[str, object], name: str) -> Table:
    curve = mapping_at(diagnosis, "learning_curve")
    counts, errors = (value if isinstance(value := curve.get(key), list) else [] for key in ("counts", "errors"))
    rows = tuple((f"{count:,}", scientific(error)) for count, error in zip(counts, errors, strict=True))
    return Table(f"{name}Errors on samples left out, with fewer samples.", ("Samples", "Relative error"), rows)


def _chain(diagnosis: Mapping[str, object], name: str) -> Table:
    relative = mapping_at(diagnosis, "budget", "chain", "relative")
    rows = tuple((words, text) for part, words in _CHAIN.items() if (text := _rms(relative, part)) != MISSING)
    caption = (
        f"{name}Decomposition through the nearest training sample: four parts whose vectors sum to that "
        "of the coefficients. Where the first and the last nearly cancel, a bound by their sizes is too large."
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


# -- figure


def _panel(run: Run, name: str, index: int) -> Panel:
    images = (_bars(run, index), _samples(run, index))
    caption = (
        "Left: the parts of the error, root mean squares relative to the outputs. Right: the same for every test "
        "sample, worst first; where a line lies just below that of the total, that part dominates the sample."
    )
    return Panel(f"{name}Where the error comes from", caption, tuple(image for image in images if image))


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
