"""From command-line options to configurations."""

from pathlib import Path
from typing import Any, get_args

from ..errors import UnknownNameError, UsageError
from ..files import read_toml
from ..problems import problem_names
from ..runs import MethodName, RunConfig, check_used, make_config, merge, parse_setting, preset_values, put


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
        given = read_toml(target)
    for key, value in (("seed", seed), ("data.samples", samples)):
        if value is not None:
            put(given, key.split("."), value)
    overrides = _apply(settings, {})
    wanted = merge(given, overrides)
    problem = _known("problem", wanted.get("problem"), problem_names())
    base = preset_values(preset or wanted.get("preset", "fast"), problem)
    kind = merge(base, wanted).get("branch", {}).get("kind")
    values = merge(merge(merge(base, given), _iterations(iterations, kind)), overrides)
    values["preset"] = base["preset"]
    methods = methods or [values.get("method", "two-step")]
    configs = [make_config({**values, "method": _known("method", each, get_args(MethodName))}) for each in methods]
    check_used(configs, _dotted(wanted))
    return configs


def fit_values(
    data: Path | None,
    config: Path | None,
    *,
    test_share: float | None,
    seed: int | None,
    settings: list[str],
    keys: dict[str, str],
) -> dict[str, Any]:
    """Return the settings of a fit: those of the file `config`, then the options, then `--set`."""
    options = {"file": None if data is None else str(data), "test_share": test_share, "keys": keys or None}
    given = {"data": {name: value for name, value in options.items() if value is not None}}
    values = merge({} if config is None else read_toml(config), given | ({} if seed is None else {"seed": seed}))
    return _apply(settings, values)


def _apply(settings: list[str], values: dict[str, Any]) -> dict[str, Any]:
    for text in settings:
        place, value = parse_setting(text)
        put(values, place, value)
    return values


def _known(kind: str, name: Any, known: tuple[str, ...]) -> str:
    if name not in known:
        raise UnknownNameError(kind, str(name), known)
    return name


def _iterations(iterations: int | None, kind: str | None) -> dict[str, Any]:
    """`--iterations` applies to each step with a minimiser; active neurons have no iterations but exchanges."""
    steps = ["trunk"] if kind == "active-neurons" else ["trunk", "branch"]
    return {} if iterations is None else {step: {"iterations": iterations} for step in steps}


def _dotted(values: dict[str, Any], prefix: str = "") -> set[str]:
    keys: set[str] = set()
    for name, value in values.items():
        keys |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
    return keys


def default_folder(name: str) -> Path:
    """Return `runs/NAME`, or `runs/NAME-2` and so on if that exists."""
    folder, count = Path("runs") / name, 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder
