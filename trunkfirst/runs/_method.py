"""From the configuration to the records of the library."""

import dataclasses as dc

from ..data import OperatorData
from ..errors import DataError, SettingError
from ..linear import QR, SVD, AbstractOrthonormaliser
from ..minimisers import LBFGS, AbstractMinimiser, Adam, LevenbergMarquardt
from ..networks import BASES
from ..regressors import (
    AbstractRegressor,
    ActiveNeurons,
    BranchSettings,
    KernelRidge,
    LinearRidge,
    NetworkRegressor,
    ProjectedNetwork,
)
from ..training import (
    AbstractTrunkFit,
    Batches,
    JointTrunk,
    Method,
    Monolithic,
    MonolithicProjected,
    ProjectedTrunk,
    TrunkSettings,
    TwoStep,
    parse_encoding,
)
from ._config import BranchSection, Descent, RunConfig

BRIEF_ITERATIONS = 30


def build_method(config: RunConfig, data: OperatorData) -> Method:
    """The training method that a configuration describes."""
    trunk = TrunkSettings(config.trunk.architecture, config.trunk.activation, config.trunk.initialisation)
    trunk.check(data)
    branch = _branch_network(config.branch, trunk.architecture[-1])
    _check_inputs(config.branch, data)
    minimiser, iterations = _minimiser(config.trunk), config.trunk.iterations
    method: Method
    if config.method == "monolithic-projected":
        method = MonolithicProjected(
            trunk, branch, minimiser=minimiser, iterations=iterations, ridge=config.trunk.ridge
        )
    elif config.method == "monolithic":
        method = Monolithic(
            trunk,
            branch,
            minimiser=minimiser,
            iterations=iterations,
            p=config.loss.p,
            batches=Batches(config.trunk.batch_samples, config.trunk.batch_points),
            train_transform=config.branch.train_transform,
        )
    else:
        regressor = build_regressor(config.branch, branch)
        method = TwoStep(_trunk_fit(config, trunk), regressor, _orthonormaliser(config))
    return dc.replace(
        method,
        inputs=parse_encoding(config.branch.encoder),
        is_relative=config.loss.weights == "relative",
        precision=config.precision,
    )


def build_regressor(section: BranchSection, network: BranchSettings) -> AbstractRegressor:
    """What stands as the branch."""
    if section.kind == "linear":
        return LinearRidge()
    if section.kind == "kernel":
        return KernelRidge()
    if section.kind == "active-neurons":
        (width,) = network.hidden
        return ActiveNeurons(width=width, iterations=section.iterations)
    if section.projected:
        return ProjectedNetwork(network, _minimiser(section), section.iterations, section.ridge)
    return NetworkRegressor(network, _minimiser(section), section.iterations, section.batch_samples)


def brief_regressor(section: BranchSection) -> AbstractRegressor:
    """The branch with a short training, for comparing encoders."""
    short = section.model_copy(update={"iterations": min(section.iterations, BRIEF_ITERATIONS)})
    network = BranchSettings(section.architecture[1:-1], section.activation, section.initialisation)
    return build_regressor(short, network)


def _trunk_fit(config: RunConfig, network: TrunkSettings) -> AbstractTrunkFit:
    section = config.trunk
    if section.projected:
        return ProjectedTrunk(
            network,
            _minimiser(section),
            section.iterations,
            starts=section.starts,
            ridge=section.ridge,
            p=config.loss.p,
        )
    batches = Batches(section.batch_samples, section.batch_points)
    return JointTrunk(network, _minimiser(section), section.iterations, config.loss.p, batches)


def _minimiser(section: Descent) -> AbstractMinimiser:
    if section.minimiser == "adam":
        return Adam(section.rate, section.halve_every)
    return LBFGS() if section.minimiser == "l-bfgs" else LevenbergMarquardt()


def _branch_network(section: BranchSection, width: int) -> BranchSettings:
    if section.kind in ("network", "active-neurons") and section.architecture[-1] != width + 1:
        raise DataError(
            f"branch.architecture ends with {section.architecture[-1]}; a trunk of width N = {width} needs "
            f"N + 1 = {width + 1} coefficients"
        )
    if section.kind == "active-neurons" and (len(section.architecture) != 3 or section.activation != "relu"):
        raise SettingError("active-neurons needs one hidden relu layer: branch.architecture (inputs, n, N + 1)")
    return BranchSettings(section.architecture[1:-1], section.activation, section.initialisation, section.stacked)


def _check_inputs(section: BranchSection, data: OperatorData) -> None:
    """The paper's vector starts with what goes in: the sensors, or as many coefficients as an encoder keeps."""
    name, _, count = section.encoder.partition(":")
    features = int(count) if count.isdecimal() and name in BASES else data.flat_inputs.shape[1]
    if section.kind in ("network", "active-neurons") and section.architecture[0] != features:
        raise DataError(
            f"branch.architecture starts with {section.architecture[0]}, but the inputs have {features} numbers"
        )


def _orthonormaliser(config: RunConfig) -> AbstractOrthonormaliser | None:
    if config.method == "two-step-without-qr":
        return None
    kind = {"qr": QR, "svd": SVD}[config.orthonormalise.method]
    return kind(config.orthonormalise.tolerance, config.orthonormalise.unit_columns)
