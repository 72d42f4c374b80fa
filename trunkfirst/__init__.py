"""Trains deep operator networks (DeepONets) trunk first.

Public names are imported when they are first used: `import trunkfirst` itself loads neither JAX nor SciPy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import errors as errors
from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .coordinates import Coordinates as Coordinates
    from .cross_validation import (
        CrossValidation as CrossValidation,
        cross_validate as cross_validate,
    )
    from .data.data_check import check_data as check_data
    from .data.operator_data import (
        InputFunction as InputFunction,
        OperatorData as OperatorData,
        Split as Split,
    )
    from .data.read_write import (
        read_data as read_data,
        write_data as write_data,
    )
    from .data.scattered_data import (
        ScatteredData as ScatteredData,
        scattered_from_lists as scattered_from_lists,
    )
    from .data.sharded_data import (
        ShardedData as ShardedData,
        write_shards as write_shards,
    )
    from .encoders import (
        AutoInputs as AutoInputs,
        BasisInputs as BasisInputs,
        PerInput as PerInput,
        PowerInputs as PowerInputs,
        PredictiveInputs as PredictiveInputs,
        PrincipalInputs as PrincipalInputs,
        RawInputs as RawInputs,
        StandardisedInputs as StandardisedInputs,
    )
    from .estimator import TwoStepDeepONet as TwoStepDeepONet
    from .evaluation import (
        Evaluation as Evaluation,
        evaluate as evaluate,
    )
    from .exporters.formats import export as export
    from .fitting import FitResult as FitResult
    from .interface import fit as fit
    from .learning_curves import (
        LearningCurve as LearningCurve,
        learning_curve as learning_curve,
    )
    from .linear.orthonormalise import (
        QR as QR,
        SVD as SVD,
    )
    from .losses import Batches as Batches
    from .minimisers.adam import Adam as Adam
    from .minimisers.lbfgs import LBFGS as LBFGS
    from .minimisers.loop import Stopping as Stopping
    from .modes import ModesTrunk as ModesTrunk
    from .monolithic import (
        Monolithic as Monolithic,
        MonolithicProjected as MonolithicProjected,
    )
    from .moving_trunk import MovingTrunk as MovingTrunk
    from .network_trunk import (
        NetworkTrunk as NetworkTrunk,
        SeparateTrunks as SeparateTrunks,
    )
    from .networks.inversion import Inversion as Inversion
    from .networks.operator import (
        Operator as Operator,
        Prediction as Prediction,
        load as load,
        save as save,
    )
    from .next_samples import (
        Suggestion as Suggestion,
        suggest as suggest,
    )
    from .outputs import Output as Output
    from .presets import preset_method as preset_method
    from .problems.generate import make_data as make_data
    from .regressors.active_neurons import ActiveNeurons as ActiveNeurons
    from .regressors.fourier import FourierBranch as FourierBranch
    from .regressors.input_grid import resample as resample
    from .regressors.network import (
        AutoBranch as AutoBranch,
        BranchNetwork as BranchNetwork,
        JointBranch as JointBranch,
        NetworkBranch as NetworkBranch,
    )
    from .regressors.ridge import (
        Kernel as Kernel,
        Linear as Linear,
    )
    from .regressors.sklearn import Sklearn as Sklearn
    from .trunks import (
        AutoTrunk as AutoTrunk,
        JointTrunk as JointTrunk,
        TrunkNetwork as TrunkNetwork,
    )
    from .two_step import TwoStep as TwoStep

_MODULES = {
    "coordinates": "Coordinates",
    "cross_validation": "CrossValidation cross_validate",
    "data.data_check": "check_data",
    "data.operator_data": "InputFunction OperatorData Split",
    "data.read_write": "read_data write_data",
    "data.scattered_data": "ScatteredData scattered_from_lists",
    "data.sharded_data": "ShardedData write_shards",
    "encoders": "AutoInputs BasisInputs PerInput PowerInputs PredictiveInputs PrincipalInputs RawInputs "
    "StandardisedInputs",
    "estimator": "TwoStepDeepONet",
    "evaluation": "Evaluation evaluate",
    "exporters.formats": "export",
    "fitting": "FitResult",
    "interface": "fit",
    "learning_curves": "LearningCurve learning_curve",
    "linear.orthonormalise": "QR SVD",
    "losses": "Batches",
    "minimisers.adam": "Adam",
    "minimisers.lbfgs": "LBFGS",
    "minimisers.loop": "Stopping",
    "modes": "ModesTrunk",
    "moving_trunk": "MovingTrunk",
    "monolithic": "Monolithic MonolithicProjected",
    "network_trunk": "NetworkTrunk SeparateTrunks",
    "networks.inversion": "Inversion",
    "networks.operator": "Operator Prediction load save",
    "next_samples": "Suggestion suggest",
    "outputs": "Output",
    "presets": "preset_method",
    "problems.generate": "make_data",
    "regressors.active_neurons": "ActiveNeurons",
    "regressors.fourier": "FourierBranch",
    "regressors.input_grid": "resample",
    "regressors.network": "AutoBranch BranchNetwork JointBranch NetworkBranch",
    "regressors.ridge": "Kernel Linear",
    "regressors.sklearn": "Sklearn",
    "trunks": "AutoTrunk JointTrunk TrunkNetwork",
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
