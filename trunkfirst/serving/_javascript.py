"""The operator in plain JavaScript, for pages that compute it in the browser."""

import base64
import json
from pathlib import Path

import numpy as np

from ._graph import Function, Graph, Operation

_PAGE = """\
{runtime}
const operator = (() => {{
  const bytes = Uint8Array.from(atob("{numbers}"), (letter) => letter.charCodeAt(0));
  const numbers = new Float{bits}Array(bytes.buffer);
  const W = {{}};
  let start = 0;
  for (const [name, shape] of Object.entries({shapes})) {{
    const count = shape.reduce((product, n) => product * n, 1);
    W[name] = np.array(shape, numbers.subarray(start, start + count));
    start += count;
  }}
  {coefficients}
  {basis}
  {outputs}
  const predict = (inputs, points) => outputs(coefficients(inputs), basis(points), points);
  return {{ coefficients, basis, outputs, predict, inputNames: {names} }};
}})();
"""


def to_javascript(graph: Graph, *, double: bool) -> str:
    """A script that defines `operator.predict(inputs, points)`, and the functions that it is made of.

    Arrays are objects {shape, data}, made by `np.array(shape, numbers)`. Weights are stored in single or double
    precision; JavaScript computes in double precision.
    """
    dtype = "<f8" if double else "<f4"
    flat = np.concatenate([np.ravel(array).astype(dtype) for array in graph.constants.values()])
    bodies = {f.result: _function(f, graph) for f in graph.functions}
    return _PAGE.format(
        runtime=Path(__file__).with_name("_arrays.js").read_text(encoding="utf-8"),
        numbers=base64.b64encode(flat.tobytes()).decode(),
        bits=8 * flat.itemsize,
        shapes=json.dumps({name: array.shape for name, array in graph.constants.items()}),
        # "</script>" in a name would end the script of a page.
        names=json.dumps(graph.input_names).replace("<", "\\u003c"),
        **bodies,
    )


def _function(function: Function, graph: Graph) -> str:
    *before, last = function.operations
    lines = [f"const {each.result} = {_expression(each, graph)};" for each in before]
    body = "\n    ".join([*lines, f"return {_expression(last, graph)};"])
    return f"function {function.result}({', '.join(function.arguments)}) {{\n    {body}\n  }}"


def _expression(operation: Operation, graph: Graph) -> str:
    names = [f"W.{a}" if a in graph.constants else str(a) for a in operation.arguments]
    return f"np.{operation.function}({', '.join([*names, *map(str, operation.options)])})"
