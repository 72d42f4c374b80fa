"""Predictions of a stored operator by NumPy alone.

Nothing is compiled, whatever the number of samples and points. Compiled JAX takes three times longer for one
sample of the paper's operators at their training points, and half a second more for each new size. The basis at
the training points is a table, computed once.
"""

import dataclasses as dc
import io
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from ..exporters.jaxpr import trace
from ..networks.training_domain import TO_EXTRAPOLATE
from ..training_summary import load_run

_BLOCK = 4096  # numbers formatted at once: a server with one core answers other requests in between

JSON, NPZ = "application/json", "application/x-npz"
Arrays = dict[str, np.ndarray]

LEVEL = 0.9
"""The confidence of the intervals."""
_SAMPLES, _POINTS = 64, 1024  # rows in a block: the hidden layers fit the cache, and memory is bounded


Proceed: TypeAlias = Callable[[], None]


def always() -> None:
    """Proceed with whatever is computed."""


@dc.dataclass(frozen=True)
class Shapes:
    """The shapes of requests and answers."""

    inputs: Mapping[str, int | None]
    """Numbers per row of each input function; None if only their sum is known."""
    sensors: int
    """The sum."""
    coordinates: int
    channels: int | None
    points: int
    """The number of training points."""


@dc.dataclass(frozen=True, eq=False)
class Prediction:
    """Outputs; which inputs are outliers and which points are outside the training domain; half the width of the
    intervals, NaN at such points. None if not known.
    """

    outputs: Float[np.ndarray, "samples points ..."]
    is_outlier: Bool[np.ndarray, " samples"] | None
    half_width: Float[np.ndarray, "points ..."] | None
    is_extrapolated: Bool[np.ndarray, " points"]


@dc.dataclass(frozen=True, eq=False)
class _Places:
    """Points, with what does not depend on the inputs."""

    points: Float[np.ndarray, "points coordinates"]
    basis: Float[np.ndarray, "points rank"]
    half_width: Float[np.ndarray, "points ..."] | None
    is_outside: Bool[np.ndarray, " points"]


class Predictor:
    """The operator of a run folder, with what the run remembers of its training data."""

    def __init__(self, folder: Path):
        self._operator, self._memory = load_run(folder)
        self._graph = trace(self._operator)
        self._training = self._places(self._memory.points)
        graph = self._graph
        known = {name: len(sensors) for name, sensors in self._memory.sensors.items()}
        sizes = {name: known.get(name) for name in graph.input_names}
        if len(sizes) == 1:
            sizes = dict.fromkeys(sizes, graph.sensors)
        self.shapes = Shapes(sizes, graph.sensors, graph.coordinates, graph.channels, len(self._memory.points))

    @property
    def points(self) -> Float[np.ndarray, "points coordinates"]:
        """The training points."""
        return self._memory.points

    def __call__(
        self,
        inputs: Float[np.ndarray, "samples sensors"],
        points: Float[np.ndarray, "points coordinates"] | None = None,
        *,
        extrapolate: bool = False,
        proceed: Proceed = always,
    ) -> Prediction:
        """Outputs of `inputs` at `points`, by default the training points; not finite where a logarithm has none.

        Raises a `DataError` for points outside the training domain, unless `extrapolate`. `proceed` is called
        before every block of work; what it raises ends the prediction.
        """
        if points is not None and not extrapolate:
            is_outside, advice = self._operator.is_outside(points), f'{TO_EXTRAPOLATE}, send "extrapolate": true'
            self._operator.domain.refuse(points, is_outside, advice)
        places = self._training if points is None else self._places(points, proceed)
        blocks = _blocks(inputs, _SAMPLES, proceed)
        with np.errstate(all="ignore"):
            found = [(self._fields(block, places), self._operator.domain.is_outlier(block)) for block in blocks]
        outputs, marks = zip(*found, strict=True)
        is_outlier = None if self._operator.domain.novelty is None else np.concatenate(marks)
        return Prediction(np.concatenate(outputs), is_outlier, places.half_width, places.is_outside)

    def _places(self, points: Float[np.ndarray, "points coordinates"], proceed: Proceed = always) -> _Places:
        blocks = _blocks(points, _POINTS, proceed)
        with np.errstate(all="ignore"):
            basis = [self._graph.basis.evaluate(self._values(points=block)) for block in blocks]
        known, is_outside = self._operator.domain.intervals, self._operator.is_outside(points)
        half_width = None if known is None else known.half_width(points, LEVEL)
        # Infinite if there were too few samples to calibrate it.
        is_known = half_width is not None and bool(np.isfinite(half_width).all())
        if half_width is not None:
            half_width[is_outside] = np.nan
        return _Places(points, np.concatenate(basis), half_width if is_known else None, is_outside)

    def _fields(self, inputs: Float[np.ndarray, "samples sensors"], places: _Places) -> np.ndarray:
        coefficients = self._graph.coefficients.evaluate(self._values(inputs=inputs))
        return self._graph.outputs.evaluate(
            self._values(coefficients=coefficients, basis=places.basis, points=places.points)
        )

    def _values(self, **arguments: np.ndarray) -> dict[str, np.ndarray]:
        return {**self._graph.constants, **arguments}


def _blocks(rows: np.ndarray, size: int, proceed: Proceed) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        proceed()
        yield rows[start : start + size]


def write_answer(prediction: Prediction, kind: str, proceed: Proceed = always) -> bytes:
    """The body of an answer, in the format `kind`. Raises `Refused` if an output is not finite."""
    if not (is_good := np.isfinite(prediction.outputs)).all():
        sample, point = np.argwhere(~is_good)[0][:2]
        raise Refused(422, f"the operator has no finite output for sample {sample} at point {point}")
    return _to_json(prediction, proceed) if kind == JSON else _to_npz(prediction)


def _to_json(prediction: Prediction, proceed: Proceed) -> bytes:
    parts = {"outputs": json_of(prediction.outputs, proceed)}
    parts |= {name: json.dumps(array.tolist()) for name, array in _outliers(prediction).items()}
    if prediction.half_width is not None:
        # JSON has no NaN, which stands for no interval
        half_width = json_of(prediction.half_width).replace("NaN", "null")
        parts["interval"] = f'{{"level": {LEVEL}, "half_width": {half_width}}}'
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in parts.items()) + "}").encode()


def _to_npz(prediction: Prediction) -> bytes:
    arrays = {"outputs": prediction.outputs, **_outliers(prediction)}
    if prediction.half_width is not None:
        arrays |= {"half_width": prediction.half_width, "level": np.asarray(LEVEL)}
    file = io.BytesIO()
    np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    return file.getvalue()


def _outliers(prediction: Prediction) -> Arrays:
    """`familiar` is the old key, kept through 0.2."""
    known, is_extrapolated = prediction.is_outlier, prediction.is_extrapolated
    found: Arrays = {} if known is None else {"is_outlier": known, "familiar": ~known}
    return found | ({"is_extrapolated": is_extrapolated} if is_extrapolated.any() else {})


class Refused(Exception):  # noqa: N818  (it is an answer, not a fault)
    """A request that is answered with this status and message."""

    def __init__(
        self, status: int, message: str, headers: dict[str, str] | None = None, *, code: str | None = None
    ):
        super().__init__(message)
        self.status, self.headers, self.code = status, headers or {}, code


def json_of(array: np.ndarray, proceed: Proceed = always) -> str:
    """Nested lists of numbers with all digits, written in pieces."""
    proceed()
    if array.size <= _BLOCK:
        return json.dumps(array.tolist())
    if array.ndim > 1:
        return "[" + ", ".join(json_of(part, proceed) for part in array) + "]"
    pieces = (json.dumps(array[i : i + _BLOCK].tolist())[1:-1] for i in range(0, len(array), _BLOCK))
    return "[" + ", ".join(pieces) + "]"
