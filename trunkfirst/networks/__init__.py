"""Networks and the operator made of them."""

from ._branch import Branch, StackedBranch, make_branch
from ._encoders import (
    BASES,
    ELEMENTWISE,
    AbstractEncoder,
    Chain,
    Coefficients,
    Coordinates,
    Elementwise,
    Identity,
    Standardise,
    basis_coefficients,
    fit_elementwise,
    fit_predictive,
    fit_principal,
    fit_standardise,
)
from ._kernel import MATERN, KernelBranch
from ._operator import Operator
from ._perceptron import ACTIVATIONS, INITIALISATIONS, Perceptron, count_parameters, make_perceptron
from ._predict_only import Estimator, PredictOnlyBranch
from ._storage import load, save
from ._trunk import Trunk

__all__ = [
    "ACTIVATIONS",
    "BASES",
    "ELEMENTWISE",
    "INITIALISATIONS",
    "MATERN",
    "AbstractEncoder",
    "Branch",
    "Chain",
    "Coefficients",
    "Coordinates",
    "Elementwise",
    "Estimator",
    "Identity",
    "KernelBranch",
    "Operator",
    "Perceptron",
    "PredictOnlyBranch",
    "StackedBranch",
    "Standardise",
    "Trunk",
    "basis_coefficients",
    "count_parameters",
    "fit_elementwise",
    "fit_predictive",
    "fit_principal",
    "fit_standardise",
    "load",
    "make_branch",
    "make_perceptron",
    "save",
]
