"""From command-line options to configurations."""

from pathlib import Path
from typing import Any

from ..errors import SettingError, UsageError
from ..files.text_files import read_toml
from ..runs.config import RunConfig, nested, parse_settings, problem_configs
from ..settings import merge, put


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
            raise UsageError(f"there is no configuration file {target}")
        given = nested(read_toml(target))
    for key, value in (("seed", seed), ("data.samples", samples)):
        if value is not None:
            put(given, key.split("."), value)
    if iterations is not None and "method" in given:
        given["method"] = _with_iterations(given["method"], iterations)
    return problem_configs(
        merge(given, parse_settings(settings)), methods=methods, preset=preset, iterations=iterations
    )


def _with_iterations(values: dict[str, Any], iterations: int) -> dict[str, Any]:
    """The method of a file with the iterations of the option; exchanges of active neurons are another unit."""
    changed = {
        key: _with_iterations(value, iterations) if isinstance(value, dict) else value
        for key, value in values.items()
    }
    has_iterations = "iterations" in values and values.get("kind") != "active-neurons"
    return changed | ({"iterations": iterations} if has_iterations else {})


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


def default_folder(name: str) -> Path:
    """Return `runs/NAME`, or `runs/NAME-2` and so on if that exists."""
    folder, count = Path("runs") / name, 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder
