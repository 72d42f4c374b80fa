"""What the paper reports in its section 5, in one table."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperFigure:
    """One number of the paper and the path in `metrics.json` of the number to set beside it.

    `is_level` marks a number given as an order of magnitude only ("the level of 1e-6").
    """

    quantity: str
    method: str
    path: tuple[str, ...]
    value: float
    is_level: bool = False


_TRUNK = ("trunk", "loss")
_BRANCH = ("branch", "loss")
_TEST = ("test", "mean_relative_l2")

PAPER_FIGURES = {
    "nonlinear-conductivity": (
        PaperFigure("trunk loss (paper: mean of five seeds)", "two-step", _TRUNK, 2.11e-7),
        PaperFigure("overall loss (paper: mean of five seeds)", "monolithic", _TRUNK, 1.84e-5),
        PaperFigure("branch loss", "two-step", _BRANCH, 1e-9, is_level=True),
    ),
    "discontinuous-conductivity": (
        PaperFigure("mean relative test error", "two-step", _TEST, 4.14e-4),
        PaperFigure("mean relative test error", "monolithic", _TEST, 1.48e-1),
        PaperFigure("trunk loss", "two-step", _TRUNK, 1e-6, is_level=True),
        PaperFigure("overall loss", "monolithic", _TRUNK, 1e-1, is_level=True),
        PaperFigure("branch loss (active-neuron least squares)", "two-step", _BRANCH, 1.02e-5),
    ),
    "multiple-inputs": (
        PaperFigure("mean relative test error", "two-step", _TEST, 2.9e-4),
        PaperFigure("mean relative test error", "monolithic", _TEST, 2.5e-3),
        PaperFigure("trunk loss", "two-step", _TRUNK, 1e-7, is_level=True),
        PaperFigure("overall loss", "monolithic", _TRUNK, 1e-4, is_level=True),
        PaperFigure("branch loss", "two-step", _BRANCH, 1e-6, is_level=True),
    ),
}

# Smallest loss of the single fit that the paper plots for its first example.
BEST_TRUNK_LOSS = {"two-step": 2.33e-7, "monolithic": 2.08e-5}
