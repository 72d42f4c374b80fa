"""From command-line options to configurations."""

from pathlib import Path
from typing import Any

from ..errors import UnknownNameError, UsageError
from ..runs import Reporter, RunConfig, make_config, merge, parse_setting, preset_values, put


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
    """One configuration a method.

    In rising order of force: defaults, preset, configuration file, options, `--set`.
    """
    from ..problems import problem_names
    from ..runs import check_used

    given = _read(target)
    for key, value in (("seed", seed), ("data.samples", samples)):
        if value is not None:
            put(given, key.split("."), value)
    overrides: dict[str, Any] = {}
    for text in settings:
        place, value = parse_setting(text)
        put(overrides, place, value)
    wanted = merge(given, overrides)
    problem = wanted.get("problem")
    if problem not in problem_names():
        raise UnknownNameError("problem", str(problem), problem_names())
    base = preset_values(preset or wanted.get("preset", "fast"), problem)
    kind = merge(base, wanted).get("branch", {}).get("kind")
    values = merge(merge(merge(base, given), _iterations(iterations, kind)), overrides)
    values["preset"] = base["preset"]
    methods = methods or [values.get("method", "two-step")]
    configs = [make_config({**values, "method": _known(method)}) for method in methods]
    check_used(configs, _dotted(wanted))
    return configs


def _iterations(iterations: int | None, kind: str | None) -> dict[str, Any]:
    """`--iterations` for each step that a minimiser takes; exchanges of active neurons are another unit."""
    steps = ["trunk"] if kind == "active-neurons" else ["trunk", "branch"]
    return {} if iterations is None else {step: {"iterations": iterations} for step in steps}


def _read(target: str) -> dict[str, Any]:
    from ..files import read_toml

    if not target.endswith(".toml"):
        return {"problem": target}
    if not Path(target).is_file():
        raise UsageError(f"there is no configuration file {target}")
    return read_toml(target)


def _known(method: str) -> str:
    from typing import get_args

    from ..runs import MethodName

    if method not in get_args(MethodName):
        raise UnknownNameError("method", method, get_args(MethodName))
    return method


def _dotted(values: dict[str, Any], prefix: str = "") -> set[str]:
    keys: set[str] = set()
    for name, value in values.items():
        keys |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name}
    return keys


def prepare_on_cluster(config: RunConfig, scheduler: str | None, reporter: Reporter) -> None:
    """Let a cluster, if there is one, make the data, which the run then finds in the cache."""
    from ..runs import prepare

    if scheduler is not None:
        prepare(config, scheduler=scheduler, reporter=reporter)


def default_folder(name: str) -> Path:
    """`runs/NAME`, or `runs/NAME-2` and so on where that is taken."""
    folder = Path("runs") / name
    count = 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder
