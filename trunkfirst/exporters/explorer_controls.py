"""The sliders of the interactive explorer: for each number of an input, or each main shape of a function."""

import dataclasses as dc
import itertools
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from ..encoders import Parallel
from ..errors import UsageError
from ..intervals import is_logarithmic, training_inputs
from ..linear.blocked_qr import one_blas_thread
from ..training_summary import TrainingSummary

_MOST_NUMBERS, _MOST_SHAPES = 8, 8
# Sliders reach this share of the training range beyond it.
_BEYOND = 0.15


@dc.dataclass(frozen=True)
class Slider:
    """One number of an input: its training range `low` to `high`, and the slider's range `start` to `stop`."""

    name: str
    low: float
    high: float
    start: float
    stop: float
    is_logarithmic: bool


@dc.dataclass(frozen=True, eq=False)
class Group:
    """The sliders of one input function: it is `base` + values of the sliders @ `shapes`."""

    name: str
    columns: slice
    """Its columns in an input."""
    is_function: bool
    sensors: Float[np.ndarray, "sensors coordinates"] | None
    base: Float[np.ndarray, " sensors"]
    shapes: Float[np.ndarray, "sliders sensors"]
    sliders: tuple[Slider, ...]


@dc.dataclass(frozen=True, eq=False)
class Controls:
    """An input is `base` + values of the sliders @ `shapes`."""

    groups: tuple[Group, ...]
    base: Float[np.ndarray, " sensors"]
    shapes: Float[np.ndarray, "sliders sensors"]
    seen: Float[np.ndarray, "rows sliders"]
    """Training inputs as values of the sliders."""

    def values(self, inputs: Float[np.ndarray, "samples sensors"]) -> Float[np.ndarray, "samples sliders"]:
        """The values of the sliders nearest to these inputs."""
        return _coordinates(inputs - self.base, self.shapes)

    def inputs(self, values: Float[np.ndarray, "samples sliders"]) -> Float[np.ndarray, "samples sensors"]:
        """The inputs for these values of the sliders."""
        return self.base + values @ self.shapes


def make_controls(
    names: tuple[str, ...], encoder: object, memory: TrainingSummary, number_names: tuple[str, ...] | None
) -> Controls:
    """A slider for each number of a short input, and for each principal coordinate of a function.

    `number_names` are the names of the numbers of an input, if they are known.
    """
    inputs = training_inputs(memory.extras())
    if inputs is None:
        raise UsageError("the run does not remember its training inputs, which the explorer needs; train it again")
    counts = _sizes(names, encoder, memory, inputs.shape[1])
    functions = sum(count > _MOST_NUMBERS for count in counts.values())
    groups: list[Group] = []
    for (name, count), last in zip(counts.items(), itertools.accumulate(counts.values()), strict=True):
        columns = slice(last - count, last)
        labels = number_names[columns] if number_names else _number_names(name, count)
        most = max(2, _MOST_SHAPES // functions) if count > _MOST_NUMBERS else 0
        groups.append(_make_group(name, columns, labels, inputs[:, columns], most, memory.sensors.get(name)))
    base = np.concatenate([group.base for group in groups])
    shapes = np.asarray(block_diag(*(group.shapes for group in groups)))
    return Controls(tuple(groups), base, shapes, _coordinates(inputs - base, shapes))


def _sizes(names: tuple[str, ...], encoder: object, memory: TrainingSummary, sensors: int) -> dict[str, int]:
    """The number of sensors of each input function; all under one name if that is not known."""
    if len(names) == sensors:
        return dict.fromkeys(names, 1)
    if isinstance(encoder, Parallel) and len(encoder.sizes) == len(names):
        return dict(zip(names, encoder.sizes, strict=True))
    counts = {name: len(memory.sensors[name]) if name in memory.sensors else 0 for name in names}
    unknown = [name for name, count in counts.items() if count == 0]
    if len(unknown) == 1:
        counts[unknown[0]] = sensors - sum(counts.values())
    return counts if min(counts.values()) > 0 and sum(counts.values()) == sensors else {", ".join(names): sensors}


def _number_names(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple(f"{name} {number + 1}" for number in range(count))


def _make_group(
    name: str,
    columns: slice,
    labels: tuple[str, ...],
    inputs: Float[np.ndarray, "rows sensors"],
    most: int,
    sensors: Float[np.ndarray, "sensors coordinates"] | None,
) -> Group:
    """Sliders for at most `most` principal modes, or for the numbers themselves if it is 0."""
    base, shapes = np.zeros(inputs.shape[1]), np.eye(inputs.shape[1])
    if most:
        base, shapes = _principal(inputs, most)
        labels = tuple(f"shape {number + 1}" for number in range(len(shapes)))
    sliders = tuple(_sliders(labels, _coordinates(inputs - base, shapes)))
    return Group(name, columns, bool(most), sensors, base, shapes, sliders)


def _principal(inputs: Float[np.ndarray, "rows sensors"], most: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the first principal modes, each scaled by its standard deviation."""
    centre = inputs.mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd(inputs - centre, full_matrices=False)
    count = max(1, min(most, int((sizes > 1e-6 * sizes[0]).sum())))
    deviations = np.where(sizes[:count] > 0, sizes[:count], 1.0) / np.sqrt(len(inputs))
    return centre, deviations[:, None] * modes[:count]


def _coordinates(inputs: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    with one_blas_thread():
        return inputs @ (shapes.T / (shapes**2).sum(axis=1))  # the shapes are orthogonal


def _sliders(names: tuple[str, ...], seen: Float[np.ndarray, "rows sliders"]) -> Iterator[Slider]:
    for name, values in zip(names, seen.T, strict=True):
        low, high = float(values.min()), float(values.max())
        if is_wide := is_logarithmic(values):
            factor = (high / low) ** _BEYOND
            start, stop = low / factor, high * factor
        else:
            beyond = _BEYOND * (high - low) or abs(low) or 1.0
            start, stop = low - beyond, high + beyond
        yield Slider(name, low, high, start, stop, is_wide)
