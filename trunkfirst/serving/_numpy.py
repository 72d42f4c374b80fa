"""A predictor in one Python file that needs NumPy and nothing else."""

import base64
import importlib.metadata
import textwrap

import numpy as np

from ._graph import Function, Graph, Operation

_INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "matmul": "@"}
_PAGE = '''\
"""Predicts output fields of an operator. Written by trunkfirst {version}; needs NumPy and nothing else.

    from model import predict
    outputs = predict(inputs, points)
"""

import base64

import numpy as np

INPUT_NAMES = {names}
"""The input functions, whose values stand side by side in `inputs`, in this order."""
SENSORS, COORDINATES = {sensors}, {coordinates}
DTYPE = np.dtype("{dtype}")
BLOCK = 64


def predict(inputs, points):
    """Outputs ({fields}) of inputs (samples, sensors) at points (points, coordinates), in physical units."""
    inputs, points = _checked("inputs", inputs, SENSORS), _checked("points", points, COORDINATES)
    functions = basis(points)
    blocks = [inputs[i : i + BLOCK] for i in range(0, max(len(inputs), 1), BLOCK)]
    return np.concatenate([expand(coefficients(block), functions, points) for block in blocks])


def coefficients(inputs):
    """Coefficients (samples, rank) of the inputs in the basis."""
{coefficients}


def basis(points):
    """The basis functions (points, rank) at the points."""
{basis}


def expand(coefficients, basis, points):
    """The outputs of these coefficients."""
{outputs}


def _checked(name, array, columns):
    array = np.asarray(array, DTYPE)
    if array.ndim != 2 or array.shape[1] != columns:
        raise ValueError(f"{{name}}: expected shape (any, {{columns}}), got {{array.shape}}")
    return array


_SHAPES = {{
{shapes}
}}
_NUMBERS = """
{numbers}
"""


def _arrays():
    flat = np.frombuffer(base64.b64decode(_NUMBERS), DTYPE.newbyteorder("<")).astype(DTYPE)
    start = 0
    for name, (kind, shape) in _SHAPES.items():
        count = int(np.prod(shape))
        yield name, flat[start : start + count].reshape(shape).astype(DTYPE if kind == "number" else kind)
        start += count


W = dict(_arrays())
'''


def to_numpy(graph: Graph, *, double: bool) -> bytes:
    """The text of a Python file with a function `predict(inputs, points)`; the weights are in it as base64."""
    dtype = np.float64 if double else np.float32
    flat = np.concatenate([np.ravel(array).astype(dtype) for array in graph.constants.values()])
    encoded = base64.b64encode(flat.astype(flat.dtype.newbyteorder("<")).tobytes()).decode()
    page = _PAGE.format(
        version=importlib.metadata.version("trunkfirst"),
        names=ascii(graph.input_names),
        sensors=graph.sensors,
        coordinates=graph.coordinates,
        dtype=flat.dtype.name,
        fields="samples, points" + ("" if graph.channels is None else ", channels"),
        coefficients=_body(graph.coefficients, graph),
        basis=_body(graph.basis, graph),
        outputs=_body(graph.outputs, graph),
        shapes="\n".join(f'    "{name}": ("{_kind(a)}", {a.shape}),' for name, a in graph.constants.items()),
        numbers="\n".join(encoded[i : i + 100] for i in range(0, len(encoded), 100)),
    )
    return page.encode()


def _kind(array: np.ndarray) -> str:
    return {"f": "number", "i": "int", "b": "bool"}[array.dtype.kind]


def _body(function: Function, graph: Graph) -> str:
    *before, last = function.operations
    lines = [f"{each.result} = {_expression(each, graph)}" for each in before]
    return textwrap.indent("\n".join([*lines, f"return {_expression(last, graph)}"]), "    ")


def _expression(operation: Operation, graph: Graph) -> str:
    first, *others = names = [f'W["{a}"]' if a in graph.constants else str(a) for a in operation.arguments]
    match operation.function:
        case "take":
            return f"{first}[:, {others[0]}]"
        case "concatenate":
            return f"np.concatenate([{', '.join(names)}], axis=1)"
        case "reshape":
            return f"{first}.reshape(len({first}), {', '.join(map(str, operation.options))})"
        case "transpose":
            return f"{first}.transpose({', '.join(map(str, operation.options))})"
        case "sum":
            return f"{first}.sum(axis=-1)"
        case "negative":
            return f"-{first}"
        case name if name in _INFIX:
            return f"{first} {_INFIX[name]} {others[0]}"
        case name:
            return f"np.{name}({', '.join(names)})"
