"""One entry for all formats: an operator, or a folder that holds one, into one file."""

import dataclasses as dc
import importlib.util
from collections.abc import Callable
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data.array_checks import evenly
from ..errors import MissingExtraError, PrecisionError, UnknownNameError, UsageError
from ..files.integrity import atomic_write
from ..linear.orthonormalise import relative_errors
from ..method import Trained
from ..networks.operator import Operator, load
from ..training_summary import FILE, load_run
from .explorer import explorer_page
from .explorer_data import MOST_ERROR
from .graph import Graph, to_numpy, to_onnx
from .jaxpr import trace

_PRECISIONS = ("single", "double")
_PAGE = "html"
_ENDINGS = {".onnx": "onnx", ".stablehlo": "stablehlo", ".py": "numpy", ".html": _PAGE}
_PLATFORMS = ("cpu", "cuda", "tpu")
_SAMPLES, _BLOCK, _POINTS = 256, 16, 1000


@dc.dataclass(frozen=True)
class Exported:
    """What was written, and the measured relative error of single precision; None if nothing was rounded."""

    path: Path
    to: str
    precision: str
    size: int
    error: float | None


def export(
    source: Operator | Trained | Path | str,
    to: str,
    path: Path | str | None = None,
    *,
    precision: str | None = None,
    samples: tuple[Float[np.ndarray, "samples sensors"], Float[np.ndarray, "points coordinates"]] | None = None,
) -> Exported:
    """Write an operator to a file for other programs.

    Args:
        source: an operator, the result of `fit`, or a folder written by `run`, `fit` or `save`.
        to: "onnx", "stablehlo", "numpy" or "html"; or the path, whose ending .onnx, .stablehlo, .py or .html
            selects the format, as in `export(operator, "model.onnx")`.
        path: the file to write, if `to` is a format. It is replaced atomically.
        precision: "single" or "double"; by default that of the operator. A double operator is written in single
            precision only if that changes its outputs by less than 1e-5. "html" is always in double precision.
        samples: inputs (samples, sensors) and points (points, coordinates) to measure that change; by default
            some of training, which an operator remembers.

    Returns:
        An `Exported`: the file, its format and precision.

    Raises:
        UnknownNameError: another format or precision.
        PrecisionError: single precision is too coarse, or the change cannot be measured.
        PredictOnlyError: the branch is a scikit-learn estimator.
        MissingExtraError: a package is missing.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = trunkfirst.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> modes = trunkfirst.ModesTrunk(width=2)
    >>> method = trunkfirst.TwoStep(modes, trunkfirst.Linear(), inputs="raw", weights="none")
    >>> operator = trunkfirst.fit(data.take(slice(0, 30)), method=method).operator
    >>> made = trunkfirst.export(operator, "model.py")  # from model import predict: needs only NumPy
    """
    if path is None:
        to, path = format_of(to), to
    if to not in (*FORMATS, _PAGE):
        raise UnknownNameError("format", to, (*FORMATS, _PAGE))
    if precision not in (None, *_PRECISIONS):
        raise UnknownNameError("precision", precision, _PRECISIONS)
    source = source.operator if isinstance(source, Trained) else source
    if to == _PAGE:
        return _export_page(source, Path(path), precision)
    operator = source if isinstance(source, Operator) else _loaded(Path(source))
    graph = trace(operator)
    is_double = operator.dtype == jnp.float64
    double = is_double if precision is None else precision == "double"
    error = None
    if is_double and not double:
        inputs, points = samples or (operator.domain.training_inputs, operator.domain.points)
        if inputs is None or points is None:
            raise PrecisionError(
                "the error of single precision is not known without samples; give samples=(inputs, points), "
                "or export in double precision"
            )
        error = _check_single(graph, inputs, points)
    return _write(Path(path), to, FORMATS[to](graph, double=double), "double" if double else "single", error)


def _loaded(folder: Path) -> Operator:
    return load_run(folder)[0] if (folder / FILE).is_file() else load(folder)


def format_of(path: Path | str) -> str:
    """The format that the ending of a file names."""
    ending = Path(path).suffix.lower()
    if not ending:
        raise UsageError(
            f"{path} has no ending to select the format ({', '.join(_ENDINGS)}); add one, or use --to"
        )
    if ending not in _ENDINGS:
        raise UnknownNameError("format with the ending", ending, tuple(_ENDINGS))
    return _ENDINGS[ending]


def _export_page(source: Operator | Path | str, path: Path, precision: str | None) -> Exported:
    if isinstance(source, Operator):
        raise UsageError("the explorer shows training ranges and test samples too: give the folder of a run")
    if precision == "single":
        raise UsageError("the explorer computes in double precision, as JavaScript does; leave precision out")
    return _write(path, _PAGE, explorer_page(Path(source)), "double", None)


def _write(path: Path, to: str, content: bytes, precision: str, error: float | None) -> Exported:
    with atomic_write(path) as file:
        file.write(content)
    return Exported(path, to, precision, len(content), error)


# -- StableHLO


def to_stablehlo(graph: Graph, *, double: bool) -> bytes:
    """The operator for `jax.export.deserialize(bytearray(...)).call(inputs, points)`, for any number of rows.

    Runs on processors and accelerators, and can be differentiated once.
    """
    if importlib.util.find_spec("flatbuffers") is None:
        raise MissingExtraError("StableHLO export", "flatbuffers", "stablehlo")
    dtype = np.float64 if double else np.float32
    # JAX may have compiled `take` for indices of either width before, and confuses the two.
    constants = {name: a.astype(np.int32) if a.dtype.kind == "i" else a for name, a in graph.constants.items()}
    graph = dc.replace(graph, constants=constants)
    samples, points = jax.export.symbolic_shape("samples, points")
    # Ranks are promoted on purpose, whatever the surrounding program has set.
    with jax.enable_x64(double), jax.numpy_rank_promotion("allow"):
        exported = jax.export.export(
            jax.jit(lambda inputs, points: graph.evaluate(inputs, points, dtype, jnp)), platforms=_PLATFORMS
        )(
            jax.ShapeDtypeStruct((samples, graph.sensors), dtype),
            jax.ShapeDtypeStruct((points, graph.coordinates), dtype),
        )
        return bytes(exported.serialize(vjp_order=1))


FORMATS: dict[str, Callable[..., bytes]] = {"onnx": to_onnx, "stablehlo": to_stablehlo, "numpy": to_numpy}


# -- the error of single precision


def _check_single(graph: Graph, inputs: np.ndarray, points: np.ndarray) -> float:
    """The largest relative l2 error of single precision, on evenly chosen samples and points, for each channel.

    It includes the rounding of inputs and points, which a program in single precision cannot avoid.
    """
    inputs, points = inputs[evenly(len(inputs), _SAMPLES)], points[evenly(len(points), _POINTS)]
    blocks = [inputs[i : i + _BLOCK] for i in range(0, len(inputs), _BLOCK)]
    # NaN if no sample is left: inputs restored from few principal coordinates may leave the domain of a logarithm.
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
