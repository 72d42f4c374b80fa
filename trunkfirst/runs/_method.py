"""From the configuration to the records of the library."""

from ..data import OperatorData
from ..errors import DataError, SettingError, UnknownNameError
from ..linear import QR, SVD, AbstractOrthonormaliser
from ..minimisers import Adam
from ..networks import BASES
from ..regressors import BranchSettings, NetworkRegressor
from ..training import (
    BasisInputs,
    Batches,
    InputEncoding,
    JointTrunk,
    Method,
    Monolithic,
    RawInputs,
    StandardisedInputs,
    TrunkSettings,
    TwoStep,
)
from ._config import BranchSection, Descent, RunConfig

# Settings that a method does not look at: naming one of them is an error, not a silent nothing.
_BRANCH_DESCENT = {f"branch.{name}" for name in Descent.model_fields}
_ORTHONORMALISE = {f"orthonormalise.{name}" for name in ("method", "tolerance", "unit_columns")}
UNUSED: dict[str, set[str]] = {
    "two-step": {"branch.train_transform"},
    "two-step-without-qr": {"branch.train_transform", *_ORTHONORMALISE},
    "monolithic": {*_BRANCH_DESCENT, "branch.kind", *_ORTHONORMALISE},
}


def check_used(methods: list[str], keys: set[str]) -> None:
    """Every setting that somebody named must matter to at least one of the methods."""
    for key in sorted(keys):
        if all(key in UNUSED[method] for method in methods):
            raise SettingError(f"setting {key!r} has no effect on {' or '.join(methods)}; leave it out")


def build_method(config: RunConfig, data: OperatorData) -> Method:
    """The training method that a configuration describes."""
    trunk = TrunkSettings(config.trunk.architecture, config.trunk.activation, config.trunk.initialisation)
    trunk.check(data)
    inputs = _encoding(config.branch.encoder)
    branch = _branch(config.branch, trunk.architecture[-1])
    batches = Batches(config.trunk.batch_samples, config.trunk.batch_points)
    minimiser = Adam(config.trunk.rate, config.trunk.halve_every)
    if config.method == "monolithic":
        return Monolithic(
            trunk=trunk,
            branch=branch,
            inputs=inputs,
            minimiser=minimiser,
            iterations=config.trunk.iterations,
            p=config.loss.p,
            batches=batches,
            train_transform=config.branch.train_transform,
            precision=config.precision,
        )
    regressor = NetworkRegressor(
        branch,
        Adam(config.branch.rate, config.branch.halve_every),
        config.branch.iterations,
        config.branch.batch_samples,
    )
    return TwoStep(
        trunk=JointTrunk(trunk, minimiser, config.trunk.iterations, config.loss.p, batches),
        branch=regressor,
        orthonormalise=_orthonormaliser(config),
        inputs=inputs,
        precision=config.precision,
    )


def _branch(section: BranchSection, width: int) -> BranchSettings:
    if section.architecture[-1] != width + 1:
        raise DataError(
            f"branch.architecture ends with {section.architecture[-1]}; a trunk of width N = {width} needs "
            f"N + 1 = {width + 1} coefficients"
        )
    return BranchSettings(section.architecture[1:-1], section.activation, section.initialisation, section.stacked)


def _orthonormaliser(config: RunConfig) -> AbstractOrthonormaliser | None:
    if config.method == "two-step-without-qr":
        return None
    kind = {"qr": QR, "svd": SVD}[config.orthonormalise.method]
    return kind(config.orthonormalise.tolerance, config.orthonormalise.unit_columns)


def _encoding(text: str) -> InputEncoding:
    name, _, count = text.partition(":")
    if name in BASES and count.isdecimal():
        return BasisInputs(name, int(count))
    plain: dict[str, InputEncoding] = {"none": RawInputs(), "standardise": StandardisedInputs()}
    if text not in plain:
        raise UnknownNameError("encoder", text, (*plain, *(f"{basis}:COUNT" for basis in BASES)))
    return plain[text]
