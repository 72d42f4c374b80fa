"""Networks, encoders and the operator made of them."""

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
from .branches import (
    MATERN,
    AbstractBranchFeatures,
    Branch,
    ConvolutionFeatures,
    Estimator,
    FeatureBranch,
    KernelBranch,
    LayerFeatures,
    PredictOnlyBranch,
    ProductFeatures,
    SkipFeatures,
    StackedBranch,
    make_branch,
    make_convolution,
    make_product,
)
from .layers import (
    ACTIVATIONS,
    Perceptron,
    Trunk,
    count_parameters,
    make_perceptron,
    rounded,
    side_by_side,
)
from .operator import Operator
from .storage import load, save
from .training_domain import TrainingDomain

__all__ = [
    "ACTIVATIONS",
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
    "TrainingDomain",
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
