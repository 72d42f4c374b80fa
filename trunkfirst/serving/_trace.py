"""From an operator to its graph: one short function for every part that an operator can be made of."""

import functools as ft
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import PredictOnlyError, UsageError
from ..linear import one_blas_thread
from ..networks import (
    MATERN,
    Boundary,
    Chain,
    ConvolutionFeatures,
    Elementwise,
    FeatureBranch,
    FourierFeatures,
    Identity,
    KernelBranch,
    LayerFeatures,
    LinearProjection,
    Operator,
    OutputMap,
    Parallel,
    Perceptron,
    Periodic,
    PredictOnlyBranch,
    ProductFeatures,
    QuadratureProjection,
    SkipFeatures,
    StackedBranch,
    Standardise,
    Trunk,
)
from ._graph import Graph, Recorder, Value


def trace(operator: Operator) -> Graph:
    """All that the operator computes, in physical units, as a list of array operations."""

    def outputs(coefficients: Value, basis: Value, points: Value) -> Value:
        functions = basis.apply("transpose", options=(1, 0))
        if operator.channels is None:
            raw = coefficients @ functions
        else:
            rank = operator.trunk.width + 1 if operator.transform is None else operator.transform.shape[1]
            by_channel = coefficients.apply("reshape", options=(operator.channels, rank)) @ functions
            raw = by_channel.apply("transpose", options=(0, 2, 1))  # (samples, points, channels)
        return raw if operator.output is None else _mapped(operator.output, raw, points, operator.channels)

    recorder = Recorder()
    return Graph(
        recorder.constants,
        recorder.record("coefficients", lambda x: emit(operator.branch, emit(operator.encoder, x)), "inputs"),
        recorder.record("basis", lambda y: _basis(operator.trunk, operator.transform, y), "points"),
        recorder.record("outputs", outputs, "coefficients", "basis", "points"),
        operator.input_names,
        operator.sensors or 0,
        operator.trunk.coordinates,
        operator.channels,
    )


@ft.singledispatch
def emit(part: Any, x: Value) -> Value:
    """The operations of a part of an operator, applied to `x`."""
    raise UsageError(f"a {type(part).__name__} cannot be exported; predict with `trunkfirst predict` instead")


@emit.register
def _(part: PredictOnlyBranch, x: Value) -> Value:
    raise PredictOnlyError(part.refusal("exported; predict in this program"))


# -- activations, stable for large arguments

ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.apply("maximum", 0.0),
    "tanh": lambda x: x.apply("tanh"),
    "gelu": lambda x: 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)).apply("tanh")),
    "silu": lambda x: x * _sigmoid(x),
    "sine": lambda x: x.apply("sin"),
    "softplus": lambda x: x.apply("maximum", 0.0) + (1 + (-x.apply("absolute")).apply("exp")).apply("log"),
    "elu": lambda x: x.apply("maximum", 0.0) + (x.apply("minimum", 0.0).apply("exp") - 1),
    "sigmoid": lambda x: _sigmoid(x),
}


def _sigmoid(x: Value) -> Value:
    return x.apply("minimum", 0.0).apply("exp") / (1 + (-x.apply("absolute")).apply("exp"))


# -- networks


def _affine(x: Value, weight: Any, bias: Any) -> Value:
    return x @ x.constant("weight", weight) + x.constant("bias", bias)


def _hidden(part: Perceptron, x: Value) -> Value:
    for W, b in zip(part.weights[:-1], part.biases[:-1], strict=True):
        x = ACTIVATIONS[part.activation](_affine(x, W.T, b))
    return x


@emit.register
def _(part: Perceptron, x: Value) -> Value:
    return _affine(_hidden(part, x), part.weights[-1].T, part.biases[-1])


def _basis(trunk: Trunk, transform: Any, points: Value) -> Value:
    """phi(y)^T T in one layer: the constant function is a neuron with weights 0 and bias 1."""
    W, b = (np.asarray(layers[-1], np.float64) for layers in (trunk.network.weights, trunk.network.biases))
    weight, bias = np.concatenate([0 * W[:1], W]).T, np.concatenate([[1.0], b])
    if transform is not None:
        T = np.asarray(transform, np.float64)
        with one_blas_thread():
            weight, bias = weight @ T, bias @ T
    return _affine(_hidden(trunk.network, emit(trunk.encoder, points)), weight, bias)


@emit.register
def _(part: StackedBranch, x: Value) -> Value:
    layers = zip(part.networks.weights, part.networks.biases, strict=True)
    (W, b), *others = [(np.swapaxes(W, 1, 2), np.asarray(b)[:, None]) for W, b in layers]
    values = _affine(x, W, b)  # (coefficients, samples, neurons)
    for W, b in others:
        values = _affine(ACTIVATIONS[part.networks.activation](values), W, b)
    return values.apply("transpose", options=(1, 0, 2)).apply("reshape", options=(len(b),))


@emit.register
def _(part: KernelBranch, x: Value) -> Value:
    differences = x.apply("reshape", options=(1, part.centres.shape[1])) - x.constant("centres", part.centres)
    squares = (differences**2).apply("sum") / float(part.length) ** 2
    # Not quite 0, so that the root has a derivative where a format can differentiate.
    distances = squares.apply("maximum", 1e-36).apply("sqrt")
    values = MATERN[part.smoothness](distances, lambda r: r.apply("exp"))
    return _affine(values, part.coefficients, part.offset)


@emit.register
def _(part: FeatureBranch, x: Value) -> Value:
    return _affine(emit(part.features, x), part.weight.T, part.bias)


@emit.register
def _(part: LayerFeatures, x: Value) -> Value:
    return ACTIVATIONS[part.layers.activation](emit(part.layers, x))


@emit.register
def _(part: SkipFeatures, x: Value) -> Value:
    return emit(part.features, x).apply("concatenate", x)


@emit.register
def _(part: ProductFeatures, x: Value) -> Value:
    values = [emit(network, group) for network, group in zip(part.networks, _split(x, part.groups), strict=True)]
    return math.prod(values[1:], start=values[0])


@emit.register
def _(part: ConvolutionFeatures, x: Value) -> Value:
    """Cells of the grid on axis 1, channels on axis 2; a convolution collects neighbours and multiplies."""
    sigma, shape = ACTIVATIONS[part.dense.activation], part.grid_shape
    values = x.apply("reshape", options=(math.prod(shape), 1))
    channels = 1
    for kernel, bias in zip(part.kernels, part.biases, strict=True):
        indices, is_inside, shape = _neighbours(shape)
        around = values.apply("take", x.constant("neighbours", indices))
        around = around * x.constant("inside", is_inside[:, None])
        cells, channels_before, channels = math.prod(shape), channels, len(kernel)
        around = around.apply("reshape", options=(cells, len(indices) // cells * channels_before))
        weight = np.asarray(kernel).reshape(channels, channels_before, -1).transpose(2, 1, 0)
        values = sigma(_affine(around, weight.reshape(-1, channels), bias))
    flat = values.apply("transpose", options=(0, 2, 1)).apply("reshape", options=(channels * math.prod(shape),))
    return sigma(emit(part.dense, flat))


def _neighbours(
    shape: tuple[int, ...],
) -> tuple[Int[np.ndarray, " neighbours"], Float[np.ndarray, " neighbours"], tuple[int, ...]]:
    """For width 3 and stride 2: the neighbours of every new cell, whether they lie on the grid, the new shape."""
    halves = tuple(math.ceil(size / 2) for size in shape)
    # As much padding as the last cell needs, the smaller half of it before the first.
    places = [
        2 * np.arange(half)[:, None] + np.arange(3) - max(2 * half + 1 - size, 0) // 2
        for size, half in zip(shape, halves, strict=True)
    ]
    inside = [(place >= 0) & (place < size) for place, size in zip(places, shape, strict=True)]
    clipped = [np.clip(place, 0, size - 1) for place, size in zip(places, shape, strict=True)]
    indices = np.zeros((1, 1), np.int64)  # (cells, neighbours)
    is_inside = np.ones((1, 1))
    for place, good, size in zip(clipped, inside, shape, strict=True):
        indices = (indices[:, None, :, None] * size + place[None, :, None, :]).reshape(
            len(indices) * len(place), -1
        )
        is_inside = np.kron(is_inside, good)
    return indices.ravel(), is_inside.ravel(), halves


# -- encoders


@emit.register
def _(part: Identity, x: Value) -> Value:
    return x


@emit.register
def _(part: Standardise, x: Value) -> Value:
    return (x - x.constant("mean", part.mean)) / x.constant("deviation", part.deviation)


_ELEMENTWISE: dict[str, Callable[[Value], Value]] = {
    "log": lambda x: x.apply("log"),
    "inverse": lambda x: 1 / x,
    "inverse-root": lambda x: 1 / x.apply("sqrt"),
}


@emit.register
def _(part: Elementwise, x: Value) -> Value:
    function = _ELEMENTWISE[part.function]
    if np.all(part.is_positive):
        return function(x)
    is_positive = x.constant("is_positive", np.asarray(part.is_positive))
    return is_positive.apply("where", function(is_positive.apply("where", x, 1.0)), x)


@emit.register
def _(part: LinearProjection, x: Value) -> Value:
    return (x - x.constant("centre", part.centre)) @ x.constant("matrix", part.matrix)


@emit.register
def _(part: QuadratureProjection, x: Value) -> Value:
    return x @ x.constant("matrix", part.matrix)


@emit.register
def _(part: Chain, x: Value) -> Value:
    return ft.reduce(lambda value, encoder: emit(encoder, value), part.parts, x)


@emit.register
def _(part: Parallel, x: Value) -> Value:
    first, *others = (emit(p, columns) for p, columns in zip(part.parts, _split(x, part.sizes), strict=True))
    return first.apply("concatenate", *others)


@emit.register
def _(part: Periodic, x: Value) -> Value:
    columns: list[Value] = []
    for index, period in enumerate(part.periods):
        column = x.columns(index, index + 1)
        angle = 2 * math.pi * column / (period or 1.0)
        columns += [angle.apply("cos"), angle.apply("sin")] if period else [column]
    return columns[0].apply("concatenate", *columns[1:])


@emit.register
def _(part: FourierFeatures, x: Value) -> Value:
    angles = x @ x.constant("frequencies", part.frequencies.T)
    return x.apply("concatenate", angles.apply("cos"), angles.apply("sin"))


def _split(x: Value, sizes: tuple[int, ...]) -> list[Value]:
    return [x.columns(start, stop) for start, stop in itertools.pairwise((0, *itertools.accumulate(sizes)))]


# -- outputs


def _mapped(part: OutputMap, raw: Value, points: Value, channels: int | None) -> Value:
    if part.boundary is not None:
        for distance in _distances(part.boundary, points):  # (points, 1) fits (samples, points, channels)
            raw = raw * (distance.apply("transpose", options=(1, 0)) if channels is None else distance)
        raw = part.boundary.value + raw
    scaled = raw * raw.constant("scale", part.scale)
    return scaled.apply("exp") if part.is_positive else scaled


def _distances(part: Boundary, points: Value) -> Iterator[Value]:
    for coordinate, is_upper in part.sides:
        low, high = part.lower[coordinate], part.upper[coordinate]
        y = points.columns(coordinate, coordinate + 1)
        yield ((high - y) if is_upper else (y - low)) / (high - low)
