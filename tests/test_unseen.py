"""Test samples are not seen: they change nothing but the error that is measured on them, and stay test samples."""

from pathlib import Path

import jax
import numpy as np

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import write_data
from trunkfirst.fitting import train
from trunkfirst.run_data import DataSettings, RunData, split_data
from trunkfirst.runs.config import make_config
from trunkfirst.runs.more_samples import fit_more
from trunkfirst.runs.run import run

SAMPLES = 30


def make(seed: int) -> OperatorData:
    """A smooth operator of two numbers, with noise, so that the outputs have full rank."""
    rng = np.random.default_rng(seed)
    x, a = np.linspace(0, 1, 12), rng.uniform(0.5, 2, size=(SAMPLES, 2))
    u = np.sin(a[:, :1] * x) * a[:, 1:] + 1e-3 * rng.normal(size=(SAMPLES, 12))
    return OperatorData(inputs=a, points=x[:, None], outputs=u)


def fitted(data: RunData) -> trunkfirst.FitResult:
    return train(trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel()), data, intervals=True)


def numbers(result: trunkfirst.FitResult) -> list[np.ndarray]:
    """Those of the operator and of its intervals."""
    assert result.training.intervals is not None
    return [*jax.tree.leaves(result.operator), *result.training.intervals.arrays().values()]


def test_other_test_samples_give_the_same_bits():
    data = make(0)
    parts = split_data(data, DataSettings(test_share=0.2))
    rng, test = np.random.default_rng(1), parts.split.test
    inputs, outputs = data.flat_inputs.copy(), data.outputs.copy()
    inputs[test], outputs[test] = 7 * rng.random(inputs[test].shape), 100 * rng.normal(size=outputs[test].shape)
    other = OperatorData(inputs=inputs, points=data.points, outputs=outputs)
    first, second = fitted(parts), fitted(RunData(other, parts.split))
    assert first.validation_error == second.validation_error
    assert first.method == second.method
    for one, two in zip(*map(numbers, (first, second)), strict=True):
        np.testing.assert_array_equal(one, two)
    assert first.evaluation is not None
    assert second.evaluation is not None
    assert (first.evaluation.errors != second.evaluation.errors).all()


def test_samples_keep_their_roles_when_others_are_added(tmp_path: Path):
    for name, seed in (("old", 0), ("new", 1)):
        write_data(make(seed), tmp_path / f"{name}.npz")
    method = {"trunk": {"kind": "modes"}, "branch": "linear"}

    def given(name: str) -> dict:
        return {"data": {"file": str(tmp_path / f"{name}.npz"), "test_share": 0.2}, "method": method}

    run(make_config(given("old")), tmp_path / "first")
    outcome = fit_more(given("new"), tmp_path / "second", tmp_path / "first")
    rows = split_data(make(0), DataSettings(test_share=0.2)).split.test  # the same rows of both files
    assert outcome.test_data is not None
    expected = np.concatenate([make(seed).outputs[rows] for seed in (0, 1)])
    np.testing.assert_array_equal(outcome.test_data.outputs, expected)
