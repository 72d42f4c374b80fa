"""The grid of a sweep: from a configuration with a section [sweep] to the configurations of all its runs."""

import copy
import dataclasses as dc
import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from ..errors import SettingError, ValueRangeError
from ..settings import put
from .config import RunConfig, make_config, nested, problem_configs

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
    configs = [_config(given, combination) for combination in combinations]
    names = _names(combinations)
    return Grid(dict(zip(names, configs, strict=True)), dict(zip(names, combinations, strict=True)))


def _check_lists(section: object) -> dict[str, list[Any]]:
    """The section, checked, as lists by dotted setting; `trunk.width` may be one key or two."""
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
    if {_WIDTH, "trunk.width"} <= set(lists):
        raise SettingError("sweep.width is short for sweep.trunk.width; give one of them")
    return lists


def _flat(section: Values, prefix: str = "") -> Values:
    flat: Values = {}
    for name, value in section.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _config(given: Values, combination: Values) -> RunConfig:
    wanted = copy.deepcopy(given)
    for key, value in combination.items():
        put(wanted, ["trunk", "width"] if key == _WIDTH else key.split("."), value)
    wanted = nested(wanted)
    config = make_config(wanted) if "problem" not in wanted else problem_configs(wanted)[0]
    if config.data.validation_share > 0 and "hold_validation" not in wanted.get("data", {}):
        config = dc.replace(config, data=dc.replace(config.data, hold_validation=True))
    return config


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
    """A value as text; hidden widths as 50x50, a record by its kind and values."""
    if isinstance(value, dict):
        return "-".join(map(setting_text, value.values()))
    if isinstance(value, (list, tuple)):
        return "x".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
