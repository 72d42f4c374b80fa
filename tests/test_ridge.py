"""Ridge regression: closed forms against plain solves, leave-one-out against refits, the kernel branch in JAX."""

import math
import tracemalloc
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special

from trunkfirst.encoders import Identity, to_jax
from trunkfirst.errors import SettingError, SolveError, ValueRangeError
from trunkfirst.networks.branches import MATERN, KernelBranch
from trunkfirst.networks.layers import Trunk, make_perceptron
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.regressors.base import InputLayout
from trunkfirst.regressors.ridge import Kernel, KernelProblem, Linear, _LinearProblem


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def smooth(samples=30, features=2, seed=0):
    """Inputs, smooth targets and weights."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(features, 3))
    x = rng.uniform(-1, 1, (samples, features))
    y = np.sin(2 * x @ slopes) + 5
    return x, y, rng.uniform(0.5, 2, samples)


def fit(method, x, y, weights=None, seed=0, **more) -> Any:
    weights = None if weights is None else jnp.asarray(weights)
    return method.fit(jnp.asarray(x), jnp.asarray(y), weights, key=jr.key(seed), **more)


# Linear ridge


@pytest.mark.parametrize("is_weighted", [False, True])
def test_without_ridge_it_is_least_squares(is_weighted):
    x, y, w = smooth()
    result = fit(Linear(1e-15), x, y, w if is_weighted else None)
    roots = np.sqrt(w)[:, None] if is_weighted else 1.0
    expected = np.linalg.lstsq(np.column_stack([x, np.ones(30)]) * roots, y * roots, rcond=None)[0]
    assert result.branch.architecture == (2, 3)
    np.testing.assert_allclose(result.branch.weights[0].T, expected[:-1], rtol=1e-10)
    np.testing.assert_allclose(result.branch.biases[0], expected[-1], rtol=1e-10)
    residual = np.column_stack([x, np.ones(30)]) @ expected - y
    assert result.loss == pytest.approx(np.mean(residual**2), rel=1e-10)


def test_the_linear_ridge_penalises_weights_and_not_the_bias():
    x, y, _ = smooth()
    W = fit(Linear(0.3), x, y).branch.weights[0]
    centred = x - x.mean(axis=0)
    penalty = 0.3 * np.linalg.norm(centred, 2) ** 2
    expected = np.linalg.solve(centred.T @ centred + penalty * np.eye(2), centred.T @ (y - y.mean(axis=0)))
    np.testing.assert_allclose(W.T, expected, rtol=1e-10)
    np.testing.assert_allclose(fit(Linear(1000000000000.0), x, y).branch.biases[0], y.mean(axis=0), rtol=1e-09)


@pytest.mark.parametrize("features", [2, 40])
@pytest.mark.parametrize("ridge", [1e-4, 1e-1])
def test_linear_leave_one_out_is_that_of_refits(features, ridge):
    x, y, w = smooth(features=features)
    problem = _LinearProblem(x, y, w)
    penalty = ridge * problem.s[0] ** 2
    squares = []
    for left_out in range(30):
        rest = np.arange(30) != left_out
        a = np.column_stack([x[rest], np.ones(29)])
        gram = a.T @ (w[rest, None] * a) + np.diag([penalty] * features + [0.0])
        found = np.linalg.solve(gram, a.T @ (w[rest, None] * y[rest]))
        squares.append(w[left_out] * (np.append(x[left_out], 1) @ found - y[left_out]) ** 2)
    assert problem.leave_one_out(ridge) == pytest.approx(np.mean(squares), rel=1e-9)


def test_many_targets_are_compared_in_their_leading_directions():
    """Which lose nothing where the targets have fewer directions than columns."""
    x, y, w = smooth()
    orthonormal = y @ np.linalg.qr(np.random.default_rng(1).normal(size=(100, y.shape[1])))[0].T
    few, found = (KernelProblem("5/2", x, each, w).leave_one_out(0.7, 1e-3) for each in (y, orthonormal))
    assert found == pytest.approx(few, rel=1e-9)
    sizes = [_LinearProblem(x, each, w).leave_one_out(1e-3) * each.shape[1] for each in (y, orthonormal)]
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-9)


def test_an_open_ridge_is_large_for_noise_and_small_for_lines():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 30))
    line = x[:, :1] @ np.ones((1, 2)) + 1
    assert fit(Linear(), x, line).loss < 1e-18
    noise = rng.normal(size=(40, 2))
    assert np.linalg.norm(fit(Linear(), x, noise).branch.weights[0]) < 0.5
    assert np.linalg.norm(fit(Linear(1e-12), x, noise).branch.weights[0]) > 1


def test_constant_inputs_give_the_mean():
    y = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(fit(Linear(), np.full((5, 2), 0.3), y).branch(np.ones((1, 2)))[0], y.mean(axis=0))


# Kernel ridge


@pytest.mark.parametrize(("name", "nu"), [("1/2", 0.5), ("3/2", 1.5), ("5/2", 2.5)])
def test_profiles_are_those_of_matern(name, nu):
    r = np.linspace(0.01, 4, 50)
    z = math.sqrt(2 * nu) * r
    expected = 2 ** (1 - nu) / scipy.special.gamma(nu) * z**nu * scipy.special.kv(nu, z)
    np.testing.assert_allclose(MATERN[name](r, np.exp), expected, rtol=1e-12)
    assert MATERN[name](np.zeros(1), np.exp) == 1


@pytest.mark.parametrize("smoothness", list(MATERN))
def test_kernel_leave_one_out_is_that_of_refits(smoothness):
    x, y, w = smooth()
    K = MATERN[smoothness](np.linalg.norm(x[:, None] - x, axis=2) / 0.7, np.exp)
    centred = y - np.average(y, axis=0, weights=w)
    norms: list[float] = []
    for left_out in range(30):
        rest = np.arange(30) != left_out
        a = np.linalg.solve(K[rest][:, rest] + np.diag(1e-3 / w[rest]), centred[rest])
        norms.append(float(np.linalg.norm(K[left_out, rest] @ a - centred[left_out])) * w[left_out] ** 0.5)
    problem = KernelProblem(smoothness, x, y, w)
    assert problem.leave_one_out(0.7, 1e-3) == pytest.approx(np.mean(norms), rel=1e-7)  # compressed targets
    assert problem.leave_one_out_grid(0.7, [1.0, 1e-3])[1] == pytest.approx(np.mean(norms), rel=1e-7)


def test_the_solution_is_that_of_the_system():
    x, y, w = smooth()
    branch = fit(Kernel("3/2", 0.5, 0.01), x, y, w).branch
    kernel = MATERN["3/2"](np.linalg.norm(x[:, None] - x, axis=2) / 0.5, np.exp)
    offset = np.average(y, axis=0, weights=w)
    expected = np.linalg.solve(kernel + np.diag(1e-2 * w.mean() / w), y - offset)
    np.testing.assert_allclose(branch.coefficients, expected, atol=1e-9)
    np.testing.assert_allclose(branch.offset, offset, rtol=1e-9)


def test_a_tiny_ridge_interpolates():
    x, y, _ = smooth()
    result = fit(Kernel(length=0.5, ridge=1e-13), x, y)
    assert result.loss < 1e-20
    assert result.branch.count == 30


def test_open_settings_are_chosen_where_they_predict():
    x, y, _ = smooth(samples=150)
    chosen = fit(Kernel(), x, y).branch
    poor = fit(Kernel(length=0.02), x, y).branch
    new, aim, _ = smooth(samples=250)
    errors = [float(np.abs(branch(jnp.asarray(new)) - aim).max()) for branch in (chosen, poor)]
    assert errors[0] < 1e-2 < 0.1 < errors[1]
    assert chosen.ridge < 1e-6
    noisy = y + np.random.default_rng(1).normal(size=y.shape)
    assert fit(Kernel(), x, noisy).branch.ridge >= 1e-2


def test_samples_of_weight_zero_are_left_out():
    x, y, w = smooth()
    w[:10] = 0
    assert fit(Kernel(length=0.5, ridge=1e-06), x, y, w).branch.count == 20


def test_of_many_samples_some_are_centres():
    x, y, _ = smooth(samples=60)
    method = Kernel(max_centres=25, selection_samples=20)
    first, again, other = (fit(method, x, y, seed=seed).branch for seed in (0, 0, 1))
    assert first.count == 25
    np.testing.assert_array_equal(first.centres, again.centres)
    assert not np.array_equal(first.centres, other.centres)


@pytest.mark.parametrize("smoothness", list(MATERN))
def test_gradients_are_right_and_finite_at_a_centre(smoothness):
    x, y, _ = smooth(samples=8)
    branch = fit(Kernel(smoothness, 0.8, 1e-06), x, y).branch

    def value(point):
        return branch(point[None])[0].sum()

    at_centre = jax.jit(jax.grad(value))(jnp.asarray(x[0]))
    assert np.isfinite(at_centre).all()
    step = 1e-6
    ahead, behind = (np.array([value(jnp.asarray(x[0] + s * e)) for e in np.eye(2)]) for s in (step, -step))
    np.testing.assert_allclose(at_centre, (ahead - behind) / (2 * step), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("smoothness", ["3/2", "5/2", "inf"])
def test_second_derivatives_are_right_at_a_centre(smoothness):
    one = jnp.ones((1, 1))
    branch = KernelBranch(0 * one, one, jnp.zeros(1), jnp.asarray(1.0), smoothness, 0.0)
    second = jax.hessian(lambda x: branch(x[None])[0, 0])(jnp.zeros(1))
    assert second.item() == pytest.approx({"3/2": -3, "5/2": -5 / 3, "inf": -1}[smoothness], rel=1e-12)


def test_the_kernel_branch_works_in_batches_and_under_jit_and_vmap():
    x, y, _ = smooth()
    branch = fit(Kernel(length=0.5, ridge=1e-06), x, y).branch
    many = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (2500, 2)))
    expected = np.concatenate([branch(many[i : i + 1]) for i in (0, 1300, 2499)])
    np.testing.assert_allclose(jax.jit(branch.__call__)(many)[jnp.array([0, 1300, 2499])], expected, rtol=1e-12)
    np.testing.assert_allclose(
        jax.vmap(branch)(many[:6].reshape(3, 2, 2)).reshape(6, 3), branch(many[:6]), rtol=1e-12
    )


def test_an_operator_with_a_kernel_branch_comes_back_from_disk(tmp_path):
    x, y, _ = smooth()
    branch = fit(Kernel(length=0.5, ridge=1e-06), x, y).branch
    operator = Operator(Identity(), branch, Trunk(make_perceptron((1, 4, 2), key=jr.key(1))))
    again = load(save(operator, tmp_path / "model"))
    points = np.linspace(0, 1, 5)[:, None]
    np.testing.assert_array_equal(again.predict(x, points), operator.predict(x, points))
    assert isinstance(again.branch, KernelBranch)
    assert again.branch.smoothness == "5/2"
    assert again.branch.ridge == 1e-6


def test_the_log_has_one_weighted_line():
    x, y, w = smooth()
    steps = []
    result = fit(Linear(1e-06), x, y, 7 * w, loss_unit=3.0, on_step=steps.append)
    squares = np.mean((np.asarray(result.branch(jnp.asarray(x))) - y) ** 2, axis=1)
    assert [step.loss for step in steps] == pytest.approx([3 * np.mean(w / w.mean() * squares)], rel=1e-12)
    assert result.history == tuple(steps)
    assert result.loss == pytest.approx(np.mean(squares), rel=1e-12)


@pytest.mark.parametrize("settings", [{"ridge": 0.0}, {"length": -1.0}, {"max_centres": 0}])
def test_numbers_out_of_range_are_refused(settings):
    with pytest.raises(ValueRangeError, match=next(iter(settings))):
        Kernel(**settings)


def test_an_unknown_smoothness_is_refused():
    with pytest.raises(ValueRangeError, match="5/2"):
        Kernel("7/2")
    with pytest.raises(ValueRangeError, match="ridge"):
        Linear(-1.0)


def test_all_samples_get_the_ridge_they_need():
    x, y, _ = smooth(samples=300)
    problem = KernelProblem("inf", x, y, np.ones(300))
    ridge, solution = Kernel("inf", length=20.0)._solve(problem, 20.0, 1e-20)
    assert 1e-20 < ridge < 1e-8
    assert np.isfinite(solution).all()
    with pytest.raises(SolveError):
        Kernel("inf", 20.0, 1e-20)._solve(problem, 20.0, 1e-20)


def test_a_singular_kernel_matrix_says_what_to_do():
    x, y, w = smooth()
    problem = KernelProblem("inf", np.repeat(x, 2, axis=0), np.repeat(y, 2, axis=0), np.repeat(w, 2))
    with pytest.raises(SolveError, match="larger ridge"):
        problem.solve(10.0, 1e-300)
    assert problem.leave_one_out_grid(10.0, [1e-300]) == [np.inf]


# More samples than centres


@pytest.mark.parametrize("settings", [{}, {"lengths": "each"}, {"lengths": "each", "linear_factor": True}])
def test_all_samples_count_where_the_targets_are_noisy(settings):
    """With as many centres, what is fitted to all samples is better; without noise both find the function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(1500, 2))
    y = np.stack([np.sin(2 * x[:, 0] + x[:, 1]), x[:, 0] * x[:, 1]], axis=1)
    noisy = y + 0.1 * rng.normal(size=y.shape)
    kernel = Kernel(max_centres=100, **settings)
    found = fit(kernel, x[:1000], noisy[:1000]).branch
    part = fit(kernel, x[:100], noisy[:100]).branch
    errors = [np.linalg.norm(np.asarray(each(x[1000:])) - y[1000:]) for each in (found, part)]
    assert found.count <= 100
    assert errors[0] < 0.7 * errors[1]
    assert np.abs(np.asarray(fit(kernel, x[:1000], y[:1000]).branch(x[1000:])) - y[1000:]).max() < 0.05


def test_a_least_squares_fit_to_the_centres_alone_is_the_solution():
    x, y, w = smooth()
    problem = KernelProblem("5/2", x, y, w)
    np.testing.assert_allclose(problem.fit_to(problem, 0.5, 1e-3), problem.solve(0.5, 1e-3), rtol=1e-7, atol=1e-9)


# A length for every input

EACH = Kernel(lengths="each")
LINEAR = Kernel(lengths="each", linear_factor=True)


def unequal(samples, seed):
    """Inputs of unequal importance; the first is an amplitude."""
    x = np.random.default_rng(seed).uniform(-1, 1, (samples, 5))
    a, b, c, d, _ = x.T[..., None]
    y = np.linspace(0, 1, 20)
    return x, (2 + a) * np.exp(-(1 + b) * y) * np.cos(3 * c * y) + 0.05 * d**2 * y


def fit_numpy(method, x, y, weights=None, **more) -> Any:
    return method.fit(x, y, weights, key=jr.key(0), **more).branch


def relative_error(method, samples=100, **more):
    x, y = unequal(samples, 0)
    new, aim = unequal(300, 1)
    branch = fit_numpy(method, x, y, **more)
    return np.mean(np.linalg.norm(branch(new) - aim, axis=1) / np.linalg.norm(aim, axis=1))


def test_a_length_for_every_input_is_better_than_one():
    one, each, linear = map(relative_error, (Kernel(), EACH, LINEAR))
    assert each < one / 3
    assert linear < each / 1.5


def test_the_search_sees_a_part_of_many_samples():
    whole = relative_error(EACH, 300)
    part = relative_error(Kernel(lengths="each", selection_samples=200), 300)
    assert part < 1.5 * whole


def test_several_input_functions_have_a_product_of_kernels():
    x, y = unequal(60, 0)
    branch = fit_numpy(LINEAR, x, y, layout=InputLayout((2, 3)))
    assert branch.groups == (2, 3)
    first, second = (
        MATERN["5/2"](np.linalg.norm((x[:, None, part] - x[None, :, part]) / branch.length[part], axis=2), np.exp)
        for part in (slice(0, 2), slice(2, 5))
    )
    K = first * second * (branch.linear[0] + (x * branch.linear[1:]) @ x.T)
    np.testing.assert_allclose(branch(x), K @ branch.coefficients + branch.offset, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("method", [Linear(), Kernel(), EACH, LINEAR], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numpy_and_jax_agree(method, dtype):
    x, y, w = smooth(samples=40)
    x, y, w = x.astype(dtype), y.astype(dtype), w.astype(dtype)
    branch = fit_numpy(method, x, y, w, layout=InputLayout((1, 1)))
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(branch))
    new = np.random.default_rng(5).uniform(-1, 1, (1500, 2)).astype(dtype)
    found, expected = branch(new), branch(jnp.asarray(new))
    assert isinstance(found, np.ndarray)
    assert isinstance(expected, jax.Array)
    assert found.dtype == expected.dtype == dtype
    coefficients = np.abs(branch.coefficients).sum() if isinstance(branch, KernelBranch) else 1.0
    np.testing.assert_allclose(found, expected, atol=100 * np.finfo(dtype).eps * (1 + coefficients))


@pytest.mark.parametrize("method", [Linear(), Kernel(), EACH, LINEAR], ids=str)
def test_closed_forms_compile_nothing(method):
    x, y, w = smooth()
    key, compiled = jr.key(0), []

    def listen(event, duration, **_):
        del duration
        compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        result = method.fit(x, y, w, key=key, layout=InputLayout((1, 1)))
        result.branch(x)
        assert "/jax/core/compile/backend_compile_duration" not in compiled
        jax.jit(lambda a: a + len(compiled) + 1)(x)  # which the listener hears
        assert "/jax/core/compile/backend_compile_duration" in compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@pytest.mark.parametrize("smoothness", list(MATERN))
def test_gradients_with_lengths_are_right_at_a_centre(smoothness):
    x, y, _ = smooth(samples=12)
    branch = fit_numpy(Kernel(smoothness, lengths="each", linear_factor=True), x, y, layout=InputLayout((1, 1)))

    def value(point):
        return branch(point[None])[0].sum()

    at_centre = jax.jit(jax.grad(value))(jnp.asarray(x[0]))
    step = 1e-6
    ahead, behind = (np.array([value(jnp.asarray(x[0] + s * e)) for e in np.eye(2)]) for s in (step, -step))
    np.testing.assert_allclose(at_centre, (ahead - behind) / (2 * step), rtol=1e-3, atol=1e-3)


def test_a_kernel_with_lengths_comes_back_from_disk(tmp_path):
    x, y, _ = smooth()
    branch = to_jax(fit_numpy(LINEAR, x, y, layout=InputLayout((1, 1))))
    operator = Operator(Identity(), branch, Trunk(make_perceptron((1, 4, 2), key=jr.key(1))))
    again = load(save(operator, tmp_path / "model"))
    points = np.linspace(0, 1, 5)[:, None]
    np.testing.assert_array_equal(again.predict(x, points), operator.predict(x, points))
    assert isinstance(again.branch, KernelBranch)
    assert again.branch.groups == (1, 1)
    assert again.branch.length.shape == (2,)


def test_the_same_bits_and_weights_of_zero():
    x, y, w = smooth()
    w[:5] = 0
    first, again = (fit_numpy(LINEAR, x, y, w) for _ in range(2))
    assert first.count == 25
    np.testing.assert_array_equal(first.coefficients, again.coefficients)


@pytest.mark.parametrize("samples", [2, 4])
def test_few_samples_have_lengths_too(samples):
    x, y, _ = smooth(samples=samples)
    assert np.isfinite(fit_numpy(LINEAR, x, y)(x)).all()


def test_one_kernel_matrix_is_in_memory_at_a_time():
    x, y, _ = smooth(samples=2400, features=40)
    tracemalloc.start()
    Kernel(length=8.0, ridge=1e-6, selection_samples=100).fit(x, y, key=jr.key(0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.5 * 8 * len(x) ** 2  # with the blocks that it is made of


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(SettingError, match="leave it out"):
        Kernel(length=1.0, lengths="each")
    with pytest.raises(SettingError, match="linear_factor needs"):
        Kernel(linear_factor=True)
    ones = np.ones((1, 2))
    with pytest.raises(ValueRangeError, match="2 in all"):
        KernelBranch(ones, ones, ones[0], ones[0], "5/2", 0.0, None, (3,))
