"""Orthonormal bases: orthonormal, of the right rank, of the right span."""

import numpy as np
import pytest

from trunkfirst.errors import DataError
from trunkfirst.linear.orthonormalise import QR, SVD, AbstractOrthonormaliser, smallest_sufficient_rank

POINTS = 60
KINDS = pytest.mark.parametrize("kind", [QR, SVD])
Kind = type[AbstractOrthonormaliser]


def features(functions: int = 8, *, condition: float = 1e2, seed: int = 0) -> np.ndarray:
    """A full-rank matrix (points, functions) with geometrically falling singular values."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.normal(size=(n, functions)))[0] for n in (POINTS, functions))
    return left * np.geomspace(1, 1 / condition, functions) @ right.T


def weights_of(kind: str) -> np.ndarray | None:
    if kind == "equal":
        return None
    weights = np.random.default_rng(1).uniform(0.5, 1.5, POINTS)
    weights[:3] = 0 if kind == "some zero" else weights[:3]
    return weights / weights.sum()


def projected(matrix: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Best approximation of each row of `targets` by the columns of `matrix`, from the pseudo-inverse."""
    return targets @ (matrix @ np.linalg.pinv(matrix, rcond=1e-10)).T


# -- full rank


@KINDS
@pytest.mark.parametrize("condition", [1.0, 1e4, 1e9])
@pytest.mark.parametrize("weights", ["equal", "unequal", "some zero"])
@pytest.mark.parametrize("unit_columns", [False, True])
def test_factorisation(kind: Kind, condition: float, weights: str, unit_columns: bool):
    Phi, w = features(condition=condition), weights_of(weights)
    basis = kind(unit_columns=unit_columns)(Phi, point_weights=w)
    Q = basis.values
    mean = np.full(POINTS, 1 / POINTS) if w is None else w
    length = 1 if unit_columns else POINTS
    assert basis.rank == 8
    assert basis.squared_length == length
    assert np.abs((Q.T * mean) @ Q * POINTS / length - np.eye(8)).max() < 1e-13
    size = np.abs(Q).max()
    assert np.abs(Phi @ basis.transform - Q).max() < 1e-14 * condition * size
    assert np.abs(Q @ basis.coordinates - Phi).max() < 1e-14 * max(1, condition * 1e-2)


@KINDS
def test_paper_scaling_means_orthonormal_columns(kind: Kind):
    Q = kind(unit_columns=True)(features(condition=1e3)).values
    assert np.abs(Q.T @ Q - np.eye(8)).max() < 1e-13


@KINDS
def test_scalings_give_the_same_function(kind: Kind):
    mean, unit = (kind(unit_columns=u)(features()) for u in (False, True))
    assert np.allclose(mean.values, unit.values * np.sqrt(POINTS), rtol=0, atol=1e-13)
    assert np.allclose(mean.transform @ mean.coordinates, unit.transform @ unit.coordinates, rtol=0, atol=1e-12)


@KINDS
def test_basis_does_not_depend_on_the_scale_of_columns(kind: Kind):
    Phi = features()
    scales = 10.0 ** np.random.default_rng(2).uniform(-8, 8, 8)
    plain, scaled = kind()(Phi), kind()(Phi * scales)
    assert np.abs(plain.values - scaled.values).max() < 1e-12
    assert np.allclose(scaled.transform * scales[:, None], plain.transform, rtol=1e-9, atol=1e-11)
    assert scaled.condition == pytest.approx(plain.condition, rel=1e-9)


def test_condition_is_that_of_unit_columns():
    Phi = features() * np.geomspace(1e-6, 1e6, 8)
    s = np.linalg.svd(Phi / np.linalg.norm(Phi, axis=0), compute_uv=False)
    assert SVD()(Phi).condition == pytest.approx(s[0] / s[-1], rel=1e-8)


# -- rank deficiency


def deficient(name: str) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(3)
    Phi = rng.normal(size=(POINTS, 6))
    zero = np.zeros((POINTS, 2))
    wide = np.hstack([np.ones((POINTS, 1)), Phi @ rng.normal(size=(6, 15)) + rng.normal(size=15)])
    return {
        "duplicate columns": (np.hstack([Phi, Phi[:, :3]]), 6),
        "zero columns": (np.hstack([zero, Phi, zero]), 6),
        "wide output layer": (wide, 7),
        "scaled duplicates": (np.hstack([Phi, 1e-9 * Phi, 1e9 * Phi]), 6),
        "more functions than points": (rng.normal(size=(5, 12)), 5),
        "one constant": (np.ones((POINTS, 4)), 1),
    }[name]


@KINDS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "name",
    [
        "duplicate columns",
        "zero columns",
        "wide output layer",
        "scaled duplicates",
        "more functions than points",
        "one constant",
    ],
)
def test_deficient_features(kind: Kind, name: str, dtype: type):
    exact, rank = deficient(name)
    Phi = exact.astype(dtype)
    basis = kind(unit_columns=True)(Phi)
    rounding = np.finfo(dtype).eps
    assert basis.rank == rank
    # T is as large as the reciprocal of the columns it takes, and no larger.
    lengths = np.linalg.norm(Phi.astype(float), axis=0)
    assert np.abs(basis.transform * lengths[:, None]).max() < 100
    assert np.abs(basis.transform[lengths == 0]).max(initial=0) < 1e-10
    targets = np.random.default_rng(4).normal(size=(7, len(Phi)))
    expected = projected(exact / np.where(lengths > 0, lengths, 1), targets)
    assert np.abs(targets @ basis.values @ basis.values.T - expected).max() < 1e3 * rounding
    assert (
        np.abs((basis.values @ basis.coordinates - Phi)[:, lengths > 0] / lengths[lengths > 0]).max()
        < 1e3 * rounding
    )


@KINDS
@pytest.mark.parametrize(
    ("Phi", "words"),
    [
        (np.zeros((POINTS, 3)), "all trunk functions are zero"),
        (np.full((POINTS, 3), np.nan), "not finite"),
        (np.full((POINTS, 3), np.inf), "not finite"),
    ],
)
def test_features_without_a_basis(kind: Kind, Phi: np.ndarray, words: str):
    with pytest.raises(DataError, match=words):
        kind()(Phi)


# -- the rule for the rank


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_tolerance_counts_singular_values(tolerance: float):
    Phi = features(12, condition=1e8)
    s = np.linalg.svd(Phi / np.linalg.norm(Phi, axis=0), compute_uv=False)
    assert SVD(tolerance)(Phi).rank == (s > tolerance * s[0]).sum()


@KINDS
@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
def test_tolerance_bounds_what_is_dropped(kind: Kind, tolerance: float):
    Phi = features(12, condition=1e8)
    Phi = Phi / np.linalg.norm(Phi, axis=0)
    basis = kind(tolerance, unit_columns=True)(Phi, targets=np.random.default_rng(0).normal(size=(3, POINTS)))
    dropped = Phi - basis.values @ basis.values.T @ Phi
    assert 0 < np.linalg.norm(dropped, 2) <= 12 * tolerance
    assert basis.condition <= 1 / tolerance


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("allowance", [0.01, 0.3])
def test_smallest_sufficient_rank_by_trying_all(seed: int, allowance: float):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(POINTS, 10)))[0]
    rest = rng.normal(size=(5, POINTS))
    targets = rng.normal(size=(5, 10)) * 3.0 ** -np.arange(10) @ Q.T + 1e-2 * (rest - rest @ Q @ Q.T)
    errors = [np.sum((targets - targets @ Q[:, :r] @ Q[:, :r].T) ** 2) for r in range(11)]
    enough = next(r for r in range(11) if errors[r] <= (1 + allowance) * errors[10])
    assert 0 < enough < 10  # else this test would say nothing
    assert smallest_sufficient_rank(Q, targets, allowance=allowance) == enough


@KINDS
def test_targets_decide_the_rank(kind: Kind):
    """Ten functions of which four matter: the error is within one per cent of that of all."""
    rng = np.random.default_rng(6)
    Phi = np.linalg.qr(rng.normal(size=(POINTS, 10)))[0]
    targets = rng.normal(size=(6, 4)) @ Phi[:, :4].T + 1e-3 * rng.normal(size=(6, POINTS))
    basis = kind(unit_columns=True)(Phi, targets=targets)
    errors = [
        np.sum((targets - targets @ Q @ Q.T) ** 2) for Q in (basis.values, kind(unit_columns=True)(Phi).values)
    ]
    assert basis.rank <= 10
    assert errors[0] <= 1.01 * errors[1]


def test_one_direction_is_always_kept():
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(POINTS, 4)))[0]
    rest = np.random.default_rng(1).normal(size=(3, POINTS))
    assert smallest_sufficient_rank(Q, rest - rest @ Q @ Q.T) == 1
