"""An operator as a short list of array operations, which every export format writes in its own language.

An operation is called what NumPy calls it: `add`, `subtract`, `multiply`, `divide`, `maximum`, `minimum`, `matmul`
(all with broadcasting), `negative`, `absolute`, `exp`, `log`, `sqrt`, `tanh`, `sin`, `cos`, `where`, and

- `take`: the columns (axis 1) with these indices,
- `concatenate`: side by side along axis 1,
- `reshape`: the first axis stays, the others become `options`,
- `transpose`: the axes in the order of `options`,
- `sum`: over the last axis.
"""

import dataclasses as dc
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np


@dc.dataclass(frozen=True)
class Operation:
    """`result` = `function`(`arguments`). An argument is the name of a value or constant, or a number."""

    function: str
    arguments: tuple[str | float, ...]
    options: tuple[int, ...]
    result: str


@dc.dataclass(frozen=True)
class Function:
    """Operations that lead from the arguments to the value called `result`."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]
    result: str


@dc.dataclass(frozen=True)
class Graph:
    """Three functions that share constants; all names are unique, so that they can stand one after the other.

    coefficients(inputs), basis(points), outputs(coefficients, basis, points). Constants are double precision
    numbers, integers (indices) or truth values (masks).
    """

    constants: Mapping[str, np.ndarray]
    coefficients: Function
    basis: Function
    outputs: Function
    input_names: tuple[str, ...]
    """The input functions, whose values stand side by side in `inputs`, in this order."""
    sensors: int
    coordinates: int
    channels: int | None

    @property
    def functions(self) -> tuple[Function, Function, Function]:
        """In the order in which they can be computed."""
        return self.coefficients, self.basis, self.outputs

    def evaluate(self, inputs: Any, points: Any, dtype: type[np.floating[Any]], library: ModuleType = np) -> Any:
        """The outputs in the precision `dtype`, by NumPy or by another `library` with the same functions."""
        values = {"inputs": inputs, "points": points, **self.constants}
        values = {name: in_precision(value, dtype) for name, value in values.items()}
        for function in self.functions:
            for each in function.operations:
                given = [values[a] if isinstance(a, str) else a for a in each.arguments]
                values[each.result] = apply(library, each, given)
        return values["outputs"]


def in_precision(array: Any, dtype: type[np.floating[Any]]) -> Any:
    """Numbers in another precision; indices and masks as they are."""
    return array.astype(dtype) if array.dtype.kind == "f" else array


class Value:
    """A value that is not computed but written down: arithmetic with it adds operations to its recorder."""

    def __init__(self, recorder: "Recorder", name: str):
        self.recorder, self.name = recorder, name

    def apply(self, function: str, *others: "Value | float", options: tuple[int, ...] = ()) -> "Value":
        """The operation of this name on this value and others."""
        return self.recorder.apply(function, self, *others, options=options)

    def constant(self, name: str, array: Any) -> "Value":
        """An array that can be combined with this value."""
        return self.recorder.constant(name, array)

    def columns(self, start: int, stop: int) -> "Value":
        """The columns start, ..., stop - 1."""
        return self.apply("take", self.constant("columns", np.arange(start, stop)))

    def __add__(self, other: "Value | float") -> "Value":
        return self.apply("add", other)

    def __sub__(self, other: "Value | float") -> "Value":
        return self.apply("subtract", other)

    def __mul__(self, other: "Value | float") -> "Value":
        return self.apply("multiply", other)

    def __truediv__(self, other: "Value | float") -> "Value":
        return self.apply("divide", other)

    def __matmul__(self, other: "Value") -> "Value":
        return self.apply("matmul", other)

    def __neg__(self) -> "Value":
        return self.apply("negative")

    def __pow__(self, power: int) -> "Value":
        return self if power == 1 else self * self ** (power - 1)

    def __rsub__(self, other: float) -> "Value":
        return self.recorder.apply("subtract", other, self)

    def __rtruediv__(self, other: float) -> "Value":
        return self.recorder.apply("divide", other, self)

    __radd__ = __add__
    __rmul__ = __mul__


class Recorder:
    """Collects the operations and constants of functions of values."""

    def __init__(self):
        self.constants: dict[str, np.ndarray] = {}
        self._operations: list[Operation] = []
        self._counts: Counter[str] = Counter()

    def record(self, result: str, function: Callable[..., Value], *arguments: str) -> Function:
        """The operations of `function`, whose value is called `result`."""
        self._operations = []
        value = function(*(Value(self, name) for name in arguments))
        *before, last = self._operations
        assert last.result == value.name
        return Function(arguments, (*before, dc.replace(last, result=result)), result)

    def apply(self, function: str, *arguments: Value | float, options: tuple[int, ...] = ()) -> Value:
        """One more operation."""
        self._counts["x"] += 1
        result = Value(self, f"x{self._counts['x']}")
        names = tuple(a.name if isinstance(a, Value) else float(a) for a in arguments)
        self._operations.append(Operation(function, names, options, result.name))
        return result

    def constant(self, name: str, array: Any) -> Value:
        """One more constant, called `name` and a number."""
        value = np.asarray(array)
        self._counts[name] += 1
        unique = f"{name}_{self._counts[name]}"
        self.constants[unique] = value.astype(np.float64) if value.dtype.kind == "f" else value
        return Value(self, unique)


def apply(library: ModuleType, operation: Operation, given: list[Any]) -> Any:
    """One operation, carried out by NumPy or by another library with the same functions."""
    match operation.function:
        case "take":
            return given[0][:, given[1]]
        case "concatenate":
            return library.concatenate(given, axis=1)
        case "reshape":
            return given[0].reshape(given[0].shape[0], *operation.options)
        case "transpose":
            return given[0].transpose(operation.options)
        case "sum":
            return given[0].sum(axis=-1)
        case name:
            return getattr(library, name)(*given)
