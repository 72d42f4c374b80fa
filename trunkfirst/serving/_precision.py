"""What single precision costs an operator, measured before anybody relies on it."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..data import evenly
from ..errors import PrecisionError
from ..linear import relative_errors
from ..runs import read_memory
from ._graph import Graph

MOST_ERROR = 1e-5
_SAMPLES, _BLOCK, _POINTS = 256, 16, 1000


def training_samples(
    folder: Path,
) -> tuple[Float[np.ndarray, "samples sensors"], Float[np.ndarray, "points coordinates"]] | None:
    """Inputs and points like those of training, as a run folder remembers them; None where it does not."""
    if not (folder / "training.npz").is_file():
        return None
    memory = read_memory(folder)
    if memory.familiarity is None:
        return None
    known = memory.familiarity
    return known.centre + known.seen @ np.linalg.pinv(known.matrix), memory.points


def check_single(
    graph: Graph,
    inputs: Float[np.ndarray, "samples sensors"],
    points: Float[np.ndarray, "points coordinates"],
) -> float:
    """The largest relative l2 error of single precision; above 1e-5 a `PrecisionError`.

    Measured on evenly chosen samples and points, channel by channel. That their numbers are rounded counts too:
    whoever computes in single precision has them in single precision.
    """
    inputs, points = inputs[evenly(len(inputs), _SAMPLES)], points[evenly(len(points), _POINTS)]
    blocks = [inputs[i : i + _BLOCK] for i in range(0, len(inputs), _BLOCK)]
    # NaN where no sample is left: inputs made of few principal coordinates may leave the domain of a logarithm.
    error = max((e for block in blocks for e in _errors(graph, block, points)), default=np.nan)
    if not error <= MOST_ERROR:
        raise PrecisionError(
            f"single precision would change the outputs by {error:.1e} (relative l2, worst sample), more than "
            f"{MOST_ERROR:g}; export in double precision"
        )
    return error


def _errors(graph: Graph, inputs: np.ndarray, points: np.ndarray) -> list[float]:
    with np.errstate(all="ignore"):
        exact, rounded = (_rows(graph.evaluate(inputs, points, dtype)) for dtype in (np.float64, np.float32))
    is_usable = np.isfinite(exact).all(axis=1) & exact.any(axis=1)
    return relative_errors(rounded[is_usable], exact[is_usable]).tolist()


def _rows(fields: np.ndarray) -> Float[np.ndarray, "fields points"]:
    return fields if fields.ndim == 2 else np.swapaxes(fields, 1, 2).reshape(-1, fields.shape[1])
