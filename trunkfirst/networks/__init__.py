"""Networks and the operator made of them."""

from ._branch import Branch, StackedBranch, make_branch
from ._encoders import (
    BASES,
    AbstractEncoder,
    Coefficients,
    Identity,
    Standardise,
    basis_coefficients,
    fit_standardise,
)
from ._operator import Operator
from ._perceptron import ACTIVATIONS, INITIALISATIONS, Perceptron, count_parameters, make_perceptron
from ._storage import load, save
from ._trunk import Trunk

__all__ = [
    "ACTIVATIONS",
    "BASES",
    "INITIALISATIONS",
    "AbstractEncoder",
    "Branch",
    "Coefficients",
    "Identity",
    "Operator",
    "Perceptron",
    "StackedBranch",
    "Standardise",
    "Trunk",
    "basis_coefficients",
    "count_parameters",
    "fit_standardise",
    "load",
    "make_branch",
    "make_perceptron",
    "save",
]
