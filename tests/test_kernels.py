"""Marginal likelihood: values and derivatives against plain formulas, and the kernels that it finds."""

import numpy as np
import pytest
import scipy.spatial
import scipy.stats

from trunkfirst.errors import SolveError
from trunkfirst.linear.blocked_qr import one_blas_thread
from trunkfirst.linear.kernels import (
    MATERN,
    Likelihood,
    distances,
    find_kernel,
    find_powers,
    kernel_matrix,
    leading_directions,
)


def pulses(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pulses with an amplitude, a width over two decades and a place: parameters of unequal importance."""
    rng = np.random.default_rng(seed)
    amplitude, place = rng.uniform(0.5, 2, (samples, 1)), rng.uniform(0, 1, (samples, 1))
    width = 10 ** rng.uniform(-2, 0, (samples, 1))
    y = np.linspace(0, 1, 60)[None]
    outputs = amplitude * np.exp(-((y - 0.2 - 0.5 * place) ** 2) / (0.02 + 0.2 * width))
    return np.hstack([amplitude, width, place]), outputs


def scaled(*parts: np.ndarray) -> list[np.ndarray]:
    return [(part - parts[0].mean(axis=0)) / parts[0].std(axis=0) for part in parts]


def some(samples: int = 25, features: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(samples, features))
    return X, np.sin(X @ rng.normal(size=(features, 3))), rng.uniform(0.5, 2, samples)


# -- distances


@pytest.mark.parametrize("spread", [1.0, 1e-3])
def test_distances_of_many_features_lose_no_digits(spread):
    """Far from the origin, with samples that are nearly or quite the same, or all of them in two clusters."""
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.normal(size=(2, 80)), 30, axis=0)
    X = 1e3 + centres + spread * rng.normal(size=(60, 80))
    X[1], X[3] = X[0], X[2] + 1e-4
    np.testing.assert_allclose(distances(X, X), scipy.spatial.distance.cdist(X, X), rtol=1e-9)
    assert not np.diag(distances(X, X)).any()


# -- the likelihood


@pytest.mark.parametrize(("name", "nu"), [("1/2", 0.5), ("3/2", 1.5), ("5/2", 2.5), ("inf", np.inf)])
def test_matrices_are_those_of_scikit_learn(name, nu):
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels", reason="scikit-learn is not installed")
    X, _, _ = some()
    lengths = np.array([0.5, 1.0, 2.0, 4.0])
    expected = kernels.Matern(lengths, nu=nu)(X)
    np.testing.assert_allclose(kernel_matrix(name, X, X, lengths), expected, atol=1e-13)
    parts = [kernels.Matern(lengths[part], nu=nu)(X[:, part]) for part in (slice(0, 1), slice(1, 4))]
    weights = np.array([0.5, 1.0, 0.0, 2.0, 0.25])
    expected = parts[0] * parts[1] * (0.5 + (X * weights[1:]) @ X.T)
    found = kernel_matrix(name, X, X, lengths, groups=(1, 3), linear=weights)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("groups", [(), (1, 3)])
@pytest.mark.parametrize("is_linear", [False, True])
def test_the_value_is_the_density_of_the_best_mean_and_variance(groups, is_linear):
    Z, Y, w = some()
    shares = np.array([0.3, 0.1, 0.2, 0.0, 0.4]) if is_linear else None
    value, _ = Likelihood("5/2", Y, w, groups).evaluate(Z, shares, 1e-3)
    weights = None if shares is None else np.append(shares[0], shares[1:] / np.mean(Z**2, axis=0))
    K = kernel_matrix("5/2", Z, Z, np.ones(4), groups=groups, linear=weights)
    assert np.mean(np.diag(K)) == pytest.approx(1)
    K += np.diag(1e-3 / w)
    mean = np.linalg.solve(K, Y).sum(axis=0) / np.linalg.solve(K, np.ones(25)).sum()
    variance = np.sum((Y - mean) * np.linalg.solve(K, Y - mean)) / Y.size
    density = [
        scipy.stats.multivariate_normal(mu * np.ones(25), variance * K).logpdf(y)
        for mu, y in zip(mean, Y.T, strict=True)
    ]
    assert value + 25 / 2 * (np.log(2 * np.pi) + 1) == pytest.approx(-np.mean(density), rel=1e-10)


@pytest.mark.parametrize("smoothness", list(MATERN))
@pytest.mark.parametrize("groups", [(), (1, 3)])
def test_derivatives_are_those_of_differences(smoothness, groups):
    Z, Y, w = some()
    likelihood, theta = Likelihood(smoothness, Y, w, groups), np.log([0.3, 0.1, 0.2, 0.3, 0.1])

    def value(Z, theta, log_nugget):
        shares = np.exp(theta) / np.exp(theta).sum()
        return likelihood.evaluate(Z, shares, np.exp(log_nugget))

    def slope(move, h=1e-5):
        return (value(*move(h))[0] - value(*move(-h))[0]) / (2 * h)

    nugget = np.log(1e-2)
    _, slopes = value(Z, theta, nugget)
    for j in range(4):
        # A change of unit, which the linear factor does not see.
        found = slope(lambda h, j=j: (Z * np.exp(h * np.eye(4)[j]), theta, nugget))
        assert np.sum(Z * slopes.inputs, axis=0)[j] == pytest.approx(found, rel=1e-5, abs=1e-6)
    for j in range(5):
        found = slope(lambda h, j=j: (Z, theta + h * np.eye(5)[j], nugget))
        assert slopes.log_shares[j] == pytest.approx(found, rel=1e-5, abs=1e-6)
    assert slopes.log_nugget == pytest.approx(slope(lambda h: (Z, theta, nugget + h)), rel=1e-5)


def test_a_singular_matrix_gets_a_larger_nugget():
    Z, Y, w = some()
    value, slopes = Likelihood("inf", np.repeat(Y, 2, axis=0), np.repeat(w, 2)).evaluate(
        np.repeat(Z, 2, axis=0) / 100, None, 1e-30
    )
    assert np.isfinite(value)
    assert np.isfinite(slopes.inputs).all()


# -- what is found


def error(X, Y, new, aim, **options) -> float:
    """The mean relative error on new samples with the kernel that is found."""
    found = find_kernel("5/2", X, Y, np.ones(len(X)), **options)
    K, across = (
        kernel_matrix("5/2", part, X, found.lengths, groups=options.get("groups", ()), linear=found.linear)
        for part in (X, new)
    )
    K += found.nugget * np.eye(len(X))
    mean = np.linalg.solve(K, Y).sum(axis=0) / np.linalg.solve(K, np.ones(len(X))).sum()
    predicted = across @ np.linalg.solve(K, Y - mean) + mean
    return float(np.mean(np.linalg.norm(predicted - aim, axis=1) / np.linalg.norm(aim, axis=1)))


def test_lengths_follow_the_importance_of_inputs():
    X, Y, w = some(80)
    Y = np.sin(3 * X[:, :1]) + 0.1 * X[:, 1:2] ** 2
    found = find_kernel("5/2", X, Y, w[:1].repeat(80))
    assert found.lengths[0] * 2 < found.lengths[1] < found.lengths[2:].min()


def test_a_linear_factor_helps_where_an_input_enters_linearly():
    (X, Y), (new, aim) = pulses(120, 0), pulses(200, 1)
    X, new = scaled(X, new)
    with one_blas_thread():
        plain, linear = (error(X, Y, new, aim, is_linear=is_linear) for is_linear in (False, True))
    assert linear < plain / 1.5


def test_the_units_of_inputs_and_targets_do_not_matter():
    X, Y, w = some(40)
    units = np.array([1e-3, 1.0, 20.0, 1e6])
    first, other = (
        find_kernel("5/2", X, Y, w, is_linear=True),
        find_kernel("5/2", X * units, 100 * Y, w, is_linear=True),
    )
    np.testing.assert_allclose(other.lengths / units, first.lengths, rtol=0.1)
    assert other.nugget == pytest.approx(first.nugget, rel=0.5)


def test_the_same_bits_for_the_same_inputs():
    X, Y, w = some(40)
    with one_blas_thread():
        first, again = (find_kernel("5/2", X.copy(), Y.copy(), w, is_linear=True) for _ in range(2))
    np.testing.assert_array_equal(first.lengths, again.lengths)
    assert first.nugget == again.nugget


@pytest.mark.parametrize("case", ["duplicates", "constant input", "four samples", "equal targets", "one input"])
@pytest.mark.parametrize("is_linear", [False, True])
def test_degenerate_data(case, is_linear):
    X, Y, w = some(12)
    match case:
        case "duplicates":
            X, Y, w = (np.repeat(part, 2, axis=0) for part in (X, Y, w))
        case "constant input":
            X[:, 1], X[:, 2] = 0.0, 0.1
        case "four samples":
            X, Y, w = X[:4], Y[:4], w[:4]
        case "equal targets":
            Y = np.full_like(Y, 0.1)
        case _:
            X = X[:, :1]
    found = find_kernel("5/2", X, Y, w, is_linear=is_linear)
    assert np.isfinite(found.lengths).all()
    assert (found.lengths > 0).all()
    assert 0 < found.nugget <= 1.0 + 1e-12
    assert found.linear is None or np.isfinite(found.linear).all()


def test_inputs_that_are_no_numbers_are_refused():
    X, Y, w = some()
    X[3, 1] = np.nan
    with pytest.raises(SolveError, match="not finite"):
        find_kernel("5/2", X, Y, w)


def test_a_given_nugget_stays():
    X, Y, w = some()
    assert find_kernel("5/2", X, Y, w, nugget=1e-3).nugget == pytest.approx(1e-3)


def test_noise_is_found():
    X, Y, _ = some(150)
    noisy = Y + 0.1 * np.random.default_rng(0).normal(size=Y.shape)
    assert (
        find_kernel("5/2", X, noisy, np.ones(150)).nugget
        > 1e-4
        > 1e-6
        > find_kernel("5/2", X, Y, np.ones(150)).nugget
    )


def test_leading_directions_keep_the_covariance():
    _, Y, w = some()
    found = leading_directions(np.hstack([Y, Y, Y + 1e-9]), w)
    assert found.shape == (25, 3)
    centred = Y - w @ Y / w.sum()
    np.testing.assert_allclose(found @ found.T, 3 * centred @ centred.T, atol=1e-7)


# -- powers


def test_powers_are_found():
    """u = sin(log a) y + sqrt(b) y^2 + 1 / c: an input that does not matter keeps its power."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.uniform(-1, 1, (150, 6)))
    X[:, 4] -= 1.0
    X[:, 5] = 0.1
    Y = np.stack([np.sin(2 * np.log(X[:, 0])), 2 * np.sqrt(X[:, 1]) + X[:, 4], 1 / X[:, 2]], axis=1)
    powers = find_powers(X, Y, np.ones(150), np.array([True, True, True, True, False, True]))
    np.testing.assert_allclose(powers, [0.0, 0.5, -1.0, 1.0, 1.0, 1.0], atol=0.25)


def test_powers_of_equal_targets_stay():
    X = np.exp(np.random.default_rng(0).uniform(-1, 1, (10, 2)))
    np.testing.assert_array_equal(find_powers(X, np.ones((10, 1)), np.ones(10), np.ones(2, bool)), np.ones(2))
