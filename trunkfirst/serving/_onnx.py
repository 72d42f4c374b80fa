"""ONNX: a model that other programs and languages run, e.g. with onnxruntime."""

import importlib
import importlib.metadata
from typing import Any

import numpy as np

from ..errors import MissingExtraError, UsageError
from ._graph import Graph, Operation, in_precision

OPSET, IR_VERSION = 17, 8
# Protocol buffers end at 2 GiB; beyond, ONNX would need files outside the file, which are never written here.
_MOST_BYTES = 2**31 - 2**20
_NAMES = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "matmul": "MatMul",
    "negative": "Neg",
    "absolute": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "sin": "Sin",
    "cos": "Cos",
    "where": "Where",
    "take": "Gather",
    "concatenate": "Concat",
    "reshape": "Reshape",
    "transpose": "Transpose",
    "sum": "ReduceSum",
}


def to_onnx(graph: Graph, *, double: bool) -> bytes:
    """The operator as an ONNX model in opset 17, from `inputs` and `points` of any numbers of rows to `outputs`.

    Weights are in the file, which is checked by ONNX's own checker before it is returned.
    """
    onnx = _onnx()
    dtype = np.float64 if double else np.float32
    if sum(in_precision(array, dtype).nbytes for array in graph.constants.values()) > _MOST_BYTES:
        raise UsageError("this operator has more than 2 GiB of weights, more than an ONNX file can hold")
    tensors, nodes = _body(onnx, graph, dtype)
    kind = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    fields = ["samples", "points", *([] if graph.channels is None else [graph.channels])]
    names = ", ".join(graph.input_names)
    describe = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        nodes,
        "operator",
        [
            describe("inputs", kind, ["samples", graph.sensors], f"values of {names}, side by side in this order"),
            describe("points", kind, ["points", graph.coordinates], "coordinates of the output points"),
        ],
        [describe("outputs", kind, fields, "output fields in physical units")],
        initializer=tensors,
    )
    model = onnx.helper.make_model(
        body,
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="trunkfirst",
        producer_version=importlib.metadata.version("trunkfirst"),
        doc_string=f"Output fields of an operator at points. `inputs` holds {names} side by side, in this order.",
    )
    onnx.helper.set_model_props(model, {"input_names": names})
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def _body(onnx: Any, graph: Graph, dtype: type[np.floating[Any]]) -> tuple[list[Any], list[Any]]:
    """Constants and nodes, the numbers and shapes among the arguments as constants too."""
    constants = {name: in_precision(array, dtype) for name, array in graph.constants.items()}
    nodes: list[Any] = []
    for operation in (each for function in graph.functions for each in function.operations):
        arguments = list(operation.arguments)
        attributes: dict[str, Any] = {}
        match operation:
            case Operation(function="take" | "concatenate"):
                attributes["axis"] = 1
            case Operation(function="transpose", options=axes):
                attributes["perm"] = axes
            case Operation(function="reshape", options=shape):
                constants[f"shape_{operation.result}"] = np.array([0, *shape])  # 0: as it is
                arguments.append(f"shape_{operation.result}")
            case Operation(function="sum"):
                constants["last_axis"] = np.array([-1])
                arguments.append("last_axis")
                attributes["keepdims"] = 0
            case _:
                pass
        for index, number in enumerate(arguments):
            if not isinstance(number, str):
                arguments[index] = f"number {number!r}"
                constants[f"number {number!r}"] = np.asarray(number, dtype)
        nodes += _nodes(onnx, operation, arguments, attributes, constants)
    tensors = [onnx.numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in constants.items()]
    return tensors, nodes


def _nodes(
    onnx: Any,
    operation: Operation,
    arguments: list[Any],
    attributes: dict[str, Any],
    constants: dict[str, np.ndarray],
) -> list[Any]:
    make, name, result = onnx.helper.make_node, _NAMES[operation.function], operation.result
    scale = constants.get(arguments[-1])
    if name not in ("Mul", "Div") or scale is None or scale.size > 1 or arguments[-1].startswith("number"):
        return [make(name, arguments, [result], **attributes)]
    # onnxruntime moves one number before or after a matrix product into that product, rounded to single precision
    # (MatMulScaleFusion); two changes of sign, which are exact, keep it where it is.
    minus, scaled = f"minus_{result}", f"scaled_{result}"
    return [
        make("Neg", arguments[:1], [minus]),
        make(name, [minus, arguments[1]], [scaled]),
        make("Neg", [scaled], [result]),
    ]


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise MissingExtraError("ONNX export", "onnx", "onnx") from error
