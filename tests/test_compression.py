"""Compression: the outputs through their thin factor, with a certificate."""

import numpy as np
import pytest

from trunkfirst.linear import compress


def outputs_of(samples: int, points: int, rank: int, *, seed: int = 0) -> np.ndarray:
    """Rank `rank` with falling singular values."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(samples, rank)) * 3.0 ** -np.arange(rank) @ rng.normal(size=(rank, points))


SHAPES = pytest.mark.parametrize(
    ("samples", "points", "rank"),
    [(200, 20, 20), (200, 20, 5), (20, 200, 20), (20, 200, 3), (30, 30, 8), (1, 10, 1), (10, 1, 1)],
    ids=["tall", "tall of low rank", "wide", "wide of low rank", "square", "one sample", "one point"],
)


@SHAPES
def test_exact(samples: int, points: int, rank: int):
    outputs = outputs_of(samples, points, rank)
    found = compress(outputs)
    size = np.linalg.norm(outputs)
    assert found.directions.shape == (samples, rank)
    assert found.factor.shape == (rank, points)
    assert np.abs(found.directions.T @ found.directions - np.eye(rank)).max() < 1e-14 * 10
    assert np.linalg.norm(found.directions @ found.factor - outputs) < 1e-14 * size
    assert found.discarded <= (1e-14 * size) ** 2


@SHAPES
def test_every_projection_error_is_kept(samples: int, points: int, rank: int):
    """The factor knows how well any basis does: |U - U Q Q^T| = |B - B Q Q^T|."""
    outputs = outputs_of(samples, points, rank)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(points, min(4, points))))[0]
    errors = [np.sum((matrix - matrix @ Q @ Q.T) ** 2) for matrix in (outputs, compress(outputs).factor)]
    assert errors[1] == pytest.approx(errors[0], rel=1e-12, abs=1e-26 * np.sum(outputs**2))


@pytest.mark.parametrize("shape", [(200, 20), (20, 200), (30, 30)])
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3])
def test_certificate(shape: tuple[int, int], tolerance: float):
    outputs = outputs_of(*shape, 12)
    found = compress(outputs, tolerance=tolerance)
    rest = np.sum((found.directions @ found.factor - outputs) ** 2)
    assert found.factor.shape[0] < 12
    assert found.discarded == pytest.approx(rest, rel=1e-6)
    assert 0 < found.discarded <= tolerance**2 * np.sum(outputs**2)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(shape[1], 3)))[0]
    errors = [np.sum((matrix - matrix @ Q @ Q.T) ** 2) for matrix in (found.factor, outputs)]
    assert 0 <= errors[1] - errors[0] <= found.discarded


def test_zero_outputs():
    found = compress(np.zeros((4, 5)))
    assert found.factor.shape == (1, 5)
    assert np.all(found.directions @ found.factor == 0)
    assert found.discarded == 0
