"""Minimisers, one file each, one protocol: `init`, `step`; and the loop around them."""

from typing import Annotated, TypeAlias

from ..settings import OneOf
from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State
from ._adam import Adam
from ._batches import draw
from ._journey import Step
from ._lbfgs import LBFGS
from ._levenberg import LevenbergMarquardt
from ._minimise import Minimised, OnStep, Status, Stopping, minimise, worst_status
from ._separable import AbstractFeatures, SeparableProblem, solve_ridge, solve_ridge_in_blocks

Minimiser: TypeAlias = Annotated[AbstractMinimiser, OneOf(LBFGS, Adam, LevenbergMarquardt)]

__all__ = [
    "LBFGS",
    "AbstractFeatures",
    "AbstractMinimiser",
    "AbstractObjective",
    "Adam",
    "LevenbergMarquardt",
    "Minimised",
    "Minimiser",
    "OnStep",
    "Parameters",
    "SeparableProblem",
    "State",
    "Status",
    "Step",
    "Stopping",
    "draw",
    "minimise",
    "solve_ridge",
    "solve_ridge_in_blocks",
    "worst_status",
]
