"""Training loss against iterations and against time: the trunk's (or the overall one), and the branch's."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from ._experiment import Experiment
from ._history import Curve, number
from ._panel import Image, Omission, Panel
from ._run import Run
from ._seeds import band, best_on_common_steps, finite_curve, mean_and_spread, thin
from ._style import legend_above, method_label, method_style, new_figure, plain
from ._types import Axes
from ._wording import Wording

Curves = Mapping[str, Sequence[Curve]]
_CLOCK = (
    "Beside it the same against time, one line a seed, counted from the beginning of the training: first the "
    "trunk with all its starts, then the branch; making data and choosing the encoder are not counted. "
)
_ONE_SEED = "Thick lines: the smallest loss so far; faint lines: the loss at each recorded iteration."
_RELATIVE = (
    "Drawn is what is minimised, in which samples are weighted relative to their size; tables count all alike. "
)
_SAME_STEP = "Step 1 is the same with and without QR, so that these two lines cover each other. "
_MANY_SEEDS = (
    "Lines: the smallest loss so far, averaged over {count} seeds; shaded: one standard deviation "
    "(it reaches the lower edge where it exceeds the mean)."
)


def draw_trunk_losses(experiment: Experiment, wording: Wording) -> Panel | Omission:
    """Loss of step 1 for two-step methods beside the overall loss of the monolithic one."""
    title = "Training loss of the trunk"
    curves, clock = _curves(experiment, ("trunk", "monolithic"))
    if not curves:
        return Omission(title, "history.jsonl holds no finite training loss.")
    caption = (
        "How far the networks are from the training data, on a logarithmic axis: lower is better. "
        "For the two-step methods it is the loss of step 1, in which "
        "the trunk is fitted with free coefficients; for the monolithic method it is the loss of the "
        "whole network. "
        + (_RELATIVE if _is_relative(experiment.runs) else "")
        + (_CLOCK if clock else "")
        + (_SAME_STEP if {"two-step", "two-step-without-qr"} <= curves.keys() else "")
        + _explain(curves)
    )
    loss = f"{_error_measure(experiment.runs)}\n({wording.unit})"
    return Panel(title, caption, _images("trunk-loss", "Training loss", plain(loss), curves, clock))


def draw_branch_losses(experiment: Experiment) -> Panel | Omission:
    """Loss of step 2, with and without orthonormalised trunk."""
    title = "Training loss of the branch"
    curves, clock = _curves(experiment, ("branch",))
    if not curves:
        if all(method.startswith("monolithic") for method in experiment.methods):
            return Omission(title, "the monolithic method trains both networks at once and has no branch step.")
        return Omission(title, "history.jsonl holds no finite branch loss.")
    caption = (
        "Step 2: the branch learns the coefficients found in step 1. With QR the trunk's functions are made "
        "orthonormal first, which the paper expects to make the coefficients easier to learn. With and without "
        "QR the coefficients are different numbers of different size: compare how far each line falls and the "
        "test errors that follow, not the heights alone. " + (_CLOCK if clock else "") + _explain(curves)
    )
    loss = "Mean squared error of\nthe coefficients (dimensionless)"
    return Panel(title, caption, _images("branch-loss", "Branch loss", loss, curves, clock))


def draw_curves(axes: Axes, curves: Curves, *, x: str, y: str) -> None:
    """One line a method, or its mean and spread over seeds, on a logarithmic axis."""
    for method, group in curves.items():
        _draw_one(axes, method, group[0]) if len(group) == 1 else _draw_mean(axes, method, group)
    _finish(axes, curves, x=x, y=y)


def finite_by_method(
    experiment: Experiment, curves_of: Callable[[Run], Mapping[str, Curve]], steps: Sequence[str]
) -> Curves:
    """Finite curves of the given steps, by method; methods without any are left out."""
    found: dict[str, list[Curve]] = {}
    for run in experiment.runs:
        curves = curves_of(run)
        for step in steps:
            curve = finite_curve(curves[step]) if step in curves else None
            if curve is not None:
                found.setdefault(run.method, []).append(curve)
    return found


def _curves(experiment: Experiment, steps: Sequence[str]) -> tuple[Curves, Curves]:
    """Histories of the given steps against iterations and against seconds."""
    return (
        finite_by_method(experiment, lambda run: run.history, steps),
        finite_by_method(experiment, lambda run: run.clock, steps),
    )


def _images(name: str, what: str, loss: str, curves: Curves, clock: Curves) -> tuple[Image, ...]:
    """One drawing against iterations and, where seconds are recorded, one against time."""
    alt = f"{what} against iterations for {_names(curves)}. {_last_values(curves)}"
    figure, axes = new_figure()
    draw_curves(axes, curves, x="Iteration", y=loss)
    legend_above(figure)
    image = Image(name, alt, figure)
    return (image, _clock_image(f"{name}-time", what, loss, clock)) if clock else (image,)


def _clock_image(name: str, what: str, loss: str, clock: Curves) -> Image:
    """Against time every seed has a line of its own: seeds share no moments to average at."""
    figure, axes = new_figure()
    for method, group in clock.items():
        for place, curve in enumerate(group):
            _line(axes, method, curve, label=plain(method_label(method)) if place == 0 else None)
    _finish(axes, clock, x="Training time (seconds)", y=loss)
    axes.set_xlim(left=0)
    legend_above(figure)
    alt = f"{what} against training time for {_names(clock)}. {_last_seconds(clock)}"
    return Image(name, alt, figure)


def _finish(axes: Axes, curves: Curves, *, x: str, y: str) -> None:
    lowest = min(float(curve.best_losses.min()) for group in curves.values() for curve in group)
    highest = max(float(curve.best_losses.max()) for group in curves.values() for curve in group)
    axes.set_yscale("log")
    axes.set_ylim(lowest / 2.5, highest * 2.5)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(x=0.01)
    axes.locator_params(axis="x", nbins=5)


def _draw_one(axes: Axes, method: str, curve: Curve) -> None:
    curve = thin(curve)
    axes.plot(curve.places, curve.losses, color=method_style(method).colour, alpha=0.3, linewidth=0.8)
    _line(axes, method, curve, label=plain(method_label(method)))


def _line(axes: Axes, method: str, curve: Curve, *, label: str | None) -> None:
    style, curve = method_style(method), thin(curve)
    axes.plot(
        curve.places,
        curve.best_losses,
        color=style.colour,
        linestyle=style.line,
        linewidth=style.width,
        label=label,
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


def _is_relative(runs: Sequence[Run]) -> bool:
    section = runs[0].config.get("loss")
    return isinstance(section, Mapping) and cast("Mapping[str, object]", section).get("weights") == "relative"


def _explain(curves: Curves) -> str:
    count = max(len(group) for group in curves.values())
    return _ONE_SEED if count == 1 else _MANY_SEEDS.format(count=count)


def _names(curves: Curves) -> str:
    return ", ".join(method_label(method) for method in curves)


def _last_values(curves: Curves) -> str:
    ends = [
        f"{method_label(method)} ends at {sum(c.best_losses[-1] for c in group) / len(group):.2e}"
        for method, group in curves.items()
    ]
    return "; ".join(ends) + "."


def _last_seconds(curves: Curves) -> str:
    ends = [
        f"{method_label(method)} ends after {sum(c.places[-1] for c in group) / len(group):.3g} seconds"
        for method, group in curves.items()
    ]
    return "; ".join(ends) + "."
