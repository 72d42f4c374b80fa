"""Minimisers with one interface, `init` and `step`, and the loop that runs them."""

from .adam import Adam, draw
from .lbfgs import LBFGS
from .levenberg_marquardt import LevenbergMarquardt
from .loop import (
    AbstractMinimiser,
    AbstractObjective,
    LogEntry,
    Minimised,
    OnStep,
    Parameters,
    Status,
    Stopping,
    minimise,
    worst_status,
)
from .separable import AbstractFeatures, SeparableProblem, solve_ridge, solve_ridge_in_blocks

Step = LogEntry

__all__ = [
    "LBFGS",
    "AbstractFeatures",
    "AbstractMinimiser",
    "AbstractObjective",
    "Adam",
    "LevenbergMarquardt",
    "LogEntry",
    "Minimised",
    "OnStep",
    "Parameters",
    "SeparableProblem",
    "Status",
    "Step",
    "Stopping",
    "draw",
    "minimise",
    "solve_ridge",
    "solve_ridge_in_blocks",
    "worst_status",
]
