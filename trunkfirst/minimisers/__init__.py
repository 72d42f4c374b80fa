"""Minimisers with one interface, `init` and `step`, and the loop that runs them."""

from typing import Annotated, TypeAlias

from ..settings import OneOf
from .adam import Adam
from .lbfgs import LBFGS
from .loop import AbstractMinimiser

Minimiser: TypeAlias = Annotated[AbstractMinimiser, OneOf(LBFGS, Adam)]
