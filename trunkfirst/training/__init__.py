"""Training: methods as records, losses, and `fit`."""

from ._fit import FitResult, fit
from ._keys import named_key
from ._losses import (
    AbstractFactors,
    Batches,
    BranchCoefficients,
    CompressedLoss,
    FreeCoefficients,
    OutputLoss,
    make_loss,
)
from ._methods import (
    BasisInputs,
    InputEncoding,
    JointTrunk,
    Method,
    Monolithic,
    RawInputs,
    StandardisedInputs,
    TrunkSettings,
    TwoStep,
)
from ._trunk import TrunkResult, fit_trunk

__all__ = [
    "AbstractFactors",
    "BasisInputs",
    "Batches",
    "BranchCoefficients",
    "CompressedLoss",
    "FitResult",
    "FreeCoefficients",
    "InputEncoding",
    "JointTrunk",
    "Method",
    "Monolithic",
    "OutputLoss",
    "RawInputs",
    "StandardisedInputs",
    "TrunkResult",
    "TrunkSettings",
    "TwoStep",
    "fit",
    "fit_trunk",
    "make_loss",
    "named_key",
]
