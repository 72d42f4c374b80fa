"""ONNX: a model that other programs and languages run, e.g. with onnxruntime."""

import importlib
import importlib.metadata
from typing import Any

import numpy as np

from ..errors import MissingExtraError, UsageError
from .graph import Graph, Operation, in_precision

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
    onnx = _onnx()
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


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtraError("ONNX export", "onnx", "onnx") from error
