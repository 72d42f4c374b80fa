"""Records that are written to the files of a run and read back by the report. Without JAX and matplotlib."""

import dataclasses as dc
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

import numpy as np
from jaxtyping import Float, Int

Values = Float[np.ndarray, " samples"]
_LABEL = "labels."
_AXES = {"points": 2, "triangles": 2, "example_index": 0, "example_input": 1}


def mapping_at(content: object, *keys: str) -> Mapping[str, object]:
    """The mapping at the end of a path of keys in nested mappings; an empty one where there is none."""
    for key in keys:
        content = cast("Mapping[str, object]", content).get(key) if isinstance(content, Mapping) else None
    return cast("Mapping[str, object]", content) if isinstance(content, Mapping) else {}


def number_at(content: object, *keys: str) -> float | None:
    """The number at the end of a path of keys in nested mappings; None where there is none."""
    value = mapping_at(content, *keys[:-1]).get(keys[-1])
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)


def numbers_at(content: object, *keys: str) -> list[float]:
    """The list of numbers at the end of a path of keys; an empty one where there is none."""
    values = mapping_at(content, *keys[:-1]).get(keys[-1])
    numbers = [number_at({"": value}, "") for value in values] if isinstance(values, list) else []
    return [number for number in numbers if number is not None]


@dc.dataclass(frozen=True)
class FlatRecord:
    """A record of texts, numbers and flags."""

    @classmethod
    def from_json(cls, entry: Mapping[str, object]) -> Self:
        """Read what a file has: a text that is missing is empty, a count 0, another number NaN or its default."""
        return cls(**{field.name: _read(field, entry) for field in dc.fields(cls)})


def _read(field: "dc.Field[Any]", entry: Mapping[str, object]) -> Any:
    value, number = entry.get(field.name), number_at(entry, field.name)
    default = None if field.default is dc.MISSING else field.default
    if field.type is str:
        return "" if value is None else str(value)
    if field.type is int:
        return 0 if number is None or not math.isfinite(number) else int(number)
    if field.type is float:
        return number if number is not None else math.nan if default is None else default
    return value if isinstance(value, bool) else default


# -- history.jsonl


@dc.dataclass(frozen=True)
class LogEntry(FlatRecord):
    """One line of `history.jsonl`: the progress of one stage of training."""

    stage: str
    iteration: int
    iterations: int
    loss: float
    best_loss: float
    rate: float
    seconds: float

    @property
    def step(self) -> str:
        """The step that the stage belongs to: `trunk` for `trunk, ridge 1e-05`."""
        return self.stage.partition(",")[0]

    def remaining_seconds(self, since: "LogEntry") -> float:
        """Time left at the pace since an earlier entry; the time before the first one is mostly compilation."""
        done = self.iteration - since.iteration
        pace = (self.seconds - since.seconds) / done if done else math.nan
        return pace * (self.iterations - self.iteration)


# -- claims.json and the part `chosen` of metrics.json


@dc.dataclass(frozen=True)
class Claim(FlatRecord):
    """A claim of the paper with the paper's number and ours; `holds` is None where it was not tested."""

    claim: str
    paper: str
    ours: str
    holds: bool | None


@dc.dataclass(frozen=True)
class CandidateSettings(FlatRecord):
    """The settings of one candidate of a search."""

    branch: str
    encoder: str
    weights: str
    decay: float = 0.0
    is_trained: bool = True
    """False for a network whose hidden layers were left as initialised."""


BASELINES = {"pca-ridge": "PCA + ridge", "pca-kernel-ridge": "PCA + kernel ridge"}
"""The kinds of baselines, and what people call them."""


@dc.dataclass(frozen=True)
class Baseline(FlatRecord):
    """A simple method on the same samples left out: `pca-ridge` or `pca-kernel-ridge`."""

    kind: str
    mean_relative_l2: float
    seconds: float


@dc.dataclass(frozen=True)
class Choice:
    """The chosen candidate and the mean relative validation error of every candidate, NaN where one failed."""

    name: str
    errors: Mapping[str, float]
    best_network: str | None = None
    candidates: Mapping[str, CandidateSettings] = dc.field(default_factory=dict[str, CandidateSettings])
    """The settings of the candidates by name; empty in files of version 0.1."""
    baseline: Sequence[Baseline] = ()
    """PCA with ridge and with kernel ridge, on the same samples."""

    @property
    def error(self) -> float:
        """Validation error of the chosen candidate."""
        return self.errors[self.name]

    def smallest(self, count: int = 10) -> dict[str, float]:
        """The smallest errors by name, those of the baselines too."""
        errors = dict(self.errors) | {BASELINES[each.kind]: each.mean_relative_l2 for each in self.baseline}
        return dict(
            sorted((each for each in errors.items() if each[1] == each[1]), key=lambda each: each[1])[:count]
        )

    @classmethod
    def from_json(cls, chosen: Mapping[str, object]) -> "Choice | None":
        """Read the part `chosen` of `metrics.json`; None where nothing was chosen."""
        name, network = chosen.get("candidate", chosen.get("encoder")), chosen.get("best_network")
        errors, candidates = mapping_at(chosen, "validation_errors"), mapping_at(chosen, "candidates")
        if not isinstance(name, str) or not errors:
            return None
        found = {key: number_at(errors, key) for key in errors}
        return cls(
            name,
            {key: math.nan if error is None else error for key, error in found.items()},
            network if isinstance(network, str) else None,
            {key: CandidateSettings.from_json(mapping_at(candidates, key)) for key in candidates},
        )


# -- evaluation.npz


@dc.dataclass(frozen=True, eq=False)
class SampleField:
    """Target and prediction of one test sample, in one output channel."""

    index: int
    channel: int
    points: Float[np.ndarray, "points coordinates"]
    target: Float[np.ndarray, " points"]
    prediction: Float[np.ndarray, " points"]


@dc.dataclass(frozen=True, eq=False)
class EvaluationRecord:
    """The arrays of `evaluation.npz` by their names there: test errors, an example and the worst samples."""

    errors: Values
    optimal_errors: Values | None = None
    points: Float[np.ndarray, "points coordinates"] | None = None
    # The example; target and prediction have a second axis where there are several output channels
    example_index: np.ndarray | None = None
    example_target: np.ndarray | None = None
    example_prediction: np.ndarray | None = None
    example_input: Float[np.ndarray, " sensors"] | None = None
    # The samples with the largest errors, worst first; points are padded with NaN
    worst_indices: Int[np.ndarray, " worst"] | None = None
    worst_inputs: Float[np.ndarray, "worst sensors"] | None = None
    worst_channels: Int[np.ndarray, " worst"] | None = None
    worst_points: Float[np.ndarray, "worst points coordinates"] | None = None
    worst_targets: Float[np.ndarray, "worst points"] | None = None
    worst_predictions: Float[np.ndarray, "worst points"] | None = None
    # Numbers that name the samples; errors against a finer solution; the mesh
    labels: Mapping[str, Values] = dc.field(default_factory=dict[str, Values])
    reference_errors: Values | None = None
    triangles: Int[np.ndarray, "triangles 3"] | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays to write, by name."""
        fields = {field.name: getattr(self, field.name) for field in dc.fields(self) if field.name != "labels"}
        found = {name: value for name, value in fields.items() if value is not None}
        return found | {f"{_LABEL}{name}": values for name, values in self.labels.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "EvaluationRecord":
        """Check the arrays of a file and take those that are known.

        Raises `ValueError` where arrays contradict each other.
        """
        known = {field.name for field in dc.fields(cls)} - {"labels"}
        found: dict[str, Any] = {name: _checked(name, array) for name, array in arrays.items() if name in known}
        labels = {
            name.removeprefix(_LABEL): np.asarray(array, np.float64)
            for name, array in arrays.items()
            if name.startswith(_LABEL)
        }
        record = cls(**found, labels=labels)
        record._check()
        return record

    @property
    def channels(self) -> int:
        """Number of output channels of the example."""
        return 1 if self.example_target is None or self.example_target.ndim == 1 else self.example_target.shape[1]

    @property
    def example(self) -> SampleField | None:
        """The example sample in its first channel; None where it is not complete."""
        return self.example_in(0)

    def example_in(self, channel: int) -> SampleField | None:
        """The example sample in one channel."""
        if self.points is None or self.example_target is None or self.example_prediction is None:
            return None
        index = -1 if self.example_index is None else int(self.example_index)
        both = (self.example_target, self.example_prediction)
        fields = [field.reshape(len(field), -1)[:, channel] for field in both]
        known = np.isfinite(self.points).all(axis=1) & np.isfinite(fields[0])  # scattered points are padded
        return SampleField(index, channel, self.points[known], *(field[known] for field in fields))

    @property
    def worst(self) -> tuple[SampleField, ...]:
        """The samples with the largest errors, worst first, each at its own points."""
        names = ("indices", "channels", "points", "targets", "predictions")
        columns = [getattr(self, f"worst_{name}") for name in names]
        if any(column is None for column in columns):
            return ()
        return tuple(_sample_field(*row) for row in zip(*columns, strict=True))

    def _check(self) -> None:
        samples, points = self.errors.size, 0 if self.points is None else len(self.points)
        by_sample = {"errors": self.errors, "optimal_errors": self.optimal_errors}
        by_sample |= {f"{_LABEL}{name}": values for name, values in self.labels.items()}
        for name, array in by_sample.items():
            _check_shape(name, array, (samples,))
        for name in ("example_target", "example_prediction"):
            array = getattr(self, name)
            channels = () if array is None or array.ndim < 2 else (array.shape[1] or 1,)
            _check_shape(name, array, (points, *channels))
        for name, axes in _AXES.items():
            array = getattr(self, name)
            if array is not None and array.ndim != axes:
                raise ValueError(f"{name} has {array.ndim} axes; expected {axes}")
        if self.triangles is not None and self.triangles.size:
            low, high = self.triangles.min(), self.triangles.max()
            if not 0 <= low <= high < points:
                raise ValueError(f"triangles name points {low} to {high}; there are {points} points")
        _check_worst(self)


def _checked(name: str, array: np.ndarray) -> np.ndarray:
    is_integer = name in ("example_index", "worst_indices", "worst_channels", "triangles")
    return np.asarray(array, np.int64 if is_integer else np.float64)


def _check_shape(name: str, array: np.ndarray | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")


def _check_worst(record: EvaluationRecord) -> None:
    targets, points = record.worst_targets, record.worst_points
    if targets is None or points is None:
        return
    others = (record.worst_indices, record.worst_channels, record.worst_predictions)
    shapes = (targets.shape[:1], targets.shape[:1], targets.shape)
    fits = all(array is None or array.shape == shape for array, shape in zip(others, shapes, strict=True))
    if not fits or points.ndim != 3 or points.shape[:2] != targets.shape:
        raise ValueError("the arrays of the worst samples have different shapes")
    indices = record.worst_indices
    if indices is not None and indices.size and not 0 <= indices.min() <= indices.max() < record.errors.size:
        raise ValueError(f"worst_indices name samples that do not exist; there are {record.errors.size}")


def _sample_field(index: int, channel: int, *columns: np.ndarray) -> SampleField:
    known = np.isfinite(columns[0].sum(axis=1))
    points, target, prediction = (column[known] for column in columns)
    return SampleField(int(index), int(channel), points, target, prediction)
