"""The basis functions at the points as a table: a field is then one product of a matrix and a vector."""

import dataclasses as dc

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..data import evenly
from ..linear import relative_errors
from ..networks import Operator
from ._precision import MOST_ERROR

_MOST_BYTES = 2**21
_INPUTS = 64


@dc.dataclass(frozen=True, eq=False)
class Table:
    """A channel is scale (offset + functions^T coefficients), its exponential where outputs are positive."""

    kept: Int[np.ndarray, " kept"]
    """The points that have a column."""
    functions: Float[np.ndarray, "rank kept"]
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
    """All points in double precision where they fit; else in single where that is exact enough; else fewer points.

    `inputs` are training inputs, on which single precision is judged and the range of the outputs is found.
    """
    rank = operator.trunk.width + 1 if operator.transform is None else operator.transform.shape[1]
    inputs = inputs[evenly(len(inputs), _INPUTS)]
    kept = evenly(len(points), max(_MOST_BYTES // (4 * rank), 2))
    functions = _functions(operator, points[kept])
    if functions.nbytes > _MOST_BYTES:
        single = functions.astype(np.float32)
        if _rounding(operator, inputs, functions, single) <= MOST_ERROR:
            functions = single
        else:
            some = evenly(len(kept), max(_MOST_BYTES // (8 * rank), 2))
            kept, functions = kept[some], functions[:, some]
    outputs = operator.predict(inputs, points[kept])
    fields = (outputs[..., None] if operator.channels is None else outputs).reshape(-1, operator.channels or 1)
    fields = np.where(np.isfinite(fields), fields, np.nan)
    ranges = [[np.nanmin(f), np.nanmax(f)] if np.isfinite(f).any() else [0.0, 1.0] for f in fields.T]
    output = operator.output
    return Table(
        kept,
        functions,
        0.0 if output is None or output.boundary is None else output.boundary.value,
        np.ones(operator.channels or 1) if output is None else np.asarray(output.scale, np.float64),
        output is not None and output.is_positive,
        np.array(ranges),
    )


def _functions(operator: Operator, points: np.ndarray) -> Float[np.ndarray, "rank points"]:
    """The basis functions, and the boundary's factor with them."""
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
