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
    FourierFeatures,
    Identity,
    Parallel,
    Periodic,
    Standardise,
    basis_coefficients,
    fit_elementwise,
    fit_predictive,
    fit_principal,
    fit_standardise,
    in_precision,
)
from ._features import (
    AbstractBranchFeatures,
    ConvolutionFeatures,
    FeatureBranch,
    LayerFeatures,
    ProductFeatures,
    SkipFeatures,
    make_convolution,
    make_product,
)
from ._kernel import MATERN, KernelBranch
from ._operator import Operator
from ._outputs import Boundary, OutputMap
from ._perceptron import ACTIVATIONS, INITIALISATIONS, Perceptron, count_parameters, make_perceptron, side_by_side
from ._predict_only import Estimator, PredictOnlyBranch
from ._storage import load, save
from ._trunk import Trunk

__all__ = [
    "ACTIVATIONS",
    "BASES",
    "ELEMENTWISE",
    "INITIALISATIONS",
    "MATERN",
    "AbstractBranchFeatures",
    "AbstractEncoder",
    "Boundary",
    "Branch",
    "Chain",
    "Coefficients",
    "ConvolutionFeatures",
    "Coordinates",
    "Elementwise",
    "Estimator",
    "FeatureBranch",
    "FourierFeatures",
    "Identity",
    "KernelBranch",
    "LayerFeatures",
    "Operator",
    "OutputMap",
    "Parallel",
    "Perceptron",
    "Periodic",
    "PredictOnlyBranch",
    "ProductFeatures",
    "SkipFeatures",
    "StackedBranch",
    "Standardise",
    "Trunk",
    "basis_coefficients",
    "count_parameters",
    "fit_elementwise",
    "fit_predictive",
    "fit_principal",
    "fit_standardise",
    "in_precision",
    "load",
    "make_branch",
    "make_convolution",
    "make_perceptron",
    "make_product",
    "save",
    "side_by_side",
]
