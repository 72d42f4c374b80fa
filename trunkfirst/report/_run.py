"""Read a run directory into a frozen record. Files only: nothing is trained, no JAX is imported."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from ..errors import CorruptFileError
from ..files import read_json, read_npz, read_toml

_LABEL = "labels."


@dataclass(frozen=True, eq=False)
class Curve:
    """A training history: the loss at each recorded iteration, and the best loss up to there."""

    iterations: Float[np.ndarray, " steps"]
    losses: Float[np.ndarray, " steps"]
    best_losses: Float[np.ndarray, " steps"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Test errors of one run, sample by sample, and one test sample to be drawn as a map."""

    # Relative l2 errors
    errors: Float[np.ndarray, " samples"]
    optimal_errors: Float[np.ndarray, " samples"] | None
    labels: Mapping[str, Float[np.ndarray, " samples"]]
    # Mesh
    points: Float[np.ndarray, "points coordinates"] | None
    triangles: Int[np.ndarray, "triangles 3"] | None
    # Example
    example_index: int | None
    example_target: Float[np.ndarray, " points"] | None
    example_prediction: Float[np.ndarray, " points"] | None
    example_input: Float[np.ndarray, " sensors"] | None


@dataclass(frozen=True, eq=False)
class Run:
    """One method with one seed."""

    metrics: Mapping[str, object]
    history: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    evaluation: Evaluation | None = None
    config_text: str = ""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    environment: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def problem(self) -> str:
        return str(self.metrics.get("problem") or "unnamed data")

    @property
    def method(self) -> str:
        return str(self.metrics.get("method") or "unnamed method")

    @property
    def seed(self) -> int:
        seed = self.metrics.get("seed")
        return seed if isinstance(seed, int) else 0

    def number(self, *keys: str) -> float | None:
        """The metric at the end of `keys`, or None when any key is missing, null or no number."""
        return number(self.metrics, *keys)


def number(mapping: object, *keys: str) -> float | None:
    """The number at the end of a path of keys in nested mappings, else None."""
    for key in keys:
        if not isinstance(mapping, Mapping):
            return None
        mapping = cast("Mapping[str, object]", mapping).get(key)
    if isinstance(mapping, bool) or not isinstance(mapping, (int, float)):
        return None
    return float(mapping)


def read_run(directory: Path) -> Run:
    """Read one run directory; only `metrics.json` must be there."""
    config = directory / "config.toml"
    return Run(
        metrics=read_mapping(directory / "metrics.json"),
        history=_read_history(directory / "history.jsonl"),
        evaluation=_read_evaluation(directory / "evaluation.npz"),
        config_text=config.read_text(encoding="utf-8") if config.is_file() else "",
        config=read_toml(config) if config.is_file() else {},
        environment=read_mapping(directory / "environment.json"),
    )


def read_mapping(path: Path) -> Mapping[str, object]:
    """A JSON object, or an empty one when there is no such file."""
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, Mapping):
        raise CorruptFileError(f"{path} holds a {type(content).__name__}; expected a JSON object. Run again.")
    return cast("Mapping[str, object]", content)


def _read_history(path: Path) -> dict[str, Curve]:
    """Curves by stage. The last line may be cut short, as a stopped run leaves it."""
    if not path.is_file():
        return {}
    stages: dict[str, list[Mapping[str, object]]] = {}
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines, start=1):
        entry = _parse_line(path, line, place, is_last=place == len(lines))
        if entry is not None:
            stages.setdefault(str(entry.get("stage")), []).append(entry)
    return {stage: _curve(entries) for stage, entries in stages.items()}


def _parse_line(path: Path, line: str, place: int, *, is_last: bool) -> Mapping[str, object] | None:
    try:
        entry: object = json.loads(line) if line.strip() else None
    except json.JSONDecodeError as error:
        if is_last:
            return None
        raise CorruptFileError(f"{path}, line {place}: not JSON ({error.msg}). Run again.") from error
    return cast("Mapping[str, object]", entry) if isinstance(entry, Mapping) else None


def _curve(entries: Sequence[Mapping[str, object]]) -> Curve:
    def column(key: str) -> Float[np.ndarray, " steps"]:
        values = [number(entry, key) for entry in entries]
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)

    iterations, losses, best = column("iteration"), column("loss"), column("best_loss")
    return Curve(iterations, losses, np.where(np.isfinite(best), best, _running_best(losses)))


def _running_best(losses: Float[np.ndarray, " steps"]) -> Float[np.ndarray, " steps"]:
    """Smallest finite loss so far; NaN before the first finite one."""
    best = np.minimum.accumulate(np.where(np.isfinite(losses), losses, np.inf))
    return np.where(np.isfinite(best), best, np.nan)


def _read_evaluation(path: Path) -> Evaluation | None:
    if not path.is_file():
        return None
    arrays = read_npz(path)
    if "errors" not in arrays or arrays["errors"].size == 0:
        return None
    _check_sizes(path, arrays)
    return Evaluation(
        errors=np.asarray(arrays["errors"], dtype=np.float64),
        optimal_errors=_floats(arrays, "optimal_errors"),
        labels={
            key.removeprefix(_LABEL): np.asarray(value, dtype=np.float64)
            for key, value in arrays.items()
            if key.startswith(_LABEL)
        },
        points=_floats(arrays, "points"),
        triangles=np.asarray(arrays["triangles"], np.int64) if "triangles" in arrays else None,
        example_index=int(arrays["example_index"]) if "example_index" in arrays else None,
        example_target=_floats(arrays, "example_target"),
        example_prediction=_floats(arrays, "example_prediction"),
        example_input=_floats(arrays, "example_input"),
    )


def _floats(arrays: Mapping[str, np.ndarray], key: str) -> np.ndarray | None:
    return np.asarray(arrays[key], dtype=np.float64) if key in arrays else None


def _check_sizes(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays that belong together must have the same length, and triangles name points that exist."""
    samples, points = arrays["errors"].size, len(arrays.get("points", ()))
    expected = dict.fromkeys(("errors", "optimal_errors"), samples)
    expected |= {key: samples for key in arrays if key.startswith(_LABEL)}
    expected |= dict.fromkeys(("example_target", "example_prediction"), points)
    for name, length in expected.items():
        if name in arrays and arrays[name].shape != (length,):
            raise CorruptFileError(
                f"{path}: {name} has shape {arrays[name].shape}; expected ({length},). Evaluate the run again."
            )
    triangles = arrays.get("triangles")
    if triangles is not None and triangles.size and not 0 <= triangles.min() <= triangles.max() < points:
        raise CorruptFileError(
            f"{path}: triangles name points {triangles.min()} to {triangles.max()}; there are {points} "
            "points. "
            "Evaluate the run again."
        )
