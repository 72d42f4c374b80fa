"""The paper's figure for its second example: active-neuron least squares, iteration by iteration."""

from ._experiment import Experiment
from ._losses import Curves, draw_curves, finite_by_method
from ._panel import Image, Panel
from ._paper import PAPER_FIGURES, PaperFigure
from ._style import INK, legend_above, method_label, new_figure
from ._tables import scientific

_TITLE = "Active-neuron least squares, iteration by iteration"
_PROBLEM = "discontinuous-conductivity"
_PAPER_ITERATIONS = 100
_LOSS = ("branch", "loss")
_ERROR = ("test", "mean_relative_l2")


def draw_anls(experiment: Experiment) -> Panel | None:
    """Branch loss and mean test error against iterations; None where no run recorded them."""
    drawings = [
        _draw(experiment, "loss", _LOSS, "Branch loss (dimensionless)"),
        _draw(experiment, "error", _ERROR, "Mean relative $\\ell_2$ test error"),
    ]
    images = tuple(image for image in drawings if image is not None)
    if not images:
        return None
    caption = (
        "The branch is one hidden layer whose neurons are exchanged one at a time, with all output weights solved "
        "for after each exchange. Left: how well it reproduces the training coefficients; right: what that means "
        "for unseen samples. The test errors were computed after the training and decided nothing. "
        + _beside_the_paper(experiment)
    )
    return Panel(_TITLE, caption, images)


def _draw(experiment: Experiment, step: str, path: tuple[str, ...], axis: str) -> Image | None:
    curves = finite_by_method(experiment, lambda run: run.anls, (step,))
    if not curves:
        return None
    figure, axes = new_figure()
    draw_curves(axes, curves, x="Iteration of active-neuron least squares", y=axis)
    paper = _paper_value(experiment, path)
    if paper is not None:
        axes.plot(
            _PAPER_ITERATIONS,
            paper.value,
            linestyle="none",
            marker="P",
            markersize=9,
            color=INK,
            label=f"paper, {scientific(paper.value)}",
        )
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, paper.value / 2.5), max(high, paper.value * 2.5))
    legend_above(figure)
    what = {"loss": "Branch loss", "error": "Mean test error"}[step]
    return Image(f"anls-{step}", f"{what} against iterations. {_ends(curves)}", figure)


def _paper_value(experiment: Experiment, path: tuple[str, ...]) -> PaperFigure | None:
    """What the paper reached, where it used active-neuron least squares."""
    figures = PAPER_FIGURES[_PROBLEM] if experiment.problem == _PROBLEM else ()
    return next((figure for figure in figures if figure.path == path and figure.method == "two-step"), None)


def _beside_the_paper(experiment: Experiment) -> str:
    loss, error = _paper_value(experiment, _LOSS), _paper_value(experiment, _ERROR)
    if loss is None or error is None:
        return ""
    return (
        f"Crosses are what the paper reports: a branch loss of {scientific(loss.value)} within "
        f"{_PAPER_ITERATIONS} iterations, and in the end a mean test error of {scientific(error.value)}. Its "
        "algorithm is not published in full and this is a reconstruction, so that an iteration need not be the "
        "same amount of work."
    )


def _ends(curves: Curves) -> str:
    ends = [
        f"{method_label(method)} ends at {scientific(float(group[0].losses[-1]))}"
        for method, group in curves.items()
    ]
    return "; ".join(ends) + "."
