"""Records that are written to the files of a run and read back by the report. Without JAX and matplotlib."""

import dataclasses as dc
import functools as ft
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast, get_args, get_type_hints

import numpy as np
from jaxtyping import Float, Int

from .errors import CorruptFileError
from .files.npz import read_npz

Values = Float[np.ndarray, " samples"]
_LABEL = "labels."


def misfit(record: Any) -> str | None:
    """Which array of a record is not what its annotation says: type, axes, equal lengths of axes of one name."""
    lengths: dict[str, object] = {}
    for name, hint in _hints(type(record)).items():
        entries, kind = {name: getattr(record, name)}, hint
        if isinstance(entries[name], Mapping):
            entries, kind = {f"{name}.{key}": each for key, each in entries[name].items()}, get_args(hint)[-1]
        axes = next((each.dim_str.split() for each in (kind, *get_args(kind)) if hasattr(each, "dim_str")), [])
        for label, entry in entries.items():
            shape = np.shape(entry)
            own = {axis: shape[k:] if axis[0] == "*" else shape[k : k + 1] for k, axis in enumerate(axes)}
            known = {} if entry is None else {axis: n for axis, n in own.items() if axis not in ("_", "...")}
            if not isinstance(entry, kind) or any(lengths.setdefault(axis, n) != n for axis, n in known.items()):
                return f"{label} has shape {shape}, which does not fit ({', '.join(axes)})"
    return None


@ft.cache
def _hints(record_type: type) -> dict[str, Any]:
    return get_type_hints(record_type)


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
    """The arrays of `evaluation.npz` by their names there: test errors and single samples."""

    errors: Values
    optimal_errors: Values | None = None
    points: Float[np.ndarray, "points coordinates"] | None = None
    # The example; target and prediction have a second axis where there are several output channels
    example_index: Int[np.ndarray, ""] | None = None
    example_target: Float[np.ndarray, "points *channels"] | None = None
    example_prediction: Float[np.ndarray, "points *channels"] | None = None
    example_input: Float[np.ndarray, " sensors"] | None = None
    # The samples with the largest errors, worst first; points are padded with NaN
    worst_indices: Int[np.ndarray, " worst"] | None = None
    worst_inputs: Float[np.ndarray, "worst sensors"] | None = None
    worst_channels: Int[np.ndarray, " worst"] | None = None
    worst_points: Float[np.ndarray, "worst places _"] | None = None
    worst_targets: Float[np.ndarray, "worst places"] | None = None
    worst_predictions: Float[np.ndarray, "worst places"] | None = None
    # The sample with the median error, in the same way
    typical_indices: Int[np.ndarray, " typical"] | None = None
    typical_inputs: Float[np.ndarray, "typical sensors"] | None = None
    typical_channels: Int[np.ndarray, " typical"] | None = None
    typical_points: Float[np.ndarray, "typical spots _"] | None = None
    typical_targets: Float[np.ndarray, "typical spots"] | None = None
    typical_predictions: Float[np.ndarray, "typical spots"] | None = None
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
    def read(cls, path: Path) -> "EvaluationRecord | None":
        """The content of `evaluation.npz`; None where there are no test samples."""
        arrays = read_npz(path) if path.is_file() else {}
        if "errors" not in arrays or not arrays["errors"].size:
            return None
        try:
            return cls.from_arrays(arrays)
        except (TypeError, ValueError) as error:
            raise CorruptFileError(f"{path}: {error}. Evaluate the run again.") from error

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "EvaluationRecord":
        """Check the arrays of a file and take those that are known.

        Raises `ValueError` where arrays contradict each other.
        """
        integers = (
            "example_index",
            "worst_indices",
            "worst_channels",
            "typical_indices",
            "typical_channels",
            "triangles",
        )
        known = {field.name for field in dc.fields(cls)} - {"labels"}
        found: dict[str, Any] = {
            name: np.asarray(array, np.int64 if name in integers else np.float64)
            for name, array in arrays.items()
            if name in known
        }
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
        return self._fields("worst")

    @property
    def typical(self) -> tuple[SampleField, ...]:
        """The sample with the median error; none in files of earlier versions."""
        return self._fields("typical")

    def _fields(self, which: str) -> tuple[SampleField, ...]:
        names = ("indices", "channels", "points", "targets", "predictions")
        columns = [getattr(self, f"{which}_{name}") for name in names]
        if any(column is None for column in columns):
            return ()
        return tuple(_sample_field(*row) for row in zip(*columns, strict=True))

    def _check(self) -> None:
        if found := misfit(self):
            raise ValueError(found)
        if self.example_target is not None and not self.example_target.size:
            raise ValueError(f"example_target has shape {self.example_target.shape}, which is empty")
        triangles, points = self.triangles, 0 if self.points is None else len(self.points)
        if triangles is not None and triangles.size and not 0 <= triangles.min() <= triangles.max() < points:
            raise ValueError(f"triangles have points {triangles.min()} to {triangles.max()}; there are {points}")
        for name in ("worst_indices", "typical_indices"):
            found = getattr(self, name)
            if found is not None and found.size and not 0 <= found.min() <= found.max() < self.errors.size:
                raise ValueError(f"{name} has samples that do not exist; there are {self.errors.size}")


def _sample_field(index: int, channel: int, *columns: np.ndarray) -> SampleField:
    known = np.isfinite(columns[0].sum(axis=1))
    points, target, prediction = (column[known] for column in columns)
    return SampleField(int(index), int(channel), points, target, prediction)
