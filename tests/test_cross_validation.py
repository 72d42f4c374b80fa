"""Cross-validation: every sample is left out once, and baselines are on the same folds."""

from pathlib import Path

import numpy as np
import pytest
from helpers import waves
from own_problems import Call

import trunkfirst
from trunkfirst.data.read_write import write_data
from trunkfirst.errors import DataError
from trunkfirst.files.integrity import verify_run
from trunkfirst.files.text_files import read_json
from trunkfirst.linear.orthonormalise import field_sizes

METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(width=4), trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none"
)
DATA = waves(samples=30)


def test_every_sample_is_predicted_without_it():
    found = trunkfirst.cross_validate(DATA, method=METHOD, folds=3)
    assert np.array_equal(np.sort(np.concatenate(found.parts)), np.arange(30))
    part = found.parts[1]
    operator = trunkfirst.fit(DATA.take(np.setdiff1d(np.arange(30), part)), method=METHOD).operator
    missed = operator.predict(DATA.flat_inputs[part]) - DATA.outputs[part]
    expected = field_sizes(missed[..., None])[:, 0] / field_sizes(DATA.outputs[part][..., None])[:, 0]
    assert np.allclose(found.errors[part], expected)
    means = [found.errors[rows].mean() for rows in found.parts]
    assert found.summary()["spread"] == pytest.approx(np.std(means, ddof=1))
    assert found.summary()["channels"] is None
    assert "error: " in repr(found)


def test_baselines_are_those_of_scikit_learn():
    """PCA + ridge with nothing cut off and next to no ridge is least squares."""
    found = trunkfirst.cross_validate(DATA, method=METHOD, folds=3)
    part = found.parts[0]
    rest = np.setdiff1d(np.arange(30), part)
    design = np.concatenate([DATA.flat_inputs, np.ones((30, 1))], axis=1)
    predicted = design[part] @ np.linalg.lstsq(design[rest], DATA.outputs[rest], rcond=None)[0]
    missed = np.linalg.norm(predicted - DATA.outputs[part], axis=1)
    expected = missed / np.linalg.norm(DATA.outputs[part], axis=1)
    assert np.allclose(found.baseline["pca-ridge"][part].mean(), expected.mean(), rtol=0.1)
    assert found.baseline["pca-kernel-ridge"].mean() < found.baseline["pca-ridge"].mean()


def test_errors_by_channel_and_the_same_bits_again():
    both = np.stack([DATA.outputs, np.ones_like(DATA.outputs) + DATA.flat_inputs[:, :1]], axis=2)
    arguments = (DATA.inputs["input"].values, both, DATA.points)
    found, again = (trunkfirst.cross_validate(*arguments, method=METHOD, folds=2) for _ in range(2))
    assert np.array_equal(found.errors, again.errors)
    assert list(found.channel_errors) == ["output 1", "output 2"]
    assert np.allclose(np.mean([*found.channel_errors.values()], axis=0), found.errors)


def test_too_many_folds():
    with pytest.raises(DataError, match="folds: 20 of 30 samples; choose from 2 to half the samples"):
        trunkfirst.cross_validate(DATA, method=METHOD, folds=20)


@pytest.mark.usefixtures("no_report")
def test_on_the_command_line(call: Call, tmp_path: Path):
    write_data(DATA, tmp_path / "my.npz")
    options = ["--set=trunk.kind=modes", "--set=branch.kind=linear", "--set=inputs=standardise"]
    arguments = ("fit", "--data", tmp_path / "my.npz", *options, "--out", tmp_path / "run", "--cross-validate")
    code, out, _ = call(*arguments)
    assert code == 0
    assert "cross-validation, error: " in out
    assert "cross-validation, PCA + kernel ridge: " in out
    assert read_json(tmp_path / "run" / "cross_validation.json")["folds"] == 5
    verify_run(tmp_path / "run")
    assert call(*arguments, "--from", tmp_path / "run")[0] == 2
