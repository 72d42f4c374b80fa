"""Training histories: `history.jsonl` as curves over iterations and over seconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float

from ..errors import CorruptFileError
from ..files import parse_json, read_npz, read_text

Entry = Mapping[str, object]
_ANLS = ("iterations", "branch_losses", "test_errors")


@dataclass(frozen=True, eq=False)
class Curve:
    """A loss, and the best up to there, at places on an axis: iterations or seconds."""

    places: Float[np.ndarray, " steps"]
    losses: Float[np.ndarray, " steps"]
    best_losses: Float[np.ndarray, " steps"]


def number(mapping: object, *keys: str) -> float | None:
    """The number at the end of a path of keys in nested mappings, else None."""
    for key in keys:
        if not isinstance(mapping, Mapping):
            return None
        mapping = cast("Mapping[str, object]", mapping).get(key)
    if isinstance(mapping, bool) or not isinstance(mapping, (int, float)):
        return None
    return float(mapping)


def read_history(path: Path) -> dict[str, list[Entry]]:
    """Lines by step: trunk, branch or monolithic. The last line may be cut short, as a stopped run leaves it."""
    steps: dict[str, list[Entry]] = {}
    lines = read_text(path).splitlines() if path.is_file() else []
    for place, line in enumerate(lines, start=1):
        entry = _parse_line(path, line, place, is_last=place == len(lines))
        if entry is not None:
            steps.setdefault(_step_of(entry), []).append(entry)
    return steps


def over_iterations(steps: Mapping[str, Sequence[Entry]]) -> dict[str, Curve]:
    """Losses against iterations, by step."""
    return {step: _curve(entries, _column(entries, "iteration")) for step, entries in steps.items()}


def over_seconds(steps: Mapping[str, Sequence[Entry]], metrics: Entry) -> dict[str, Curve]:
    """Losses against the seconds since training began, by step.

    A step may have begun before its first line, as a trunk does with its several starts: what `metrics` count
    beyond the last line was spent before the first.
    """
    curves: dict[str, Curve] = {}
    done = 0.0
    for step, section in (("trunk", "trunk"), ("monolithic", "trunk"), ("branch", "branch")):
        if step in steps:
            curve = _curve(steps[step], _seconds(steps[step]))
            logged = float(curve.places[-1])
            spent = max(number(metrics, section, "seconds") or 0.0, logged)
            curves[step] = replace(curve, places=curve.places + done + spent - logged)
            done += spent
    return curves


def read_anls(path: Path) -> dict[str, Curve]:
    """Branch loss and test error against iterations of active-neuron least squares; empty where not recorded."""
    if not path.is_file():
        return {}
    arrays = read_npz(path)
    columns = [np.asarray(arrays.get(name, np.empty(0)), np.float64) for name in _ANLS]
    iterations, losses, errors = columns
    if not iterations.shape == losses.shape == errors.shape or iterations.ndim != 1 or not iterations.size:
        raise CorruptFileError(f"{path}: expected {', '.join(_ANLS)} of one length. Run again.")
    return {"loss": Curve(iterations, losses, losses), "error": Curve(iterations, errors, errors)}


def _step_of(entry: Entry) -> str:
    """The step a line belongs to: a trunk may be continued as `trunk, ridge 1e-05`."""
    return str(entry.get("stage")).partition(",")[0]


def _parse_line(path: Path, line: str, place: int, *, is_last: bool) -> Entry | None:
    try:
        entry: object = parse_json(line, "it") if line.strip() else None
    except CorruptFileError as error:
        if is_last:
            return None
        raise CorruptFileError(f"{path}, line {place}: not JSON ({error}). Run again.") from error
    return cast("Entry", entry) if isinstance(entry, Mapping) else None


def _curve(entries: Sequence[Entry], places: Float[np.ndarray, " steps"]) -> Curve:
    losses, best = _column(entries, "loss"), _column(entries, "best_loss")
    return Curve(places, losses, np.where(np.isfinite(best), best, _running_best(losses)))


def _seconds(entries: Sequence[Entry]) -> Float[np.ndarray, " steps"]:
    """Seconds start anew with every stage (iterations go on): here they go on where the stage before ended."""
    values = _column(entries, "seconds")
    for place in range(1, len(entries)):
        if entries[place].get("stage") != entries[place - 1].get("stage"):
            values[place:] += values[place - 1]
    return values


def _column(entries: Sequence[Entry], key: str) -> Float[np.ndarray, " steps"]:
    values = [number(entry, key) for entry in entries]
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _running_best(losses: Float[np.ndarray, " steps"]) -> Float[np.ndarray, " steps"]:
    """Smallest finite loss so far; NaN before the first finite one."""
    best = np.minimum.accumulate(np.where(np.isfinite(losses), losses, np.inf))
    return np.where(np.isfinite(best), best, np.nan)
