"""Read a run directory into a frozen record. Files only: nothing is trained, no JAX is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from jaxtyping import Float, Int

from ..errors import CorruptFileError
from ..files import read_json, read_npz, read_text, read_toml
from ._history import Curve, number, over_iterations, over_seconds, read_anls, read_history

_LABEL = "labels."
_EXAMPLES = ("example_target", "example_prediction")
_WORST = ("indices", "channels", "points", "targets", "predictions")


@dataclass(frozen=True, eq=False)
class Sample:
    """A test sample in full: what was to be found and what was, in one of the output channels."""

    index: int
    channel: int
    points: Float[np.ndarray, "points coordinates"]
    target: Float[np.ndarray, " points"]
    prediction: Float[np.ndarray, " points"]


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
    # Example: of several output channels the first
    channels: int
    example_index: int | None
    example_target: Float[np.ndarray, " points"] | None
    example_prediction: Float[np.ndarray, " points"] | None
    example_input: Float[np.ndarray, " sensors"] | None
    worst: tuple[Sample, ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """One method with one seed."""

    metrics: Mapping[str, object]
    # Losses by step (trunk, branch, monolithic) against iterations and seconds; active neurons as they go
    history: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    clock: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    anls: Mapping[str, Curve] = field(default_factory=dict[str, Curve])
    # Everything else that was written
    evaluation: Evaluation | None = None
    config_text: str = ""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    environment: Mapping[str, object] = field(default_factory=dict[str, object])
    # Where the error comes from, if somebody asked: numbers, and squared parts of every test sample
    diagnosis: Mapping[str, object] = field(default_factory=dict[str, object])
    budget: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

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

    @property
    def status(self) -> str:
        return str(self.metrics.get("status") or "finished")

    @property
    def training_seconds(self) -> float | None:
        """Seconds of all steps of the training, without data, choice of encoder and evaluation."""
        trunk = self.number("trunk", "seconds")
        return None if trunk is None else trunk + (self.number("branch", "seconds") or 0.0)

    def number(self, *keys: str) -> float | None:
        """The metric at the end of `keys`, or None when any key is missing, null or no number."""
        return number(self.metrics, *keys)


def read_run(directory: Path) -> Run:
    """Read one run directory; only `metrics.json` must be there."""
    config = directory / "config.toml"
    metrics = read_mapping(directory / "metrics.json")
    steps = read_history(directory / "history.jsonl")
    return Run(
        metrics=metrics,
        history=over_iterations(steps),
        clock=over_seconds(steps, metrics),
        anls=read_anls(directory / "anls.npz"),
        evaluation=_read_evaluation(directory / "evaluation.npz"),
        config_text=read_text(config) if config.is_file() else "",
        config=read_toml(config) if config.is_file() else {},
        environment=read_mapping(directory / "environment.json"),
        diagnosis=read_mapping(directory / "diagnosis.json"),
        budget=read_npz(budget) if (budget := directory / "diagnosis.npz").is_file() else {},
    )


def read_mapping(path: Path) -> Mapping[str, object]:
    """A JSON object, or an empty one when there is no such file."""
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, Mapping):
        raise CorruptFileError(f"{path} holds a {type(content).__name__}; expected a JSON object. Run again.")
    return cast("Mapping[str, object]", content)


def _read_evaluation(path: Path) -> Evaluation | None:
    try:
        return _evaluation(path, read_npz(path)) if path.is_file() else None
    except (TypeError, ValueError, IndexError) as error:
        raise CorruptFileError(f"{path} holds no evaluation: {error}. Evaluate the run again.") from error


def _evaluation(path: Path, arrays: dict[str, np.ndarray]) -> Evaluation | None:
    if "errors" not in arrays or arrays["errors"].size == 0:
        return None
    several = [key for key in _EXAMPLES if key in arrays and arrays[key].ndim == 2]
    channels = max((arrays[key].shape[1] for key in several), default=1)
    arrays |= {key: arrays[key][:, 0] for key in several}
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
        channels=channels,
        example_target=_floats(arrays, "example_target"),
        example_prediction=_floats(arrays, "example_prediction"),
        example_input=_floats(arrays, "example_input"),
        worst=_read_worst(path, arrays),
    )


def _read_worst(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[Sample, ...]:
    """The worst samples, each at the points it has."""
    if any(f"worst_{name}" not in arrays for name in _WORST):
        return ()
    indices, channels, points, targets, predictions = (arrays[f"worst_{name}"] for name in _WORST)
    if targets.shape != predictions.shape or points.shape[:2] != targets.shape or len(indices) != len(targets):
        raise CorruptFileError(f"{path}: the worst samples have arrays that do not fit. Evaluate the run again.")
    known = np.isfinite(points.sum(axis=2))
    return tuple(
        Sample(int(index), int(channel), *(array[k][known[k]] for array in (points, targets, predictions)))
        for k, (index, channel) in enumerate(zip(indices, channels, strict=True))
    )


def _floats(arrays: Mapping[str, np.ndarray], key: str) -> np.ndarray | None:
    return np.asarray(arrays[key], dtype=np.float64) if key in arrays else None


def _check_sizes(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays that belong together must have the same length, and triangles name points that exist."""
    samples, points = arrays["errors"].size, len(arrays.get("points", ()))
    expected = dict.fromkeys(("errors", "optimal_errors"), samples)
    expected |= {key: samples for key in arrays if key.startswith(_LABEL)}
    expected |= dict.fromkeys(_EXAMPLES, points)
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
