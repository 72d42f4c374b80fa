"""Training: methods as records, losses, and `fit`."""

from ._bilinear import BilinearProblem, HiddenPair
from ._coordinates import CoordinateSettings
from ._encodings import (
    AbstractEncoding,
    BasisInputs,
    PerInput,
    PredictiveInputs,
    PrincipalInputs,
    RawInputs,
    StandardisedInputs,
    encoded,
    parse_encoding,
    relative_weights,
)
from ._fields import Fields, ScatteredFields, as_fields, make_fields
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
from ._outputs import OutputSettings, is_free
from ._prepared import Prepared, input_groups, prepare
from ._projected_trunk import ProjectedTrunk, reuse_trunk, trunk_problems
from ._result import FitResult
from ._separate_trunks import SeparateTrunks
from ._stream import samples_in_memory, take_together
from ._trunks import AbstractTrunkFit, TrunkResult, TrunkSettings, trunk_values
from ._two_step import Targets, make_targets

__all__ = [
    "AbstractEncoding",
    "AbstractFactors",
    "AbstractTrunkFit",
    "BasisInputs",
    "Batches",
    "BilinearProblem",
    "BranchCoefficients",
    "CompressedLoss",
    "CoordinateSettings",
    "Fields",
    "FitResult",
    "FreeCoefficients",
    "HiddenPair",
    "JointTrunk",
    "Method",
    "Monolithic",
    "MonolithicProjected",
    "OutputLoss",
    "OutputSettings",
    "PerInput",
    "PredictiveInputs",
    "Prepared",
    "PrincipalInputs",
    "ProjectedTrunk",
    "RawInputs",
    "ScatteredFields",
    "SeparateTrunks",
    "StandardisedInputs",
    "Targets",
    "TrunkResult",
    "TrunkSettings",
    "TwoStep",
    "as_fields",
    "encoded",
    "fit",
    "input_groups",
    "is_free",
    "make_fields",
    "make_loss",
    "make_targets",
    "named_key",
    "parse_encoding",
    "prepare",
    "relative_weights",
    "reuse_trunk",
    "samples_in_memory",
    "take_together",
    "trunk_problems",
    "trunk_values",
]
