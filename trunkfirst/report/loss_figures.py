"""Training losses against iterations and time: trunk, branch, and active-neuron least squares."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..records import mapping_at, number_at
from .figures import (
    INK,
    Axes,
    Drawn,
    Image,
    Look,
    Omission,
    Panel,
    draw_band,
    method_label,
    method_names,
    method_style,
    new_figure,
    plain,
    to_image,
)
from .report_text import Wording
from .run_files import Curve, Experiment, Run, best_on_common_steps
from .tables import BRANCH, PAPER_FIGURES, TEST, PaperFigure, Path, scientific

Curves = Mapping[str, Sequence[Curve]]

_CLOCK = (
    "The second drawing shows the same against time, one line for each seed, counted from the start of training: "
    "the trunk with all its starts, then the branch. Making data and model selection are not counted. "
)
_RELATIVE = (
    "The loss shown is the one minimised, in which samples are weighted by relative error; the tables weight all "
    "samples equally. "
)
_SAME_STEP = "Step 1 is the same with and without QR, so these two lines coincide. "
_ONE_SEED = "Thick lines: the smallest loss logged so far; faint lines: the loss at each logged iteration."
_STAGES = (
    " A thick line rises where a new stage of the training begins: each stage minimises its own loss (with a "
    "smaller ridge, for example), and the smallest loss is counted within it."
)


def draw_trunk_losses(experiment: Experiment, wording: Wording) -> Drawn:
    """Loss of step 1 for two-step methods, overall loss for the monolithic one."""
    title = "Training loss of the trunk"
    curves, clock = _curves(experiment, "trunk", "monolithic")
    if not curves:
        return Omission(title, "history.jsonl holds no finite training loss.")
    config = experiment.runs[0].config
    caption = (
        "Distance between the networks and the training data, on a logarithmic axis. For the two-step methods it "
        "is the loss of step 1, in which the trunk is fitted with free coefficients; for the monolithic method it "
        "is the loss of the whole network. "
        + (_RELATIVE if mapping_at(config, "loss").get("weights") == "relative" else "")
        + (_CLOCK if clock else "")
        + (_SAME_STEP if {"two-step", "two-step-without-qr"} <= curves.keys() else "")
        + _explain(curves)
    )
    p = number_at(config, "loss", "p")
    measure = "Mean squared error" if p in (None, 2.0) else f"Mean of |error| to the power {p:g}"
    axis = plain(f"{measure}\n({wording.unit})")
    return Panel(title, caption, _images("trunk-loss", "Training loss", axis, curves, clock))


def draw_branch_losses(experiment: Experiment) -> Drawn:
    """Loss of step 2, with and without orthonormalised trunk."""
    title = "Training loss of the branch"
    curves, clock = _curves(experiment, "branch")
    if not curves:
        if all(method.startswith("monolithic") for method in experiment.methods):
            return Omission(title, "the monolithic method trains both networks at once and has no branch step.")
        return Omission(title, "history.jsonl holds no finite branch loss.")
    caption = (
        "Step 2: the branch learns the coefficients found in step 1. With QR the trunk's functions are "
        "orthonormalised first, which the paper expects to make the coefficients easier to learn. Coefficients "
        "with and without QR differ in size: compare how far each line falls and the resulting test errors, not "
        "the heights. " + (_CLOCK if clock else "") + _explain(curves)
    )
    axis = "Mean squared error of\nthe coefficients (dimensionless)"
    return Panel(title, caption, _images("branch-loss", "Branch loss", axis, curves, clock))


def _finite_curves(
    experiment: Experiment, curves_of: Callable[[Run], Mapping[str, Curve]], steps: Sequence[str]
) -> Curves:
    """Finite curves of the given steps, by method; methods without any are left out."""
    found: dict[str, list[Curve]] = {}
    for run in experiment.runs:
        for step, curve in curves_of(run).items():
            if step in steps and (finite := curve.finite()) is not None:
                found.setdefault(run.method, []).append(finite)
    return found


def _curves(experiment: Experiment, *steps: str) -> tuple[Curves, Curves]:
    """Curves of the given steps against iterations and against seconds."""
    over_iterations = _finite_curves(experiment, lambda run: run.history, steps)
    return over_iterations, _finite_curves(experiment, lambda run: run.clock, steps)


def _images(name: str, what: str, axis: str, curves: Curves, clock: Curves) -> tuple[Image, ...]:
    """One drawing against iterations and, where seconds are recorded, one against time."""
    figure, axes = new_figure()
    _draw_curves(axes, curves, x="Iteration", y=axis)
    ends = _ends(curves, lambda curve: curve.best_losses[-1], "at {:.2e}")
    alt = f"{what} against iterations for {method_names(curves)}. {ends}"
    image = to_image(figure, name, alt, legend=2)
    return (image, _clock_image(f"{name}-time", what, axis, clock)) if clock else (image,)


def _clock_image(name: str, what: str, axis: str, clock: Curves) -> Image:
    """One line for each seed: seeds share no moments at which they could be averaged."""
    figure, axes = new_figure()
    for method, group in clock.items():
        for place, curve in enumerate(group):
            _draw_line(axes, method, curve, **({"label": None} if place else {}))
    _finish(axes, clock, x="Training time (seconds)", y=axis)
    axes.set_xlim(left=0)
    ends = _ends(clock, lambda curve: curve.places[-1], "after {:.3g} seconds")
    alt = f"{what} against training time for {method_names(clock)}. {ends}"
    return to_image(figure, name, alt, legend=2)


def _draw_curves(axes: Axes, curves: Curves, *, x: str, y: str) -> None:
    """One line for each method, or its mean and spread over seeds, on a logarithmic axis."""
    for method, group in curves.items():
        if len(group) > 1:
            draw_band(axes, method, *best_on_common_steps(group))
        else:
            curve = group[0].thinned()
            axes.plot(curve.places, curve.losses, color=method_style(method).colour, alpha=0.3, linewidth=0.8)
            _draw_line(axes, method, curve)
    _finish(axes, curves, x=x, y=y)


def _draw_line(axes: Axes, method: str, curve: Curve, **changes: Any) -> None:
    curve = curve.thinned()
    axes.plot(curve.places, curve.best_losses, **(method_style(method).curve() | changes))


def _finish(axes: Axes, curves: Curves, *, x: str, y: str) -> None:
    losses = np.concatenate([curve.best_losses for group in curves.values() for curve in group])
    axes.set(yscale="log", ylim=(losses.min() / 2.5, losses.max() * 2.5), xlabel=x, ylabel=y)
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=5)


def _explain(curves: Curves) -> str:
    """What the lines are, including where they are not what one may expect."""
    counts = {method: len(group) for method, group in curves.items()}
    text = _ONE_SEED
    if max(counts.values()) > 1:
        listed = ", ".join(f"{count} of {method_label(method)}" for method, count in counts.items())
        text = (
            f"Lines: the smallest loss logged so far, averaged over seeds ({listed}) up to the last iteration "
            "that all reached; shaded: one standard deviation (down to the axis where it exceeds the mean)."
        )
    rises = any((np.diff(curve.best_losses) > 0).any() for group in curves.values() for curve in group)
    return text + (_STAGES if rises else "")


def _ends(curves: Curves, value: Callable[[Curve], float], form: str) -> str:
    """Where each method ends, averaged over its seeds."""
    means = {method: sum(map(value, group)) / len(group) for method, group in curves.items()}
    return "; ".join(f"{method_label(method)} ends {form.format(mean)}" for method, mean in means.items()) + "."


# -- active-neuron least squares, as in the paper's figure for its second example

_PROBLEM = "discontinuous-conductivity"
_PAPER_ITERATIONS = 100


def draw_anls(experiment: Experiment) -> Panel | None:
    """Branch loss and mean test error against iterations; None where no run recorded them."""
    loss, error = _paper_figure(experiment, BRANCH), _paper_figure(experiment, TEST)
    drawings = (
        _anls_image(experiment, "loss", "Branch loss", "Branch loss (dimensionless)", loss),
        _anls_image(experiment, "error", "Mean test error", "Mean relative $\\ell_2$ test error", error),
    )
    images = tuple(image for image in drawings if image is not None)
    if not images:
        return None
    caption = (
        "The branch has one hidden layer whose neurons are exchanged one at a time; after each exchange all "
        "output weights are solved for. Left: error of the training coefficients; right: error on unseen samples. "
        "The test errors were computed after the training and influenced nothing. "
    )
    if loss is not None and error is not None:
        caption += (
            f"Crosses are the paper's numbers: a branch loss of {scientific(loss.value)} within "
            f"{_PAPER_ITERATIONS} iterations, and a final mean test error of {scientific(error.value)}. Its "
            "algorithm is not published in full; this is a reconstruction, and an iteration may not be the same "
            "amount of work."
        )
    return Panel("Active-neuron least squares against iterations", caption, images)


def _anls_image(
    experiment: Experiment, step: str, what: str, axis: str, paper: PaperFigure | None
) -> Image | None:
    curves = _finite_curves(experiment, lambda run: run.anls, (step,))
    if not curves:
        return None
    figure, axes = new_figure()
    _draw_curves(axes, curves, x="Iteration of active-neuron least squares", y=axis)
    if paper is not None:
        look: Look = {"linestyle": "none", "marker": "P", "markersize": 9, "color": INK}
        axes.plot(_PAPER_ITERATIONS, paper.value, **look, label=f"paper, {scientific(paper.value)}")
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, paper.value / 2.5), max(high, paper.value * 2.5))
    ends = "; ".join(f"{method_label(m)} ends at {scientific(g[0].losses[-1])}" for m, g in curves.items())
    return to_image(figure, f"anls-{step}", f"{what} against iterations. {ends}.", legend=2)


def _paper_figure(experiment: Experiment, path: Path) -> PaperFigure | None:
    """What the paper reached with active-neuron least squares."""
    figures = PAPER_FIGURES[_PROBLEM] if experiment.problem == _PROBLEM else ()
    return next((figure for figure in figures if figure.path == path and figure.method == "two-step"), None)
