"""The operator as source code: a Python file that needs NumPy alone, and a script for browsers."""

import base64
import importlib.metadata
import json
import textwrap
from importlib.resources import files

import numpy as np

from .graph import Function, Graph

_PYTHON = '''\
"""Predicts output fields of an operator. Written by trunkfirst {version}; needs NumPy and nothing else.

    from model import predict
    outputs = predict(inputs, points)

Points outside the training domain are refused, unless predict(inputs, points, extrapolate=True) asks for them.
"""

import base64
import types

import numpy as np

INPUT_NAMES = {names}
"""The input functions, concatenated in `inputs` in this order."""
SENSORS, COORDINATES = {sensors}, {coordinates}
LOW, HIGH = np.array({low}), np.array({high})
"""The box of the training points, with a margin of one cell; infinite where it is not known or does not matter."""
DTYPE = np.dtype("{dtype}")
BLOCK = 64


def predict(inputs, points, *, extrapolate=False):
    """Outputs ({fields}) of inputs (samples, sensors) at points (points, coordinates), in physical units."""
    inputs, points = _checked("inputs", inputs, SENSORS), _checked("points", points, COORDINATES)
    if not extrapolate and (outside := is_outside(points)).any():
        first = points[np.argmax(outside)].tolist()
        which = f"{{outside.sum()}} of {{len(points)}} lie outside the training domain; the first is {{first}}"
        box = f"the domain is {{LOW.tolist()}} to {{HIGH.tolist()}}"
        raise ValueError(f"points: {{which}}; {{box}}; pass extrapolate=True to predict there")
    functions = basis(points)
    blocks = [inputs[i : i + BLOCK] for i in range(0, max(len(inputs), 1), BLOCK)]
    return np.concatenate([expand(coefficients(block), functions, points) for block in blocks])


def is_outside(points):
    """Whether each point lies outside the box of the training points."""
    return ((points < LOW) | (points > HIGH)).any(axis=1)


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
    if not np.isfinite(array).all():
        raise ValueError(f"{{name}}: not all values are finite")
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


W = types.SimpleNamespace(**dict(_arrays()))
'''
_JAVASCRIPT = """\
{arrays}
const operator = (() => {{
  const bytes = Uint8Array.from(atob("{numbers}"), (letter) => letter.charCodeAt(0));
  const numbers = new Float64Array(bytes.buffer);
  const W = {{}};
  let start = 0;
  for (const [name, shape] of Object.entries({shapes})) {{
    const count = shape.reduce((product, n) => product * n, 1);
    W[name] = np.array(shape, numbers.subarray(start, start + count));
    start += count;
  }}
  {functions}
  const predict = (inputs, points) => outputs(coefficients(inputs), basis(points), points);
  return {{ coefficients, basis, outputs, predict, inputNames: {names} }};
}})();
"""
_KINDS = {"f": "number", "i": "int", "b": "bool"}


def to_numpy(graph: Graph, *, double: bool) -> bytes:
    """The text of a Python file with a function `predict(inputs, points)`. Its weights are base64."""
    encoded = base64.b64encode(graph.packed("<f8" if double else "<f4")).decode()
    shapes = {name: (_KINDS[array.dtype.kind], array.shape) for name, array in graph.constants.items()}
    low, high = np.array([[-np.inf], [np.inf]]) * np.ones(graph.coordinates) if graph.box is None else graph.box
    return _PYTHON.format(
        low=_numbers(low),
        high=_numbers(high),
        version=importlib.metadata.version("trunkfirst"),
        names=ascii(graph.input_names),
        sensors=graph.sensors,
        coordinates=graph.coordinates,
        dtype="float64" if double else "float32",
        fields="samples, points" + ("" if graph.channels is None else ", channels"),
        **{f.result: textwrap.indent(_body(f, graph, "{} = {}"), "    ") for f in graph.functions},
        shapes="\n".join(f'    "{name}": {shape},' for name, shape in shapes.items()),
        numbers="\n".join(encoded[i : i + 100] for i in range(0, len(encoded), 100)),
    ).encode()


def to_javascript(graph: Graph) -> str:
    """A script in double precision that defines `operator.predict(inputs, points)` and the functions it calls.

    Arrays are objects {shape, data}, made by `np.array(shape, numbers)`.
    """
    functions = [
        f"function {f.result}({', '.join(f.arguments)}) {{\n{_body(f, graph, 'const {} = {};')}\n  }}"
        for f in graph.functions
    ]
    return _JAVASCRIPT.format(
        arrays=page_file("arrays.js"),
        numbers=base64.b64encode(graph.packed("<f8")).decode(),
        shapes=json.dumps({name: array.shape for name, array in graph.constants.items()}),
        # "</script>" in a name would end the script of a page.
        names=json.dumps(graph.input_names).replace("<", "\\u003c"),
        functions="\n  ".join(functions),
    )


def page_file(name: str) -> str:
    """A file of the explorer page as text."""
    return files(__package__ or __name__).joinpath("page", name).read_text("utf-8")


def _numbers(values: np.ndarray) -> str:
    """As Python source."""
    return "[" + ", ".join(repr(x) if np.isfinite(x) else f'float("{x}")' for x in values.tolist()) + "]"


def _body(function: Function, graph: Graph, assignment: str) -> str:
    *before, last = function.operations
    lines = [assignment.format(each.result, each.text(graph.constants)) for each in before]
    return "\n".join([*lines, f"return {last.text(graph.constants)}"])
