"""Trains deep operator networks (DeepONets) trunk first.

Public names are imported when they are first used: `import trunkfirst` itself loads neither JAX nor SciPy.
"""

from typing import TYPE_CHECKING, Any

from . import errors
from ._version import __version__

if TYPE_CHECKING:
    from .data import (
        InputFunction,
        OperatorData,
        ScatteredData,
        ShardedData,
        Split,
        check_data,
        read_data,
        scattered_from_lists,
        write_data,
        write_shards,
    )
    from .estimator import TwoStepDeepONet
    from .evaluation import Evaluation, evaluate
    from .exporters import export
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
        CoordinateSettings,
        FitResult,
        JointTrunk,
        Monolithic,
        MonolithicProjected,
        OutputSettings,
        PerInput,
        PredictiveInputs,
        PrincipalInputs,
        ProjectedTrunk,
        RawInputs,
        SeparateTrunks,
        StandardisedInputs,
        TrunkSettings,
        TwoStep,
        fit,
    )

_ROOMS = {
    "data": (
        "InputFunction",
        "OperatorData",
        "ScatteredData",
        "ShardedData",
        "Split",
        "check_data",
        "read_data",
        "scattered_from_lists",
        "write_data",
        "write_shards",
    ),
    "estimator": ("TwoStepDeepONet",),
    "evaluation": ("Evaluation", "evaluate"),
    "exporters": ("export",),
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
        "CoordinateSettings",
        "FitResult",
        "JointTrunk",
        "Monolithic",
        "MonolithicProjected",
        "OutputSettings",
        "PerInput",
        "PredictiveInputs",
        "PrincipalInputs",
        "ProjectedTrunk",
        "RawInputs",
        "SeparateTrunks",
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
    "CoordinateSettings",
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
    "OutputSettings",
    "PerInput",
    "PredictiveInputs",
    "PrincipalInputs",
    "ProjectedNetwork",
    "ProjectedTrunk",
    "RawInputs",
    "ScatteredData",
    "SeparateTrunks",
    "ShardedData",
    "SklearnRegressor",
    "Split",
    "StandardisedInputs",
    "TrunkSettings",
    "TwoStep",
    "TwoStepDeepONet",
    "__version__",
    "check_data",
    "errors",
    "evaluate",
    "export",
    "fit",
    "load",
    "make_data",
    "read_data",
    "save",
    "scattered_from_lists",
    "write_data",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
