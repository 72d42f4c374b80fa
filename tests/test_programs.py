"""Programs that are compiled: their number, and that other numbers of samples need no others."""

from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest
from helpers import compilations
from own_problems import Call

from trunkfirst import NetworkBranch, OperatorData
from trunkfirst.candidates import Candidate
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.device_arrays import normal, seed_key, split_key, to_device
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import StandardisedInputs
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.outputs import Output
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.trials import Folds
from trunkfirst.trunks import ModesTrunk
from trunkfirst.two_step import TwoStep

RNG = np.random.default_rng(3)
SMALL = ("trunk.hidden=[8]", "trunk.width=8", "branch.kind=network", "branch.hidden=[16]")


def test_a_run_compiles_few_programs(call: Call, no_report: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Version 0.1 compiled 121."""
    monkeypatch.setenv("TRUNKFIRST_CACHE", str(tmp_path))
    options = [part for setting in SMALL for part in ("--set", setting)]
    options += ["--samples", "43", "--iterations", "3", "--out", str(tmp_path / "run"), "--quiet"]
    jax.clear_caches()
    with compilations() as compiled:
        assert call("run", "discontinuous-conductivity", *options)[0] == 0
    assert len(compiled) <= 40, compiled


def test_other_numbers_of_samples_compile_nothing():
    branch, inputs = NetworkBranch(hidden=(7,), iterations=3), RNG.normal(size=(60, 3))
    targets = np.sin(inputs @ RNG.normal(size=(3, 2)))

    def fit(count: int) -> None:
        with jax.enable_x64(True):
            branch.fit(inputs[:count], targets[:count], key=seed_key(0))

    fit(50)
    with compilations() as compiled:
        fit(53)
        fit(60)
    assert not compiled


def test_folds_of_unequal_sizes_share_programs():
    inputs = RNG.normal(size=(46, 3))
    x = np.linspace(0, 1, 20)
    data = OperatorData(inputs, x[:, None], inputs[:, :2] @ np.stack([np.sin(3 * x), x]))
    candidate = Candidate(StandardisedInputs(), NetworkBranch(hidden=(9,), iterations=2), "none")
    folds = Folds(data, Output(), np.array_split(np.arange(46), 4))
    folds.errors(candidate, [0])  # 34 samples; the last ones are fitted to 35
    with compilations() as compiled:
        folds.errors(candidate, [1, 2, 3])
    assert not compiled


def test_samples_at_similar_numbers_of_points_share_programs():
    """Folds of scattered samples have other points, and not quite as many."""
    counts = [20 + k % 6 for k in range(21)]
    inputs, points = RNG.normal(size=(21, 2)), [RNG.uniform(0, 1, (count, 1)) for count in counts]
    outputs = [np.sin(x[:, 0]) + own[0] for own, x in zip(inputs, points, strict=True)]
    data = scattered_from_lists(inputs, points, outputs)
    trunk = NetworkTrunk(hidden=(5,), width=4, iterations=3, starts=1)
    method = TwoStep(trunk, Linear(1e-4), inputs=StandardisedInputs(), weights="none")
    first, second = data.take(slice(0, 20)), data.take(slice(1, 21))
    assert first.counts.sum() != second.counts.sum()
    fit_method(first, method)
    with compilations() as compiled:
        fit_method(second, method)
    assert not compiled


# -- the same bits as JAX's own functions


@pytest.mark.parametrize("seed", [0, 7, 2**31 + 5])
def test_keys_are_those_of_jax(seed: int):
    with jax.enable_x64(True):
        key, own = jr.key(seed), seed_key(seed)
        assert key == own
        for count in (2, 3, 11):
            assert all(a == b for a, b in zip(jr.split(key, count), split_key(own, count), strict=True))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_normal_numbers_are_those_of_jax(dtype: type):
    with jax.enable_x64(True):
        for shape in ((3, 5), (100, 101)):
            assert np.array_equal(normal(jr.key(1), shape, dtype), jr.normal(jr.key(1), shape, dtype))


def test_to_device_compiles_nothing():
    with jax.enable_x64(True), compilations() as compiled:
        array = to_device(np.arange(7.0).reshape(1, 7).T, np.float32)
    assert not compiled
    assert isinstance(array, jax.Array)
    assert (array.dtype, array.shape) == (np.float32, (7, 1))


@pytest.mark.parametrize("branch", [Linear(1e-4), Kernel(length=2.0, ridge=1e-4)], ids=["linear", "kernel"])
@pytest.mark.parametrize("output", [Output(), Output(positive=True, fixed=("x-",), value=1.0)], ids=["", "mapped"])
def test_predictions_of_closed_forms_compile_nothing(branch: Any, output: Output):
    """And they are those of JAX: the same formulas, summed in another order."""
    inputs, x = RNG.uniform(1, 2, size=(23, 3)), np.linspace(0, 1, 19)[:, None]
    outputs = np.exp(x.T * np.sin(inputs[:, :1] + x.T))
    data = OperatorData(inputs, x, outputs if output.positive else np.stack([outputs, outputs**2], axis=2))
    method = TwoStep(ModesTrunk(4), branch, inputs=StandardisedInputs(), weights="none", output=output)
    operator = fit_method(data, method).operator
    new, points = RNG.uniform(1, 2, size=(5, 3)), np.linspace(0, 1, 7)[:, None]
    with compilations() as compiled:
        found = operator.predict(new, points)
        own = operator.predict_scattered(new, np.broadcast_to(points, (5, 7, 1)))
        assert not compiled
        with jax.enable_x64(True):
            expected = np.asarray(jax.jit(lambda a: operator(a, points))(new))
        assert compiled  # which is heard
    # Coefficients of kernels are at most 1 / ridge times the outputs.
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(own, expected, rtol=1e-9)
