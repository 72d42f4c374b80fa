"""What the interactive explorer shows: sliders, basis functions as a table, pictures, test samples of a run."""

import dataclasses as dc
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import block_diag
from scipy.spatial import Delaunay, QhullError

from ..data.array_checks import evenly
from ..data.operator_data import default_coordinate_names
from ..encoders import Parallel
from ..errors import CorruptFileError, UsageError
from ..intervals import is_logarithmic
from ..linear.blocked_qr import one_blas_thread
from ..linear.orthonormalise import relative_errors
from ..networks.deeponet import bounded_basis
from ..networks.grids import is_grid
from ..networks.operator import Operator
from ..records import EvaluationRecord

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
    operator: Operator, sensors: Mapping[str, np.ndarray], number_names: tuple[str, ...] | None
) -> Controls:
    """A slider for each number of a short input, and for each principal coordinate of a function.

    `sensors` are those of the input functions, and `number_names` the names of the numbers of an input, as far as
    they are known.
    """
    inputs = operator.domain.training_inputs
    if inputs is None:
        raise UsageError("the run has not stored its training inputs, which the explorer needs; train again")
    counts = _sizes(operator, sensors, inputs.shape[1])
    functions = sum(count > _MOST_NUMBERS for count in counts.values())
    groups: list[Group] = []
    for (name, count), last in zip(counts.items(), itertools.accumulate(counts.values()), strict=True):
        columns = slice(last - count, last)
        labels = number_names[columns] if number_names else _number_names(name, count)
        most = max(2, _MOST_SHAPES // functions) if count > _MOST_NUMBERS else 0
        groups.append(_make_group(name, columns, labels, inputs[:, columns], most, sensors.get(name)))
    base = np.concatenate([group.base for group in groups])
    shapes = np.asarray(block_diag(*(group.shapes for group in groups)))
    return Controls(tuple(groups), base, shapes, _coordinates(inputs - base, shapes))


def _sizes(operator: Operator, sensors: Mapping[str, np.ndarray], total: int) -> dict[str, int]:
    """The number of sensors of each input function; all under one name if that is not known."""
    names, encoder = operator.input_names, operator.encoder
    if len(names) == total:
        return dict.fromkeys(names, 1)
    if isinstance(encoder, Parallel) and len(encoder.sizes) == len(names):
        return dict(zip(names, encoder.sizes, strict=True))
    counts = {name: len(sensors.get(name, ())) for name in names}
    unknown = [name for name, count in counts.items() if count == 0]
    if len(unknown) == 1:
        counts[unknown[0]] = total - sum(counts.values())
    return counts if min(counts.values()) > 0 and sum(counts.values()) == total else {", ".join(names): total}


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


MOST_ERROR = 1e-5
"""The largest relative error that rounding to single precision may cause."""
_MOST_BYTES = 2**21
# A page computes functions that depend on the input anew for every picture.
_MOST_MOVING_POINTS = 4096
_INPUTS = 64
_RANKS = ("largest", "2nd largest", "3rd largest")

# -- the table: a field is one product of a matrix and a vector


@dc.dataclass(frozen=True, eq=False)
class Table:
    """A channel is scale (offset + functions^T coefficients), or its exponential if outputs are positive."""

    kept: Int[np.ndarray, " kept"]
    """The points that have a column."""
    functions: Float[np.ndarray, "rank kept"]
    """No rows for functions that depend on the input: the page computes them."""
    offset: float
    scale: Float[np.ndarray, " channels"]
    is_positive: bool
    ranges: Float[np.ndarray, "channels 2"]
    """The lowest and highest output of some training inputs."""


def make_table(
    operator: Operator,
    points: Float[np.ndarray, "points coordinates"],
    inputs: Float[np.ndarray, "samples sensors"],
) -> Table:
    """All points in double precision if they fit; else in single if that is exact enough; else fewer points.

    The error of single precision and the range of the outputs are measured on the training inputs `inputs`.
    """
    inputs = inputs[evenly(len(inputs), _INPUTS)]
    if operator.trunk.depends_on_input:
        kept = evenly(len(points), _MOST_MOVING_POINTS)
        functions = np.zeros((0, len(kept)))
    else:
        kept, functions = _tabulated(operator, points, inputs)
    output = operator.output
    return Table(
        kept,
        functions,
        0.0 if output is None or output.boundary is None else output.boundary.value,
        np.ones(operator.channels or 1) if output is None else np.asarray(output.scale, np.float64),
        output is not None and output.is_positive,
        _ranges(operator.values_at(inputs, points[kept]).reshape(-1, operator.channels or 1)),
    )


def _tabulated(
    operator: Operator, points: np.ndarray, inputs: np.ndarray
) -> tuple[Int[np.ndarray, " kept"], Float[np.ndarray, "rank kept"]]:
    """The points that have a column, and the functions there."""
    rank = operator.rank
    kept = evenly(len(points), max(_MOST_BYTES // (4 * rank), 2))
    functions = np.ascontiguousarray(bounded_basis(operator, points[kept]).T)
    if functions.nbytes <= _MOST_BYTES:
        return kept, functions
    single = functions.astype(np.float32)
    if _rounding(operator, inputs, functions, single) <= MOST_ERROR:
        return kept, single
    some = evenly(len(kept), max(_MOST_BYTES // (8 * rank), 2))
    return kept[some], functions[:, some]


def _ranges(fields: Float[np.ndarray, "values channels"]) -> Float[np.ndarray, "channels 2"]:
    finite = [channel[np.isfinite(channel)] for channel in fields.T]
    return np.array([[f.min(), f.max()] if len(f) else [0.0, 1.0] for f in finite])


def _rounding(operator: Operator, inputs: np.ndarray, exact: np.ndarray, rounded: np.ndarray) -> float:
    """The largest relative error of a table in single precision; coefficients stay in double."""
    with jax.enable_x64(operator.dtype == jnp.float64):
        coefficients = np.asarray(operator.coefficients(inputs), np.float64)
    coefficients = coefficients.reshape(-1, len(exact))
    coefficients = coefficients[np.isfinite(coefficients).all(axis=1)]
    errors = relative_errors(coefficients @ rounded.astype(np.float64), coefficients @ exact)
    return float(errors.max(initial=0.0))


# -- pictures


@dc.dataclass(frozen=True, eq=False)
class Drawing:
    """Places in the plane (one or two columns), the triangles between them, and a remark for the reader.

    `kind` is "curve", "grid", "triangles" or "dots"; `axes` are the labels of the two axes.
    """

    kind: str
    axes: tuple[str, str]
    places: Float[np.ndarray, "points columns"]
    triangles: Int[np.ndarray, "triangles 3"] = dc.field(default_factory=lambda: np.zeros((0, 3), np.int64))
    remark: str = ""


def make_drawing(
    points: Float[np.ndarray, "points coordinates"],
    triangles: Int[np.ndarray, "triangles 3"] | None = None,
    names: tuple[str, ...] = (),
) -> Drawing:
    """The drawing that suits the points: a grid, the triangles or, without these, a Delaunay triangulation."""
    coordinates = points.shape[1]
    names = names or default_coordinate_names(coordinates)
    if coordinates == 1:
        return Drawing("curve", (names[0], ""), points)
    axes = names[0], names[1]
    if coordinates > 2:
        remark = f"The points have {coordinates} coordinates; they are drawn as dots at the first two."
        return Drawing("dots", axes, points[:, :2], remark=remark)
    if is_grid(points.astype(np.float32)):
        return Drawing("grid", axes, points)
    if triangles is not None and len(triangles) > 0:
        return Drawing("triangles", axes, points, triangles)
    try:
        size = np.ptp(points, axis=0)
        joined = Delaunay(points / np.where(size > 0, size, 1.0)).simplices.astype(np.int64)
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        remark = "The points cannot be joined by triangles; they are drawn as dots."
        return Drawing("dots", axes, points, remark=remark)
    remark = "The run kept no triangles; neighbouring points are joined for the picture."
    return Drawing("triangles", axes, points, joined, remark)


# -- test samples


@dc.dataclass(frozen=True, eq=False)
class Sample:
    """One test sample; of several channels, those whose true field is known."""

    name: str
    inputs: Float[np.ndarray, " sensors"]
    truths: Mapping[int, Float[np.ndarray, " points"]]


@dc.dataclass(frozen=True, eq=False)
class Tested:
    """The samples, or the reason why there are none; names for the numbers of an input; the triangles."""

    samples: tuple[Sample, ...] = ()
    reason: str = ""
    number_names: tuple[str, ...] | None = None
    triangles: Int[np.ndarray, "triangles 3"] | None = None


def read_tested(folder: Path, points: Float[np.ndarray, "points coordinates"], sensors: int) -> Tested:
    """The test samples in `evaluation.npz`, if their fields are given at `points`."""
    path = folder / "evaluation.npz"
    record = EvaluationRecord.read(path)
    if record is None:
        return Tested(reason="The run has no test samples, so there is no true field to compare with.")
    if record.points is not None and not np.array_equal(record.points, points):
        return Tested(reason="Each test sample has its own points: true fields cannot be drawn on these points.")
    tested = _tested(record)
    sizes = {len(sample.inputs) for sample in tested.samples}
    counts = {truth.shape for sample in tested.samples for truth in sample.truths.values()}
    if (sizes, counts) != ({sensors}, {(len(points),)}):
        raise CorruptFileError(f"{path} has no test samples of this operator. Evaluate the run again.")
    return tested


def _tested(record: EvaluationRecord) -> Tested:
    """The example in all channels, and the worst samples, each in its worst channel."""
    table = np.stack([*record.labels.values()], axis=1) if record.labels else np.zeros((len(record.errors), 0))
    example, inputs = record.example, record.example_input
    if example is None or inputs is None or not 0 <= example.index < len(table):
        return Tested()
    is_input = np.array_equal(table[example.index], inputs)  # the labels of a sample are the numbers of its input

    def title(kind: str, number: int) -> str:
        named = ", ".join(f"{name} = {x:.4g}" for name, x in zip(record.labels, table[number], strict=True))
        return f"{kind}: {named or f'test sample {number}'} (relative error {record.errors[number]:.1e})"

    assert record.example_target is not None  # there is an example
    channels = dict(enumerate(np.atleast_2d(record.example_target.T)))
    samples = [Sample(title("example", example.index), inputs, channels)]
    own = table[record.worst_indices] if is_input and record.worst_inputs is None else record.worst_inputs
    for rank, row, worst in zip(_RANKS, () if own is None else own, record.worst, strict=False):
        samples.append(Sample(title(f"{rank} error", worst.index), row, {worst.channel: worst.target}))
    return Tested(tuple(samples), "", tuple(record.labels) if is_input else None, record.triangles)
