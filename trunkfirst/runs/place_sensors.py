"""Where to measure: sensors for the outputs of a run's operator, or for its inputs."""

import dataclasses as dc
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import AnyData, OperatorData
from ..errors import DataError, TrunkfirstError, UnknownNameError, UsageError, ValueRangeError
from ..networks import Operator, load
from ..run_data import RunData, load_run_data
from ..theory import (
    Christoffel,
    SensorCondition,
    SensorLadder,
    Sensors,
    christoffel,
    christoffel_sensors,
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

PlacingMethod = Literal["christoffel", "pivoted", "exchange"]
RATIOS = (1.1, 1.25)
# Few enough to be quick, and enough for a median.
_MOST_SAMPLES = 200


@dc.dataclass(frozen=True, eq=False)
class Placement:
    """Sensors among places whose coordinates are known, and the error with them.

    `ratio` is the error of least squares from these sensors over the best error, `ladders` the same for drawn
    sensors by their number; None where `notes` say why. `condition` is the paper's assmpt-trunk for these sensors.
    """

    what: Literal["outputs", "inputs"]
    method: PlacingMethod
    places: Float[np.ndarray, "places coordinates"]
    coordinate_names: tuple[str, ...]
    # what was found
    found: Christoffel
    sensors: Sensors
    condition: SensorCondition | None
    # the error with them
    ratio: float | None
    ladders: dict[str, SensorLadder] | None
    notes: tuple[str, ...]

    @property
    def points(self) -> Float[np.ndarray, "sensors coordinates"]:
        """Coordinates of the sensors."""
        return self.places[self.sensors.indices]

    def arrays(self) -> dict[str, np.ndarray]:
        """What the file holds."""
        return {"points": self.points, "indices": self.sensors.indices, "weights": self.sensors.weights}

    def needed(self) -> dict[str, dict[str, int | None]]:
        """The smallest count of each ladder with a ratio of at most 1.1 and 1.25."""
        return {
            name: {str(ratio): ladder.sensors_needed(ratio) for ratio in RATIOS}
            for name, ladder in (self.ladders or {}).items()
        }

    @property
    def theory(self) -> dict[str, int]:
        """How many sensors assmpt-trunk asks for with r_t = 1, drawn by the Christoffel function or uniformly."""
        counts = {"christoffel": float(self.found.rank), "uniform": self.found.largest}
        return {name: theoretical_sensors(largest) for name, largest in counts.items()}

    @property
    def sentence(self) -> str:
        """What the theory has to say about these sensors."""
        condition, asked = self.condition, self.theory
        verdict = "says nothing about a single one"
        if condition is not None:
            says = (
                "vacuous, nothing is promised"
                if condition.is_vacuous
                else f"failure is at most {condition.failure:.2g}"
            )
            verdict = f"has r_t = {condition.exponent:.2g} for this number: {says}"
        return (
            f"The theory of drawn sensors (assmpt-trunk) {verdict}. For r_t = 1 it asks for "
            f"{asked['christoffel']:,} drawn by Christoffel, or {asked['uniform']:,} drawn uniformly "
            f"(K_N = {self.found.largest:.4g})."
        )

    def summary(self) -> dict[str, Any]:
        """Everything but the points, in plain values."""
        condition = self.condition
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
            "ladders": {
                name: {
                    "counts": ladder.counts.tolist(),
                    "ratios": ladder.ratios.tolist(),
                    "failures": ladder.failures.tolist(),
                }
                for name, ladder in (self.ladders or {}).items()
            },
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

    Output sensors: the functions are those of the trunk, the places the run's points, and the errors are measured
    on its test samples if its data are found again. Input sensors: the functions are the principal modes of
    the training inputs, the places their sensors.
    """
    if method not in get_args(PlacingMethod):
        raise UnknownNameError("method", method, get_args(PlacingMethod))
    case = _input_case(folder) if inputs else _output_case(folder)
    places, rank = len(case.places), case.found.rank
    if count > places:
        raise ValueRangeError(f"count is {count}; the run has {places} places to measure: give at most as many")
    sensors = {
        "christoffel": lambda: christoffel_sensors(case.found, count, seed=seed),
        "pivoted": lambda: pivoted_sensors(case.found, count),
        "exchange": lambda: exchange_sensors(case.found, count),
    }[method]()
    functions = case.found.basis[sensors.indices]
    condition = sensor_condition(case.found, functions, sensors.weights) if count > 1 else None
    ratio, ladders, notes = _errors_with(case, sensors, sorted({count, *_ladder(rank)}), seed)
    return Placement(
        "inputs" if inputs else "outputs",
        method,  # pyright: ignore[reportArgumentType]
        case.places,
        case.names,
        case.found,
        sensors,
        condition,
        ratio,
        ladders,
        notes,
    )


@dc.dataclass(frozen=True, eq=False)
class _Case:
    """Functions on places, and samples to measure errors with (None, with a note, if there are none)."""

    places: np.ndarray
    names: tuple[str, ...]
    found: Christoffel
    samples: np.ndarray | None
    note: str = ""


def _ladder(rank: int) -> list[int]:
    return [-(-factor * rank // 4) for factor in (5, 10, 20, 40, 80)]


def _errors_with(
    case: _Case, sensors: Sensors, counts: list[int], seed: int
) -> tuple[float | None, dict[str, SensorLadder] | None, tuple[str, ...]]:
    notes = (case.note,) if case.note else ()
    if case.samples is None:
        return None, None, notes
    try:
        ratio = least_squares_ratio(case.found, case.samples, sensors)
    except DataError:
        note = "The functions represent the samples up to rounding: every stable choice of sensors is exact."
        return None, None, (*notes, note)
    return ratio, least_squares_errors(case.found, case.samples, counts, seed=seed), notes


# -- outputs


def _output_case(folder: Path) -> _Case:
    operator = load(folder)
    if not (folder / FILE).is_file():
        raise UsageError(f"{folder} holds an operator but no points ({FILE}); give the folder of a run or fit")
    points = read_summary(folder).points
    data, note = _judges(folder, len(points))
    found = christoffel(measured_functions(operator, points), weights=None if data is None else data.point_weights)
    names = tuple(f"y{i + 1}" for i in range(points.shape[1])) if data is None else data.coordinate_names
    samples = None if data is None else measured_outputs(operator, data.outputs[:_MOST_SAMPLES])
    return _Case(points, names, found, samples, note)


def _judges(folder: Path, points: int) -> tuple[OperatorData | None, str]:
    """Samples of the run on its own points, those for testing where it has some; and what to know about them."""
    try:
        prepared = _prepared(folder)
    except TrunkfirstError as error:
        return None, f"No errors of least squares: the run's data were not found again ({error})."
    data, note = _unseen(prepared)
    if not isinstance(data, OperatorData) or len(data.points) != points:
        return None, "No errors of least squares: samples have points of their own."
    return data, note


def _unseen(prepared: RunData) -> tuple[AnyData, str]:
    """Samples for testing, or all of them with a remark."""
    if prepared.test is not None:
        return prepared.test, ""
    return prepared.data, "The run kept no test samples: the errors are those of its training samples."


def _prepared(folder: Path) -> RunData:
    if not (folder / "config.toml").is_file():
        raise UsageError(f"{folder} holds no config.toml")
    config = load_config(folder / "config.toml")
    return load_run_data(config.data, config.problem)


def measured_functions(
    operator: Operator, points: Float[np.ndarray, "points coordinates"]
) -> Float[np.ndarray, "points functions"]:
    """The operator's basis as a sensor sees it: times d(y) where boundary values are fixed."""
    with jax.enable_x64(operator.dtype == jnp.float64):
        basis = np.asarray(operator.basis(points), float)
        if operator.output is None or operator.output.boundary is None:
            return basis
        return basis * np.asarray(operator.output.boundary(jnp.asarray(points)), float)[:, None]


def measured_outputs(operator: Operator, outputs: np.ndarray) -> Float[np.ndarray, "rows points"]:
    """What these functions have to represent: logarithms of positive outputs, channels below each other."""
    if operator.output is not None:
        outputs = (np.log(outputs) if operator.output.is_positive else outputs) / np.asarray(operator.output.scale)
        boundary = operator.output.boundary
        outputs = outputs if boundary is None else outputs - boundary.value
    return outputs if outputs.ndim == 2 else outputs.swapaxes(1, 2).reshape(-1, outputs.shape[1])


# -- inputs


def _input_case(folder: Path) -> _Case:
    prepared = _prepared(folder)
    training = prepared.for_training
    weights = [f.sensor_weights for f in training.inputs.values()]
    known = None if any(w is None for w in weights) else np.concatenate([w for w in weights if w is not None])
    found = input_modes(training.flat_inputs, weights=known)
    places, names = _sensor_places(training)
    data, note = _unseen(prepared)
    return _Case(places, names, found, data.flat_inputs[:_MOST_SAMPLES], note)


def _sensor_places(data: AnyData) -> tuple[np.ndarray, tuple[str, ...]]:
    """Coordinates of the sensors where one input function has them, else their numbers."""
    (first, *more) = data.inputs.values()
    if not more and first.sensors is not None:
        return first.sensors, tuple(f"x{i + 1}" for i in range(first.sensors.shape[1]))
    return np.arange(data.flat_inputs.shape[1], dtype=float)[:, None], ("sensor",)
