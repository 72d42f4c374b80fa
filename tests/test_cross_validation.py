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
from trunkfirst.interface import CrossValidation

METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(width=4), trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none"
)
DATA = waves(samples=30)
A, U = DATA.flat_inputs, np.stack([DATA.outputs, DATA.outputs**2], axis=2)


@pytest.fixture(scope="module")
def found() -> CrossValidation:
    return trunkfirst.cross_validate(A, U, DATA.points, method=METHOD, folds=2)


def relative_errors(predicted: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Of every sample and channel."""
    return np.linalg.norm(predicted - U[part], axis=1) / np.linalg.norm(U[part], axis=1)


def test_every_sample_is_predicted_without_it(found: CrossValidation):
    first, second = found.parts
    assert np.array_equal(np.sort([*first, *second]), np.arange(30))
    operator = trunkfirst.fit(A[second], U[second], DATA.points, method=METHOD).operator
    expected = relative_errors(operator.predict(A[first]), first)
    assert np.allclose(found.errors[first], expected.mean(axis=1))
    for name, errors in zip(("output 1", "output 2"), expected.T, strict=True):
        assert np.allclose(found.channel_errors[name][first], errors)


def test_the_spread_is_that_of_the_folds(found: CrossValidation):
    means = [found.errors[part].mean() for part in found.parts]
    summary = found.summary()
    assert summary["mean_relative_l2"] == pytest.approx(np.mean(means))
    assert summary["spread"] == pytest.approx(abs(means[0] - means[1]) / np.sqrt(2))
    assert set(summary["channels"]) == {"output 1", "output 2"}
    assert "PCA + ridge: " in repr(found)


def test_the_linear_baseline_is_least_squares(found: CrossValidation):
    """Its ridge is chosen on few samples; the errors agree up to that."""
    part, rest = found.parts
    design = np.concatenate([A, np.ones((30, 1))], axis=1)
    flat = np.linalg.lstsq(design[rest], U[rest].reshape(15, -1), rcond=None)[0]
    expected = relative_errors((design[part] @ flat).reshape(U[part].shape), part)
    assert np.allclose(found.baseline["pca-ridge"][part].mean(), expected.mean(), rtol=0.2)
    assert found.baseline["pca-kernel-ridge"].mean() < found.baseline["pca-ridge"].mean()


def test_too_many_folds():
    with pytest.raises(DataError, match="folds: 20 of 30 samples; choose from 2 to half the samples"):
        trunkfirst.cross_validate(DATA, method=METHOD, folds=20)


@pytest.mark.slow
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


@pytest.mark.usefixtures("no_report")
def test_an_interrupted_cross_validation_is_resumed(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run was finished, so that `resume` found nothing left to do."""
    write_data(DATA, tmp_path / "my.npz")
    settings = ("trunk.kind=modes", "branch.kind=linear", "inputs=standardise", "weights=none")
    command = ("fit", "--data", tmp_path / "my.npz", *(f"--set={each}" for each in settings), "--cross-validate")
    run, file = tmp_path / "run", tmp_path / "run" / "cross_validation.json"

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trunkfirst.interface.cross_validate", interrupt)
        assert call(*command, "--out", run)[0] == 130
    verify_run(run)  # it can be used
    assert not file.exists()
    assert call("resume", run)[0] == 0
    assert read_json(file)["folds"] == 5
    assert not (run / "checkpoints").exists()
    assert "is already finished" in call("resume", run)[1]
