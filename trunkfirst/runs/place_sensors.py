"""Where to measure: sensors for the outputs of a run's operator, or for its inputs."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..data.operator_data import OperatorData
from ..data.scattered_data import AnyData
from ..errors import DataError, TrunkfirstError, UnknownNameError, UsageError, ValueRangeError
from ..networks.deeponet import bounded_basis
from ..networks.operator import Operator, load
from ..run_data import RunData, load_run_data
from ..theory.optimal_sensors import (
    Christoffel,
    SensorCondition,
    SensorLadder,
    Sensors,
    christoffel,
    christoffel_sensors,
    default_counts,
    exchange_sensors,
    input_modes,
    least_squares_errors,
    least_squares_ratio,
    pivoted_sensors,
    sensor_condition,
    theoretical_sensors,
)
from ..training_summary import FILE, read_summary
from .config import load_config

_METHODS = ("christoffel", "pivoted", "exchange")
_RATIOS = (1.1, 1.25)
_MAX_SAMPLES = 200


@dc.dataclass(frozen=True, eq=False)
class _Case:
    """Candidate places, functions on them, and samples for measuring errors (None, with a note, without any)."""

    places: Float[np.ndarray, "places coordinates"]
    names: tuple[str, ...]
    found: Christoffel
    samples: Float[np.ndarray, "samples places"] | None
    notes: tuple[str, ...]


@dc.dataclass(frozen=True, eq=False)
class Placement:
    """Sensors among candidate places, and the error of least squares from them.

    `ratio` is that error over the best error, `ladders` the same for random sensors by their number; None and
    empty where `notes` give the reason.
    """

    what: str
    """Either outputs or inputs."""
    method: str
    places: Float[np.ndarray, "places coordinates"]
    coordinate_names: tuple[str, ...]
    found: Christoffel
    sensors: Sensors
    ratio: float | None
    ladders: dict[str, SensorLadder]
    notes: tuple[str, ...]

    def arrays(self) -> dict[str, np.ndarray]:
        """The content of the file: coordinates, indices and weights of the sensors."""
        indices = self.sensors.indices
        return {"points": self.places[indices], "indices": indices, "weights": self.sensors.weights}

    def needed(self) -> dict[str, dict[str, int | None]]:
        """The smallest count of each ladder with a ratio of at most 1.1 and 1.25."""
        return {
            name: {str(ratio): ladder.sensors_needed(ratio) for ratio in _RATIOS}
            for name, ladder in self.ladders.items()
        }

    @property
    def theory(self) -> dict[str, int]:
        """The number of sensors that assmpt-trunk requires for r_t = 1, by Christoffel and uniformly."""
        counts = {"christoffel": float(self.found.rank), "uniform": self.found.largest}
        return {name: theoretical_sensors(largest) for name, largest in counts.items()}

    @property
    def sentence(self) -> str:
        """What the theory states about these sensors."""
        condition, asked = self._condition(), self.theory
        verdict = "makes no statement about a single one"
        if condition is not None:
            statement = (
                "vacuous, nothing is guaranteed"
                if condition.is_vacuous
                else f"failure is at most {condition.failure:.2g}"
            )
            verdict = f"has r_t = {condition.exponent:.2g} for {condition.sensors}: {statement}"
        return (
            f"The theory of drawn sensors (assmpt-trunk) {verdict}. For r_t = 1 it asks for "
            f"{asked['christoffel']:,} drawn by Christoffel, or {asked['uniform']:,} drawn uniformly "
            f"(K_N = {self.found.largest:.4g})."
        )

    def _condition(self) -> SensorCondition | None:
        indices, weights = self.sensors.indices, self.sensors.weights
        return sensor_condition(self.found, self.found.basis[indices], weights) if len(indices) > 1 else None

    def summary(self) -> dict[str, Any]:
        """Everything except the points, as JSON values."""
        condition = self._condition()
        return {
            "what": self.what,
            "method": self.method,
            "sensors": len(self.sensors.indices),
            "distinct": len(np.unique(self.sensors.indices)),
            "places": len(self.places),
            "functions": self.found.rank,
            "largest": self.found.largest,
            "deviation": self.sensors.deviation,
            "is_stable": self.sensors.is_stable,
            "ratio": self.ratio,
            "needed": self.needed(),
            "ladders": {name: dc.asdict(ladder) for name, ladder in self.ladders.items()},
            "condition": None
            if condition is None
            else {"exponent": condition.exponent, "is_vacuous": condition.is_vacuous},
            "theory": self.theory,
            "notes": list(self.notes),
        }


def place_sensors(
    folder: Path, count: int, *, method: str = "christoffel", inputs: bool = False, seed: int = 0
) -> Placement:
    """Choose `count` places to measure the outputs, or the inputs, of the run in `folder`.

    Output sensors: the functions are those of the trunk, the places the run's points, and errors are measured on
    its test samples if its data are still available. Input sensors: the functions are the principal modes of the
    training inputs, the places their sensors.
    """
    if method not in _METHODS:
        raise UnknownNameError("method", method, _METHODS)
    case = _input_case(folder) if inputs else _output_case(folder)
    found, places = case.found, len(case.places)
    if count > places:
        raise ValueRangeError(f"count is {count}; the run has only {places} places to measure")
    if method == "christoffel":
        sensors = christoffel_sensors(found, count, seed=seed)
    else:
        sensors = (pivoted_sensors if method == "pivoted" else exchange_sensors)(found, count)
    ratio, ladders, notes = _errors(case, sensors, sorted({count, *default_counts(found.rank)}), seed)
    what = "inputs" if inputs else "outputs"
    return Placement(what, method, case.places, case.names, found, sensors, ratio, ladders, notes)


def _errors(
    case: _Case, sensors: Sensors, counts: list[int], seed: int
) -> tuple[float | None, dict[str, SensorLadder], tuple[str, ...]]:
    if case.samples is None:
        return None, {}, case.notes
    try:
        ratio = least_squares_ratio(case.found, case.samples, sensors)
    except DataError:
        note = "The functions represent the samples up to rounding: every stable choice of sensors is exact."
        return None, {}, (*case.notes, note)
    return ratio, least_squares_errors(case.found, case.samples, counts, seed=seed), case.notes


# -- outputs


def _output_case(folder: Path) -> _Case:
    operator = load(folder)
    if not (folder / FILE).is_file():
        raise UsageError(f"{folder} has an operator but no points ({FILE}); give the folder of a run or fit")
    points = read_summary(folder).points
    data, notes = _samples(folder, len(points))
    found = christoffel(measured_functions(operator, points), weights=None if data is None else data.point_weights)
    names = tuple(f"y{i + 1}" for i in range(points.shape[1])) if data is None else data.coordinate_names
    samples = None if data is None else measured_outputs(operator, data.outputs[:_MAX_SAMPLES])
    return _Case(points, names, found, samples, notes)


def _samples(folder: Path, points: int) -> tuple[OperatorData | None, tuple[str, ...]]:
    """Samples of the run at its own points, test samples if it has some; and notes about them."""
    try:
        prepared = _prepared(folder)
    except TrunkfirstError as error:
        return None, (f"No errors of least squares: the run's data were not found again ({error}).",)
    data, notes = _unseen(prepared)
    if not isinstance(data, OperatorData) or len(data.points) != points:
        return None, ("No errors of least squares: samples have points of their own.",)
    return data, notes


def _unseen(prepared: RunData) -> tuple[AnyData, tuple[str, ...]]:
    if prepared.test is not None:
        return prepared.test, ()
    return prepared.data, ("The run kept no test samples: the errors are those of its training samples.",)


def _prepared(folder: Path) -> RunData:
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} has no config.toml")
    config = load_config(folder / "config.toml")
    return load_run_data(config.data, config.problem)


def measured_functions(
    operator: Operator, points: Float[np.ndarray, "points coordinates"]
) -> Float[np.ndarray, "points functions"]:
    """The operator's basis as a sensor sees it."""
    if operator.trunk.depends_on_input:
        raise UsageError(
            "sensors are placed for functions that do not depend on the input; fit with trunk.kind = modes"
        )
    return bounded_basis(operator, points)


def measured_outputs(operator: Operator, outputs: np.ndarray) -> Float[np.ndarray, "rows points"]:
    """What these functions have to represent: logarithms of positive outputs, one row a channel."""
    if operator.output is not None:
        outputs = (np.log(outputs) if operator.output.is_positive else outputs) / np.asarray(operator.output.scale)
        boundary = operator.output.boundary
        outputs = outputs if boundary is None else outputs - boundary.value
    return outputs if outputs.ndim == 2 else outputs.swapaxes(1, 2).reshape(-1, outputs.shape[1])


# -- inputs


def _input_case(folder: Path) -> _Case:
    prepared = _prepared(folder)
    training = prepared.train
    weights = [f.sensor_weights for f in training.inputs.values()]
    known = None if any(w is None for w in weights) else np.concatenate([w for w in weights if w is not None])
    found = input_modes(training.flat_inputs, weights=known)
    data, notes = _unseen(prepared)
    return _Case(*_sensor_places(training), found, data.flat_inputs[:_MAX_SAMPLES], notes)


def _sensor_places(data: AnyData) -> tuple[np.ndarray, tuple[str, ...]]:
    """Coordinates of the sensors if there is one input function that has them, else their indices."""
    (first, *more) = data.inputs.values()
    if not more and first.sensors is not None:
        return first.sensors, tuple(f"x{i + 1}" for i in range(first.sensors.shape[1]))
    return np.arange(data.flat_inputs.shape[1], dtype=float)[:, None], ("sensor",)
