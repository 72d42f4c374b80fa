"""How small the loss of step 1 can be: compared with least squares on explicit bases."""

import numpy as np
import pytest

from trunkfirst.linear import trunk_limit

SHAPES = pytest.mark.parametrize("shape", [(100, 15), (15, 100), (20, 20)], ids=["tall", "wide", "square"])


def outputs_of(shape: tuple[int, int]) -> np.ndarray:
    return 3 + np.random.default_rng(0).normal(size=shape) * np.geomspace(1, 1e-3, shape[1])


def loss_of(basis: np.ndarray, outputs: np.ndarray) -> float:
    """Mean squared error of the best coefficients for the basis (points, functions)."""
    coefficients = np.linalg.lstsq(basis, outputs.T, rcond=None)[0]
    return float(np.mean((basis @ coefficients - outputs.T) ** 2))


def with_constant(functions: np.ndarray) -> np.ndarray:
    return np.hstack([np.ones((len(functions), 1)), functions])


@SHAPES
@pytest.mark.parametrize("width", [1, 4, 9])
def test_attained_by_singular_vectors_of_the_centred_outputs(shape: tuple[int, int], width: int):
    outputs = outputs_of(shape)
    modes = np.linalg.svd(outputs - outputs.mean(axis=1, keepdims=True), full_matrices=False)[2]
    assert trunk_limit(outputs, width) == pytest.approx(loss_of(with_constant(modes[:width].T), outputs), rel=1e-9)


@SHAPES
@pytest.mark.parametrize("width", [1, 4, 9])
def test_no_trunk_is_better(shape: tuple[int, int], width: int):
    outputs = outputs_of(shape)
    rng = np.random.default_rng(width)
    modes = np.linalg.svd(outputs, full_matrices=False)[2][:width].T
    others = [rng.normal(size=(shape[1], width)), modes, modes + 0.01 * rng.normal(size=modes.shape)]
    best = min(loss_of(with_constant(functions), outputs) for functions in others)
    assert trunk_limit(outputs, width) <= best * (1 + 1e-12)


@SHAPES
@pytest.mark.parametrize("width", [1, 4, 9])
def test_between_the_eckart_young_values_with_one_function_more_and_less(shape: tuple[int, int], width: int):
    outputs = outputs_of(shape)
    squares = np.linalg.svd(outputs, compute_uv=False) ** 2 / outputs.size
    assert squares[width + 1 :].sum() < trunk_limit(outputs, width) < squares[width:].sum()


@pytest.mark.parametrize("width", [2, 3, 10_000])
def test_floor_at_rounding(width: int):
    rng = np.random.default_rng(0)
    outputs = 1 + rng.normal(size=(30, 2)) @ rng.normal(size=(2, 40))
    limit = trunk_limit(outputs, width)
    assert 1e-28 <= limit / np.mean(outputs**2) < 1e-26
    assert trunk_limit(np.full((3, 4), 2.0), width) == 1e-28 * 4.0
