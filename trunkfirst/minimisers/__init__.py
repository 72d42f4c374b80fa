"""Minimisers, one file each, one protocol: `init`, `step`; and the loop around them."""

from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State
from ._adam import Adam
from ._minimise import Minimised, OnStep, Status, Step, minimise

__all__ = [
    "AbstractMinimiser",
    "AbstractObjective",
    "Adam",
    "Minimised",
    "OnStep",
    "Parameters",
    "State",
    "Status",
    "Step",
    "minimise",
]
