"""From the configuration to the records of the library."""

import dataclasses as dc

from ..data import AnyData, OperatorData
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
    CoordinateSettings,
    JointTrunk,
    Method,
    Monolithic,
    MonolithicProjected,
    OutputSettings,
    ProjectedTrunk,
    SeparateTrunks,
    TrunkSettings,
    TwoStep,
    parse_encoding,
)
from ._config import BranchSection, Descent, RunConfig

BRIEF_ITERATIONS = 30
NETWORK_KINDS = ("network", "convolution", "active-neurons")


def build_method(config: RunConfig, data: AnyData) -> Method:
    """The training method that a configuration describes."""
    trunk = TrunkSettings(config.trunk.architecture, config.trunk.activation, config.trunk.initialisation)
    coordinates = _coordinates(config)
    points = len(data.points) if isinstance(data, OperatorData) else int(data.counts.sum())
    trunk.check(points, coordinates.features(data.points.shape[-1]))
    branch = _branch_network(config.branch, trunk.architecture[-1], data)
    _check_inputs(config.branch, data)
    if config.trunk.separate and not (config.trunk.projected and config.method.startswith("two-step")):
        raise SettingError("trunk.separate needs method two-step and trunk.projected = true")
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
        coordinates=coordinates,
        outputs=OutputSettings(
            config.output.fixed, config.output.value, config.output.positive, config.output.channel_weights
        ),
        is_relative=config.loss.weights == "relative",
        precision=config.precision,
    )


def _coordinates(config: RunConfig) -> CoordinateSettings:
    section = config.trunk
    return CoordinateSettings(section.rescale, tuple(section.periods.items()), section.fourier)


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
        return ProjectedNetwork(network, _minimiser(section), section.iterations, section.ridge, section.decay)
    return NetworkRegressor(network, _minimiser(section), section.iterations, section.batch_samples)


def _trunk_fit(config: RunConfig, network: TrunkSettings) -> AbstractTrunkFit:
    section = config.trunk
    if section.projected:
        trunk = ProjectedTrunk(
            network,
            _minimiser(section),
            section.iterations,
            starts=section.starts,
            ridge=section.ridge,
            p=config.loss.p,
        )
        return SeparateTrunks(network, trunk) if section.separate else trunk
    batches = Batches(section.batch_samples, section.batch_points)
    return JointTrunk(network, _minimiser(section), section.iterations, config.loss.p, batches)


def _minimiser(section: Descent) -> AbstractMinimiser:
    if section.minimiser == "adam":
        return Adam(section.rate, section.halve_every)
    return LBFGS() if section.minimiser == "l-bfgs" else LevenbergMarquardt()


def _branch_network(section: BranchSection, width: int, data: AnyData) -> BranchSettings:
    if section.kind in NETWORK_KINDS and section.architecture[-1] != width + 1:
        raise DataError(
            f"branch.architecture ends with {section.architecture[-1]}; a trunk of width N = {width} needs "
            f"N + 1 = {width + 1} coefficients"
        )
    if section.kind == "active-neurons" and (len(section.architecture) != 3 or section.activation != "relu"):
        raise SettingError("active-neurons needs one hidden relu layer: branch.architecture (inputs, n, N + 1)")
    return branch_settings(section, data)


def branch_settings(section: BranchSection, data: AnyData) -> BranchSettings:
    """The branch network that a section describes."""
    return BranchSettings(
        section.architecture[1:-1],
        section.activation,
        section.initialisation,
        section.stacked,
        section.skip,
        () if section.product else None,
        _grid_shape(data) if section.kind == "convolution" else None,
    )


def _grid_shape(data: AnyData) -> tuple[int, ...]:
    (name, function), *others = data.inputs.items()
    if others or function.grid_shape is None:
        raise DataError(f"inputs[{name!r}]: a convolution needs one input function with a grid_shape")
    return function.grid_shape


def _check_inputs(section: BranchSection, data: AnyData) -> None:
    """The paper's vector starts with what goes in: the sensors, or as many coefficients as an encoder keeps."""
    name, _, count = section.encoder.partition(":")
    features = int(count) if count.isdecimal() and name in BASES else data.flat_inputs.shape[1]
    if section.kind in NETWORK_KINDS and section.architecture[0] != features:
        raise DataError(
            f"branch.architecture starts with {section.architecture[0]}, but the inputs have {features} numbers"
        )


def _orthonormaliser(config: RunConfig) -> AbstractOrthonormaliser | None:
    if config.method == "two-step-without-qr":
        return None
    kind = {"qr": QR, "svd": SVD}[config.orthonormalise.method]
    return kind(config.orthonormalise.tolerance, config.orthonormalise.unit_columns)
