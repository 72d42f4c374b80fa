"""`trunkfirst fit`."""

from pathlib import Path
from typing import Any

from ..distributed.processes import is_leader, join_processes
from ..errors import SettingError
from ..files import read_toml, verify_run
from ..runs import fit_own, merge, parse_setting, put
from ._console import TerminalReporter
from ._run import show_outcome


def fit_command(
    *,
    data: Path | None,
    config: Path | None,
    minutes: float,
    test_share: float | None,
    earlier: Path | None,
    seed: int | None,
    settings: list[str],
    keys: list[str],
    out: Path,
    json: bool,
    quiet: bool,
) -> int:
    """Train on a file and write a run folder."""
    join_processes()
    quiet = quiet or not is_leader()
    given = _given(data, config, test_share, seed, settings, keys)
    if earlier is not None:
        verify_run(earlier)
    with TerminalReporter(quiet=quiet or json) as reporter:
        outcome = fit_own(given, out, minutes=minutes, earlier=earlier, reporter=reporter)
    return show_outcome(outcome, json=json, quiet=quiet)


def _given(
    data: Path | None,
    config: Path | None,
    test_share: float | None,
    seed: int | None,
    settings: list[str],
    keys: list[str],
) -> dict[str, Any]:
    """What was set by hand: the file, then the options, then --set."""
    values: dict[str, Any] = {} if config is None else read_toml(config)
    options: dict[str, Any] = {"data": {}}
    if test_share is not None:
        options["data"]["test_share"] = test_share
    if data is not None:
        options["data"]["file"] = str(data)
    if keys:
        options["data"]["keys"] = dict(_pair(text) for text in keys)
    if seed is not None:
        options["seed"] = seed
    values = merge(values, options)
    for text in settings:
        place, value = parse_setting(text)
        put(values, place, value)
    return values


def _pair(text: str) -> tuple[str, str]:
    ours, separator, theirs = text.partition("=")
    if not separator:
        raise SettingError(f"--key {text!r}: expected KEY=NAME, e.g. --key inputs=a")
    return ours, theirs
