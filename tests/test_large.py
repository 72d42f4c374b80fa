"""Data larger than memory: the same factor, loss, gradient and operator as in memory, in bounded memory."""

import dataclasses as dc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import waves
from own_problems import DOUBLE, known_step1
from test_sharded_data import in_blocks

from trunkfirst import fields as fields_module, stream
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.sharded_data import ShardedData, write_shards
from trunkfirst.encode import encode
from trunkfirst.errors import DataError, UsageError
from trunkfirst.evaluation import evaluate
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, StandardisedInputs
from trunkfirst.linear import blocked_qr
from trunkfirst.linear.low_rank import leverage_sample
from trunkfirst.linear.orthonormalise import QR, SVD, AbstractOrthonormaliser
from trunkfirst.minimisers.separable import solve_ridge, solve_ridge_in_blocks
from trunkfirst.network_trunk import NetworkTrunk, SeparateTrunks
from trunkfirst.outputs import Output
from trunkfirst.regressors import base
from trunkfirst.regressors.network import NetworkBranch
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.trunks import reuse_trunk
from trunkfirst.two_step import TwoStep

TRUNK = NetworkTrunk(hidden=(8,), width=6, activation="tanh", initialisation="xavier", iterations=8, starts=1)
NETWORK = NetworkBranch(
    hidden=(8,), activation="tanh", initialisation="xavier", skip=False, iterations=6, ridge=0.0001, decay=0.0
)
METHOD = TwoStep(
    TRUNK, NETWORK, inputs=StandardisedInputs(), weights="relative", coordinates=Coordinates(rescale=False)
)


def channels(samples: int = 40) -> OperatorData:
    """Two channels of different size, zero on the side x-, with weights of all kinds."""
    base, rng = waves(samples), np.random.default_rng(1)
    points = np.concatenate([[[-1.0, 0.0]], base.points])
    fields = (np.pad(base.outputs, ((0, 0), (1, 0))) * (points[:, 0] + 1))[..., None] * np.array([1.0, 30.0])
    fields[..., 1] **= 2
    weights = {"point_weights": rng.uniform(1, 2, 31), "sample_weights": rng.uniform(1, 2, samples)}
    return OperatorData(base.flat_inputs, points, fields, **weights)


POSITIVE = dc.replace(waves(40), outputs=waves(40).outputs + 3)
CASES: dict[str, tuple[OperatorData, TwoStep]] = {
    "plain": (waves(40), dc.replace(METHOD, weights="none")),
    "relative": (waves(40), METHOD),
    "weights": (waves(40, sample_weights=np.arange(1.0, 41.0)), dc.replace(METHOD, weights="none")),
    "positive": (POSITIVE, dc.replace(METHOD, output=Output(positive=True))),
    "channels": (channels(), dc.replace(METHOD, output=Output(fixed=("x-",)))),
}


def shards_of(data: OperatorData, folder: Path, size: int = 7) -> ShardedData:
    return write_shards(in_blocks(data, size), folder)


# -- loss and gradient


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient_of_the_trunk_are_those_in_memory(case: str, tmp_path: Path):
    data, method = CASES[case]
    with jax.enable_x64(True):
        both = [method.encode(each) for each in (data, shards_of(data, tmp_path / "a"))]
        assert both[0].rows == both[1].rows
        start = TRUNK.start(both[0].fields, dtype=DOUBLE, key=jr.key(0))
        problems = [ready.fields.problem(DOUBLE, floats_per_point=16)(1e-3) for ready in both]
        found = [problem.value_and_grad(start, key=jr.key(0)) for problem in problems]
    assert float(found[1][0]) == pytest.approx(float(found[0][0]), rel=1e-10)
    sizes = [jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)]) for _, gradient in found]
    assert np.linalg.norm(sizes[1] - sizes[0]) <= 1e-10 * np.linalg.norm(sizes[0])


# -- the operator


SLOW = [pytest.param(case, NETWORK, marks=pytest.mark.slow) for case in ("relative", "channels")]


@pytest.mark.parametrize(("case", "branch"), [*((case, Linear()) for case in CASES), *SLOW])
def test_the_same_trunk_gives_the_same_operator(case: str, branch: Any, tmp_path: Path):
    data, method = CASES[case]
    method = dc.replace(method, branch=branch)
    results = []
    for each in (data, shards_of(data, tmp_path / "a")):
        results.append(fit_method(each, method, key=0, trunk_result=known_step1(each, method)))
    first, second = (result.diagnostics for result in results)
    for name in ("loss", "limit", "rank", "condition"):
        assert second["trunk"][name] == pytest.approx(first["trunk"][name], rel=1e-8), name
    assert second["branch"]["loss"] == pytest.approx(first["branch"]["loss"], rel=1e-6)
    assert second["branch"]["relative_loss"] == pytest.approx(first["branch"]["relative_loss"], rel=1e-6)
    assert second["parameters"] == first["parameters"]
    predictions = [result.operator.predict(data.flat_inputs, data.points) for result in results]
    assert np.abs(predictions[1] - predictions[0]).max() < 1e-8 * np.abs(predictions[0]).max()


@pytest.mark.slow
def test_a_fit_from_shards_is_as_good_as_one_in_memory(tmp_path: Path):
    data, test = waves(60), dc.replace(waves(30, seed=0), inputs=waves(30, seed=1).flat_inputs)
    a = test.flat_inputs
    test = dc.replace(test, outputs=2 + np.sin(a @ test.points.T) + a[:, :1] * test.points[:, 0])
    errors = [
        float(evaluate(fit_method(each, METHOD, key=0).operator, test).errors.mean())
        for each in (data, shards_of(data, tmp_path / "a"))
    ]
    assert errors[0] < 0.05
    assert errors[1] == pytest.approx(errors[0], rel=0.05)


def test_the_last_layer_sees_all_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fitted to 25 of 60 samples, the branch has the last layer that NumPy finds for all."""
    monkeypatch.setattr(base, "_MAX_ROWS", 25)
    monkeypatch.setattr(base, "_BLOCK", 16)
    data = waves(60)
    shards = shards_of(data, tmp_path / "a")
    step1 = known_step1(shards, METHOD)
    result = fit_method(shards, METHOD, key=0, trunk_result=step1)
    operator: Any = result.operator
    with jax.enable_x64(True):
        X = operator.encoder(jnp.asarray(data.flat_inputs))
        Phi = np.pad(np.tanh(X @ operator.branch.weights[0].T + operator.branch.biases[0][None]), ((0, 0), (1, 0)))
        Phi[:, 0] = 1
        w = np.mean(data.outputs**2, axis=1) ** -1.0
        ready = encode(data, METHOD, DOUBLE)
        assert METHOD.orthonormalise is not None
        features = np.asarray(step1.trunk(jnp.asarray(ready.fields.points)))
        basis = METHOD.orthonormalise(features, targets=data.outputs)
        targets = basis.coefficients(data.outputs)
    roots = np.sqrt(w / w.mean())[:, None]
    stacked = np.concatenate([Phi * roots, NETWORK.ridge * np.eye(9)])
    A = np.linalg.lstsq(stacked, np.concatenate([targets * roots, np.zeros((9, targets.shape[1]))]))[0]
    np.testing.assert_allclose(operator.branch.weights[1], A[1:].T, rtol=0, atol=1e-6 * np.abs(A).max())
    errors = Phi @ A - targets
    unit = basis.squared_length * basis.rank / (step1.trunk.width + 1)
    assert result.diagnostics["branch"]["loss"] == pytest.approx(float(np.mean(errors**2)) * unit, rel=1e-6)


def test_ridge_in_blocks():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        Phi, B = (rng.normal(size=(50, n)) for n in (7, 3))
        blocks: Callable[[], Any] = lambda: ((Phi[i : i + 9], B[i : i + 9]) for i in range(0, 50, 9))  # noqa: E731
        expected = solve_ridge(jnp.asarray(Phi), jnp.asarray(B), 0.1)
        np.testing.assert_allclose(solve_ridge_in_blocks(blocks, 0.1), expected, rtol=1e-10)


def test_samples_that_are_left_out_play_no_part(tmp_path: Path):
    data, out = waves(40), np.array([3, 20, 21, 22, 23, 24, 25, 26, 27, 39])
    spoilt = data.outputs.copy()
    spoilt[out] = 1e3
    shards = shards_of(dc.replace(data, outputs=spoilt), tmp_path / "a").without(out)
    rest = data.take(np.setdiff1d(np.arange(40), out))
    method = dc.replace(METHOD, branch=Kernel())
    both = [fit_method(each, method, key=0, trunk_result=known_step1(each, method)) for each in (rest, shards)]
    predictions = [result.operator.predict(data.flat_inputs, data.points) for result in both]
    assert np.abs(predictions[1] - predictions[0]).max() < 1e-8


@pytest.mark.parametrize(
    "method",
    [
        dc.replace(METHOD, orthonormalise=None),
        dc.replace(METHOD, trunk=dc.replace(TRUNK, p=1.0)),
        dc.replace(METHOD, trunk=SeparateTrunks(TRUNK)),
    ],
    ids=["without QR", "p = 1", "separate"],
)
def test_what_needs_all_samples_at_once_is_refused(method: TwoStep, tmp_path: Path):
    with pytest.raises(UsageError, match="data in shards"):
        fit_method(shards_of(waves(20), tmp_path / "a"), method)


def test_a_negative_output_in_a_late_shard_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stream, "_MOST_SAMPLES", 3)
    outputs = POSITIVE.outputs.copy()
    outputs[38, 3] = -1
    with pytest.raises(DataError, match=r"output\.positive"):
        fit_method(shards_of(dc.replace(POSITIVE, outputs=outputs), tmp_path / "a"), CASES["positive"][1])


# -- many points


def test_sums_over_drawn_points_keep_their_mean():
    rng = np.random.default_rng(0)
    factor, weights = rng.normal(size=(4, 200)), rng.uniform(0.1, 2, 200)
    factor[0, :3] = 50  # a few points that matter
    f = rng.normal(size=200) ** 2
    f[:3] = 100
    estimates = []
    for seed in range(300):
        drawn, times = leverage_sample(factor, weights, 30, seed=seed)
        estimates.append(np.sum(weights[drawn] * times * f[drawn]))
        assert len(drawn) == 30
        assert set(drawn) >= {0, 1, 2}
        assert (times <= 2 * weights.sum() / (30 * weights[drawn]) + 1e-9).all()
    exact = np.sum(weights * f)
    assert abs(np.mean(estimates) - exact) < 4 * np.std(estimates) / np.sqrt(300)
    equal = [np.sum(weights * f * rng.multinomial(30, np.full(200, 1 / 200))) * 200 / 30 for _ in range(300)]
    assert np.std(estimates) < 0.5 * np.std(equal)


def test_points_are_drawn_in_single_precision_and_where_all_are_alike():
    rng = np.random.default_rng(0)
    factor = np.zeros((6, 20_000), np.float32)
    factor[:2] = rng.normal(size=(2, 20_000))
    factor[:2, :5] = 1e3
    factor[2:] = factor[0] * np.float32(1e-8)  # nothing but rounding
    drawn, times = leverage_sample(factor, np.ones(20_000, np.float32), 600)
    assert abs(len(drawn) - 600) <= 1
    assert set(drawn) >= set(range(5))
    assert np.sum(times) == pytest.approx(20_000, rel=0.1)
    drawn, times = leverage_sample(np.zeros((2, 50)), np.ones(50), 10)
    assert times == pytest.approx(np.full(10, 5.0))


def test_a_trunk_from_some_points_serves_at_all(monkeypatch: pytest.MonkeyPatch):
    data = waves(20, 3000)
    trunk = dc.replace(TRUNK, iterations=40)
    method = dc.replace(METHOD, trunk=trunk, branch=Linear())
    losses = [fit_method(data, method, key=0).diagnostics["trunk"]["loss"]]
    monkeypatch.setattr(fields_module, "_MAX_NUMBERS", 300 * 16)
    with jax.enable_x64(True):
        fields = encode(data, method, DOUBLE).fields
        problem: Any = fields.problem(DOUBLE, floats_per_point=16)(1e-3)
    assert len(problem.targets) == 300
    losses.append(fit_method(data, method, key=0).diagnostics["trunk"]["loss"])
    assert losses[1] < 3 * losses[0]
    assert losses[0] < 1e-4


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 64 points were many."""
    monkeypatch.setattr(blocked_qr, "_BLOCK", 64)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("orthonormalise", [QR(), SVD(), QR(unit_columns=True)])
def test_a_basis_at_many_points(
    orthonormalise: AbstractOrthonormaliser, has_zeros: bool, request: pytest.FixtureRequest
):
    rng = np.random.default_rng(0)
    features, targets = np.vander(rng.uniform(-1, 1, 300), 12), rng.normal(size=(5, 300))
    features[:, 3] = features[:, 5] + features[:, 7]  # dependent
    weights = rng.uniform(1, 2, 300)
    weights[:: 7 if has_zeros else 300] = 0.0 if has_zeros else 1.0
    weights /= weights.sum()
    found = [orthonormalise(features, point_weights=weights, targets=targets)]
    request.getfixturevalue("small_blocks")
    found.append(orthonormalise(features.copy(), point_weights=weights, targets=targets))
    for basis in found:
        gram = (basis.values * (weights * 300 / basis.squared_length)[:, None]).T @ basis.values
        np.testing.assert_allclose(gram, np.eye(basis.rank), atol=1e-13)
        np.testing.assert_allclose(features @ basis.transform, basis.values, atol=1e-8)
    assert found[0].rank == found[1].rank
    assert found[1].condition == pytest.approx(found[0].condition, rel=1e-9)
    both = [basis.coefficients(targets, point_weights=weights) @ basis.values.T for basis in found]
    np.testing.assert_allclose(both[1], both[0], atol=1e-9)
    if isinstance(orthonormalise, QR) and not has_zeros:  # the signs too
        np.testing.assert_allclose(found[1].values, found[0].values, atol=1e-9)


def test_many_points_in_blocks_give_the_same_operator(tmp_path: Path, request: pytest.FixtureRequest):
    data = waves(40, 300)
    method, results = dc.replace(METHOD, branch=Linear()), []
    for name in ("a", "b"):
        shards = shards_of(data, tmp_path / name)
        with jax.enable_x64(True):
            fields = method.encode(shards).fields
            step1 = reuse_trunk(TRUNK.make(fields, dtype=DOUBLE, key=jr.key(0)), fields)
        results.append(fit_method(shards, method, key=0, trunk_result=step1))
        request.getfixturevalue("small_blocks")
    first, second = (result.diagnostics["trunk"] for result in results)
    for name in ("loss", "limit", "rank", "condition"):
        assert second[name] == pytest.approx(first[name], rel=1e-8), name
    predictions = [result.operator.predict(data.flat_inputs, data.points) for result in results]
    assert np.abs(predictions[1] - predictions[0]).max() < 1e-9 * np.abs(predictions[0]).max()
