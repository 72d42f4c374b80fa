"""Training: methods as records, losses, and `fit`."""

from ._bilinear import BilinearProblem, HiddenPair
from ._encodings import (
    AbstractEncoding,
    BasisInputs,
    PredictiveInputs,
    PrincipalInputs,
    RawInputs,
    StandardisedInputs,
    parse_encoding,
    relative_weights,
)
from ._fit import fit
from ._joint_trunk import JointTrunk
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
from ._methods import Method, Monolithic, MonolithicProjected, TwoStep
from ._projected_trunk import ProjectedTrunk
from ._result import FitResult
from ._trunks import AbstractTrunkFit, TrunkResult, TrunkSettings

__all__ = [
    "AbstractEncoding",
    "AbstractFactors",
    "AbstractTrunkFit",
    "BasisInputs",
    "Batches",
    "BilinearProblem",
    "BranchCoefficients",
    "CompressedLoss",
    "FitResult",
    "FreeCoefficients",
    "HiddenPair",
    "JointTrunk",
    "Method",
    "Monolithic",
    "MonolithicProjected",
    "OutputLoss",
    "PredictiveInputs",
    "PrincipalInputs",
    "ProjectedTrunk",
    "RawInputs",
    "StandardisedInputs",
    "TrunkResult",
    "TrunkSettings",
    "TwoStep",
    "fit",
    "make_loss",
    "named_key",
    "parse_encoding",
    "relative_weights",
]
