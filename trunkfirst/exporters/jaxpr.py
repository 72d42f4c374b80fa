"""From an operator to its graph, by one walk over the jaxpr of its three functions."""

import dataclasses as dc
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..encoders import Identity
from ..errors import PredictOnlyError, UsageError
from ..networks.branches import PredictOnlyBranch
from ..networks.operator import Operator
from ..networks.training_domain import UNKNOWN
from .graph import Function, Graph, Operation

# Stand-ins for the numbers of samples and points. Below 1024 a kernel branch computes all samples at once instead
# of in a loop over batches.
_SIZES = ((1021, 1019), (1013, 1009), (997, 991), (983, 977))
_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")
_UNCHANGED = ("copy", "copy_p", "stop_gradient")
_ELEMENTWISE = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "max": "maximum",
    "min": "minimum",
    "neg": "negative",
    "abs": "absolute",
    "gt": "greater",
    "lt": "less",
    "eq": "equal",
    "not": "logical_not",
    **{name: name for name in ("exp", "log", "sqrt", "tanh", "sin", "cos", "floor")},
}
# In terms of other primitives, without overflow for large arguments.
_REWRITTEN: dict[str, Callable[..., Any]] = {
    "ne": lambda x, y: ~(x == y),
    "ge": lambda x, y: ~(x < y),
    "le": lambda x, y: ~(x > y),
    "log1p": lambda x: jnp.log(1 + x),
    "expm1": lambda x: jnp.exp(x) - 1,
    "logistic": lambda x: jnp.exp(jnp.minimum(x, 0)) / (1 + jnp.exp(-jnp.abs(x))),
    "rsqrt": lambda x: 1 / jnp.sqrt(x),
    "square": lambda x: x * x,
    "integer_pow": lambda x, y: math.prod([x] * y) if y > 0 else 1 / math.prod([x] * -y),
    "split": lambda x, axis, sizes: [
        jax.lax.slice_in_dim(x, int(end - size), int(end), axis=axis)
        for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)
    ],
    "stack": lambda *values, axis: jnp.concatenate([jnp.expand_dims(x, axis) for x in values], axis),
}


def trace(operator: Operator) -> Graph:
    """All that the operator computes, in physical units, for any number of samples and points.

    Raises `UsageError` for a JAX primitive without a rule, and `PredictOnlyError` for a branch outside of JAX.
    """
    if isinstance(operator.branch, PredictOnlyBranch):
        raise PredictOnlyError(operator.branch.refusal("exported; predict in this program"))
    with jax.enable_x64(True):
        operator = jax.tree.map(lambda a: jnp.asarray(a, float) if eqx.is_inexact_array(a) else a, operator)
    # A graph that is the same for other sizes is right for all: no other axis was taken for a free one.
    for graph, other in itertools.pairwise(_trace(operator, *sizes) for sizes in _SIZES):
        constants = zip(graph.constants.values(), other.constants.values(), strict=False)
        if graph.functions == other.functions and all(np.array_equal(a, b, equal_nan=True) for a, b in constants):
            return graph
    raise _unknown("sizes that depend on the number of samples or points")


def _trace(operator: Operator, samples: int, points: int) -> Graph:
    walk = _Walk({samples, points})
    coefficients, basis, outputs = (walk.function(*each) for each in _jaxprs(operator, samples, points))
    used = {a for f in (coefficients, basis, outputs) for each in f.operations for a in each.arguments}
    return Graph(
        {name: array for name, array in walk.constants.items() if name in used},
        coefficients,
        basis,
        outputs,
        operator.input_names,
        operator.sensors or 0,
        operator.trunk.coordinates,
        operator.channels,
        operator.domain.box_with_margin(operator.periods),
    )


def _jaxprs(operator: Operator, samples: int, points: int) -> list[tuple[Any, ...]]:
    """The jaxpr of each function, with the names of its result and arguments."""

    def rows(*shape: int | None) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float64)

    with jax.enable_x64(True), jax.numpy_rank_promotion("allow"):
        inputs, at = rows(samples, operator.sensors), rows(points, operator.trunk.coordinates)
        fixed = operator.coefficients, operator.basis, operator.fields
        functions = _moving(operator) if operator.trunk.depends_on_input else fixed
        coefficients, c = jax.make_jaxpr(functions[0], return_shape=True)(inputs)
        basis, b = jax.make_jaxpr(functions[1], return_shape=True)(at)
        outputs = jax.make_jaxpr(functions[2])(c, b, at)
    return [
        (coefficients, "coefficients", "inputs"),
        (basis, "basis", "points"),
        (outputs, "outputs", "coefficients", "basis", "points"),
    ]


def _moving(operator: Operator) -> tuple[Callable[..., Any], ...]:
    """Functions that depend on the input are computed with the outputs.

    The coefficients are followed by the encoded input, and (1, encoded point) is in the place of the basis.
    """
    bare = dc.replace(operator, trunk=operator.trunk.after(Identity()), domain=UNKNOWN)
    count = operator.rank * (operator.channels or 1)

    def coefficients(inputs: jax.Array) -> jax.Array:
        features = operator.features(inputs)
        return jnp.concatenate([operator.branch(features), features], axis=1)

    def basis(points: jax.Array) -> jax.Array:
        y = operator.trunk.encoder(points)
        return jnp.concatenate([jnp.ones_like(y[:, :1]), y], axis=1)

    def outputs(c: jax.Array, b: jax.Array, points: jax.Array) -> jax.Array:
        return operator.fields(c[:, :count], bare.basis(b[:, 1:], c[:, count:]), points)

    return coefficients, basis, outputs


class _Value(NamedTuple):
    """A value that is not known yet. It may have length 1 along an axis where JAX has broadcast it."""

    name: str
    shape: tuple[int, ...]


_Term = _Value | np.ndarray
_FIRST, _NEVER = np.array([0]), np.asarray(False)


class _Walk:
    """Turns equations into operations. What depends on constants alone is computed at once, by NumPy."""

    def __init__(self, free: set[int]):
        self.constants: dict[str, np.ndarray] = {}
        self._free, self._count = free, itertools.count(1)
        self._operations: dict[tuple[Any, ...], Operation] = {}
        self._arguments: tuple[_Value, ...] = ()

    def function(self, closed: Any, result: str, *arguments: str) -> Function:
        """The function of a closed jaxpr, without the operations that its result does not need."""
        shapes = [variable.aval.shape for variable in closed.jaxpr.invars]
        self._operations, self._arguments = {}, tuple(map(_Value, arguments, shapes))
        (value,) = self._run(closed.jaxpr, closed.consts, self._arguments)
        value = self._whole(value, closed.out_avals[0].shape)
        assert isinstance(value, _Value)
        needed: set[str | float] = {value.name}
        kept: list[Operation] = []
        for each in reversed(self._operations.values()):
            if each.result in needed:
                needed.update(each.arguments)
                kept.append(dc.replace(each, result=result) if each.result == value.name else each)
        return Function(arguments, tuple(reversed(kept)), result)

    def _run(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[_Term]) -> list[_Term]:
        known: dict[Any, _Term] = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {variable: _constant(const) for variable, const in zip(jaxpr.constvars, consts, strict=True)}

        def read(atom: Any) -> _Term:
            return _constant(atom.val) if hasattr(atom, "val") else known[atom]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(atom) for atom in equation.invars])
            known |= zip(equation.outvars, results, strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, terms: list[_Term]) -> list[_Term]:
        name, params = equation.primitive.name, equation.params
        shape = equation.outvars[0].aval.shape
        if name in _CALLS:
            inner = params.get("jaxpr") or params.get("call_jaxpr")
            return self._run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), terms)
        if name in _REWRITTEN:
            with jax.enable_x64(True):
                avals = [jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in equation.invars]
                inner = jax.make_jaxpr(lambda *values: _REWRITTEN[name](*values, **_settings(params)))(*avals)
            return self._run(inner.jaxpr, inner.consts, terms)
        if name in _ELEMENTWISE:
            return [self._elementwise(_ELEMENTWISE[name], *terms)]
        if name in _UNCHANGED:
            return terms
        if name == "convert_element_type":
            return [self._convert(terms[0], equation.invars[0].aval.dtype.kind, params["new_dtype"].kind)]
        if name == "select_n" and len(terms) == 3:
            return [self._elementwise("where", terms[0], terms[2], terms[1])]
        if name == "broadcast_in_dim":
            return [self._broadcast(terms[0], shape, params["broadcast_dimensions"])]
        whole = [self._whole(term, atom.aval.shape) for term, atom in zip(terms, equation.invars, strict=True)]
        return [self._structural(name, params, whole, shape)]

    def _structural(self, name: str, params: dict[str, Any], terms: list[_Term], shape: tuple[int, ...]) -> _Term:
        """Primitives that move entries or combine them along axes."""
        match name:
            case "reshape" | "squeeze" | "expand_dims":
                return self._reshape(terms[0], shape)
            case "transpose":
                return self._transpose(terms[0], params["permutation"])
            case "concatenate":
                return self._apply("concatenate", *terms, options=(int(params["dimension"]),), shape=shape)
            case "slice":
                return self._slice(terms[0], params)
            case "reduce_sum" | "argmax" if len(params["axes"]) == 1:
                function = "sum" if name == "reduce_sum" else name
                return self._apply(function, *terms, options=(int(params["axes"][0]),), shape=shape)
            case "gather" if _is_take(params["dimension_numbers"], terms):
                indices = self._reshape(terms[1], terms[1].shape[:-1])
                return self._apply("take", terms[0], indices, options=(0,), shape=shape)
            case "dot_general":
                return self._product(terms[0], terms[1], params["dimension_numbers"])
            case "conv_general_dilated" if _is_plain(params, len(shape)):
                return self._convolution(terms[0], terms[1], params, shape)
            case _:
                raise _unknown(f"the JAX primitive {name!r}")

    # -- operations

    def _apply(self, function: str, *terms: _Term, options: Sequence[Any] = (), shape: tuple[int, ...]) -> _Term:
        if all(isinstance(term, np.ndarray) for term in terms):
            given = {f"{k}": term for k, term in enumerate(terms)}
            with np.errstate(all="ignore"):
                return np.asarray(Operation(function, tuple(given), tuple(options), "").apply(given))
        arguments = tuple(map(self._argument, terms))
        key = (function, arguments, str(options))
        if key not in self._operations:
            self._operations[key] = Operation(function, arguments, tuple(options), f"x{next(self._count)}")
        return _Value(self._operations[key].result, shape)

    def _argument(self, term: _Term) -> str | float:
        if isinstance(term, _Value):
            return term.name
        if term.shape == () and term.dtype.kind == "f" and np.isfinite(term):
            return float(term)
        name = next((name for name, array in self.constants.items() if array is term), f"c{len(self.constants)}")
        self.constants[name] = term
        return name

    def _elementwise(self, function: str, *terms: _Term) -> _Term:
        if function in ("multiply", "divide") and _is_one(terms[1]):
            return terms[0]
        if function == "multiply" and _is_one(terms[0]):
            return terms[1]
        return self._apply(function, *terms, shape=np.broadcast_shapes(*(term.shape for term in terms)))

    def _convert(self, term: _Term, old: str, new: str) -> _Term:
        """A term of another kind: "b" is boolean, "i" an index, "f" a number."""
        match old, new:
            case _ if isinstance(term, np.ndarray):
                return term.astype({"f": np.float64, "i": np.int64, "b": np.bool_}[new], copy=False)
            case "f", "i":
                return self._elementwise("int32", term)
            case "b", "f":
                return self._elementwise("where", term, np.asarray(1.0), np.asarray(0.0))
            case _ if old == new:
                return term
            case _:
                raise _unknown(f"the JAX primitive 'convert_element_type' from {old!r} to {new!r}")

    def _reshape(self, term: _Term, shape: tuple[int, ...]) -> _Term:
        if term.shape == shape:
            return term
        sizes = [-1 if size in self._free else int(size) for size in shape]
        if sizes.count(-1) > 1:
            raise _unknown("a reshape with two free sizes")
        return self._apply("reshape", term, options=(sizes,), shape=shape)

    def _transpose(self, term: _Term, axes: Sequence[int]) -> _Term:
        if list(axes) == sorted(axes):
            return term
        shape = tuple(term.shape[axis] for axis in axes)
        return self._apply("transpose", term, options=([int(axis) for axis in axes],), shape=shape)

    def _broadcast(self, term: _Term, shape: tuple[int, ...], axes: Sequence[int]) -> _Term:
        """New axes have length 1, which later operations broadcast."""
        if term.shape == ():
            return term
        sizes = [1] * len(shape)
        for axis, size in zip(axes, term.shape, strict=True):
            sizes[axis] = size
        return self._reshape(term, tuple(sizes))

    def _whole(self, term: _Term, shape: tuple[int, ...]) -> _Term:
        """The term in its full shape. A free size is taken from an argument of the function that has it."""
        parts: list[_Term] = [np.zeros([1 if size in self._free else size for size in shape])]
        for axis, size in enumerate(shape):
            if size in self._free and term.shape != shape:
                argument = next(each for each in self._arguments if each.shape[0] == size)
                column = self._apply("take", argument, _FIRST, options=(1,), shape=(size, 1))
                parts.append(self._reshape(column, tuple(size if k == axis else 1 for k in range(len(shape)))))
        for part in parts:
            if np.broadcast_shapes(term.shape, part.shape) != term.shape:
                term = self._elementwise("where", _NEVER, part, term)
        return term

    def _slice(self, term: _Term, params: dict[str, Any]) -> _Term:
        steps = params["strides"] or (1,) * len(term.shape)
        for axis, place in enumerate(zip(params["start_indices"], params["limit_indices"], steps, strict=True)):
            if place != (0, term.shape[axis], 1):
                indices = np.arange(*place)
                shape = (*term.shape[:axis], len(indices), *term.shape[axis + 1 :])
                term = self._apply("take", term, indices, options=(axis,), shape=shape)
        return term

    def _product(self, left: _Term, right: _Term, dimensions: Any) -> _Term:
        """A product of matrices: batch axes first, the summed axes inside as one."""
        inner, batches = dimensions
        free_left, free_right = (
            [axis for axis in range(len(term.shape)) if axis not in (*summed, *batch)]
            for term, summed, batch in zip((left, right), inner, batches, strict=True)
        )
        if min(len(free_left), len(free_right)) == 0:
            raise _unknown("a dot_general that is not a product of matrices")
        if len(free_right) > 1 and any(right.shape[axis] in self._free for axis in free_right):
            # A free size cannot be merged. Factors exchanged: entries (batch, right, left), put back in order.
            swapped = self._product(right, left, (inner[::-1], batches[::-1]))
            b, r, n = len(batches[0]), len(free_right), len(swapped.shape)
            return self._transpose(swapped, [*range(b), *range(b + r, n), *range(b, b + r)])
        batch, rows = ([left.shape[axis] for axis in axes] for axes in (batches[0], free_left))
        summed, columns = ([right.shape[axis] for axis in axes] for axes in (inner[1], free_right))
        left = self._transpose(left, [*batches[0], *free_left, *inner[0]])
        # Axes before the last two are those of the batch, or the right factor is one matrix.
        left = self._reshape(left, (*batch, *([math.prod(rows)] if batch else rows), math.prod(summed)))
        right = self._transpose(right, [*batches[1], *inner[1], *free_right])
        right = self._reshape(right, (*batch, math.prod(summed), math.prod(columns)))
        product = self._apply("matmul", left, right, shape=(*left.shape[:-1], right.shape[-1]))
        return self._reshape(product, (*batch, *rows, *columns))

    def _convolution(self, x: _Term, kernel: _Term, params: dict[str, Any], shape: tuple[int, ...]) -> _Term:
        """Neighbours of each cell are collected and multiplied by a matrix."""
        assert isinstance(kernel, np.ndarray)
        samples, channels, *grid = x.shape
        taps, cells = math.prod(kernel.shape[2:]), math.prod(shape[2:])
        # Cells are numbered from 1; 0 is outside of the grid.
        numbers = np.pad(np.arange(1, 1 + math.prod(grid)).reshape(grid), params["padding"])
        windows = np.lib.stride_tricks.sliding_window_view(numbers, kernel.shape[2:])
        places = windows[tuple(slice(None, None, step) for step in params["window_strides"])].ravel()
        values = self._transpose(self._reshape(x, (samples, channels, math.prod(grid))), (0, 2, 1))
        around = self._apply(
            "take", values, np.maximum(places - 1, 0), options=(1,), shape=(samples, len(places), channels)
        )
        around = self._elementwise("multiply", around, (places > 0)[:, None].astype(np.float64))
        around = self._reshape(around, (samples, cells, taps * channels))
        weight = kernel.reshape(len(kernel), channels, taps).transpose(2, 1, 0).reshape(-1, len(kernel))
        result = self._apply("matmul", around, weight, shape=(samples, cells, len(kernel)))
        return self._reshape(self._transpose(result, (0, 2, 1)), shape)


def _constant(value: Any) -> np.ndarray:
    """All indices have 64 bits: ONNX does not mix them."""
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype.kind == "i" else array


def _unknown(what: str) -> UsageError:
    return UsageError(
        f"this operator cannot be exported: there is no rule for {what}; predict with `trunkfirst predict` instead"
    )


def _settings(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that the rewritten primitives read; precision and sharding are left to the format."""
    return {name: value for name, value in params.items() if name in ("y", "axis", "sizes")}


def _is_one(term: _Term) -> bool:
    return isinstance(term, np.ndarray) and term.shape == () and bool(term == 1)


def _is_take(dimensions: Any, terms: list[_Term]) -> bool:
    """Whether a gather takes whole rows: entries along the first axis, for indices of any shape."""
    table, indices = (len(term.shape) for term in terms)
    offsets = tuple(range(indices - 1, indices + table - 2))
    batches = (*dimensions.operand_batching_dims, *dimensions.start_indices_batching_dims)
    found = (dimensions.offset_dims, dimensions.collapsed_slice_dims, dimensions.start_index_map, batches)
    return found == (offsets, (0,), (0,), ())


def _is_plain(params: dict[str, Any], axes: int) -> bool:
    """A convolution of (samples, channels, grid) without dilation and groups."""
    is_single = {*params["lhs_dilation"], *params["rhs_dilation"]} == {1} and params["feature_group_count"] == 1
    return (
        is_single and params["batch_group_count"] == 1 and set(params["dimension_numbers"]) == {tuple(range(axes))}
    )
