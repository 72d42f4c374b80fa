"""From a configuration with a section [sweep] to the configurations of all its runs."""

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

WIDTH = "width"
_MOST_RUNS = 1000
_LONGEST_NAME = 150
_EXAMPLE = "e.g. [sweep] width = [20, 40] and seed = [0, 1, 2]"

Values = dict[str, Any]


@dc.dataclass(frozen=True)
class Grid:
    """Configurations by the names of their runs, and the settings in which they differ, by the same names."""

    configs: Mapping[str, RunConfig]
    settings: Mapping[str, Mapping[str, Any]]


def make_grid(values: Values) -> Grid:
    """All combinations of the lists in the section `sweep` of `values`, each with the rest of them.

    What is wrong with a setting is told now, before anything is trained.
    """
    given = {name: value for name, value in values.items() if name != "sweep"}
    lists = _lists(values.get("sweep"))
    count = math.prod(len(items) for items in lists.values())
    if count > _MOST_RUNS:
        raise SettingError(f"[sweep] asks for {count:,} runs; at most {_MOST_RUNS:,}, so leave some values out")
    combinations = [dict(zip(lists, items, strict=True)) for items in itertools.product(*lists.values())]
    files = _Files()
    configs = [_config(given, combination, files) for combination in combinations]
    check_used(configs, (_dotted(given) | set(lists)) - {WIDTH})
    names = _names(combinations)
    return Grid(dict(zip(names, configs, strict=True)), dict(zip(names, combinations, strict=True)))


def _lists(section: object) -> dict[str, list[Any]]:
    """The section, checked, as lists by dotted settings: `branch.encoder` may be one key or two."""
    if not isinstance(section, dict) or not section:
        raise SettingError(f"there is no section [sweep] that says what to vary; {_EXAMPLE}")
    lists = _flat(section)
    for key, items in lists.items():
        if not isinstance(items, list) or not items:
            raise SettingError(f"sweep.{key} is {items!r}; expected a list of values, {_EXAMPLE}")
        if any(items.count(item) > 1 for item in items):
            raise SettingError(f"sweep.{key} names a value twice: {items}")
    if WIDTH in lists and not all(type(item) is int and item > 0 for item in lists[WIDTH]):
        raise ValueRangeError(f"sweep.width is {lists[WIDTH]}; expected whole numbers from 1")
    for key in {"trunk.architecture", "branch.architecture"} & set(lists):
        if WIDTH in lists:
            raise SettingError(f"sweep.width is the last number of sweep.{key}; vary one of them")
    return lists


def _flat(section: Values, prefix: str = "") -> Values:
    flat: Values = {}
    for name, value in section.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def _dotted(values: Values) -> set[str]:
    return set(_flat(values))


class _Files:
    """Data files, each read once; of shards that do not fit into memory, some samples."""

    def __init__(self) -> None:
        self._read: dict[str, AnyData] = {}

    def get(self, config: RunConfig) -> AnyData:
        """The samples that a configuration names."""
        text = repr(config.data)
        if text not in self._read:
            self._read[text] = prepare(config).data
        return self._read[text]


def _config(given: Values, combination: Values, files: _Files) -> RunConfig:
    wanted = copy.deepcopy(given)
    for key, value in combination.items():
        if key != WIDTH:
            put(wanted, key.split("."), value)
    config = make_config(_completed(wanted, files))
    config = _with_fitting_networks(config, wanted.get("branch", {}), combination.get(WIDTH))
    if config.data.validation_share > 0 and "hold_validation" not in wanted.get("data", {}):
        config = updated(config, {"data": {"hold_validation": True}})
    return config


def _completed(wanted: Values, files: _Files) -> Values:
    """With what follows from the problem and the preset, or from the file of data."""
    problem = wanted.get("problem")
    if problem is None:
        return with_own_values(wanted, files.get(make_config(wanted)))
    if problem not in problem_names():
        raise UnknownNameError("problem", str(problem), problem_names())
    return merge(preset_values(wanted.get("preset", "fast"), problem), wanted)


def _with_fitting_networks(config: RunConfig, branch_given: Values, width: int | None) -> RunConfig:
    """The branch ends where the trunk does and begins where its encoder ends, unless it is given by hand."""
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
    """`width=20,encoder=log,seed=0`: short keys where they are unique, and only what every file system takes."""
    keys = list(combinations[0])
    ends = [key.rpartition(".")[2] for key in keys]
    short = {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}
    names: list[str] = []
    for combination in combinations:
        text = ",".join(f"{short[key]}={setting_text(value)}" for key, value in combination.items())
        name = re.sub(r"[^A-Za-z0-9.+=,_-]+", "-", text)[:_LONGEST_NAME].rstrip(".")
        names.append(name if name not in names else f"{name}-run{len(names) + 1}")
    return names


def setting_text(value: Any) -> str:
    """A value as people write it: 2x50x20 for an architecture."""
    if isinstance(value, (list, tuple)):
        return "x".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
