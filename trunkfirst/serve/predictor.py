"""Predictions of a stored operator by NumPy alone.

Nothing is compiled, whatever the number of samples and points. Compiled JAX takes three times longer for one
sample of the paper's operators at their training points, and half a second more for each new size. The basis at
the training points is a table, computed once.
"""

import dataclasses as dc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from ..exporters.jaxpr import trace
from ..files.integrity import verify_run
from ..networks.operator import load, with_training_points
from ..training_summary import read_summary

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
        verify_run(folder)
        self._memory = read_summary(folder)
        self._operator = with_training_points(load(folder), self._memory.points)
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
            domain = self._operator.domain
            assert domain is not None
            domain.refuse(points, self._operator.is_outside(points), 'send "extrapolate": true')
        places = self._training if points is None else self._places(points, proceed)
        blocks = _blocks(inputs, _SAMPLES, proceed)
        with np.errstate(all="ignore"):
            found = [(self._fields(block, places), self._is_outlier(block)) for block in blocks]
        outputs, marks = zip(*found, strict=True)
        is_outlier = None if self._memory.novelty is None else np.concatenate(marks)
        return Prediction(np.concatenate(outputs), is_outlier, places.half_width, places.is_outside)

    def _places(self, points: Float[np.ndarray, "points coordinates"], proceed: Proceed = always) -> _Places:
        blocks = _blocks(points, _POINTS, proceed)
        with np.errstate(all="ignore"):
            basis = [self._graph.basis.evaluate(self._values(points=block)) for block in blocks]
        known, is_outside = self._memory.intervals, self._operator.is_outside(points)
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

    def _is_outlier(self, inputs: Float[np.ndarray, "samples sensors"]) -> Bool[np.ndarray, " samples"] | None:
        known = self._memory.novelty
        return None if known is None else known.is_outlier(inputs)


def _blocks(rows: np.ndarray, size: int, proceed: Proceed) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), size):
        proceed()
        yield rows[start : start + size]
