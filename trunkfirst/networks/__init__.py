"""Networks and the operator made of them."""

from ..coordinates import FourierFeatures, Periodic
from ..encoders import (
    AbstractEncoder,
    Chain,
    Elementwise,
    Identity,
    LinearProjection,
    Parallel,
    QuadratureProjection,
    Standardise,
)
from ..output_map import Boundary, OutputMap
from ._branch import Branch, StackedBranch, make_branch
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
from ._perceptron import (
    ACTIVATIONS,
    INITIALISATIONS,
    Perceptron,
    count_parameters,
    make_perceptron,
    rounded,
    side_by_side,
)
from ._predict_only import Estimator, PredictOnlyBranch
from ._storage import load, save
from ._trunk import Trunk

__all__ = [
    "ACTIVATIONS",
    "INITIALISATIONS",
    "MATERN",
    "AbstractBranchFeatures",
    "AbstractEncoder",
    "Boundary",
    "Branch",
    "Chain",
    "ConvolutionFeatures",
    "Elementwise",
    "Estimator",
    "FeatureBranch",
    "FourierFeatures",
    "Identity",
    "KernelBranch",
    "LayerFeatures",
    "LinearProjection",
    "Operator",
    "OutputMap",
    "Parallel",
    "Perceptron",
    "Periodic",
    "PredictOnlyBranch",
    "ProductFeatures",
    "QuadratureProjection",
    "SkipFeatures",
    "StackedBranch",
    "Standardise",
    "Trunk",
    "count_parameters",
    "load",
    "make_branch",
    "make_convolution",
    "make_perceptron",
    "make_product",
    "rounded",
    "save",
    "side_by_side",
]
