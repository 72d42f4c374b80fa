"""What is kept of the training data: points, sensors, and what intervals and the detection of outliers need."""

import dataclasses as dc
from pathlib import Path

import numpy as np
import scipy.interpolate
from jaxtyping import Float

from .data.operator_data import InputFunction, OperatorData
from .data.scattered_data import AnyData
from .errors import CorruptFileError, DataError, UsageError
from .files.integrity import verify_run
from .files.npz import read_npz, write_npz
from .files.text_files import read_json
from .intervals import (
    MOST_NUMBERS,
    Intervals,
    Novelty,
    fit_novelty,
    intervals_from,
    novelty_from,
    some_inputs,
)
from .networks.operator import Operator, load
from .networks.training_domain import TrainingDomain
from .records import misfit

FILE = "training.npz"


@dc.dataclass(frozen=True, eq=False)
class TrainingSummary:
    """Where inputs and outputs were given, the range of the inputs, and the errors of cross-fitted predictions."""

    points: Float[np.ndarray, "points coordinates"]
    sensors: dict[str, Float[np.ndarray, "_ _"]]
    """Of each input function: (sensors, coordinates)."""
    novelty: Novelty | None = None
    intervals: Intervals | None = None
    inputs: Float[np.ndarray, "rows sensors"] | None = None
    """Training inputs, at most 2,000, where they are a few numbers."""

    def extras(self) -> dict[str, np.ndarray]:
        """Named arrays of what is known."""
        novelty = {} if self.novelty is None else self.novelty.arrays()
        intervals = {} if self.intervals is None else self.intervals.arrays()
        return novelty | intervals | ({} if self.inputs is None else {"inputs": self.inputs})

    def at_sensors(
        self, name: str, function: InputFunction, count: int | None
    ) -> Float[np.ndarray, "samples sensors"]:
        """The values of an input function at the sensors of training, interpolated where they are others."""
        known, given = self.sensors.get(name), function.sensors
        if given is None or known is None:
            if count is not None and function.values.shape[1] != count:
                if len(function.values) == count:
                    raise DataError(
                        f"inputs[{name!r}]: rows are samples of {count} sensors, as in training, but the shape is "
                        f"{function.values.shape}; it looks transposed; use .T, or inputs[None] for one sample"
                    )
                why = "the training data had none" if known is None else "give them as 'sensors'"
                raise DataError(
                    f"inputs[{name!r}]: {function.values.shape[1]} sensors, but training had {count}; to "
                    f"interpolate, coordinates of the sensors are needed, and {why}"
                )
            return function.values
        if given.shape == known.shape and np.allclose(given, known):
            return function.values
        return _interpolated(name, given, function.values, known)


def _interpolated(
    name: str,
    given: Float[np.ndarray, "given coordinates"],
    values: Float[np.ndarray, "samples given"],
    wanted: Float[np.ndarray, "wanted coordinates"],
) -> Float[np.ndarray, "samples wanted"]:
    if given.shape[1] != wanted.shape[1]:
        raise DataError(
            f"inputs[{name!r}]: sensors have {given.shape[1]} coordinates, but those of training {wanted.shape[1]}"
        )
    if len(np.unique(given, axis=0)) < len(given):
        raise DataError(f"inputs[{name!r}]: two sensors are at the same place, so they cannot be interpolated")
    low, high = given.min(axis=0), given.max(axis=0)
    slack = 1e-9 + 1e-6 * (high - low)
    if (wanted < low - slack).any() or (wanted > high + slack).any():
        raise DataError(
            f"inputs[{name!r}]: the sensors do not cover those of training, so they cannot be interpolated"
        )
    if given.shape[1] == 1:
        order = np.argsort(given[:, 0])
        spline = scipy.interpolate.CubicSpline(given[order, 0], values[:, order], axis=1)
        return np.asarray(spline(wanted[:, 0]))
    inside = np.clip(wanted, low, high)
    linear = np.asarray(scipy.interpolate.LinearNDInterpolator(given, values.T)(inside))
    nearest = np.asarray(scipy.interpolate.NearestNDInterpolator(given, values.T)(inside))
    return np.where(np.isnan(linear), nearest, linear).T


def summarise(data: AnyData, intervals: Intervals | None) -> TrainingSummary:
    """The summary of training data."""
    points = data.points if isinstance(data, OperatorData) else data.pooled()[0]
    sensors = {name: f.sensors for name, f in data.inputs.items() if f.sensors is not None}
    inputs = data.flat_inputs
    known = some_inputs(inputs) if inputs.shape[1] <= MOST_NUMBERS else None
    return TrainingSummary(points, sensors, fit_novelty(inputs), intervals, known)


def training_domain(data: AnyData, summary: TrainingSummary) -> TrainingDomain:
    """The summary as part of an operator, with names and ranges."""
    inputs, points, sensors = data.flat_inputs, summary.points, summary.sensors
    return TrainingDomain(
        points=points,
        coordinate_names=tuple(data.coordinate_names),
        channel_names=tuple(data.channel_names) or (data.output_name,),
        units=dict(data.units),
        sensors=tuple(sensors.values()) if set(sensors) == set(data.inputs) else (),
        input_sizes=tuple(f.values.shape[1] for f in data.inputs.values()),
        input_ranges=np.stack([inputs.min(axis=0), inputs.max(axis=0)]),
        point_ranges=np.stack([points.min(axis=0), points.max(axis=0)]),
        extras=summary.extras(),
        triangles=None if data.triangles is None else data.triangles.astype(np.int32),
    )


def write_summary(folder: Path, summary: TrainingSummary) -> None:
    """Write `training.npz` into a run folder."""
    sensors = {f"sensors.{name}": value for name, value in summary.sensors.items()}
    write_npz(folder / FILE, {"points": summary.points, **sensors, **summary.extras()})


def read_summary(folder: Path) -> TrainingSummary:
    """Read `training.npz` of a run folder."""
    arrays = read_npz(folder / FILE)
    sensors = {name[8:]: value for name, value in arrays.items() if name.startswith("sensors.")}
    try:
        summary = TrainingSummary(
            arrays["points"], sensors, novelty_from(arrays), intervals_from(arrays), arrays.get("inputs")
        )
        _check(summary)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptFileError(f"{folder / FILE} is not the summary of a training: {error}") from error
    return summary


def load_run(folder: Path) -> tuple[Operator, TrainingSummary]:
    """The operator of a run folder, which is verified, and the summary, from which its domain is completed.

    A model that was saved alone knows what a summary says.
    """
    if (folder / "model.json").exists():
        operator = load(folder)
        return operator, _summary_of(operator, folder)
    verify_run(folder)
    operator, summary = load(folder), read_summary(folder)
    domain = operator.domain  # before 0.2 only the summary had points, intervals and outliers
    points = summary.points if domain.points is None else domain.points
    domain = dc.replace(domain, points=points, extras=domain.extras or summary.extras())
    return dc.replace(operator, domain=domain), summary


def _summary_of(operator: Operator, folder: Path) -> TrainingSummary:
    domain = operator.domain
    if domain.points is None:
        raise CorruptFileError(f"{folder} is a model without points; give the folder of its run, which has {FILE}")
    sensors = dict(zip(operator.input_names, domain.sensors, strict=False))
    return TrainingSummary(domain.points, sensors, domain.novelty, domain.intervals, domain.extras.get("inputs"))


def _check(summary: TrainingSummary) -> None:
    """Numbers, with as many axes and entries as belong together."""
    parts = [part for part in (summary.novelty, summary.intervals) if part is not None]
    if misfit(summary) or not all(part.is_consistent for part in parts):
        raise ValueError("arrays have wrong shapes or types")


def sample_count(folder: Path) -> int:
    """How many samples a run had in all, as its `metrics.json` says."""
    path = folder / "metrics.json"
    try:
        return sum(int(count) for count in read_json(path)["samples"].values())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFileError(f"{path} does not say how many samples the run has") from error


def check_own_samples(folder: Path, samples: int) -> None:
    """Raise a `UsageError` where a run had other samples too than those that its configuration names."""
    if sample_count(folder) != samples:
        raise UsageError(
            f"{folder} was trained on more samples than its configuration names, so its own test samples are not "
            "known; give --data FILE"
        )
