"""Relative errors on unseen samples: against the number that names a sample, and as a histogram."""

import numpy as np
from jaxtyping import Float

from ._experiment import Experiment
from ._panel import Image, Omission, Panel
from ._run import Evaluation, Run
from ._seeds import band, mean_and_spread
from ._style import legend_above, method_label, method_style, new_figure, plain, short_name
from ._types import Axes, Figure
from ._wording import Wording

_ERROR_AXIS = "Relative $\\ell_2$ error (dimensionless)"
_NO_ERRORS = "no run has finite errors on test samples."
_SAME_TRUNK = (
    " Without QR the trunk is the same as with it; so is the best it could do, but for directions QR drops."
)
_MEANING = (
    "Relative error: the size of prediction minus target, divided by the size of the target, over all points "
    "of one sample; 1.00e-2 is one per cent. "
)


def draw_errors(experiment: Experiment, wording: Wording) -> Panel | Omission:
    """Errors of the first seed sample by sample, with the conditional optima."""
    title = "Error of each test sample"
    tested = _first_tested(experiment)
    if not tested:
        return Omission(title, _NO_ERRORS)
    label = _only_label(tested[0][1])
    if label is None:
        return Omission(title, "test samples are not named by a single number; see the histogram.")
    figure, axes = new_figure(width=6.8, height=4.1)
    for method, evaluation in tested:
        _scatter(axes, method, evaluation, label)
    _finish(figure, axes, wording.label(label))
    seeds = sorted({run.seed for run, _ in _tested_runs(experiment)})
    caption = (
        f"{_MEANING}One mark is one test sample (seed {seeds[0]}). Hollow marks are the best this trunk "
        "could do if "
        "the branch were perfect, which needs the target itself and so is out of reach in practice: a "
        "method near "
        "its own hollow marks has a well-trained branch, and low hollow marks mean a well-trained trunk."
        + (_SAME_TRUNK if "two-step-without-qr" in dict(tested) else "")
    )
    alt = f"Relative test error against {wording.label(label)} for {_names(tested)}."
    return Panel(title, caption, (Image("errors", alt, figure),))


def draw_mean_errors(experiment: Experiment, wording: Wording) -> Panel | Omission | None:
    """Mean over seeds with one standard deviation shaded; None when samples have no single number."""
    title = "Mean error over seeds"
    tested = _first_tested(experiment)
    label = _only_label(tested[0][1]) if tested else None
    if label is None:
        return None
    groups = _repeated(experiment)
    if not groups:
        return Omission(title, "no method has finite errors of two seeds on the same test samples.")
    figure, axes = new_figure(height=4.1)
    tops: list[float] = []
    bottoms: list[float] = []
    for method, (values, errors) in groups.items():
        mean, spread = mean_and_spread(errors)
        _band(axes, method, values, mean, spread)
        tops.append(float((mean + spread).max()))
        bottoms.append(float(mean.min()))
    _finish(figure, axes, wording.label(label))
    axes.set_ylim(min(bottoms) / 2.5, max(tops) * 2.5)
    counts = ", ".join(f"{len(errors)} of {method_label(method)}" for method, (_, errors) in groups.items())
    caption = (
        f"The same errors averaged over independent starts (seeds): {counts}. Shaded: one standard "
        "deviation about "
        "the mean; it reaches the lower edge where it exceeds the mean. A narrow band means that the start "
        "hardly matters."
    )
    alt = f"Mean relative test error with one standard deviation for {', '.join(map(method_label, groups))}."
    return Panel(title, caption, (Image("errors-mean", alt, figure),))


def draw_histogram(experiment: Experiment) -> Panel | Omission:
    """Share of test samples by the order of magnitude of their error, all seeds together."""
    title = "Histogram of errors"
    pooled: dict[str, Float[np.ndarray, " samples"]] = {}
    for run, evaluation in _tested_runs(experiment):
        found = np.log10(evaluation.errors[evaluation.errors > 0])
        pooled[run.method] = np.concatenate([pooled.get(run.method, np.empty(0)), found])
    pooled = {method: values for method, values in pooled.items() if len(values)}
    if not pooled:
        return Omission(title, _NO_ERRORS)
    figure, axes = new_figure()
    _bars(figure, axes, pooled)
    sizes = ", ".join(f"{len(values)} errors of {method_label(m)}" for m, values in pooled.items())
    caption = (
        "How many test samples have an error of which order: -3 on the axis is an error of 1.00e-3, and "
        "further left is "
        f"better. Vertical lines: the median. Counted: {sizes}."
    )
    alt = (
        "Histogram of the decimal logarithm of relative test errors for "
        + ", ".join(map(method_label, pooled))
        + "."
    )
    return Panel(title, caption, (Image("errors-histogram", alt, figure),))


def _tested_runs(experiment: Experiment) -> list[tuple[Run, Evaluation]]:
    """Runs whose test errors are all finite; a diverged run has no place on a logarithmic axis."""
    return [
        (run, run.evaluation)
        for run in experiment.runs
        if run.evaluation is not None and np.isfinite(run.evaluation.errors).all()
    ]


def _first_tested(experiment: Experiment) -> list[tuple[str, Evaluation]]:
    """The evaluation of each method's lowest seed that has one."""
    first: dict[str, Evaluation] = {}
    for run, evaluation in _tested_runs(experiment):
        first.setdefault(run.method, evaluation)
    return list(first.items())


def _only_label(evaluation: Evaluation) -> str | None:
    return next(iter(evaluation.labels)) if len(evaluation.labels) == 1 else None


def _repeated(
    experiment: Experiment,
) -> dict[str, tuple[Float[np.ndarray, " samples"], Float[np.ndarray, "seeds samples"]]]:
    """Label values and errors of methods with two seeds or more on the same test samples, by label."""
    groups: dict[str, tuple[np.ndarray, list[np.ndarray]]] = {}
    for run, evaluation in _tested_runs(experiment):
        label = _only_label(evaluation)
        if label is None:
            continue
        order = np.argsort(evaluation.labels[label], kind="stable")
        values, errors = groups.setdefault(run.method, (evaluation.labels[label][order], []))
        if np.array_equal(values, evaluation.labels[label][order]):
            errors.append(evaluation.errors[order])
    return {m: (values, np.stack(errors)) for m, (values, errors) in groups.items() if len(errors) > 1}


def _scatter(axes: Axes, method: str, evaluation: Evaluation, label: str) -> None:
    style, values = method_style(method), evaluation.labels[label]
    if evaluation.optimal_errors is not None and method != "two-step-without-qr":
        # Without QR the trunk, and so its optimum, is the one of two-step with the same seed.
        axes.plot(
            values,
            _positive(evaluation.optimal_errors),
            linestyle="none",
            marker=style.optimal_marker,
            markersize=6,
            markerfacecolor="none",
            color=style.optimal_colour,
            label=plain(f"best possible, {short_name(method)}"),
        )
    axes.plot(
        values,
        _positive(evaluation.errors),
        linestyle="none",
        marker=style.marker,
        markersize=7 if style.marker == "*" else 5,
        color=style.colour,
        label=plain(method_label(method)),
    )


def _band(
    axes: Axes,
    method: str,
    values: Float[np.ndarray, " samples"],
    mean: Float[np.ndarray, " samples"],
    spread: Float[np.ndarray, " samples"],
) -> None:
    style = method_style(method)
    lower, upper = band(mean, spread)
    axes.fill_between(values, lower, upper, color=style.colour, alpha=0.2, linewidth=0)
    axes.plot(
        values,
        mean,
        color=style.colour,
        linestyle=style.line,
        marker=style.marker,
        markersize=5,
        linewidth=1.2,
        label=plain(method_label(method)),
    )


def _bars(figure: Figure, axes: Axes, pooled: dict[str, Float[np.ndarray, " samples"]]) -> None:
    everything = np.concatenate(list(pooled.values()))
    edges = np.histogram_bin_edges(everything, bins=min(50, max(10, len(everything) // 20)))
    for method, values in pooled.items():
        style = method_style(method)
        shares = 100 * np.histogram(values, edges)[0] / len(values)
        axes.stairs(shares, edges, fill=True, alpha=0.25, color=style.colour, hatch=style.hatch)
        axes.stairs(
            shares,
            edges,
            color=style.colour,
            linestyle=style.line,
            linewidth=1.6,
            label=plain(method_label(method)),
        )
        axes.axvline(float(np.median(values)), color=style.colour, linestyle=style.line, linewidth=1.2)
    axes.set_xlabel("$\\log_{10}$ of the relative $\\ell_2$ error")
    axes.set_ylabel("Share of test samples (%)")
    legend_above(figure)


def _finish(figure: Figure, axes: Axes, label: str) -> None:
    axes.set_yscale("log")
    axes.set_xlabel(plain(label[:1].upper() + label[1:]))
    axes.set_ylabel(_ERROR_AXIS)
    legend_above(figure)


def _positive(errors: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " samples"]:
    return np.where(errors > 0, errors, np.nan)


def _names(tested: list[tuple[str, Evaluation]]) -> str:
    return ", ".join(method_label(method) for method, _ in tested)
