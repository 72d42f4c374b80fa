"""Low-rank factors of outputs, in memory or in blocks of rows: exact, or with a certified error."""

from typing import Any

import numpy as np
import pytest

from trunkfirst.linear import low_rank
from trunkfirst.linear.low_rank import RowFactor, compress


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


# -- in blocks of rows


def decaying(rows: int = 300, columns: int = 60, rate: float = 0.7) -> np.ndarray:
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(n, columns)))[0] for n in (rows, columns))
    return (U * rate ** np.arange(columns)) @ V.T


def factor_of(matrix: np.ndarray, size: int) -> Any:
    factor = RowFactor(matrix.shape[1])
    for begin in range(0, len(matrix), size):
        factor.add(matrix[begin : begin + size])
    return factor.finish()


@pytest.mark.parametrize("size", [1, 17, 1000])
@pytest.mark.parametrize("rows", [20, 300, 9000])
def test_the_factor_of_blocks_is_that_of_all(size: int, rows: int):
    matrix = np.random.default_rng(0).normal(size=(rows, 12)) @ np.diag(10.0 ** -np.arange(12))
    found, expected = factor_of(matrix, max(size, rows // 100)), compress(matrix)
    gram = matrix.T @ matrix
    assert np.abs(found.factor.T @ found.factor - gram).max() <= 1e-12 * np.abs(gram).max()
    values = [np.linalg.svd(each.factor, compute_uv=False) for each in (found, expected)]
    np.testing.assert_allclose(*values, rtol=1e-9, atol=1e-14)
    assert found.discarded == pytest.approx(expected.discarded, abs=1e-25)


@pytest.fixture
def sketched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 60 columns were many: 20 rows are kept."""
    for name, value in (("_MOST_COLUMNS", 50), ("_MOST_NUMBERS", 60 * 20), ("_FEWEST_ROWS", 8)):
        monkeypatch.setattr(low_rank, name, value)


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.95])
def test_the_certificate_of_the_sketch_holds(rate: float, sketched: None):
    U = decaying(rate=rate)
    found = factor_of(U, 33)
    assert len(found.factor) <= 20
    lost = U.T @ U - found.factor.T @ found.factor
    eigenvalues = np.linalg.eigvalsh(lost)
    assert eigenvalues.min() > -1e-12
    assert np.trace(lost) <= found.discarded <= np.trace(lost) + 1e-12
    best = np.sum(rate ** (2 * np.arange(20, 60)))
    assert found.discarded < 200 * best + 1e-13
    rng = np.random.default_rng(1)
    for columns in (3, 15):
        Q = np.linalg.qr(rng.normal(size=(60, columns)))[0]
        P = np.eye(60) - Q @ Q.T
        gap = np.sum((U @ P) ** 2) - np.sum((found.factor @ P) ** 2)
        assert -1e-12 <= gap <= found.discarded + 1e-12


def test_what_has_few_directions_is_kept_by_the_sketch(sketched: None):
    U = decaying()[:, :15] @ np.random.default_rng(0).normal(size=(15, 60))
    found = factor_of(U, 40)
    assert np.abs(found.factor.T @ found.factor - U.T @ U).max() < 1e-10
    assert found.discarded < 1e-11 * np.sum(U**2)


@pytest.mark.parametrize("many", [False, True])
def test_a_factor_goes_on_from_its_state(many: bool, request: pytest.FixtureRequest):
    if many:
        request.getfixturevalue("sketched")
    U, first, second = decaying(), RowFactor(60), RowFactor(60)
    first.add(U[:130])
    second.restore({name: array.copy() for name, array in first.state().items()})
    for factor in (first, second):
        factor.add(U[130:])
    assert np.array_equal(first.finish().factor, second.finish().factor)
