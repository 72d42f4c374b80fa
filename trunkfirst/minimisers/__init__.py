"""Minimisers with one interface, `init` and `step`, and the loop that runs them."""

from typing import Annotated, TypeAlias

from ..settings import OneOf
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

Minimiser: TypeAlias = Annotated[AbstractMinimiser, OneOf(LBFGS, Adam, LevenbergMarquardt)]

__all__ = [
    "LBFGS",
    "AbstractFeatures",
    "AbstractMinimiser",
    "AbstractObjective",
    "Adam",
    "LevenbergMarquardt",
    "LogEntry",
    "Minimised",
    "Minimiser",
    "OnStep",
    "Parameters",
    "SeparableProblem",
    "Status",
    "Stopping",
    "draw",
    "minimise",
    "solve_ridge",
    "solve_ridge_in_blocks",
    "worst_status",
]
