"""Test samples are not seen: they change nothing but the error that is measured on them, and stay test samples."""

import dataclasses as dc
from pathlib import Path

import jax
import numpy as np
import pytest

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import write_data
from trunkfirst.errors import DataError
from trunkfirst.fitting import train
from trunkfirst.run_data import DataSettings, RunData, split_data
from trunkfirst.runs.config import make_config
from trunkfirst.runs.resume import fit_more
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


# -- suggested samples


def corner(seed: int = 3) -> OperatorData:
    """Samples from one corner of the range, with an error of their own: nothing like new ones."""
    data = make(seed)
    return OperatorData(data.flat_inputs / 4 + 1.6, data.points, data.outputs + 1.0)


FEW = 15
# Of fewer than 19 errors the quantile of level 0.95 is infinite: that shows which samples calibrate.
LEVEL = 0.95


def is_calibrated(result: trunkfirst.FitResult) -> bool:
    assert result.training.intervals is not None
    return bool(np.isfinite(result.training.intervals.field_bound(LEVEL)))


def test_suggested_samples_train_but_do_not_measure():
    data, others = make(0).take(slice(0, FEW)), corner()
    joint = OperatorData(
        np.concatenate([data.flat_inputs, others.flat_inputs]),
        data.points,
        np.concatenate([data.outputs, others.outputs]),
        is_suggested=np.arange(FEW + SAMPLES) >= FEW,
    )
    test = split_data(joint, DataSettings(test_share=0.2)).split.test
    assert (len(test), test.max() < FEW) == (3, True)
    given = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="raw", weights="none")
    for marks, calibrates in ((joint.is_suggested, False), (None, True)):
        parts = split_data(dc.replace(joint, is_suggested=marks), DataSettings(test_share=0.0))
        assert len(parts.split.train) == FEW + SAMPLES
        for method in (trunkfirst.TwoStep(), given):
            result = train(method, parts, minutes=0.01, intervals=True)
            assert is_calibrated(result) is calibrates
    cross = trunkfirst.cross_validate(joint, method=given)
    assert np.isnan(cross.errors).tolist() == [False] * FEW + [True] * SAMPLES


@pytest.mark.parametrize("by_file", [True, False], ids=["is_suggested in the file", "--suggested"])
def test_intervals_are_calibrated_without_suggested_samples(tmp_path: Path, by_file: bool):
    """Also in the second generation, which has the samples of all files."""
    marks = np.ones(SAMPLES, bool) if by_file else None
    old = make(0).take(slice(0, FEW))
    write_data(old, tmp_path / "old.npz")
    write_data(dc.replace(corner(), is_suggested=marks), tmp_path / "new.npz")
    write_data(dc.replace(corner(4), is_suggested=marks), tmp_path / "newer.npz")

    def given(name: str, **data: bool) -> dict:
        settings = {"file": str(tmp_path / f"{name}.npz"), "test_share": 0.2, **data}
        method = {"trunk": {"kind": "modes"}, "branch": "kernel"}
        return {"data": settings, "method": method, "intervals": True}

    more = {} if by_file else {"suggested": True}
    run(make_config(given("old")), tmp_path / "a")
    second = fit_more(given("new", **more), tmp_path / "b", tmp_path / "a")
    third = fit_more(given("newer", **more), tmp_path / "c", tmp_path / "b")
    tests = split_data(old, DataSettings(test_share=0.2)).split.test
    for outcome, count in ((second, 1), (third, 2)):
        assert outcome.metrics["samples"] == {"train": FEW - 3 + count * SAMPLES, "validation": 0, "test": 3}
        assert outcome.test_data is not None
        np.testing.assert_array_equal(outcome.test_data.outputs, old.outputs[tests])
        assert not is_calibrated(outcome.result)


def test_all_suggested_is_refused():
    with pytest.raises(DataError, match="0 for training that were not suggested"):
        fitted(split_data(make(0), DataSettings(suggested=True)))


@pytest.mark.parametrize("ending", [".npz", ".mat", ""])
def test_marks_are_kept_in_files(tmp_path: Path, ending: str):
    marks = np.arange(SAMPLES) % 3 == 0
    write_data(dc.replace(make(0), is_suggested=marks), tmp_path / f"data{ending}")
    data = trunkfirst.read_data(tmp_path / f"data{ending}")
    assert isinstance(data, OperatorData)
    np.testing.assert_array_equal(data.is_suggested, marks)


@pytest.mark.parametrize("marks", [np.full(SAMPLES, 2), np.ones(3)])
def test_marks_of_other_sizes_and_values_are_refused(marks: np.ndarray):
    with pytest.raises(DataError, match="is_suggested"):
        dc.replace(make(0), is_suggested=marks)
