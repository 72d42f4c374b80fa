"""Errors on unseen samples: against training time, by a sample's label, and as a histogram."""

import numpy as np
from jaxtyping import Float

from ..records import EvaluationRecord
from .figures import (
    GREY,
    Axes,
    Drawn,
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
from .tables import KERNEL, NO_TRUNK, TEST, mean_of, scientific

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
        "Each mark is a run: further left is faster, lower is more accurate. The time includes the branch, and "
        "the trunk with all its starts; a trunk that two methods share is counted for both."
    )
    if kernel:
        caption += (
            f" The dotted line at {scientific(kernel)} is a regression without networks ({NO_TRUNK}): a method "
            "above it is less accurate than the data allow."
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
        f"of one sample; 1.00e-2 is one per cent. Each mark is a test sample (seed {seed}). Hollow marks are the "
        "best possible errors with this trunk, which a perfect branch would have. If a method is near its hollow "
        "marks, its branch is well trained; if the hollow marks are low, its trunk is."
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
            title, "it needs several seeds, and there is one; use compare with --seeds 5, as the paper does."
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
        f"The same errors averaged over independent seeds: {counts}. Shaded: one standard deviation "
        "about the mean (down to the axis where it exceeds the mean). With a narrow band, the seed hardly matters."
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
