"""A trunk that moves with its input: training, prediction, files and exports."""

import dataclasses as dc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import trunkfirst
from trunkfirst import moving_trunk, search, sizing
from trunkfirst.data.fixed_functions import fixed_functions
from trunkfirst.encode import encode
from trunkfirst.error_budget import error_budget, nearest_samples
from trunkfirst.errors import UsageError
from trunkfirst.fields import Fields
from trunkfirst.fitting import fit_method
from trunkfirst.minimisers.loop import Stopping
from trunkfirst.moving_trunk import Coupled, MovingProblem, MovingTrunk, moving_problem
from trunkfirst.networks.layers import moving_side_by_side
from trunkfirst.networks.operator import Operator

X = np.linspace(0, 1, 50)
MEMBERS = ("trunk", "trunk, member 2")
TRUNK = MovingTrunk(width=2, fronts=2, hidden=(10,), iterations=80, members=1)
METHOD = trunkfirst.TwoStep(TRUNK, trunkfirst.Kernel(), inputs=trunkfirst.StandardisedInputs(), weights="none")


def bumps(samples: int, *, channels: bool = False) -> trunkfirst.OperatorData:
    """A bump whose place, and a step whose height and place, depend on one number."""
    a = (np.arange(samples)[:, None] + 0.5) / samples
    bump = np.exp(-(((X - 0.25 - 0.5 * a) / 0.1) ** 2))
    step = (1 + a) * np.tanh(20 * (X - 0.3 - 0.4 * a))
    return trunkfirst.OperatorData(a, X[:, None], np.stack([bump, step], axis=2) if channels else bump)


TRAIN, TEST = bumps(40), bumps(12)  # no input is in both


@pytest.fixture(scope="module")
def operator() -> Operator:
    return fit_method(TRAIN, METHOD).operator


def error(operator: Operator) -> float:
    return float(trunkfirst.evaluate(operator, TEST).errors.mean())


def test_few_functions_that_move_beat_fixed_ones(operator: Operator):
    modes = fit_method(TRAIN, dc.replace(METHOD, trunk=trunkfirst.ModesTrunk(width=3))).operator
    assert operator.rank == 3
    assert error(operator) < 0.2 * error(modes)


def test_the_optimum_is_that_of_every_sample(operator: Operator):
    found = trunkfirst.evaluate(operator, TEST)
    assert (found.optimal_errors <= found.errors * (1 + 1e-9)).all()
    with jax.enable_x64(True):
        features = operator.features(TEST.flat_inputs)
        basis = np.asarray(operator.basis(TEST.points, features))
    for Phi, u, optimum in zip(basis, TEST.outputs, found.optimal_errors, strict=True):
        missed = Phi @ np.linalg.lstsq(Phi, u, rcond=None)[0] - u
        assert np.linalg.norm(missed) / np.linalg.norm(u) == pytest.approx(optimum, rel=1e-6)


def test_predictions_agree(operator: Operator):
    a, points = TEST.flat_inputs, TEST.points
    values = operator.predict(a, points)
    own = operator.predict_scattered(a, np.broadcast_to(points, (len(a), *points.shape)))
    assert np.allclose(own, values, rtol=0, atol=1e-12)
    step = 1e-5
    inside = points[1:-1]
    slope = (operator.predict(a, inside + step) - operator.predict(a, inside - step)) / (2 * step)
    assert np.allclose(operator.gradient(a, inside)[..., 0], slope, atol=1e-6 * np.abs(slope).max())
    with jax.enable_x64(True), pytest.raises(UsageError, match="depend on the input"):
        operator.basis(points)


def test_saved_and_loaded(operator: Operator, tmp_path: Path):
    again = trunkfirst.load(operator.save(tmp_path))
    assert np.array_equal(
        again.predict(TEST.flat_inputs, TEST.points), operator.predict(TEST.flat_inputs, TEST.points)
    )


def test_orthonormal_over_samples_and_points_together(operator: Operator):
    with jax.enable_x64(True):
        features = operator.features(TRAIN.flat_inputs)
        basis = np.asarray(operator.basis(TRAIN.points, features)).reshape(-1, operator.rank)
    assert np.allclose(basis.T @ basis / len(basis), np.eye(operator.rank), atol=1e-10)


def test_channels_share_the_functions():
    train, test = bumps(40, channels=True), bumps(12, channels=True)
    trained = fit_method(train, METHOD).operator
    found = trunkfirst.evaluate(trained, test)
    assert trained.rank == 3
    assert found.errors.mean() < 0.2


def problem_and_start(
    trunk: MovingTrunk, data: trunkfirst.OperatorData, layers: type = np.float64, *, seed: int = 1
) -> tuple[MovingProblem, Coupled]:
    fields = encode(data, METHOD, np.dtype(float)).fields
    assert isinstance(fields, Fields)
    start = trunk.start(fields, dtype=np.dtype(float), key=jr.key(seed))
    return moving_problem(fields, trunk.ridge, np.dtype(float), layers=np.dtype(layers), key=jr.key(2)), start


def with_sensors(count: int) -> trunkfirst.OperatorData:
    """More than four make the functions see a few numbers of them."""
    return TRAIN.with_inputs(np.cos(TRAIN.flat_inputs * np.arange(1, count + 1)))


@pytest.mark.parametrize("sensors", [1, 7])
def test_members_side_by_side(sensors: int):
    """The functions of each."""
    with jax.enable_x64(True):
        problem, first = problem_and_start(TRUNK, with_sensors(sensors))
        members = [first, *(problem_and_start(TRUNK, with_sensors(sensors), seed=seed)[1] for seed in (3, 4))]
        together = moving_side_by_side([each.functions for each in members])
        Phi = together.functions(problem.points, problem.inputs)
        each = [own.functions.functions(problem.points, problem.inputs) for own in members]
    own = np.concatenate([each[0][..., :1], *(Phi[..., 1:] for Phi in each)], axis=2)
    assert np.allclose(Phi, own, rtol=0, atol=1e-12)


def test_the_field_of_members_is_their_weighted_mean():
    """By the inverse of their losses."""
    keys = jr.split(jr.key(0), 2)
    with jax.enable_x64(True):
        fields = encode(TRAIN, METHOD, np.dtype(float)).fields
        assert isinstance(fields, Fields)
        trunk = dc.replace(TRUNK, members=2, iterations=20)
        both = trunk.fit(fields, dtype=np.dtype(float), key=jr.key(0))
        Phi = np.stack(list(fields.functions_by_sample(both.trunk)))
        found = np.einsum("spk,sk->sp", Phi, both.coefficients)
        own = []
        for start_key, run_key in map(jr.split, keys):
            start = trunk.start(fields, dtype=np.dtype(float), key=start_key)
            problem = moving_problem(fields, trunk.ridge, np.dtype(float), layers=np.dtype(float))
            member = trunk._search(fields, start, np.dtype(float), run_key, None).parameters
            Psi = jnp.einsum("sm,kmc->sk", member.psi(problem.inputs), problem.solve(member))
            own.append(np.einsum("spk,sk->sp", problem.features(member)[0], Psi))
    losses = [min(e.best_loss for e in both.history if e.stage == stage) for stage in MEMBERS]
    assert both.trunk.count == 5
    assert both.iterations == 40
    assert np.allclose(found, np.average(own, axis=0, weights=1 / np.array(losses)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sensors", [1, 7])
def test_the_gradient_is_the_envelopes(sensors: int):
    """Against finite differences of the value, in which B is solved for again."""
    with jax.enable_x64(True):
        problem, start = problem_and_start(TRUNK, with_sensors(sensors))
        _, gradient = eqx.filter_jit(type(problem).value_and_grad)(problem, start, key=jr.key(0))
        leaves, structure = jax.tree.flatten(eqx.filter(start, eqx.is_inexact_array))
        keys = jr.split(jr.key(3), len(leaves))
        parts = [jr.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
        direction = jax.tree.unflatten(structure, parts)
        steps = [jax.tree.map(lambda d, h=h: h * d, direction) for h in (1e-6, -1e-6)]
        value = eqx.filter_jit(type(problem).value)
        moved = [value(problem, eqx.apply_updates(start, step)) for step in steps]
        slope = sum(jnp.vdot(g, d) for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True))
    # The step is small because B, and with it the curvature, is large at a random start.
    assert float(slope) == pytest.approx(float(moved[0] - moved[1]) / 2e-6, rel=1e-3)


def test_scattered_samples_are_refused():
    points = [TRAIN.points] * TRAIN.samples
    scattered = trunkfirst.scattered_from_lists(TRAIN.flat_inputs, points, list(TRAIN.outputs))
    with pytest.raises(UsageError, match=r"trunk.kind = network"):
        fit_method(scattered, METHOD)


def test_the_error_budget_adds_up(operator: Operator):
    """With the functions of every sample, and of the nearest training sample its own."""
    nearest = TRAIN.take(nearest_samples(TEST, TRAIN))
    budget = error_budget(operator, TEST, TEST, nearest=(nearest, nearest))
    optimum = trunkfirst.evaluate(operator, TEST).optimal_errors
    assert np.allclose(np.sqrt(budget.trunk / budget.size)[:, 0], optimum, rtol=1e-6)
    assert np.allclose(budget.remainder, 0, atol=1e-9 * budget.total.max())
    assert budget.nearest_sample is not None
    own = error_budget(operator, nearest, nearest)
    assert np.allclose(budget.nearest_sample.training, own.branch, rtol=1e-6, atol=1e-12 * own.size.max())


def steps(samples: int) -> trunkfirst.OperatorData:
    """A jump that moves."""
    a, x = np.random.default_rng(0).uniform(0, 1, (samples, 1)), np.linspace(0, 1, 150)
    return trunkfirst.OperatorData(a, x[:, None], np.where(x < 0.2 + 0.6 * a, 1.0 + a, 0.2))


def test_fixed_functions_are_counted():
    found = fixed_functions(steps(100))
    assert found is not None
    assert found.features_move
    assert "features move" in " ".join(trunkfirst.check_data(steps(100)).sentences)
    a, x = np.random.default_rng(1).uniform(0, 1, (100, 1)), np.linspace(0, 1, 150)
    noise = np.random.default_rng(2).normal(size=(100, 150))
    for smooth in (np.sin(6 * x * a), np.sin(6 * x * a) + 0.05 * noise, np.exp(-(((x - 0.5 * a) / 0.1) ** 2))):
        found = fixed_functions(trunkfirst.OperatorData(a, x[:, None], smooth))
        assert found is not None
        assert not found.features_move


@pytest.mark.slow
def test_fit_finds_that_features_move(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "_MIN_SECONDS", np.inf)  # no networks
    monkeypatch.setattr(search, "anisotropic_encodings", lambda *_: [])
    monkeypatch.setattr(sizing, "_MAX_ITERATIONS", 200)
    result = trunkfirst.fit(steps(120), minutes=60)
    assert isinstance(result.method, trunkfirst.TwoStep)
    assert isinstance(result.method.trunk, MovingTrunk)
    assert result.chosen.choice is not None
    errors = result.chosen.choice.errors
    assert errors[result.chosen.choice.name] == min(errors.values())
    found = result.operator.predict(steps(10).flat_inputs, interval=0.9)
    assert np.isfinite(found.upper).all()


def test_many_values_are_searched_at_random_points_of_every_sample():
    x, a = np.linspace(0, 1, 600), (np.arange(200)[:, None] + 0.5) / 200  # 120,000 values
    data = trunkfirst.OperatorData(a, x[:, None], np.exp(-(((x - 0.25 - 0.5 * a) / 0.1) ** 2)))
    result = fit_method(data, dc.replace(METHOD, trunk=dc.replace(TRUNK, iterations=40)))
    assert {"trunk", "trunk, points 4"} <= {step.stage for step in result.history}
    assert trunkfirst.evaluate(result.operator, data).errors.mean() < 0.3


@pytest.mark.parametrize(
    ("iterations", "members", "each"), [(90, 1, 200), (2900, 1, 2900), (4000, 2, 2000), (9000, 3, 3000)]
)
def test_members_by_the_time_allowed(iterations: int, members: int, each: int, monkeypatch: pytest.MonkeyPatch):
    """A search has its usual iterations before there is another."""
    monkeypatch.setattr(sizing, "_seconds_of_moving", lambda *_: sizing.TRUNK_SHARE * 60 / (iterations + 0.5))
    method = sizing.within_minutes(dc.replace(METHOD, trunk=MovingTrunk()), TRAIN, 1.0)
    assert isinstance(method, trunkfirst.TwoStep)
    assert isinstance(method.trunk, MovingTrunk)
    assert (method.trunk.members, method.trunk.iterations) == (members, each)


def test_points_are_drawn_at_fronts():
    """Weighted, the values at them have the mean of all; of two channels of different size both are seen."""
    x = np.linspace(0, 1, 1000)
    steps = np.stack([np.where(x < 0.3, 1.0, 0.1 * x), 1e6 * np.where(x < 0.8, 0.0, 2 + x)], axis=1)
    values = np.broadcast_to(steps, (40, 1000, 2))
    places, times = moving_trunk.draw_points(x[:, None], values, 64, jr.key(0))
    drawn = np.take_along_axis(values, places[..., None], axis=1) * times[..., None]
    assert np.allclose(drawn.mean(axis=(0, 1)), steps.mean(axis=0), rtol=0.01)
    for front in (0.3, 0.8):
        assert 0.1 < np.mean(np.abs(x[places] - front) < 0.003) < 0.4
    flat, times = moving_trunk.draw_points(x[:, None], np.ones((1, 1000, 1)), 64, jr.key(0))
    assert np.allclose(times, 1)
    assert len(np.unique(flat)) == 64


def test_double_precision_goes_on_where_single_stops(monkeypatch: pytest.MonkeyPatch):
    """Every ten iterations lower the loss by less than 99.9 %, so that single precision ends at once."""
    monkeypatch.setattr(moving_trunk, "_STOPPING", Stopping(patience=10, gain=0.999))
    history = fit_method(TRAIN, METHOD).history
    steps = [step for step in history if step.stage.startswith("trunk")]
    single = [step for step in steps if step.stage == "trunk"]
    double = [step for step in steps if step.stage == "trunk, double precision"]
    assert single + double == steps
    assert 10 <= single[-1].iteration < double[0].iteration
    assert double[-1].best_loss < single[-1].best_loss


def test_few_numbers_are_encoded_by_powers_where_they_vary_widely():
    """The jump is at a place that is linear in the root of the number."""
    p, x = np.geomspace(1, 100, 60)[:, None], np.linspace(0, 1, 150)
    data = trunkfirst.OperatorData(p, x[:, None], np.where(x < 0.1 + 0.08 * np.sqrt(p), np.sqrt(p), 0.0))
    encoded = np.asarray(moving_trunk.moving_inputs(data).fit(data)(p))
    assert abs(np.corrcoef(encoded[:, 0], np.sqrt(p[:, 0]))[0, 1]) > 1 - 1e-12
    narrow = TRAIN.with_inputs(1 + TRAIN.flat_inputs)
    assert moving_trunk.moving_inputs(narrow) == trunkfirst.StandardisedInputs()
