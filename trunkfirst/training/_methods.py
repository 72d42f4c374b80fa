"""Training methods as frozen records: what is trained, with what, for how long."""

import dataclasses as dc
from typing import Literal, TypeAlias

from ..data import OperatorData
from ..errors import DataError, WidthError
from ..linear import QR, AbstractOrthonormaliser
from ..minimisers import AbstractMinimiser, Adam
from ..networks import AbstractEncoder, Identity, basis_coefficients, fit_standardise
from ..regressors import AbstractRegressor, BranchSettings, NetworkRegressor
from ._losses import Batches

Precision: TypeAlias = Literal["double", "single"]


@dc.dataclass(frozen=True)
class RawInputs:
    """Inputs as they come, as in the paper."""

    def fit(self, data: OperatorData) -> AbstractEncoder:
        """Nothing to learn."""
        del data
        return Identity()


@dc.dataclass(frozen=True)
class StandardisedInputs:
    """Every sensor with mean 0 and deviation 1 over the training samples."""

    def fit(self, data: OperatorData) -> AbstractEncoder:
        """Mean and deviation of the training inputs."""
        return fit_standardise(data.flat_inputs)


@dc.dataclass(frozen=True)
class BasisInputs:
    """The first `count` coefficients in a "legendre", "chebyshev" or "fourier" basis on `interval`."""

    basis: str
    count: int
    interval: tuple[float, float] = (-1.0, 1.0)

    def fit(self, data: OperatorData) -> AbstractEncoder:
        """Quadrature at the sensors of the one input function."""
        (name, function), *others = data.inputs.items()
        if others or function.sensors is None or function.sensor_weights is None:
            raise DataError(
                f"inputs[{name!r}]: basis coefficients need one input function with sensors and sensor_weights"
            )
        return basis_coefficients(
            self.basis, function.sensors, function.sensor_weights, self.count, interval=self.interval
        )


InputEncoding: TypeAlias = RawInputs | StandardisedInputs | BasisInputs


@dc.dataclass(frozen=True)
class TrunkSettings:
    """A trunk network of the paper's form (coordinates, n_1, ..., N)."""

    architecture: tuple[int, ...]
    activation: str = "relu"
    initialisation: str = "he"

    def check(self, data: OperatorData) -> None:
        """The trunk must fit the points: right coordinates, and fewer functions than points."""
        points, coordinates = data.points.shape
        if self.architecture[0] != coordinates:
            raise DataError(
                f"trunk: the architecture {self.architecture} starts with {self.architecture[0]}, "
                f"but points have {coordinates} coordinates"
            )
        if self.architecture[-1] >= points:
            raise WidthError(
                f"trunk: width N = {self.architecture[-1]} needs more than N output points, got {points}; "
                "use a narrower trunk or more points"
            )


@dc.dataclass(frozen=True)
class JointTrunk:
    """Step 1 to the letter: trunk parameters and the free matrix A trained together."""

    network: TrunkSettings
    minimiser: AbstractMinimiser = Adam()  # noqa: RUF009 - a frozen record
    iterations: int = 10_000
    p: float = 2.0
    batches: Batches = Batches()  # noqa: RUF009 - a frozen record


@dc.dataclass(frozen=True)
class TwoStep:
    """The two-step method: trunk with free coefficients, orthonormalise, branch.

    `orthonormalise=None` is the paper's two-step method without QR.
    """

    trunk: JointTrunk
    branch: AbstractRegressor = NetworkRegressor()  # noqa: RUF009 - a frozen record
    orthonormalise: AbstractOrthonormaliser | None = QR()  # noqa: RUF009 - a frozen record
    inputs: InputEncoding = RawInputs()
    precision: Precision = "double"


@dc.dataclass(frozen=True)
class Monolithic:
    """The usual way: trunk and branch trained at once on the output loss.

    With `train_transform` a square matrix T between them is trained too (the paper's reparameterisation).
    """

    trunk: TrunkSettings
    branch: BranchSettings = BranchSettings()  # noqa: RUF009 - a frozen record
    inputs: InputEncoding = RawInputs()
    minimiser: AbstractMinimiser = Adam()  # noqa: RUF009 - a frozen record
    iterations: int = 10_000
    p: float = 2.0
    batches: Batches = Batches()  # noqa: RUF009 - a frozen record
    train_transform: bool = False
    precision: Precision = "double"


Method: TypeAlias = TwoStep | Monolithic
