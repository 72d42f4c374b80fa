"""Settings for your own data: what is not given by hand follows from the arrays."""

from typing import Any

import numpy as np

from ..data import AnyData, OperatorData, ScatteredData, evenly
from ..linear import trunk_limit
from ._config import merge

# Functions beyond this relative error of the best basis are not worth having.
_WANTED_ERROR = 1e-5
_MOST_FUNCTIONS = 150
_ROWS_FOR_WIDTH = 4000
_FEWEST_HIDDEN, _SCATTERED_WIDTH = 40, 40
# Channels of the convolutions and the width of the dense layer after them.
CONVOLUTION = (16, 32, 128)


def own_values(data: AnyData) -> dict[str, Any]:
    """The settings that fit the arrays: widths from the rank of the outputs, inputs from the sensors."""
    width = max(suitable_width(data), _fewest_functions(data))
    coordinates = data.points.shape[-1]
    return {
        "preset": "own-data",
        "trunk": {
            "architecture": (coordinates, *_hidden_layers(data, width), width),
            "activation": "tanh",
            "initialisation": "xavier",
            "rescale": True,
            "starts": 2,
        },
        "branch": {
            "kind": "auto",
            "architecture": (data.flat_inputs.shape[1], 128, width + 1),
            "activation": "gelu",
            "initialisation": "xavier",
            "skip": True,
            "decay": 1e-6,
            "ridge": 1e-3,
            "iterations": 400,
        },
        "output": {"intervals": True},
        "loss": {"weights": "auto"},
    }


def _hidden_layers(data: AnyData, width: int) -> tuple[int, ...]:
    """Three layers; one where there are so many functions on few points of a plane or a space that more bend."""
    hidden = max(_FEWEST_HIDDEN, min(width, _MOST_FUNCTIONS))
    is_dense = isinstance(data, OperatorData) and 3 * width > len(data.points) and data.points.shape[1] > 1
    return (2 * hidden,) if is_dense else (hidden, hidden, hidden)


def _fewest_functions(data: AnyData) -> int:
    """However low the rank: a network finds functions that span the modes sooner than the modes themselves."""
    points = int(data.counts.max()) if isinstance(data, ScatteredData) else len(data.points)
    return max(1, min(_FEWEST_HIDDEN, points // 3))


def suitable_width(data: AnyData) -> int:
    """The fewest functions whose best possible error is small enough, by the rank of the outputs."""
    if isinstance(data, ScatteredData):
        return min(_SCATTERED_WIDTH, int(data.counts.max()) - 1)
    outputs = data.outputs
    if outputs.ndim == 3:
        scaled = outputs / np.sqrt(np.mean(outputs**2, axis=(0, 1)))
        outputs = scaled.swapaxes(1, 2).reshape(-1, outputs.shape[1])
    outputs = outputs[evenly(len(outputs), _ROWS_FOR_WIDTH)]
    most = min(_MOST_FUNCTIONS, outputs.shape[1] - 1, max(len(outputs) - 1, 1))
    if most < 1:
        return 1
    wanted = _WANTED_ERROR**2 * float(np.mean(outputs**2))
    for width in sorted({1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, most}):
        if width <= most and trunk_limit(outputs, width) <= wanted:
            return width
    return most


def with_own_values(given: dict[str, Any], data: AnyData) -> dict[str, Any]:
    """`given` settings on top of those that follow from the data; widths follow each other."""
    values = own_values(data)
    trunk, branch = given.get("trunk", {}), given.get("branch", {})
    extra = len(trunk.get("periods", {})) + 2 * trunk.get("fourier", 0)
    coordinates, *hidden, width = values["trunk"]["architecture"]
    values["trunk"]["architecture"] = (coordinates + extra, *hidden, width)
    *_, width = trunk.get("architecture", (width,))
    sensors, *layers, _ = values["branch"]["architecture"]
    layers = CONVOLUTION if branch.get("kind") == "convolution" else layers
    values["branch"]["architecture"] = (sensors, *layers, width + 1)
    return merge(values, given)
