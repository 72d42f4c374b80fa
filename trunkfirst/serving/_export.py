"""One entry for all formats: an operator, or a folder that holds one, into one file."""

import dataclasses as dc
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import PrecisionError, UnknownNameError
from ..files import atomic_write
from ..networks import Operator, load
from ._numpy import to_numpy
from ._onnx import to_onnx
from ._precision import check_single, training_samples
from ._stablehlo import to_stablehlo
from ._trace import trace

FORMATS: dict[str, Callable[..., bytes]] = {"onnx": to_onnx, "stablehlo": to_stablehlo, "numpy": to_numpy}
_PRECISIONS = ("single", "double")


@dc.dataclass(frozen=True)
class Exported:
    """What was written, and the estimated relative error of single precision; None where nothing was rounded."""

    path: Path
    to: str
    precision: str
    size: int
    error: float | None


def export(
    source: Operator | Path | str,
    to: str,
    path: Path | str,
    *,
    precision: str | None = None,
    samples: tuple[Float[np.ndarray, "samples sensors"], Float[np.ndarray, "points coordinates"]] | None = None,
) -> Exported:
    """Write an operator as "onnx", "stablehlo" or "numpy" into the file `path`, which is whole or not there.

    `source` is an operator, or a folder written by `run`, `fit` or `save`. The precision, "single" or "double", is
    that of the operator where nothing is said. A double operator is rounded to single precision only where that
    changes its outputs by less than 1e-5, measured on `samples` = (inputs, points); a run folder has its own.
    """
    if to not in FORMATS:
        raise UnknownNameError("format", to, tuple(FORMATS))
    if precision not in (None, *_PRECISIONS):
        raise UnknownNameError("precision", precision, _PRECISIONS)
    operator = source if isinstance(source, Operator) else load(source)
    graph = trace(operator)
    is_double = operator.dtype == jnp.float64
    double = is_double if precision is None else precision == "double"
    error = None
    if is_double and not double:
        samples = (
            training_samples(Path(source)) if samples is None and not isinstance(source, Operator) else samples
        )
        if samples is None:
            raise PrecisionError(
                "what single precision costs is not known without samples; give samples=(inputs, points), export "
                "the folder of a run, which remembers some, or export in double precision"
            )
        error = check_single(graph, *samples)
    content = FORMATS[to](graph, double=double)
    with atomic_write(path) as file:
        file.write(content)
    return Exported(Path(path), to, "double" if double else "single", len(content), error)
