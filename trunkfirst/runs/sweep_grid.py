"""The grid of a sweep: from a configuration with a section [sweep] to the configurations of all its runs."""

import copy
import dataclasses as dc
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from ..data import AnyData
from ..errors import SettingError, UnknownNameError, ValueRangeError
from ..networks import BASES
from ..problems import problem_names
from ._config import RunConfig, check_used, make_config, merge, put, updated
from ._own_data import with_own_values
from ._prepare import prepare
from ._presets import preset_values

_WIDTH = "width"
_MAX_RUNS = 1000
_MAX_NAME = 150
_EXAMPLE = "e.g. [sweep] width = [20, 40] and seed = [0, 1, 2]"

Values = dict[str, Any]


@dc.dataclass(frozen=True)
class Grid:
    """The configurations of a sweep and the settings in which they differ, both by the names of the runs."""

    configs: Mapping[str, RunConfig]
    settings: Mapping[str, Mapping[str, Any]]


def make_grid(values: Values) -> Grid:
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
        raise SettingError(f"[sweep] asks for {count:,} runs; at most {_MAX_RUNS:,}, so leave some values out")
    combinations = [dict(zip(lists, items, strict=True)) for items in itertools.product(*lists.values())]
    files: dict[str, AnyData] = {}
    configs = [_config(given, combination, files) for combination in combinations]
    check_used(configs, (set(_flat(given)) | set(lists)) - {_WIDTH})
    names = _names(combinations)
    return Grid(dict(zip(names, configs, strict=True)), dict(zip(names, combinations, strict=True)))


def _check_lists(section: object) -> dict[str, list[Any]]:
    """The section, checked, as lists by dotted setting; `branch.encoder` may be one key or two."""
    if not isinstance(section, dict) or not section:
        raise SettingError(f"there is no section [sweep] that says what to vary; {_EXAMPLE}")
    lists = _flat(section)
    for key, items in lists.items():
        if not isinstance(items, list) or not items:
            raise SettingError(f"sweep.{key} is {items!r}; expected a list of values, {_EXAMPLE}")
        if any(items.count(item) > 1 for item in items):
            raise SettingError(f"sweep.{key} names a value twice: {items}")
    if _WIDTH in lists and not all(type(item) is int and item > 0 for item in lists[_WIDTH]):
        raise ValueRangeError(f"sweep.width is {lists[_WIDTH]}; expected whole numbers from 1")
    for key in {"trunk.architecture", "branch.architecture"} & set(lists):
        if _WIDTH in lists:
            raise SettingError(f"sweep.width is the last number of sweep.{key}; vary one of them")
    return lists


def _flat(section: Values, prefix: str = "") -> Values:
    flat: Values = {}
    for name, value in section.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _config(given: Values, combination: Values, files: dict[str, AnyData]) -> RunConfig:
    wanted = copy.deepcopy(given)
    for key, value in combination.items():
        if key != _WIDTH:
            put(wanted, key.split("."), value)
    config = make_config(_with_defaults(wanted, files))
    config = _with_fitting_networks(config, wanted.get("branch", {}), combination.get(_WIDTH))
    if config.data.validation_share > 0 and "hold_validation" not in wanted.get("data", {}):
        config = updated(config, {"data": {"hold_validation": True}})
    return config


def _with_defaults(wanted: Values, files: dict[str, AnyData]) -> Values:
    """Add what follows from the problem and the preset, or from the data file; `files` is a cache."""
    problem = wanted.get("problem")
    if problem is None:
        config = make_config(wanted)
        if repr(config.data) not in files:
            files[repr(config.data)] = prepare(config).data
        return with_own_values(wanted, files[repr(config.data)])
    if problem not in problem_names():
        raise UnknownNameError("problem", str(problem), problem_names())
    return merge(preset_values(wanted.get("preset", "fast"), problem), wanted)


def _with_fitting_networks(config: RunConfig, branch_given: Values, width: int | None) -> RunConfig:
    """Fit the first and last width of the branch to its encoder and to the trunk, unless it is set."""
    trunk, branch = config.trunk.architecture, config.branch.architecture
    if width is not None:
        trunk = (*trunk[:-1], width)
    if width is not None or "architecture" not in branch_given:
        branch = (*branch[:-1], trunk[-1] + 1)
    if "architecture" not in branch_given:
        name, _, count = config.branch.encoder.partition(":")
        branch = (int(count) if name in BASES and count.isdecimal() else branch[0], *branch[1:])
    return updated(config, {"trunk": {"architecture": trunk}, "branch": {"architecture": branch}})


def _names(combinations: list[Values]) -> list[str]:
    """`width=20,encoder=log,seed=0`: short keys if unique, and characters that every file system allows."""
    keys = list(combinations[0])
    ends = [key.rpartition(".")[2] for key in keys]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    names: list[str] = []
    for combination in combinations:
        text = ",".join(f"{short[key]}={setting_text(value)}" for key, value in combination.items())
        name = re.sub(r"[^A-Za-z0-9.+=,_-]+", "-", text)[:_MAX_NAME].rstrip(".")
        names.append(name if name not in names else f"{name}-run{len(names) + 1}")
    return names


def setting_text(value: Any) -> str:
    """A value as text; an architecture as 2x50x20."""
    if isinstance(value, (list, tuple)):
        return "x".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
