"""Trains deep operator networks (DeepONets) trunk first.

Public names are imported when they are first used: `import trunkfirst` itself loads neither JAX nor SciPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import errors as errors
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .coordinates import Coordinates as Coordinates
    from .data import (
        InputFunction as InputFunction,
        OperatorData as OperatorData,
        ScatteredData as ScatteredData,
        ShardedData as ShardedData,
        Split as Split,
        check_data as check_data,
        read_data as read_data,
        scattered_from_lists as scattered_from_lists,
        write_data as write_data,
        write_shards as write_shards,
    )
    from .encoders import (
        AutoInputs as AutoInputs,
        BasisInputs as BasisInputs,
        PerInput as PerInput,
        PredictiveInputs as PredictiveInputs,
        PrincipalInputs as PrincipalInputs,
        RawInputs as RawInputs,
        StandardisedInputs as StandardisedInputs,
    )
    from .estimator import TwoStepDeepONet as TwoStepDeepONet
    from .evaluation import Evaluation as Evaluation, evaluate as evaluate
    from .exporters import export as export
    from .fitting import FitResult as FitResult
    from .interface import fit as fit
    from .linear import (
        QR as QR,
        SVD as SVD,
    )
    from .losses import Batches as Batches
    from .minimisers import (
        LBFGS as LBFGS,
        Adam as Adam,
        LevenbergMarquardt as LevenbergMarquardt,
        Stopping as Stopping,
    )
    from .monolithic import (
        Monolithic as Monolithic,
        MonolithicProjected as MonolithicProjected,
    )
    from .network_trunk import (
        NetworkTrunk as NetworkTrunk,
        SeparateTrunks as SeparateTrunks,
    )
    from .networks import (
        Operator as Operator,
        load as load,
        save as save,
    )
    from .outputs import Output as Output
    from .presets import preset_method as preset_method
    from .problems import make_data as make_data
    from .regressors import (
        ActiveNeurons as ActiveNeurons,
        AutoBranch as AutoBranch,
        BranchNetwork as BranchNetwork,
        JointBranch as JointBranch,
        Kernel as Kernel,
        Linear as Linear,
        NetworkBranch as NetworkBranch,
        Sklearn as Sklearn,
    )
    from .trunks import (
        JointTrunk as JointTrunk,
        TrunkNetwork as TrunkNetwork,
    )
    from .two_step import TwoStep as TwoStep

_MODULES = {
    "coordinates": "Coordinates",
    "data": "InputFunction OperatorData ScatteredData ShardedData Split check_data "
    "read_data scattered_from_lists write_data write_shards",
    "encoders": "AutoInputs BasisInputs PerInput PredictiveInputs PrincipalInputs RawInputs StandardisedInputs",
    "estimator": "TwoStepDeepONet",
    "evaluation": "Evaluation evaluate",
    "exporters": "export",
    "fitting": "FitResult",
    "interface": "fit",
    "linear": "QR SVD",
    "losses": "Batches",
    "minimisers": "LBFGS Adam LevenbergMarquardt Stopping",
    "monolithic": "Monolithic MonolithicProjected",
    "network_trunk": "NetworkTrunk SeparateTrunks",
    "networks": "Operator load save",
    "outputs": "Output",
    "presets": "preset_method",
    "problems": "make_data",
    "regressors": "ActiveNeurons AutoBranch BranchNetwork JointBranch Kernel Linear NetworkBranch Sklearn",
    "trunks": "JointTrunk TrunkNetwork",
    "two_step": "TwoStep",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", "errors", *_MODULE_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    except errors.MissingExtraError as error:
        return _missing(name, error)


def _missing(name: str, error: errors.MissingExtraError) -> type:
    """A class in place of one that needs an optional package: it can be imported, but not made."""

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    return type(name, (), {"__init__": refuse})


def __dir__() -> list[str]:
    return sorted(__all__)
