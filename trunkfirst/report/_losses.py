"""Training loss against iterations: the trunk's (or the overall one), and the branch's."""

from collections.abc import Sequence

from ._experiment import Experiment
from ._panel import Image, Omission, Panel
from ._run import Curve, Run, number
from ._seeds import band, best_on_common_steps, finite_curve, mean_and_spread, thin
from ._style import legend_above, method_label, method_style, new_figure, plain
from ._types import Axes, Figure
from ._wording import Wording

_ONE_SEED = "Thick lines: the smallest loss so far; faint lines: the loss at each recorded iteration."
_SAME_STEP = "Step 1 is the same with and without QR, so that these two lines cover each other. "
_MANY_SEEDS = (
    "Lines: the smallest loss so far, averaged over {count} seeds; shaded: one standard deviation "
    "(it reaches the lower edge where it exceeds the mean)."
)


def draw_trunk_losses(experiment: Experiment, wording: Wording) -> Panel | Omission:
    """Loss of step 1 for two-step methods beside the overall loss of the monolithic one."""
    title = "Training loss of the trunk"
    curves = _curves_by_method(experiment, ("trunk", "monolithic"))
    if not curves:
        return Omission(title, "history.jsonl holds no finite training loss.")
    figure, axes = new_figure()
    _draw(figure, axes, curves)
    axes.set_ylabel(plain(f"{_error_measure(experiment.runs)}\n({wording.unit})"))
    caption = (
        "How far the networks are from the training data, on a logarithmic axis: lower is better. "
        "For the two-step methods it is the loss of step 1, in which "
        "the trunk is fitted with free coefficients; for the monolithic method it is the loss of the "
        "whole network. "
        + (_SAME_STEP if {"two-step", "two-step-without-qr"} <= curves.keys() else "")
        + _explain(curves)
    )
    alt = f"Training loss against iterations for {_names(curves)}. {_last_values(curves)}"
    return Panel(title, caption, (Image("trunk-loss", alt, figure),))


def draw_branch_losses(experiment: Experiment) -> Panel | Omission:
    """Loss of step 2, with and without orthonormalised trunk."""
    title = "Training loss of the branch"
    curves = _curves_by_method(experiment, ("branch",))
    if not curves:
        if experiment.methods == ("monolithic",):
            return Omission(title, "the monolithic method trains both networks at once and has no branch step.")
        return Omission(title, "history.jsonl holds no finite branch loss.")
    figure, axes = new_figure()
    _draw(figure, axes, curves)
    axes.set_ylabel("Mean squared error of\nthe coefficients (dimensionless)")
    caption = (
        "Step 2: the branch learns the coefficients found in step 1. With QR the trunk's functions are made "
        "orthonormal first, which the paper expects to make the coefficients easier to learn. With and without "
        "QR the coefficients are different numbers of different size: compare how far each line falls and the "
        "test errors that follow, not the heights alone. " + _explain(curves)
    )
    alt = f"Branch loss against iterations for {_names(curves)}. {_last_values(curves)}"
    return Panel(title, caption, (Image("branch-loss", alt, figure),))


def _curves_by_method(experiment: Experiment, stages: Sequence[str]) -> dict[str, list[Curve]]:
    """Finite histories of the given stages, by method; methods without any are left out."""
    curves: dict[str, list[Curve]] = {}
    for run in experiment.runs:
        for stage in stages:
            curve = finite_curve(run.history[stage]) if stage in run.history else None
            if curve is not None:
                curves.setdefault(run.method, []).append(curve)
    return curves


def _draw(figure: Figure, axes: Axes, curves: dict[str, list[Curve]]) -> None:
    lowest = min(float(curve.best_losses.min()) for group in curves.values() for curve in group)
    highest = max(float(curve.best_losses.max()) for group in curves.values() for curve in group)
    for method, group in curves.items():
        _draw_one(axes, method, group[0]) if len(group) == 1 else _draw_mean(axes, method, group)
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2.5, highest * 2.5)
    axes.set_xlabel("Iteration")
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=5)
    legend_above(figure)


def _draw_one(axes: Axes, method: str, curve: Curve) -> None:
    style, curve = method_style(method), thin(curve)
    axes.plot(curve.iterations, curve.losses, color=style.colour, alpha=0.3, linewidth=0.8)
    axes.plot(
        curve.iterations,
        curve.best_losses,
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        label=plain(method_label(method)),
    )


def _draw_mean(axes: Axes, method: str, curves: Sequence[Curve]) -> None:
    style = method_style(method)
    steps, losses = best_on_common_steps(curves)
    mean, spread = mean_and_spread(losses)
    lower, upper = band(mean, spread)
    axes.fill_between(steps, lower, upper, color=style.colour, alpha=0.2, linewidth=0)
    axes.plot(
        steps,
        mean,
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        label=plain(method_label(method)),
    )


def _error_measure(runs: Sequence[Run]) -> str:
    p = number(runs[0].config, "loss", "p")
    return "Mean squared error" if p in (None, 2.0) else f"Mean of |error| to the power {p:g}"


def _explain(curves: dict[str, list[Curve]]) -> str:
    count = max(len(group) for group in curves.values())
    return _ONE_SEED if count == 1 else _MANY_SEEDS.format(count=count)


def _names(curves: dict[str, list[Curve]]) -> str:
    return ", ".join(method_label(method) for method in curves)


def _last_values(curves: dict[str, list[Curve]]) -> str:
    ends = [
        f"{method_label(method)} ends at {sum(c.best_losses[-1] for c in group) / len(group):.2e}"
        for method, group in curves.items()
    ]
    return "; ".join(ends) + "."
