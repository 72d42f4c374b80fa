"""An operator as a list of array operations, which each export format writes in its own language.

Operations have the names, arguments and broadcasting of NumPy: elementwise functions, `where`, `matmul`,
`concatenate`, `reshape` (with -1 for a free size), `take` (indices of any shape), `transpose`, `sum`, `argmax`.
`int32` rounds numbers towards 0 and makes them indices.
"""

import dataclasses as dc
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np


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
