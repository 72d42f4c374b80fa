"""How small the loss of step 1 can be: compared with least squares on explicit bases."""

import numpy as np
import pytest
from helpers import METHODS, waves

from trunkfirst.fitting import fit_method
from trunkfirst.linear.low_rank import is_limited_by_network, trunk_limit, trunk_limit_bounds

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


# -- p = 1


def absolute_fit(outputs: np.ndarray, width: int) -> float:
    """Mean absolute error of a real fit: singular vectors, and coefficients by reweighted least squares."""
    modes = np.linalg.svd(outputs - outputs.mean(axis=1, keepdims=True), full_matrices=False)[2][:width]
    basis = with_constant(modes.T)
    best = np.inf
    weights = np.ones_like(outputs)
    for _ in range(60):
        pairs = zip(np.sqrt(weights), outputs, strict=True)
        A = np.array([np.linalg.lstsq(basis * w[:, None], w * u, rcond=None)[0] for w, u in pairs])
        errors = np.abs(A @ basis.T - outputs)
        best = min(best, float(errors.mean()))
        weights = 1 / np.maximum(errors, 1e-6)
    return best


@pytest.mark.parametrize("seed", range(3))
def test_an_absolute_fit_lies_between_the_bounds(seed: int):
    """As measured for 30 x 20 normal numbers and rank 4: 68.5 <= 326.8 <= 448.8, all about."""
    outputs = np.random.default_rng(seed).normal(size=(20, 30))
    lower, upper = trunk_limit_bounds(outputs, 3)
    squared = np.sqrt(loss_of(with_constant(np.zeros((30, 0))), outputs))  # of the constant alone
    assert 60 < lower * outputs.size < 80
    assert 400 < upper * outputs.size < 500
    assert lower < absolute_fit(outputs, 3) < upper < squared


def test_the_lower_bound_is_attained_by_spikes():
    """The 1-norm of a diagonal matrix is its nuclear norm: nothing is lost in the bound."""
    spikes = np.array([8.0, 5.0, 3.0, 2.0, 1.0, 0.5])
    lower, _ = trunk_limit_bounds(np.diag(spikes), 2)
    assert lower == pytest.approx(spikes[3:].sum() / 36, rel=1e-12)


@pytest.mark.parametrize("width", [2, 3])
def test_bounds_have_floors_at_rounding(width: int):
    outputs = 1 + np.random.default_rng(0).normal(size=(30, 2)) @ np.random.default_rng(1).normal(size=(2, 40))
    lower, upper = trunk_limit_bounds(outputs, width)
    assert 1e-14 * np.mean(np.abs(outputs)) <= lower <= upper < 1e-13 * np.sqrt(np.mean(outputs**2))


@pytest.mark.parametrize(("size", "is_limited"), [(0.0, True), (1e-11, True), (1e-9, False), (1e-3, False)])
def test_limited_by_the_network_where_functions_suffice(size: float, is_limited: bool):
    """What two functions leave over is `size`, relative to the outputs: 1e-10 is where it begins to count."""
    rng = np.random.default_rng(0)
    outputs = 1 + rng.normal(size=(30, 2)) @ rng.normal(size=(2, 40)) + size * rng.normal(size=(30, 40))
    assert is_limited_by_network(outputs, trunk_limit(outputs, 2)) == is_limited


@pytest.mark.parametrize("method", ["two-step", "monolithic"])
@pytest.mark.parametrize(("p", "known"), [(1.0, (True, True)), (2.0, (True, False)), (3.0, (False, False))])
def test_a_fit_says_what_its_loss_can_be(method: str, p: float, known: tuple[bool, bool]):
    data = waves()
    trunk = fit_method(data, METHODS[method](p=p)).diagnostics["trunk"]
    limits = (trunk["limit"], trunk["limit_upper"])
    assert tuple(limit is not None for limit in limits) == known
    assert p != 1 or limits == trunk_limit_bounds(data.outputs, 4)
    assert trunk["limit"] is None or trunk["limit"] < trunk["loss"]
    assert trunk["is_limited_by_network"] is False
