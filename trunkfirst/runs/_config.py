"""The configuration of a run as typed records. Every key has a default; an unknown key is an error."""

import json
import math
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import pydantic
from pydantic import Field

from ..errors import SettingError, ValueRangeError
from ..files import read_toml

MethodName: TypeAlias = Literal["two-step", "two-step-without-qr", "monolithic", "monolithic-projected"]
Widths: TypeAlias = Annotated[tuple[pydantic.PositiveInt, ...], Field(min_length=2)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]


class Section(pydantic.BaseModel):
    """A frozen part of the configuration that takes no key it does not know."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class DataSection(Section):
    """Which samples, and how they are split."""

    file: str | None = Field(default=None, description="your own data, instead of a problem")
    keys: dict[str, str] = Field(default={}, description="what arrays are called in the file, by our names")
    samples: int | None = Field(
        default=None, ge=4, description="how many samples; the problem's own number if left out"
    )
    points: str | None = Field(default=None, description='"random:M" or "grid:N" instead of the mesh')
    split_seed: Seed = Field(default=0, description="seed of the split, apart from the seed of the networks")
    validation_share: float = Field(default=0.1, ge=0, lt=1, description="share of samples for choosing settings")
    hold_validation: bool = Field(
        default=False,
        description="keep these out of the training to the end, and judge the operator on them, as sweeps do",
    )
    test_share: float = Field(default=0.1, ge=0, lt=1, description="share of samples for judging the result")


class Descent(Section):
    """How a network is trained."""

    minimiser: Literal["adam", "l-bfgs", "levenberg-marquardt"] = Field(
        default="l-bfgs", description="adam, l-bfgs, or levenberg-marquardt for small projected networks"
    )
    iterations: int = Field(default=6000, ge=1, description="iterations of the minimiser, at most")
    projected: bool = Field(default=True, description="solve for the linear coefficients, search only the rest")
    ridge: float = Field(default=1e-3, ge=0, description="ridge of the projected least squares")
    rate: float = Field(default=1e-3, gt=0, description="learning rate of Adam")
    halve_every: int | None = Field(default=None, ge=1, description="halve Adam's rate after so many iterations")
    batch_samples: int | None = Field(default=None, ge=1, description="samples a step of Adam; all if left out")


class TrunkSection(Descent):
    """The trunk network and step 1 (for the monolithic methods: the training of both networks)."""

    architecture: Widths = Field(default=(2, 50, 50, 50, 50), description="(coordinates, hidden widths ..., N)")
    activation: str = Field(default="relu", description="relu, tanh, gelu, silu, sine, softplus, elu or sigmoid")
    initialisation: str = Field(default="he", description="he or xavier")
    starts: int = Field(default=8, ge=1, description="starts of the projected trunk, the worse half given up")
    rescale: bool = Field(default=False, description="map the box of the output points to [-1, 1]")
    periods: dict[str, float] = Field(
        default={}, description="coordinates that repeat, by name, e.g. {x = 1.0}: the trunk is periodic in them"
    )
    fourier: int = Field(default=0, ge=0, description="random Fourier features beside the coordinates")
    separate: bool = Field(default=False, description="a trunk for each output channel, trained on it alone")
    batch_points: int | None = Field(default=None, ge=1, description="points a step of Adam; all if left out")


class OrthonormaliseSection(Section):
    """How the trunk is orthonormalised between the steps."""

    method: Literal["qr", "svd"] = Field(default="qr", description="qr or svd; both reveal the rank")
    tolerance: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="drop directions below this; if left out, by their worth for the outputs",
    )
    unit_columns: bool = Field(
        default=False, description="scale to Q^T Q = I as in the paper, not to unit mean square"
    )


class BranchSection(Descent):
    """The branch and step 2."""

    kind: Literal["network", "convolution", "active-neurons", "kernel", "linear", "auto"] = Field(
        default="network",
        description="what stands as the branch; a convolution needs inputs on a grid; auto: chosen on validation",
    )
    architecture: Widths = Field(default=(1, 500, 51), description="(inputs, hidden widths ..., N + 1)")
    stacked: bool = Field(default=False, description="one network for each coefficient")
    product: bool = Field(
        default=False, description="one network for each input function, multiplied with each other (MIONet)"
    )
    skip: bool = Field(default=False, description="the inputs stand beside the last hidden layer")
    decay: float = Field(
        default=0.0, ge=0, description="penalty on the hidden layers of a projected branch, against overfitting"
    )
    activation: str = Field(default="relu", description="as for the trunk")
    initialisation: str = Field(default="he", description="he or xavier")
    encoder: str = Field(
        default="auto",
        description="auto (chosen on validation), none, standardise, log, inverse, inverse-root, principal:3, "
        "predictive:8, legendre:8, chebyshev:8, fourier:9; several inputs each its own: a=log,f=principal:8",
    )
    trial_iterations: int = Field(
        default=80,
        ge=1,
        description="iterations of a network while auto compares; for its decay 2.5 times as many",
    )
    train_transform: bool = Field(default=False, description="monolithic only: train the transform T too")


class OutputSection(Section):
    """What is known of the outputs beforehand."""

    fixed: tuple[str, ...] = Field(
        default=(), description='sides of the box of the points where the output is known, e.g. ["x-", "t-"]'
    )
    value: float = Field(default=0.0, description="the output on these sides")
    positive: bool = Field(default=False, description="learn the logarithm, so that every output is positive")
    channel_weights: tuple[float, ...] | None = Field(
        default=None, description="how much each channel counts; all alike if left out"
    )
    intervals: bool = Field(default=False, description="prediction intervals, from five more fits of the branch")


class LossSection(Section):
    """The loss of step 1 and of the monolithic methods."""

    p: float = Field(default=2.0, description="power of the entrywise norm, at least 1")
    weights: Literal["relative", "none", "auto"] = Field(
        default="relative",
        description="relative: every sample counts by its relative error, in both steps; auto: by validation",
    )


class RunConfig(Section):
    """Everything that decides a run."""

    problem: str | None = Field(default=None, description="one of the problems by name; or set data.file")
    method: MethodName = Field(
        default="two-step", description="two-step, two-step-without-qr, monolithic or monolithic-projected"
    )
    preset: str = Field(default="fast", description="fast or paper: what the settings start from")
    seed: Seed = Field(default=0, description="seed of the networks")
    precision: Literal["double", "single"] = Field(default="double", description="double or single")
    checkpoint_seconds: float = Field(
        default=30.0, gt=0, description="what a crash may cost: the state is written down this often"
    )
    devices: int | None = Field(
        default=None, ge=1, description="spread the work over so many devices, in each process; one if left out"
    )
    data: DataSection = DataSection()
    trunk: TrunkSection = TrunkSection()
    orthonormalise: OrthonormaliseSection = OrthonormaliseSection()
    branch: BranchSection = BranchSection()
    output: OutputSection = OutputSection()
    loss: LossSection = LossSection()

    @property
    def name(self) -> str:
        """The problem, or the name of the file."""
        return self.problem or Path(self.data.file or "data").stem


Updates: TypeAlias = dict[str, dict[str, Any]]


def updated(config: RunConfig, updates: Updates) -> RunConfig:
    """The configuration with some settings of its sections changed."""
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in updates.items()}
    return config.model_copy(update=sections)


_ADAM_ONLY = ("rate", "halve_every", "batch_samples", "batch_points")
_ORTHONORMALISE = {f"orthonormalise.{name}" for name in OrthonormaliseSection.model_fields}


def unused_settings(config: RunConfig) -> set[str]:
    """Settings that this configuration never looks at: naming one of them is an error, not a silent nothing."""
    is_monolithic = config.method.startswith("monolithic")
    unused = set(_ORTHONORMALISE) if is_monolithic or config.method == "two-step-without-qr" else set[str]()
    if config.method != "monolithic":
        unused.add("branch.train_transform")
    if is_monolithic:
        unused |= {f"branch.{name}" for name in Descent.model_fields} | {"branch.kind", "trunk.projected"}
    for name, section in (("trunk", config.trunk), ("branch", config.branch)):
        if section.minimiser != "adam":
            unused |= {f"{name}.{key}" for key in _ADAM_ONLY}
        if not section.projected or config.method == "monolithic":
            unused |= {f"{name}.ridge", f"{name}.starts"}
    if config.method == "monolithic-projected":
        unused -= {"trunk.ridge"}
        unused |= {"trunk.starts", "loss.p"}
    if config.branch.kind in ("kernel", "linear"):
        unused |= {f"branch.{key}" for key in ("architecture", "activation", "initialisation", "iterations")}
    is_network = config.branch.kind in ("network", "convolution", "auto")
    if not is_network or is_monolithic or not config.branch.projected:
        unused |= {"branch.decay"}
    if "auto" not in (config.branch.encoder, config.branch.kind, config.loss.weights):
        unused |= {"branch.trial_iterations"}
    if not is_network:
        unused |= {"branch.skip"}
    if config.data.validation_share == 0:
        unused |= {"data.hold_validation"}
    if not is_network or config.branch.kind == "convolution":
        unused |= {"branch.product", "branch.stacked"}
    return unused


def check_used(configs: list[RunConfig], keys: set[str]) -> None:
    """Every setting that somebody named must matter to at least one of the configurations."""
    unused = set[str].intersection(*(unused_settings(config) for config in configs))
    for key in sorted(keys & unused):
        methods = " or ".join(config.method for config in configs)
        raise SettingError(f"setting {key!r} has no effect on {methods} as set here; leave it out")


def make_config(values: dict[str, Any]) -> RunConfig:
    """Check nested `values`; the first thing wrong is a `SettingError` or `ValueRangeError` that names the key."""
    try:
        config = RunConfig.model_validate(values)
    except pydantic.ValidationError as error:
        raise _first_error(error) from None
    if (config.problem is None) == (config.data.file is None):
        raise ValueRangeError("give either a problem by name or data.file, and not both")
    if not 1 <= config.loss.p < math.inf:
        raise ValueRangeError(f"loss.p is {config.loss.p}; the loss |error|^p needs p >= 1")
    return config


def _first_error(error: pydantic.ValidationError) -> SettingError | ValueRangeError:
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = ", ".join(_keys_beside(first["loc"]))
        return SettingError(f"there is no setting {key!r}; known here: {known}")
    return ValueRangeError(f"setting {key} is {first['input']!r}: {first['msg'].lower()}")


def _keys_beside(place: tuple[int | str, ...]) -> list[str]:
    model: Any = RunConfig
    for part in place[:-1]:
        model = model.model_fields[part].annotation
    return list(model.model_fields)


def parse_setting(text: str) -> tuple[list[str], Any]:
    """`a.b=c` of the option `--set`, the value read as TOML and otherwise taken as a word."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise SettingError(f"--set {text!r}: expected key=value, e.g. --set trunk.iterations=5000")
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value
    return key.split("."), parsed


def put(values: dict[str, Any], place: list[str], value: Any) -> None:
    """Set `values[a][b] = value` for the place [a, b]."""
    *sections, name = place
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise SettingError(f"there is no setting {'.'.join(place)!r}: {section} has no parts")
        values = inner
    values[name] = value


def merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    """`low` overridden by `high`, section by section."""
    merged = dict(low)
    for name, value in high.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = merge(merged[name], value) if both else value
    return merged


def to_toml(config: RunConfig) -> str:
    """The resolved configuration as TOML: what this run looks at, keys in the order of the records."""
    values = config.model_dump(mode="json", exclude_none=True)
    unused = unused_settings(config)
    top = [f"{name} = {_toml_value(value)}" for name, value in values.items() if not isinstance(value, dict)]
    for name, section in values.items():
        if isinstance(section, dict):
            used = {key: value for key, value in section.items() if f"{name}.{key}" not in unused}
            lines = [f"{key} = {_toml_value(value)}" for key, value in used.items()]
            top += ["", f"[{name}]", *lines] if lines else []
    return "\n".join(top) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml_value(item)}" for name, item in value.items()) + "}"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def config_values(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain values, for `make_config` in another place: its data file with the whole path."""
    values = config.model_dump(mode="json")
    if config.data.file is not None:
        values["data"]["file"] = str(Path(config.data.file).resolve())
    return values


def load_config(path: Path) -> RunConfig:
    """The `config.toml` of a run folder."""
    return make_config(read_toml(path))
