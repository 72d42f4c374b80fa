"""Directions and powers of the inputs that the outputs depend on, found once for a data set."""

import functools as ft
import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from .data.sample_weights import relative_weights
from .data.scattered_data import AnyData, ScatteredData
from .errors import DataError
from .linear.blocked_qr import one_blas_thread
from .linear.kernels import find_powers
from .linear.low_rank import principal_directions

# Powers to choose from, the most sensors that they are found for, and the most samples that they are found on.
_POWERS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_MAX_SENSORS, _MAX_SAMPLES = 32, 300

_Found = TypeVar("_Found")


def _once(find: Callable[[AnyData], _Found]) -> Callable[[AnyData], _Found]:
    """Cache a result while its data set lives: many candidates ask for the same."""
    known: weakref.WeakKeyDictionary[AnyData, _Found] = weakref.WeakKeyDictionary()

    @ft.wraps(find)
    def found(data: AnyData) -> _Found:
        if data not in known:
            known[data] = find(data)
        return known[data]

    return found


class InputModes(NamedTuple):
    """Principal directions of inputs, and the singular values."""

    centre: Float[np.ndarray, " sensors"]
    modes: Float[np.ndarray, "rank sensors"]
    sizes: Float[np.ndarray, " rank"]


@_once
def input_modes(data: AnyData) -> InputModes:
    """The principal directions of the inputs, without those at rounding level."""
    centre = data.flat_inputs.mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd(data.flat_inputs - centre, full_matrices=False)
    rank = max(1, int((sizes > 1e-13 * sizes[0]).sum()))
    return InputModes(centre, modes[:rank], sizes[:rank])


@_once
def leading_coefficients(
    data: AnyData,
) -> tuple[Float[np.ndarray, "samples directions"], Float[np.ndarray, " samples"]]:
    """The coefficients of the outputs in their leading principal directions, and the relative weights used."""
    weights = relative_weights(data)
    outputs = data.outputs.reshape(data.samples, -1)
    centred = outputs - np.average(outputs, axis=0, weights=weights)
    modes = principal_directions(centred * np.sqrt(weights)[:, None], tolerance=1e-3)[:3]
    return centred @ modes.T, weights


@_once
def best_powers(data: AnyData) -> Float[np.ndarray, " sensors"]:
    """The powers with the greatest likelihood, rounded."""
    sensors = data.flat_inputs.shape[1]
    if isinstance(data, ScatteredData):
        raise DataError("finding powers needs outputs at the same points for all samples; give inputs.powers")
    if sensors > _MAX_SENSORS:
        raise DataError(f"powers are found for at most {_MAX_SENSORS} sensors, got {sensors}; give inputs.powers")
    targets, weights = leading_coefficients(data)
    is_positive = np.all(data.flat_inputs > 0, axis=0)
    rows = np.flatnonzero(weights > 0)
    if len(rows) > _MAX_SAMPLES:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MAX_SAMPLES, replace=False))
    with one_blas_thread():
        found = find_powers(data.flat_inputs[rows], targets[rows], weights[rows], is_positive)
    return _POWERS[np.abs(found[:, None] - _POWERS).argmin(axis=1)]
