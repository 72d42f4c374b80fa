"""Training methods as frozen records: what is trained, with what, for how long."""

import dataclasses as dc
from typing import Literal, TypeAlias

from ..linear import QR, AbstractOrthonormaliser
from ..minimisers import LBFGS, AbstractMinimiser, Adam
from ..regressors import AbstractRegressor, BranchSettings, NetworkRegressor
from ._coordinates import CoordinateSettings
from ._encodings import AbstractEncoding, RawInputs
from ._losses import Batches
from ._outputs import OutputSettings
from ._trunks import AbstractTrunkFit, TrunkSettings

Precision: TypeAlias = Literal["double", "single"]


@dc.dataclass(frozen=True)
class TwoStep:
    """The two-step method: trunk with free coefficients, orthonormalise, branch.

    `orthonormalise=None` is the paper's two-step method without QR.
    """

    trunk: AbstractTrunkFit
    branch: AbstractRegressor = NetworkRegressor()
    orthonormalise: AbstractOrthonormaliser | None = QR()
    inputs: AbstractEncoding = RawInputs()
    coordinates: CoordinateSettings = CoordinateSettings()
    outputs: OutputSettings = OutputSettings()
    is_relative: bool = False
    """Weight every sample by 1 / |u|^2, so that relative errors count, in both steps."""
    precision: Precision = "double"


@dc.dataclass(frozen=True)
class Monolithic:
    """The usual way: trunk and branch trained at once on the output loss.

    With `train_transform` a square matrix T between them is trained too (the paper's reparameterisation).
    """

    trunk: TrunkSettings
    branch: BranchSettings = BranchSettings()
    inputs: AbstractEncoding = RawInputs()
    coordinates: CoordinateSettings = CoordinateSettings()
    outputs: OutputSettings = OutputSettings()
    minimiser: AbstractMinimiser = Adam()
    iterations: int = 10_000
    p: float = 2.0
    batches: Batches = Batches()
    train_transform: bool = False
    is_relative: bool = False
    """Weight every sample by 1 / |u|^2, so that relative errors count."""
    precision: Precision = "double"


@dc.dataclass(frozen=True)
class MonolithicProjected:
    """Trunk and branch at once, with their output layers, one matrix between them, solved for."""

    trunk: TrunkSettings
    branch: BranchSettings = BranchSettings()
    inputs: AbstractEncoding = RawInputs()
    coordinates: CoordinateSettings = CoordinateSettings()
    outputs: OutputSettings = OutputSettings()
    minimiser: AbstractMinimiser = LBFGS()
    iterations: int = 6000
    ridge: float = 1e-3
    is_relative: bool = False
    """Weight every sample by 1 / |u|^2, so that relative errors count."""
    precision: Precision = "double"


Method: TypeAlias = TwoStep | Monolithic | MonolithicProjected
