"""Symmetries that samples show: found where they are, not found where they are not, and kept by predictions."""

import numpy as np
import pytest

import trunkfirst
from trunkfirst.regressors.input_grid import OutputBasis, find_grid
from trunkfirst.regressors.symmetries import find_symmetries, periodic_axes, with_images

N = 6
LINE = np.linspace(0, 1, N)
SQUARE = np.stack(np.meshgrid(LINE, LINE, indexing="ij"), -1).reshape(-1, 2)
SMALL = trunkfirst.FourierBranch(channels=4, layers=1, modes=2, iterations=3)


def membrane(f: np.ndarray, stiffness: np.ndarray) -> np.ndarray:
    """-lap u + stiffness u = f on a square grid, zero outside; the solution turns with f if the stiffness does."""
    T = 2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    laplacian = np.kron(T, np.eye(N)) + np.kron(np.eye(N), T)
    return np.linalg.solve(laplacian + np.diag(stiffness), f.T).T


def symmetries_of(inputs: np.ndarray, outputs: np.ndarray, points: np.ndarray) -> int:
    """How many maps are found with every point value as a coefficient, the identity among them."""
    grid = find_grid(trunkfirst.OperatorData(inputs, points, outputs))
    assert grid is not None
    each = np.eye(len(points))
    return len(find_symmetries(inputs, outputs, grid, OutputBasis(points, each, each)).maps)


@pytest.mark.parametrize(
    ("mean", "slope", "count"),
    [(3.0, 0.0, 8), (0.0, 0.0, 16), (3.0, 2.0, 2)],
    ids=["a square", "a square and signs", "reflection along y alone"],
)
def test_the_symmetries_of_a_square(mean: float, slope: float, count: int):
    """Linear in f, so that with mean 0 the sign is one more; a stiffness that grows with x leaves y alone."""
    f = np.random.default_rng(0).normal(mean, 1.0, size=(300, N * N))
    assert symmetries_of(f, membrane(f, slope * SQUARE[:, 0]), SQUARE) == count


@pytest.mark.parametrize(("noise", "count"), [(0.2, 8), (0.0, 2)], ids=["below the noise", "above it"])
def test_near_symmetries(noise: float, count: int):
    """A field that is 10 % larger on the right is nearly symmetric where a kernel misses more than that."""
    f, u = nearly_symmetric(noise)
    assert symmetries_of(f, u, SQUARE) == count


def nearly_symmetric(noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Solutions on a square that are 10 % larger on the right, with noise."""
    rng = np.random.default_rng(6)
    f = rng.normal(3.0, 1.0, size=(1000, N * N))
    u = membrane(f, np.zeros(N * N)) * (1 + 0.1 * SQUARE[:, 0])
    return f, u + noise * u.mean() * rng.normal(size=u.shape)


def test_images_under_near_symmetries_are_turned_about_the_mean():
    """So that the mean of all images is that of the samples."""
    f, u = nearly_symmetric(0.2)
    grid, each = find_grid(trunkfirst.OperatorData(f, SQUARE, u)), np.eye(N * N)
    assert grid is not None
    found = with_images(f, u, grid, OutputBasis(SQUARE, each, each), 8 * 1000)
    assert len(found.rows) == 8 * 1000
    assert np.abs(found.targets.mean(axis=0) - u.mean(axis=0)).max() < 0.03 * u.mean()


@pytest.mark.parametrize(("even", "count"), [(True, 64), (False, 16)], ids=["even", "neither odd nor even"])
def test_shifts_of_a_period(even: bool, count: int):
    """u = f f_x moves with f along a period; a reflection changes its sign, that of f does not."""
    x = np.arange(16) / 16
    rng = np.random.default_rng(1)
    waves = np.stack([np.cos(2 * np.pi * k * x) for k in (1, 2)] + [np.sin(2 * np.pi * k * x) for k in (1, 2)])
    f = rng.normal(size=(400, 4)) @ waves
    slope = np.roll(f, -1, 1) - np.roll(f, 1, 1)
    u = f * slope if even else f * slope + f + slope
    assert symmetries_of(f, u, x[:, None]) == count


def test_a_shift_makes_an_axis_periodic():
    x = np.arange(16) / 16
    f = np.random.default_rng(2).normal(size=(200, 16))
    grid = find_grid(trunkfirst.OperatorData(f, x[:, None], f))
    assert grid is not None
    maps = find_symmetries(f, f, grid, OutputBasis(x[:, None], np.eye(16), np.eye(16))).maps
    assert periodic_axes(maps, grid.shape) == [True]
    assert periodic_axes(maps[:1], grid.shape) == [False]


def test_predictions_turn_with_the_input():
    f = np.random.default_rng(3).normal(3.0, 1.0, size=(120, N * N))
    u = membrane(f, np.zeros(N * N))

    def fitted(symmetries: bool) -> trunkfirst.Operator:
        branch = trunkfirst.FourierBranch(**{**vars(SMALL), "symmetries": symmetries})
        method = trunkfirst.TwoStep(
            trunkfirst.ModesTrunk(), branch, inputs=trunkfirst.RawInputs(), weights="relative"
        )
        return trunkfirst.fit(f, u, SQUARE, method=method, intervals=False).operator

    def turned(fields: np.ndarray) -> np.ndarray:
        return np.rot90(fields.reshape(-1, N, N), axes=(1, 2)).reshape(len(fields), -1)

    with_them, without = fitted(True), fitted(False)
    for operator, turns in ((with_them, True), (without, False)):
        expected, found = turned(operator.predict(f[:5])), operator.predict(turned(f[:5]))
        missed = np.linalg.norm(found - expected) / np.linalg.norm(expected)
        assert (missed < 1e-5) == turns  # the layers compute in single precision


def test_images_are_further_samples():
    """A kernel that learns from images has the error of one with as many samples more."""
    rng = np.random.default_rng(4)
    f = rng.normal(3.0, 1.0, size=(300, N * N))
    u = membrane(f, np.zeros(N * N)) ** 2

    def error(samples: int, images: int | None) -> float:
        method = trunkfirst.TwoStep(
            trunkfirst.ModesTrunk(),
            trunkfirst.Kernel(),
            inputs=trunkfirst.StandardisedInputs(),
            weights="relative",
            images=images,
        )
        operator = trunkfirst.fit(f[:samples], u[:samples], SQUARE, method=method, intervals=False).operator
        return float(np.linalg.norm(operator.predict(f[200:]) - u[200:]) / np.linalg.norm(u[200:]))

    assert error(70, 1000) < 0.6 * error(70, None)
    assert error(70, 70) == pytest.approx(error(70, None))  # no room for images


def test_images_need_a_grid():
    rng = np.random.default_rng(5)
    method = trunkfirst.TwoStep(
        trunkfirst.ModesTrunk(2),
        trunkfirst.Linear(),
        inputs=trunkfirst.RawInputs(),
        weights="none",
        images=100,
    )
    points = np.linspace(0, 1, 9)[:, None]
    with pytest.raises(trunkfirst.errors.SettingError, match="images: symmetries are found only if"):
        trunkfirst.fit(rng.normal(size=(70, 2)), rng.normal(size=(70, 9)), points, method=method)
