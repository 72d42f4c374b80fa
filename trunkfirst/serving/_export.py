"""One entry for all formats: an operator, or a folder that holds one, into one file."""

import dataclasses as dc
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import PrecisionError, UnknownNameError, UsageError
from ..files import atomic_write
from ..networks import Operator, load
from ._numpy import to_numpy
from ._onnx import to_onnx
from ._page import explorer_page
from ._precision import check_single, training_samples
from ._stablehlo import to_stablehlo
from ._trace import trace

FORMATS: dict[str, Callable[..., bytes]] = {"onnx": to_onnx, "stablehlo": to_stablehlo, "numpy": to_numpy}
_PRECISIONS = ("single", "double")
_PAGE = "html"


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
    """Write an operator as "onnx", "stablehlo", "numpy" or "html" into the file `path`, whole or not at all.

    `source` is an operator, or a folder written by `run`, `fit` or `save`. The precision, "single" or "double", is
    that of the operator where nothing is said. A double operator is rounded to single precision only where that
    changes its outputs by less than 1e-5, measured on `samples` = (inputs, points); a run folder has its own.
    "html", the explorer page, is made from a run folder alone, always in double precision.

    >>> import numpy as np
    >>> import trunkfirst as tf
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = tf.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> trunk = tf.ProjectedTrunk(tf.TrunkSettings((1, 20, 6), "tanh", "xavier"), iterations=50, starts=1)
    >>> operator = tf.fit(data.take(slice(0, 30)), tf.TwoStep(trunk, tf.LinearRidge())).operator
    >>> made = tf.export(operator, "numpy", "model.py")  # from model import predict: NumPy alone
    """
    if to not in (*FORMATS, _PAGE):
        raise UnknownNameError("format", to, (*FORMATS, _PAGE))
    if precision not in (None, *_PRECISIONS):
        raise UnknownNameError("precision", precision, _PRECISIONS)
    if to == _PAGE:
        return _export_page(source, Path(path), precision)
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
    return _write(Path(path), to, FORMATS[to](graph, double=double), "double" if double else "single", error)


def _export_page(source: Operator | Path | str, path: Path, precision: str | None) -> Exported:
    if isinstance(source, Operator):
        raise UsageError("the page shows what a run remembers beside its operator: give the folder of a run")
    if precision == "single":
        raise UsageError("the page computes in double precision, as JavaScript does; leave precision out")
    return _write(path, _PAGE, explorer_page(Path(source)), "double", None)


def _write(path: Path, to: str, content: bytes, precision: str, error: float | None) -> Exported:
    with atomic_write(path) as file:
        file.write(content)
    return Exported(path, to, precision, len(content), error)
