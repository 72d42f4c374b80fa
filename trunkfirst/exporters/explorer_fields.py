"""What the interactive explorer draws: basis functions as a table, the pictures, and the test samples of a run."""

import dataclasses as dc
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import Delaunay, QhullError

from ..data.array_checks import evenly
from ..data.operator_data import default_coordinate_names
from ..errors import CorruptFileError
from ..files.npz import read_npz
from ..linear.orthonormalise import relative_errors
from ..networks.grids import is_grid
from ..networks.operator import Operator

MOST_ERROR = 1e-5
"""The largest relative error that rounding to single precision may cause."""
_MOST_BYTES = 2**21
# A page computes functions that depend on the input anew for every picture.
_MOST_MOVING_POINTS = 4096
_INPUTS = 64
_LABEL = "labels."
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
    functions = _functions(operator, points[kept])
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


def _functions(operator: Operator, points: np.ndarray) -> Float[np.ndarray, "rank points"]:
    """The basis functions, multiplied by the boundary factor."""
    with jax.enable_x64(operator.dtype == jnp.float64):
        basis = np.asarray(operator.basis(points), np.float64)
        if operator.output is not None and operator.output.boundary is not None:
            basis = basis * np.asarray(operator.output.boundary(jnp.asarray(points)))[:, None]
    return np.ascontiguousarray(basis.T)


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
    if not path.is_file():
        return Tested(reason="The run kept no test samples, so there is no true field to compare with.")
    arrays = read_npz(path)
    try:
        if not np.array_equal(arrays["points"], points):
            return Tested(
                reason="Each test sample has its own points: true fields cannot be drawn on these points."
            )
        tested = _tested(arrays)
        _check(tested, len(points), sensors)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptFileError(f"{path} does not hold test samples: {error}. Evaluate the run again.") from error
    return tested


def _tested(arrays: Mapping[str, np.ndarray]) -> Tested:
    labels = {name[len(_LABEL) :]: label for name, label in arrays.items() if name.startswith(_LABEL)}
    index, inputs, target = int(arrays["example_index"]), arrays["example_input"], arrays["example_target"]
    table = np.stack(list(labels.values()), axis=1) if labels else np.zeros((len(arrays["errors"]), 0))
    is_input = np.array_equal(table[index], inputs)  # the labels of a sample are the numbers of its input

    def title(kind: str, number: int) -> str:
        named = ", ".join(f"{name} = {value:.4g}" for name, value in zip(labels, table[number], strict=True))
        return f"{kind}: {named or f'test sample {number}'} (relative error {arrays['errors'][number]:.1e})"

    samples = [Sample(title("example", index), inputs, dict(enumerate(np.atleast_2d(target.T))))]
    worst = arrays.get("worst_inputs", table[arrays["worst_indices"]] if is_input else None)
    if worst is not None:
        rows = zip(arrays["worst_indices"], worst, arrays["worst_channels"], arrays["worst_targets"], strict=True)
        for rank, (number, row, channel, truth) in zip(_RANKS, rows, strict=False):
            samples.append(Sample(title(f"{rank} error", int(number)), row, {int(channel): truth}))
    return Tested(tuple(samples), "", tuple(labels) if is_input else None, arrays.get("triangles"))


def _check(tested: Tested, points: int, sensors: int) -> None:
    for sample in tested.samples:
        if sample.inputs.shape != (sensors,) or any(t.shape != (points,) for t in sample.truths.values()):
            raise ValueError("inputs or fields of other shapes than those of training")
    triangles = tested.triangles
    if triangles is not None and (triangles.ndim, *triangles.shape[1:]) != (2, 3):
        raise ValueError(f"triangles of shape {triangles.shape}")
    if triangles is not None and triangles.size and not 0 <= triangles.min() <= triangles.max() < points:
        raise ValueError(f"triangles name points {triangles.min()} to {triangles.max()}; there are {points}")
