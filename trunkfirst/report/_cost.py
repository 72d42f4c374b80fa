"""What accuracy costs: the test error of every run against the seconds of its training."""

from ._experiment import Experiment
from ._panel import Image, Omission, Panel
from ._style import GREY, legend_above, method_label, method_style, new_figure, plain
from ._tables import NO_TRUNK, mean_of, scientific
from ._types import Axes

_TITLE = "Test error against training time"
_KERNEL = ("test", "kernel_mean_relative_l2")


def draw_cost(experiment: Experiment) -> Panel | Omission | None:
    """One mark a run, the kernel baseline as a line; None for a single run, which has nothing to compare."""
    if len(experiment.runs) < 2:
        return None
    marks = _marks(experiment)
    if not marks:
        return Omission(_TITLE, "no run has both a finite test error and the seconds of its training.")
    kernel = mean_of(experiment.runs, *_KERNEL)
    figure, axes = new_figure(width=6.8)
    for method, places in marks.items():
        _scatter(axes, method, places)
    if kernel:
        axes.axhline(kernel, color=GREY, linestyle=(0, (1, 1.5)), linewidth=2, label=NO_TRUNK)
    axes.set_yscale("log")
    axes.set_xlim(0, 1.08 * max(seconds for places in marks.values() for seconds, _ in places))
    axes.set_xlabel("Training time in all (seconds)")
    axes.set_ylabel("Mean relative $\\ell_2$ test error")
    legend_above(figure)
    caption = (
        "One mark is one run: further left is faster, lower is more accurate. The time is that of the training in "
        "all, the trunk with its starts and the branch; a trunk that two methods share is counted for both."
        + (_about(kernel) if kernel else "")
    )
    return Panel(_TITLE, caption, (Image("error-time", _describe(marks), figure),))


def _about(kernel: float) -> str:
    return (
        f" The dotted line at {scientific(kernel)} is a regression that trains no network at all ({NO_TRUNK}): "
        "a method above it leaves accuracy unused that the data hold."
    )


def _marks(experiment: Experiment) -> dict[str, list[tuple[float, float]]]:
    """Seconds and mean test error of every run that has both, by method."""
    marks: dict[str, list[tuple[float, float]]] = {}
    for run in experiment.runs:
        seconds, error = run.training_seconds, mean_of((run,), "test", "mean_relative_l2")
        if seconds is not None and error:
            marks.setdefault(run.method, []).append((seconds, error))
    return marks


def _scatter(axes: Axes, method: str, places: list[tuple[float, float]]) -> None:
    style = method_style(method)
    axes.plot(
        *zip(*places, strict=True),
        linestyle="none",
        marker=style.marker,
        markersize=11 if style.marker == "*" else 8,
        color=style.colour,
        label=plain(method_label(method)),
    )


def _describe(marks: dict[str, list[tuple[float, float]]]) -> str:
    texts = [
        f"{method_label(method)} {scientific(error)} after {seconds:.3g} seconds"
        for method, places in marks.items()
        for seconds, error in places
    ]
    return "Test error against training time: " + "; ".join(texts) + "."
