"""Trains deep operator networks (DeepONets) trunk first.

Public names are imported when they are first used: `import trunkfirst` itself loads neither JAX nor SciPy.
"""

from typing import TYPE_CHECKING, Any

from . import errors
from ._version import __version__

if TYPE_CHECKING:
    from .data import InputFunction, OperatorData, Split
    from .evaluation import Evaluation, evaluate
    from .linear import QR, SVD
    from .minimisers import LBFGS, Adam, LevenbergMarquardt
    from .networks import Operator, load, save
    from .problems import make_data
    from .regressors import (
        ActiveNeurons,
        BranchSettings,
        KernelRidge,
        LinearRidge,
        NetworkRegressor,
        ProjectedNetwork,
        SklearnRegressor,
    )
    from .training import (
        BasisInputs,
        Batches,
        FitResult,
        JointTrunk,
        Monolithic,
        MonolithicProjected,
        PredictiveInputs,
        PrincipalInputs,
        ProjectedTrunk,
        RawInputs,
        StandardisedInputs,
        TrunkSettings,
        TwoStep,
        fit,
    )

_ROOMS = {
    "data": ("InputFunction", "OperatorData", "Split"),
    "evaluation": ("Evaluation", "evaluate"),
    "linear": ("QR", "SVD"),
    "minimisers": ("LBFGS", "Adam", "LevenbergMarquardt"),
    "networks": ("Operator", "load", "save"),
    "problems": ("make_data",),
    "regressors": (
        "ActiveNeurons",
        "BranchSettings",
        "KernelRidge",
        "LinearRidge",
        "NetworkRegressor",
        "ProjectedNetwork",
        "SklearnRegressor",
    ),
    "training": (
        "BasisInputs",
        "Batches",
        "FitResult",
        "JointTrunk",
        "Monolithic",
        "MonolithicProjected",
        "PredictiveInputs",
        "PrincipalInputs",
        "ProjectedTrunk",
        "RawInputs",
        "StandardisedInputs",
        "TrunkSettings",
        "TwoStep",
        "fit",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "LBFGS",
    "QR",
    "SVD",
    "ActiveNeurons",
    "Adam",
    "BasisInputs",
    "Batches",
    "BranchSettings",
    "Evaluation",
    "FitResult",
    "InputFunction",
    "JointTrunk",
    "KernelRidge",
    "LevenbergMarquardt",
    "LinearRidge",
    "Monolithic",
    "MonolithicProjected",
    "NetworkRegressor",
    "Operator",
    "OperatorData",
    "PredictiveInputs",
    "PrincipalInputs",
    "ProjectedNetwork",
    "ProjectedTrunk",
    "RawInputs",
    "SklearnRegressor",
    "Split",
    "StandardisedInputs",
    "TrunkSettings",
    "TwoStep",
    "__version__",
    "errors",
    "evaluate",
    "fit",
    "load",
    "make_data",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
