"""Copies of samples, and samples with the same inputs: errors on unseen inputs do not profit from them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import Call

import trunkfirst
from trunkfirst.run_data import DataSettings, split_data

RNG = np.random.default_rng(0)
X = np.linspace(0, 1, 12)
A = RNG.normal(size=(40, 3))
U = np.sin(A[:, :1] + 3 * X) + A[:, 1:2] * A[:, 2:] * X
TWICE = np.tile(np.arange(40), 2)
KERNEL = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="standardise", weights="none")


def _fit(a: np.ndarray, u: np.ndarray, **options: Any) -> trunkfirst.FitResult:
    return trunkfirst.fit(a, u, X, method=KERNEL, intervals=True, minutes=None, **options)


def test_copies_change_nothing_and_are_named():
    one, other = _fit(A, U), _fit(A[TWICE], U[TWICE])
    assert one.warnings == []
    assert other.warnings == ["40 samples are copies of others, with the same inputs and outputs, and not used"]
    assert other.samples == one.samples
    assert other.validation_error == one.validation_error
    new = RNG.normal(size=(50, 3))
    expected, found = (result.operator.predict(new, interval=0.9) for result in (one, other))
    for name in ("values", "lower", "upper", "is_outlier"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_copies_of_scattered_samples():
    points = RNG.uniform(size=(40, 9, 1))
    outputs = np.where(RNG.uniform(size=(40, 9)) < 0.1, np.nan, np.sin(A[:, :1] + 3 * points[..., 0]))
    points[np.isnan(outputs)] = np.nan
    data = trunkfirst.ScatteredData(A, points, outputs)
    parts = split_data(data.take(TWICE), DataSettings(test_share=0.2))
    assert (parts.copies, parts.counts) == (40, {"train": 32, "validation": 0, "test": 8})
    elsewhere = trunkfirst.ScatteredData(A, points[:, ::-1], outputs[:, ::-1])
    both = {"points": np.concatenate([data.points, elsewhere.points])}
    both["outputs"] = np.concatenate([data.outputs, elsewhere.outputs])
    assert split_data(trunkfirst.ScatteredData(A[TWICE], **both), DataSettings()).copies == 0


def test_an_error_on_inputs_that_were_seen_is_not_printed():
    """Outputs have nothing to do with inputs; of each there are two measurements, which nearly agree."""
    fields = RNG.normal(size=(40, 12))
    outputs = fields[TWICE] + 1e-3 * RNG.normal(size=(80, 12))
    result = _fit(A[TWICE], outputs, test_share=0.2)
    assert result.validation_error is not None
    assert result.validation_error > 0.8
    assert result.evaluation is not None
    assert result.evaluation.errors.min() > 0.2
    (warning,) = result.warnings
    assert "32 of 64 samples have the inputs of an earlier one, but other outputs" in warning
    known = result.operator.domain.intervals
    assert known is not None
    assert known.half_width(X[:, None], 0.9).min() > 0.8
    found = trunkfirst.cross_validate(A[TWICE], outputs, X, method=KERNEL, minutes=None)
    assert found.errors.mean() > 0.8
    assert sum(map(len, found.parts)) == 80


@pytest.mark.parametrize("different", [1, 2, 3])
def test_few_different_inputs_are_a_warning(different: int):
    rows = np.arange(20) % different
    result = _fit(A[rows], U[:20])
    (warning,) = result.warnings
    expected = "too few to measure the error on others" if different > 1 else "all samples have the same inputs"
    assert expected in warning


def test_cross_validation_leaves_copies_out():
    rows = np.concatenate([np.arange(40), np.arange(10)])
    found = trunkfirst.cross_validate(A[rows], U[rows], X, method=KERNEL, minutes=None)
    expected = trunkfirst.cross_validate(A, U, X, method=KERNEL, minutes=None)
    assert np.isnan(found.errors[40:]).all()
    assert np.array_equal(found.errors[:40], expected.errors)


def test_more_samples_with_those_of_before(call: Call, tmp_path: Path, no_report: None):
    """A file with all samples so far is added to them: those that are known count once, and keep their part."""
    np.savez(tmp_path / "some.npz", inputs=A[:30], points=X, outputs=U[:30])
    np.savez(tmp_path / "all.npz", inputs=A, points=X, outputs=U)
    kinds = ["trunk.kind=modes", "branch.kind=kernel", "inputs.kind=standardise", "weights=none"]
    settings = [f"--set={kind}" for kind in kinds]
    one, two = tmp_path / "one", tmp_path / "two"
    assert call("fit", tmp_path / "some.npz", "--quiet", "--out", one, *settings)[0] == 0
    code, _, err = call("fit", tmp_path / "all.npz", "--from", one, "--out", two)
    assert code == 0
    assert "30 samples are copies of others" in err
    assert json.loads((two / "metrics.json").read_text())["samples"]["train"] < 38
    assert sum(json.loads((two / "metrics.json").read_text())["samples"].values()) == 40
