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
    "The second drawing shows the same against training time, a line for each seed: the trunk with all its "
    "starts, then the branch, without the time for data and model selection. "
)
_RELATIVE = (
    "The loss shown is the one minimised, in which samples are weighted by relative error; the tables weight all "
    "samples equally. "
)
_SAME_STEP = "Step 1 is the same with and without QR, so these two lines coincide. "
_ONE_SEED = (
    "Thick lines: the smallest loss logged so far in a stage; faint lines: the loss at each logged iteration."
)
_STAGES = " Each stage of the training has its own loss, so the thick line starts again in each (dotted lines): "
_MANY_STAGES = (
    " Each stage of the training has its own loss (with a smaller ridge, for example); a line may rise where a "
    "new one begins."
)
_ROUNDED = (
    " In all stages but the last, the kinks of the ReLU trunk are rounded, less and less. Only the last loss is "
    "that of the ReLU network itself. It still includes a ridge, unlike the loss in the tables."
)
_STARTS = " The searches from {} starts, of which the best is continued, come before the first point."


def draw_trunk_losses(experiment: Experiment, wording: Wording) -> Drawn:
    """Loss of step 1 for two-step methods, overall loss for the monolithic one."""
    title = "Training loss of the trunk"
    curves, clock = _curves(experiment, "trunk", "monolithic")
    if _are_closed_forms(curves):
        return None
    if not curves:
        return Omission(title, "history.jsonl has no finite training loss.")
    config = experiment.runs[0].config
    weights = mapping_at(config, "method").get("weights", mapping_at(config, "loss").get("weights"))
    caption = (
        "Distance between the networks and the training data, on a logarithmic axis. For the two-step methods it "
        "is the loss of step 1, in which the trunk is fitted with free coefficients; for the monolithic method it "
        "is the loss of the whole network. "
        + (_RELATIVE if weights == "relative" else "")
        + (_CLOCK if clock else "")
        + (_SAME_STEP if {"two-step", "two-step-without-qr"} <= curves.keys() else "")
        + _explain(curves, config)
    )
    p = next((p for path in _POWERS if (p := number_at(config, *path)) is not None), None)
    measure = "Mean squared error" if p in (None, 2.0) else f"Mean of |error| to the power {p:g}"
    axis = plain(f"{measure}\n({wording.unit})")
    return Panel(title, caption, _images("trunk-loss", "Training loss", axis, curves, clock))


# Where the power of the loss is in configurations, those of version 0.1 last.
_POWERS = (("method", "trunk", "p"), ("method", "p"), ("loss", "p"))


def draw_branch_losses(experiment: Experiment) -> Drawn:
    """Loss of step 2, with and without orthonormalised trunk."""
    title = "Training loss of the branch"
    curves, clock = _curves(experiment, "branch")
    if _are_closed_forms(curves):
        return None
    if not curves:
        if all(method.startswith("monolithic") for method in experiment.methods):
            return Omission(title, "the monolithic method trains both networks at once and has no branch step.")
        return Omission(title, "history.jsonl has no finite branch loss.")
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


def _are_closed_forms(curves: Curves) -> bool:
    """Whether every curve is a single entry: nothing was iterated."""
    return bool(curves) and all(len(curve.places) == 1 for group in curves.values() for curve in group)


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
            for part in group[0].thinned().parts():
                axes.plot(part.places, part.losses, color=method_style(method).colour, alpha=0.3, linewidth=0.8)
            _draw_line(axes, method, group[0])
    _finish(axes, curves, x=x, y=y)


def _draw_line(axes: Axes, method: str, curve: Curve, **changes: Any) -> None:
    """The smallest loss so far, stage by stage: they minimise different functions."""
    look: Look = method_style(method).curve() | changes
    for place, part in enumerate(curve.thinned().parts()):
        if place:
            axes.axvline(part.places[0], color=look["color"], linestyle=":", linewidth=0.8, alpha=0.7)
            look["label"] = None
        axes.plot(part.places, part.best_losses, **look)


def _finish(axes: Axes, curves: Curves, *, x: str, y: str) -> None:
    losses = np.concatenate([curve.best_losses for group in curves.values() for curve in group])
    axes.set(yscale="log", ylim=(losses.min() / 2.5, losses.max() * 2.5), xlabel=x, ylabel=y)
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=5)


def _explain(curves: Curves, config: Mapping[str, object] | None = None) -> str:
    """What the lines are, including where they are not what one may expect."""
    counts = {method: len(group) for method, group in curves.items()}
    is_single = max(counts.values()) == 1
    staged = {method: group[0].parts() for method, group in curves.items() if len(group[0].parts()) > 1}
    text = _ONE_SEED
    if not is_single:
        listed = ", ".join(f"{count} of {method_label(method)}" for method, count in counts.items())
        text = (
            f"Lines: the smallest loss logged so far, averaged over seeds ({listed}) up to the last iteration "
            "that all reached; shaded: one standard deviation (down to the axis where it exceeds the mean)."
        )
    if not staged:
        return text
    text += f"{_STAGES}{_listed_stages(staged)}." if is_single else _MANY_STAGES
    trunk = mapping_at(config, "method", "trunk")
    text += _ROUNDED if trunk.get("activation") == "relu" else ""
    starts = number_at(trunk, "starts") or 1
    return text + (_STARTS.format(int(starts)) if starts > 1 else "")


def _listed_stages(staged: Mapping[str, list[Curve]]) -> str:
    """`ridge 1e-04 from iteration 170, ridge 1e-05 from 290`; methods with equal stages are named once."""
    texts: dict[str, list[str]] = {}
    for method, parts in staged.items():
        names = [(part.stages[0].partition(", ")[2] or part.stages[0], part.places[0]) for part in parts[1:]]
        text = ", ".join(f"{name} from iteration {place:,.0f}" for name, place in names)
        texts.setdefault(text, []).append(method_label(method))
    return "; ".join(text if len(texts) == 1 else f"{' and '.join(of)}: {text}" for text, of in texts.items())


def _ends(curves: Curves, value: Callable[[Curve], float], form: str) -> str:
    """Where each method ends, averaged over its seeds."""
    means = {method: sum(map(value, group)) / len(group) for method, group in curves.items()}
    return "; ".join(f"{method_label(method)} ends {form.format(mean)}" for method, mean in means.items()) + "."


# -- active-neuron least squares, as in the paper's figure for its second example

_PROBLEM = "discontinuous-conductivity"
_PAPER_ITERATIONS = 100


def draw_anls(experiment: Experiment) -> Panel | None:
    """Branch loss and mean test error on one axis against iterations; None where no run recorded them."""
    losses, errors = (_finite_curves(experiment, lambda run: run.anls, (step,)) for step in ("loss", "error"))
    if not losses and not errors:
        return None
    figure, axes = new_figure(width=6.8, height=4.1)
    y = "Branch loss (line),\nmean relative $\\ell_2$ test error (asterisks)"
    _draw_curves(axes, losses, x="Iteration of active-neuron least squares", y=y)
    for method, group in errors.items():
        for place, curve in enumerate(group):
            label, colour = None if place else "mean test error", method_style(method).colour
            axes.plot(curve.places, curve.losses, "*", color=colour, markersize=8, label=label)
    paper = [found for path in (BRANCH, TEST) if (found := _paper_figure(experiment, path)) is not None]
    _mark_paper(axes, paper)
    shown = [curve.best_losses for curves in (losses, errors) for group in curves.values() for curve in group]
    values = np.concatenate([*shown, [figure.value for figure in paper]])
    axes.set_ylim(values.min() / 2.5, values.max() * 2.5)
    ends = "; ".join(
        f"{what} of {method_label(method)} ends at {scientific(group[0].losses[-1])}"
        for what, curves in (("branch loss", losses), ("mean test error", errors))
        for method, group in curves.items()
    )
    image = to_image(figure, "anls", f"Branch loss and mean test error against iterations: {ends}.", legend=2)
    return Panel("Active-neuron least squares against iterations", _anls_caption(paper), (image,))


def _mark_paper(axes: Axes, paper: Sequence[PaperFigure]) -> None:
    for figure, (marker, what) in zip(paper, (("P", "branch loss"), ("X", "test error")), strict=False):
        label = f"paper, {what} {scientific(figure.value)}"
        axes.plot(_PAPER_ITERATIONS, figure.value, marker, markersize=9, color=INK, label=label)


def _anls_caption(paper: Sequence[PaperFigure]) -> str:
    caption = (
        "The branch has one hidden layer whose neurons are exchanged one at a time; after each exchange all "
        "output weights are solved for. Line: error of the training coefficients; asterisks: mean relative error "
        "on unseen samples, for each seed. The test errors were computed after the training and influenced "
        "nothing. "
    )
    if len(paper) < 2:
        return caption
    loss, error = paper
    return caption + (
        f"Crosses are the paper's numbers: a branch loss of {scientific(loss.value)} within "
        f"{_PAPER_ITERATIONS} iterations, and a final mean test error of {scientific(error.value)}. Its "
        "algorithm is not published in full; this is a reconstruction, and an iteration may not be the same "
        "amount of work."
    )


def _paper_figure(experiment: Experiment, path: Path) -> PaperFigure | None:
    """What the paper reached with active-neuron least squares."""
    figures = PAPER_FIGURES[_PROBLEM] if experiment.problem == _PROBLEM else ()
    return next((figure for figure in figures if figure.path == path and figure.method == "two-step"), None)
