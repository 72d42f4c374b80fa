"""An operator as a list of array operations, and those in other languages: Python with NumPy, JavaScript, ONNX.

Operations have the names, arguments and broadcasting of NumPy: elementwise functions, `where`, `matmul`,
`concatenate`, `reshape` (with -1 for a free size), `take` (indices of any shape), `transpose`, `sum`, `argmax`.
`int32` rounds numbers towards 0 and makes them indices.
"""

import base64
import dataclasses as dc
import importlib.metadata
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np

from ..errors import UsageError, import_extra
from ..files.text_files import fill_template, read_resource


@dc.dataclass(frozen=True)
class Operation:
    """`result` = `function`(*`arguments`, *`options`).

    An argument is the name of a value or constant, or a number. An option is an axis, a list of axes or a shape.
    """

    function: str
    arguments: tuple[str | float, ...]
    options: tuple[int | list[int], ...]
    result: str

    def apply(self, values: Mapping[str, Any], library: ModuleType = np) -> Any:
        """Compute the result with NumPy, or with another `library` that has the same functions."""
        given: list[Any] = [values[a] if isinstance(a, str) else a for a in self.arguments]
        if self.function == "concatenate":
            given = [given]
        return getattr(library, self.function)(*given, *self.options)

    def text(self, constants: Mapping[str, Any]) -> str:
        """The call as text, valid in Python and in JavaScript; constants are attributes of `W`."""
        names = ", ".join(f"W.{a}" if a in constants else str(a) for a in self.arguments)
        names = f"[{names}]" if self.function == "concatenate" else names
        return f"np.{self.function}({', '.join([names, *map(str, self.options)])})"


@dc.dataclass(frozen=True)
class Function:
    """The operations that compute the value called `result` from the arguments."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]
    result: str

    def evaluate(self, values: Mapping[str, Any], library: ModuleType = np) -> Any:
        """The result, given the arguments and constants by name."""
        values = dict(values)
        for operation in self.operations:
            values[operation.result] = operation.apply(values, library)
        return values[self.result]


@dc.dataclass(frozen=True)
class Graph:
    """Three functions: coefficients(inputs), basis(points) and outputs(coefficients, basis, points).

    They share constants: floats in double precision, integers (indices) and booleans (masks). Names are unique. Of
    a trunk that depends on the input, `basis` has only the encoded points; `outputs` computes the functions.
    """

    constants: Mapping[str, np.ndarray]
    coefficients: Function
    basis: Function
    outputs: Function
    input_names: tuple[str, ...]
    """The input functions, concatenated in `inputs` in this order."""
    sensors: int
    coordinates: int
    channels: int | None
    box: np.ndarray | None = None
    """(2, coordinates): the box of the training points with a margin of one cell; None if it is not known."""

    @property
    def functions(self) -> tuple[Function, Function, Function]:
        """In the order of evaluation."""
        return self.coefficients, self.basis, self.outputs

    def evaluate(self, inputs: Any, points: Any, dtype: type[np.floating[Any]], library: ModuleType = np) -> Any:
        """The outputs in precision `dtype`."""
        values = {"inputs": inputs, "points": points, **self.constants}
        values = {name: in_precision(value, dtype) for name, value in values.items()}
        for function in self.functions:
            values[function.result] = function.evaluate(values, library)
        return values["outputs"]

    def packed(self, dtype: str) -> bytes:
        """All constants as numbers of type `dtype`, one after the other."""
        return b"".join(np.ravel(array).astype(dtype).tobytes() for array in self.constants.values())


def in_precision(array: Any, dtype: type[np.floating[Any]]) -> Any:
    """Floats in another precision; indices and masks unchanged."""
    return array.astype(dtype) if array.dtype.kind == "f" else array


_KINDS = {"f": "number", "i": "int", "b": "bool"}


def to_numpy(graph: Graph, *, double: bool) -> bytes:
    """The text of a Python file with a function `predict(inputs, points)`. Its weights are base64."""
    encoded = base64.b64encode(graph.packed("<f8" if double else "<f4")).decode()
    shapes = {name: (_KINDS[array.dtype.kind], array.shape) for name, array in graph.constants.items()}
    low, high = np.array([[-np.inf], [np.inf]]) * np.ones(graph.coordinates) if graph.box is None else graph.box
    return fill_template(
        "exporters/page/program.py.jinja",
        low=_numbers(low),
        high=_numbers(high),
        version=importlib.metadata.version("trunkfirst"),
        names=ascii(graph.input_names),
        sensors=graph.sensors,
        coordinates=graph.coordinates,
        dtype="float64" if double else "float32",
        fields="samples, points" + ("" if graph.channels is None else ", channels"),
        functions={f.result: _lines(f, graph) for f in graph.functions},
        shapes=shapes,
        numbers="\n".join(encoded[i : i + 100] for i in range(0, len(encoded), 100)),
    ).encode()


def to_javascript(graph: Graph) -> str:
    """A script in double precision that defines `operator.predict(inputs, points)` and the functions it calls.

    Arrays are objects {shape, data}, made by `np.array(shape, numbers)`.
    """
    return fill_template(
        "exporters/page/operator.js.jinja",
        arrays=read_resource("exporters/page/arrays.js"),
        numbers=base64.b64encode(graph.packed("<f8")).decode(),
        shapes=json.dumps({name: array.shape for name, array in graph.constants.items()}),
        # "</script>" in a name would end the script of a page.
        names=json.dumps(graph.input_names).replace("<", "\\u003c"),
        functions=[(f.result, f.arguments, _lines(f, graph)) for f in graph.functions],
    )


def _numbers(values: np.ndarray) -> str:
    """As Python source."""
    return "[" + ", ".join(repr(x) if np.isfinite(x) else f'float("{x}")' for x in values.tolist()) + "]"


def _lines(function: Function, graph: Graph) -> list[tuple[str, str]]:
    """The name and the call of every operation."""
    return [(each.result, each.text(graph.constants)) for each in function.operations]


OPSET, IR_VERSION = 17, 8
# Protocol buffers end at 2 GiB. Larger models would need external data files, which are never written here.
_MOST_BYTES = 2**31 - 2**20
# The names that are not those of NumPy with a capital letter.
_NAMES = {
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "matmul": "MatMul",
    "negative": "Neg",
    "absolute": "Abs",
    "logical_not": "Not",
    "take": "Gather",
    "concatenate": "Concat",
    "sum": "ReduceSum",
    "argmax": "ArgMax",
}


def to_onnx(graph: Graph, *, double: bool) -> bytes:
    """The operator as an ONNX model in opset 17, from `inputs` and `points` of any number of rows to `outputs`.

    Weights are in the file, which is checked by ONNX's own checker before it is returned.
    """
    onnx = import_extra("ONNX export", "onnx", "onnx")
    dtype = np.float64 if double else np.float32
    if sum(in_precision(array, dtype).nbytes for array in graph.constants.values()) > _MOST_BYTES:
        raise UsageError("this operator has more than 2 GiB of weights, more than an ONNX file can hold")
    model = _model(onnx, graph, _Body(onnx, graph, dtype), double=double)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _model(onnx: Any, graph: Graph, body: "_Body", *, double: bool) -> Any:
    kind = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    fields = ["samples", "points", *([] if graph.channels is None else [graph.channels])]
    names = ", ".join(graph.input_names)
    describe = onnx.helper.make_tensor_value_info
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            body.nodes,
            "operator",
            [
                describe(
                    "inputs", kind, ["samples", graph.sensors], f"values of {names}, side by side in this order"
                ),
                describe("points", kind, ["points", graph.coordinates], "coordinates of the output points"),
            ],
            [describe("outputs", kind, fields, "output fields in physical units")],
            initializer=body.tensors(),
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trunkfirst",
        producer_version=importlib.metadata.version("trunkfirst"),
        doc_string=f"Output fields of an operator at points. `inputs` holds {names} side by side, in this order.",
    )
    box = {} if graph.box is None else dict(zip(("low", "high"), map(_listed, graph.box), strict=True))
    onnx.helper.set_model_props(model, {"input_names": names, **box})
    return model


def _listed(numbers: np.ndarray) -> str:
    return ", ".join(map(repr, numbers.tolist()))


class _Body:
    """The nodes, and the constants among their inputs: weights, numbers, shapes and axes."""

    def __init__(self, onnx: Any, graph: Graph, dtype: type[np.floating[Any]]):
        self._onnx, self._dtype = onnx, dtype
        self._constants = {name: in_precision(array, dtype) for name, array in graph.constants.items()}
        self.nodes: list[Any] = []
        for function in graph.functions:
            for operation in function.operations:
                self._add(operation)

    def tensors(self) -> list[Any]:
        """The constants as initialisers."""
        make = self._onnx.numpy_helper.from_array
        return [make(np.ascontiguousarray(array), name) for name, array in self._constants.items()]

    def _add(self, operation: Operation) -> None:
        arguments = [
            a if isinstance(a, str) else self._constant(f"number {a!r}", np.asarray(a, self._dtype))
            for a in operation.arguments
        ]
        result = operation.result
        match operation.function, operation.options:
            case "multiply" | "divide", _ if any(map(self._is_rounded, arguments)):
                # onnxruntime moves a factor next to a matrix product into that product, rounded to single
                # precision (MatMulScaleFusion). Two changes of sign, which are exact, prevent that.
                negated = int(self._is_rounded(arguments[0]))
                self._node("negative", [arguments[negated]], f"minus_{result}")
                arguments[negated] = f"minus_{result}"
                self._node(operation.function, arguments, f"scaled_{result}")
                self._node("negative", [f"scaled_{result}"], result)
            case "int32", _:
                self._node("cast", arguments, result, to=self._onnx.TensorProto.INT64)
            case "argmax", (axis,):
                self._node("argmax", arguments, result, axis=axis, keepdims=0)
            case "take" | "concatenate", (axis,):
                self._node(operation.function, arguments, result, axis=axis)
            case "transpose", (axes,):
                self._node("transpose", arguments, result, perm=axes)
            case "reshape", (shape,):
                self._node("reshape", [*arguments, self._constant(f"shape {shape}", np.array(shape))], result)
            case "sum", (axis,):
                axes = self._constant(f"axis {axis}", np.array([axis]))
                self._node("sum", [*arguments, axes], result, keepdims=0)
            case _:
                self._node(operation.function, arguments, result)

    def _node(self, function: str, arguments: list[str], result: str, **attributes: Any) -> None:
        name = _NAMES.get(function, function.capitalize())
        self.nodes.append(self._onnx.helper.make_node(name, arguments, [result], **attributes))

    def _constant(self, name: str, array: np.ndarray) -> str:
        self._constants[name] = array
        return name

    def _is_rounded(self, name: str) -> bool:
        """Whether it is one number that single precision would change."""
        array = self._constants.get(name)
        return array is not None and array.size == 1 and bool(array.astype(np.float32) != array)
