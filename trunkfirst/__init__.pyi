"""The public names: what type checkers read, and `__init__.py` too."""

from . import errors as errors
from .data.data_check import check_data as check_data
from .data.operator_data import (
    InputFunction as InputFunction,
    OperatorData as OperatorData,
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
from .estimator import TwoStepDeepONet as TwoStepDeepONet
from .evaluation import (
    Evaluation as Evaluation,
    evaluate as evaluate,
)
from .exporters.formats import export as export
from .fitting import FitResult as FitResult
from .inputs import (
    AutoInputs as AutoInputs,
    BasisInputs as BasisInputs,
    Coordinates as Coordinates,
    PerInput as PerInput,
    PowerInputs as PowerInputs,
    PredictiveInputs as PredictiveInputs,
    PrincipalInputs as PrincipalInputs,
    RawInputs as RawInputs,
    StandardisedInputs as StandardisedInputs,
)
from .interface import (
    CrossValidation as CrossValidation,
    cross_validate as cross_validate,
    fit as fit,
)
from .intervals import Prediction as Prediction
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
from .networks.operator import Operator as Operator, load as load, save as save
from .next_samples import (
    Suggestion as Suggestion,
    suggest as suggest,
)
from .outputs import Output as Output
from .presets import preset_method as preset_method
from .problems.generate import make_data as make_data
from .regressors.active_neurons import ActiveNeurons as ActiveNeurons
from .regressors.base import Sklearn as Sklearn
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
from .run_data import Split as Split
from .trunks import (
    AutoTrunk as AutoTrunk,
    JointTrunk as JointTrunk,
    ModesTrunk as ModesTrunk,
    TrunkNetwork as TrunkNetwork,
)
from .two_step import TwoStep as TwoStep

__version__: str
__all__: list[str]
