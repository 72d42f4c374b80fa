"""The configuration of a run: a method with its data, seed and budget, as one record."""

import copy
import dataclasses as dc
import itertools
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from ..errors import SettingError, UsageError, ValueRangeError
from ..files.integrity import absent
from ..files.text_files import read_toml
from ..method import AbstractMethod
from ..monolithic import Monolithic, MonolithicProjected
from ..presets import preset_method
from ..problems.generate import check_problem, problem_names
from ..run_data import DataSettings
from ..settings import Field, OneOf, from_values, merge, parse_setting, put, record, setting_text, to_values
from ..two_step import TwoStep
from .legacy import is_legacy, translate

_SHORT_WIDTH = "width"  # short for trunk.width
_MAX_RUNS, _MAX_NAME = 1000, 150
_EXAMPLE = "e.g. [sweep] width = [20, 40] and seed = [0, 1, 2]"

Method: TypeAlias = Annotated[AbstractMethod, OneOf(TwoStep, Monolithic, MonolithicProjected)]


@record
class RunConfig:
    """Everything that decides a run; `config.toml` is this record."""

    problem: str | None = Field(default=None, description="name of a problem; or set data.file")
    preset: str = Field(default="fast", description="fast or paper: the method that a problem starts from")
    seed: int = Field(default=0, ge=0, lt=2**63, description="seed of the networks")
    minutes: float | None = Field(
        default=None, gt=0, description="time limit for choosing and training; none if left out"
    )
    intervals: bool = Field(
        default=False, description="compute prediction intervals, from samples left out of training"
    )
    checkpoint_seconds: float = Field(
        default=30.0, gt=0, description="seconds between checkpoints; a crash loses at most this much work"
    )
    devices: int | None = Field(
        default=None, ge=1, description="devices in each process that share the work; one if left out"
    )
    data: DataSettings = DataSettings()
    method: Method = TwoStep()

    def __post_init__(self) -> None:
        if self.problem is not None and self.data.file is not None:
            raise ValueRangeError("give either a problem by name or data.file, not both")

    @property
    def is_measured(self) -> bool:
        """Whether errors are measured on samples left out: those of a problem are known from its test samples."""
        return self.problem is None and not self.data.hold_validation

    @property
    def name(self) -> str:
        """The problem, or the name of the file; of data.npz, which `trunkfirst.fit` writes, that of its folder."""
        file = Path(self.data.file or "data")
        return self.problem or (file.name == "data.npz" and file.parent.name) or file.stem


def make_config(values: dict[str, Any]) -> RunConfig:
    """The configuration of nested values; the first thing wrong raises an error that names the key.

    A section without a `kind` changes the default one; settings of the trunk without one are those of a network.
    """
    values = _with_trunk_kind(values)
    config = from_values(RunConfig, values)
    if config.problem is None and config.data.file is None:
        raise ValueRangeError("give either a problem by name or data.file")
    return config


def _with_trunk_kind(values: dict[str, Any]) -> dict[str, Any]:
    method = values.get("method", {})
    trunk = method.get("trunk") if isinstance(method, dict) else None
    if not isinstance(trunk, dict) or not trunk or "kind" in trunk or method.get("kind", "two-step") != "two-step":
        return values
    return values | {"method": method | {"trunk": {"kind": "network"} | trunk}}


def with_whole_path(config: RunConfig) -> RunConfig:
    """The configuration with the whole path of its data file, for use in another folder."""
    return dc.replace(config, data=_with_whole_path(config.data))


def _with_whole_path(data: DataSettings) -> DataSettings:
    earlier = None if data.earlier is None else _with_whole_path(data.earlier)
    file = None if data.file is None else str(Path(data.file).resolve())
    return dc.replace(data, file=file, earlier=earlier)


def config_values(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain values, its data file with the whole path."""
    return to_values(with_whole_path(config))


def load_config(path: Path) -> RunConfig:
    """The `config.toml` of a run folder, of version 0.1 too."""
    return make_config(nested(read_toml(path)))


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """dict[str, Any] with the settings of the method under `method`, wherever they were given.

    `trunk.iterations` is short for `method.trunk.iterations`; `method = "two-step-without-qr"` names a method.
    """
    if is_legacy(values):
        values = translate(values)
    names = {field.name for field in dc.fields(RunConfig)}
    outer = {name: value for name, value in values.items() if name in names and name != "method"}
    inner = {name: value for name, value in values.items() if name not in names}
    method = values.get("method", {})
    method = {"kind": method} if isinstance(method, str) else method
    method = merge(method, inner)
    if method.get("kind") == "two-step-without-qr":
        method = method | {"kind": "two-step", "orthonormalise": "none"}
    return outer | ({"method": method} if method else {})


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """The options `--set KEY=VALUE` as nested values; later ones win."""
    values: dict[str, Any] = {}
    for text in texts:
        path, value = parse_setting(text)
        put(values, path, value)
    return nested(values)


def problem_configs(
    given: dict[str, Any],
    *,
    methods: list[str] | None = None,
    preset: str | None = None,
    iterations: int | None = None,
) -> list[RunConfig]:
    """A configuration for each method on a problem.

    Args:
        given: nested values from a file and options, in the form of `nested`.
        methods: names of methods; that of `given`, or two-step, if left out.
        preset: what the settings start from; that of `given`, or fast, if left out.
        iterations: for each step that a minimiser takes.

    Raises:
        SettingError: where a setting does not exist, or has no effect on any of the methods.
    """
    check_problem(str(given.get("problem")))
    preset = str(preset or given.get("preset", "fast"))
    wanted = given.get("method", {})
    named = wanted.get("kind", "two-step")
    if wanted.get("orthonormalise") == "none" and named == "two-step":
        named = "two-step-without-qr"
    names = methods or [named]
    bases = {name: preset_method(preset, given["problem"], name) for name in names}
    # With or without QR: the name of the method says it.
    wanted = {key: value for key, value in wanted.items() if (key, value) != ("orthonormalise", "none")}
    wanted.pop("kind", None)
    used = {name: _usable(base, wanted, alone=len(bases) == 1) for name, base in bases.items()}
    _check_used(wanted, list(used.values()))
    data = {"validation_share": 0.0} if preset == "paper" else {}
    outer = merge({"data": data}, {key: value for key, value in given.items() if key != "method"})
    return [
        make_config(
            outer
            | {"preset": preset, "method": merge(_with_iterations(to_values(bases[name]), iterations), used[name])}
        )
        for name in names
    ]


def _with_iterations(values: dict[str, Any], iterations: int | None) -> dict[str, Any]:
    """`--iterations` for each step that a minimiser takes; exchanges of active neurons are another unit."""
    if iterations is None:
        return values
    has_iterations = "iterations" in values and values.get("kind") != "active-neurons"
    changed = {
        key: _with_iterations(value, iterations) if isinstance(value, dict) else value
        for key, value in values.items()
    }
    return changed | ({"iterations": iterations} if has_iterations else {})


def _usable(base: AbstractMethod, wanted: dict[str, Any], *, alone: bool) -> dict[str, Any]:
    """The wanted settings that this method has; all of them where it is the only one, so that errors show."""
    is_without_qr = base.name == "two-step-without-qr"
    if alone and is_without_qr and "orthonormalise" in wanted:
        raise SettingError("setting 'orthonormalise' has no effect on two-step-without-qr; leave it out")
    if alone:
        return wanted
    values, usable = to_values(base), {}
    for path, value in leaves(wanted):
        if is_without_qr and path[0] == "orthonormalise":
            continue
        one: dict[str, Any] = {}
        put(one, list(path), value)
        try:
            from_values(type(base), merge(values, merge(usable, one)))
        except SettingError:
            continue
        usable = merge(usable, one)
    return usable


def _check_used(wanted: dict[str, Any], used: list[dict[str, Any]]) -> None:
    """Every setting must matter to at least one of the methods."""
    known = {path for each in used for path, _ in leaves(each)}
    for path, _ in leaves(wanted):
        if path not in known:
            raise SettingError(f"setting {'.'.join(path)!r} does not exist in any of the methods compared")


def leaves(values: dict[str, Any], prefix: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """All settings of nested values with their paths, kinds first."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in sorted(values.items(), key=lambda item: item[0] != "kind"):
        is_section = isinstance(value, dict) and value
        found += leaves(value, (*prefix, name)) if is_section else [((*prefix, name), value)]
    return found


# -- from the options of the command line


def resolve(
    target: str,
    *,
    methods: list[str] | None,
    preset: str | None,
    seed: int | None,
    samples: int | None,
    iterations: int | None,
    settings: list[str],
) -> list[RunConfig]:
    """Return one configuration per method for a problem or a configuration file.

    In increasing priority: defaults, preset, configuration file, options, `--set`.
    """
    given: dict[str, Any] = {"problem": target}
    if target.endswith(".toml"):
        if not Path(target).is_file():
            raise absent(target)
        given = nested(read_toml(target))
    elif Path(target).exists() and target not in problem_names():
        raise UsageError(f"{target} is not a problem; if it has data, train with: trunkfirst fit {target}")
    for key, value in (("seed", seed), ("data.samples", samples)):
        if value is not None:
            put(given, key.split("."), value)
    if "method" in given:
        given["method"] = _with_iterations(given["method"], iterations)
    return problem_configs(
        merge(given, parse_settings(settings)), methods=methods, preset=preset, iterations=iterations
    )


def fit_values(
    data: Path | None,
    config: Path | None,
    *,
    minutes: float,
    test_share: float | None,
    seed: int | None,
    settings: list[str],
    keys: dict[str, str],
) -> dict[str, Any]:
    """Return the settings of a fit: those of the file `config`, then the options, then `--set`."""
    options = {"file": None if data is None else str(data), "test_share": test_share, "keys": keys or None}
    given: dict[str, Any] = {"data": {name: value for name, value in options.items() if value is not None}}
    given |= {} if seed is None else {"seed": seed}
    usual = {"minutes": minutes, "intervals": True, "preset": "own-data"}
    values = merge(usual, nested({} if config is None else read_toml(config)))
    values = merge(merge(values, given), parse_settings(settings))
    if values.get("data", {}).get("file") is None:
        raise SettingError("no data: give --data FILE, or data.file in the configuration")
    return values


@dc.dataclass(frozen=True)
class Grid:
    """The configurations of a sweep and the settings in which they differ, both by the names of the runs."""

    configs: Mapping[str, RunConfig]
    settings: Mapping[str, Mapping[str, Any]]


def make_grid(values: dict[str, Any]) -> Grid:
    """All combinations of the lists in the section `sweep` of `values`, each with the other values.

    Raises:
        SettingError: The section or a setting is wrong or has no effect, or there are too many combinations.
        ValueRangeError: A value is out of range.
        UnknownNameError: There is no such problem.
    """
    given = {name: value for name, value in values.items() if name != "sweep"}
    lists = _check_lists(values.get("sweep"))
    count = math.prod(len(items) for items in lists.values())
    if count > _MAX_RUNS:
        raise SettingError(
            f"[sweep] asks for {count:,} runs, but at most {_MAX_RUNS:,} are allowed; leave some values out"
        )
    combinations = [dict(zip(lists, items, strict=True)) for items in itertools.product(*lists.values())]
    configs = [_combined(given, combination) for combination in combinations]
    names = _run_names(combinations)
    return Grid(dict(zip(names, configs, strict=True)), dict(zip(names, combinations, strict=True)))


def _check_lists(section: object) -> dict[str, list[Any]]:
    """The section, checked, as lists by dotted setting; `trunk.width` may be one key or two."""
    if not isinstance(section, dict) or not section:
        raise SettingError(f"the section [sweep], with the settings to vary, is missing; {_EXAMPLE}")
    lists = {".".join(path): items for path, items in leaves(section)}
    for key, items in lists.items():
        if not isinstance(items, list) or not items:
            raise SettingError(f"sweep.{key} is {items!r}; expected a list of values, {_EXAMPLE}")
        if any(items.count(item) > 1 for item in items):
            raise SettingError(f"sweep.{key} has a value twice: {items}")
    if _SHORT_WIDTH in lists and not all(type(item) is int and item > 0 for item in lists[_SHORT_WIDTH]):
        raise ValueRangeError(f"sweep.width is {lists[_SHORT_WIDTH]}; expected whole numbers from 1")
    if {_SHORT_WIDTH, "trunk.width"} <= set(lists):
        raise SettingError("sweep.width is short for sweep.trunk.width; give one of them")
    return lists


def _combined(given: dict[str, Any], combination: dict[str, Any]) -> RunConfig:
    wanted = copy.deepcopy(given)
    for key, value in combination.items():
        put(wanted, ["trunk", "width"] if key == _SHORT_WIDTH else key.split("."), value)
    wanted = nested(wanted)
    config = make_config(wanted) if "problem" not in wanted else problem_configs(wanted)[0]
    if config.data.validation_share > 0 and "hold_validation" not in wanted.get("data", {}):
        config = dc.replace(config, data=dc.replace(config.data, hold_validation=True))
    return config


def _run_names(combinations: list[dict[str, Any]]) -> list[str]:
    """`width=20,encoder=log,seed=0`: short keys if unique, and characters that every file system allows."""
    keys = list(combinations[0])
    ends = [key.rpartition(".")[2] for key in keys]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    names: list[str] = []
    for combination in combinations:
        text = ",".join(f"{short[key]}={setting_text(value)}" for key, value in combination.items())
        name = re.sub(r"[^A-Za-z0-9.+=,_-]+", "-", text)[:_MAX_NAME].rstrip(".")
        names.append(f"{name}-run{len(names) + 1}" if name in names else name)
    return names
