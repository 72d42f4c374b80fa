"""The paper's input spaces (after assmpt-inputspace), corrected: members, sensors, covers, and their bounds."""

import itertools

import numpy as np
import pytest
from paper_input_spaces import AbstractInputSpace, DiskFields, SlopeBall, SobolevBall


def square(side: int) -> np.ndarray:
    line = np.linspace(-1, 1, side)
    return np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)


SPACES: list[tuple[AbstractInputSpace, tuple[int, ...]]] = [
    (DiskFields(square(9)), (1, 7, 50)),
    (SlopeBall(1), (1, 5)),
    (SlopeBall(4), (2, 7)),
    (SlopeBall(7), (1, 3)),
    (SobolevBall(1, 3), (1, 4, 11)),
    (SobolevBall(2, 6), (5, 16)),
    (SobolevBall(0, 2), (4, 9)),
]
SPACE = pytest.mark.parametrize("space", [space for space, _ in SPACES], ids=str)
COVERED = pytest.mark.parametrize(
    ("space", "cells"), [(s, c) for s, several in SPACES for c in several], ids=lambda value: str(value)[:30]
)


def zigzag(space: SlopeBall) -> np.ndarray:
    """The largest function of X that no sensor sees."""
    return np.abs(space.knots[:, None] - space.sensors).min(axis=1)[None]


def is_member(space: AbstractInputSpace, functions: np.ndarray) -> bool:
    if isinstance(space, DiskFields):
        return bool(((functions >= 0) & (functions <= 1)).all())
    if isinstance(space, SlopeBall):
        slopes = np.diff(functions, axis=1) / np.diff(space.knots)
        return bool(np.abs(functions).max() <= 1 + 1e-12 and np.abs(slopes).max() <= 1 + 1e-9)
    assert isinstance(space, SobolevBall)
    return bool((functions**2 @ space.norm_weights <= 1 + 1e-12).all())


# -- what is claimed


@SPACE
def test_sensors_miss_no_more_than_the_gap(space: AbstractInputSpace):
    f = space.sample(80, seed=0)
    if isinstance(space, SlopeBall):
        f = np.vstack([f, zigzag(space), -zigzag(space)])
    assert is_member(space, f)
    misses = np.abs(space.sensor_distances(f, f) - space.distances(f, f))
    assert misses.max() <= space.sensor_gap + 1e-7  # distances of equal functions are 0 up to the root of rounding


@COVERED
def test_every_member_is_near_one_of_the_cover(space: AbstractInputSpace, cells: int):
    cover = space.cover(cells)
    assert is_member(space, cover)
    f = np.vstack([space.sample(200, seed=1), space.sample(50, seed=2) * 0.05])
    f = np.vstack([f, -f]) if not isinstance(space, DiskFields) else f
    nearest = space.distances(f, cover).min(axis=1)
    assert nearest.max() <= space.cover_radius(cells) + 1e-12


@pytest.mark.parametrize("space", [SlopeBall(4), SobolevBall(1, 3)], ids=str)
@pytest.mark.parametrize("cells", [3, 6])
def test_every_member_shares_a_cell_with_one_of_the_cover(space: AbstractInputSpace, cells: int):
    def nearby(f: np.ndarray) -> np.ndarray:  # (functions, cover): no sensor differs by more than a cell
        return np.asarray((np.abs(space.at_sensors(f)[:, None] - seen[None]) <= 2 / cells + 1e-12).all(axis=2))

    seen = space.at_sensors(space.cover(cells))
    f = space.sample(300, seed=3)
    assert nearby(f).any(axis=1).all()
    assert nearby(-f).any(axis=1).all()


@SPACE
def test_samples_are_seeded_and_differ(space: AbstractInputSpace):
    a, b, c = (space.sample(5, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert (np.abs(a - c).max(axis=1) > 1e-6).all()


# -- the disk


def test_disk_fields_are_seen_exactly():
    space = DiskFields(square(9))
    f, g = np.array([[0.2], [0.9]])[:, None]
    assert space.sensor_distances(f, g)[0, 0] == pytest.approx(0.7)
    assert space.sensor_weights.sum() == pytest.approx(1)
    corner, centre = 0, 40
    assert space.at_sensors(f)[0, [corner, centre]].tolist() == [1.0, 0.2]
    assert space.sensor_weights[corner] == 0


def test_disk_cover_needs_its_radius():
    space = DiskFields(square(3))
    assert space.distances(np.zeros((1, 1)), space.cover(8)).min() == pytest.approx(space.cover_radius(8))


# -- slopes


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_pieces_as_long_as_the_weights_contain_the_sensors(count: int):
    space = SlopeBall(count)
    ends = -1 + np.cumsum(space.sensor_weights)
    assert (ends - space.sensor_weights - 1e-12 < space.sensors).all()
    assert (space.sensors < ends + 1e-12).all()


def test_sensor_norm_is_that_of_the_interpolant():
    space = SlopeBall(9)
    values = space.at_sensors(space.sample(20, seed=0))
    coefficients = np.polynomial.legendre.legfit(space.sensors, values.T, 8)
    norms = np.sqrt(np.sum(coefficients**2 * (2 / (2 * np.arange(9) + 1))[:, None], axis=0))
    np.testing.assert_allclose(np.sqrt(values**2 @ space.sensor_weights), norms, rtol=1e-10)


def test_distances_of_broken_lines_are_exact():
    space = SlopeBall(5)
    x = space.knots
    f, g = np.abs(x)[None], np.zeros((1, len(x)))
    assert space.distances(f, g)[0, 0] == pytest.approx(np.sqrt(2 / 3))
    assert space.distances(x[None], g)[0, 0] == pytest.approx(np.sqrt(2 / 3))


def test_gap_falls_like_one_over_the_sensors_and_so_does_what_they_miss():
    counts = np.array([10, 20, 40, 80])
    gaps = np.array([SlopeBall(int(m)).sensor_gap for m in counts])
    spaces = [SlopeBall(int(m)) for m in counts]
    missed = np.array([s.distances(2 * zigzag(s), 0 * zigzag(s))[0, 0] for s in spaces])  # f - g, f = -g
    for values in (gaps, missed):
        assert np.polyfit(np.log(counts), np.log(values), 1)[0] == pytest.approx(-1, abs=0.06)
    assert (gaps <= 5.2 / counts).all()
    assert (missed <= gaps).all()
    assert (missed >= 0.4 * gaps).all()


def brute_force_cells(space: SlopeBall, cells: int) -> int:
    """Sequences of cells that a slope of at most 1 can follow, all of them tried.

    Values v_j in [a_j, b_j] with |v_i - v_j| <= |x_i - x_j| exist if and only if a_i - b_j <= |x_i - x_j|.
    """
    edges = np.linspace(-1, 1, cells + 1)
    far = np.abs(space.sensors[:, None] - space.sensors)
    count = 0
    for path in itertools.product(range(cells), repeat=space.sensor_count):
        low, high = edges[list(path)], edges[np.array(path) + 1]
        count += bool((low[:, None] - high < far + 1e-15 * np.eye(len(far))).all())
    return count


@pytest.mark.parametrize(("count", "cells"), [(3, 4), (4, 4), (5, 3)])
def test_cover_meets_every_cell_that_can_be_met(count: int, cells: int):
    space = SlopeBall(count)
    assert len(space.cover(cells)) == brute_force_cells(space, cells) < cells**count


# -- Sobolev


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_sobolev_norm_is_a_sum_over_legendre_coefficients(order: int):
    space = SobolevBall(order, 4)
    x, w = np.polynomial.legendre.leggauss(64)
    for c in space.sample(5, seed=0):
        plain = c * np.sqrt(np.arange(len(c)) + 0.5)  # orthonormal to the usual Legendre polynomials
        parts = [
            np.polynomial.legendre.legval(x, np.polynomial.legendre.legder(plain, j)) for j in range(order + 1)
        ]
        norm = sum(w @ ((1 - x**2) ** j * part**2) for j, part in enumerate(parts))
        assert norm == pytest.approx(c**2 @ space.norm_weights, rel=1e-9)


def test_sobolev_tail_falls_with_the_order():
    degrees = np.array([20, 40, 80])
    for order in (1, 2, 3):
        gaps = [SobolevBall(order, int(m)).sensor_gap for m in degrees]
        assert np.polyfit(np.log(degrees), np.log(gaps), 1)[0] == pytest.approx(-order, rel=0.1)


def test_sensors_never_see_more_than_the_distance():
    space = SobolevBall(1, 3)
    f = space.sample(60, seed=0)
    assert (space.sensor_distances(f, f) <= space.distances(f, f) + 1e-12).all()  # Bessel: no m^-p is needed
