"""`trunkfirst.fit`: arrays, data or a file in; an operator that remembers its training data out."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import Call, antiderivative

import trunkfirst
from trunkfirst.errors import DataError, UsageError, ValueRangeError
from trunkfirst.files.integrity import sha256_of

TRUNK = trunkfirst.NetworkTrunk(hidden=(6,), width=4, iterations=20, starts=1)
NETWORK = trunkfirst.TwoStep(TRUNK, trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none")
MODES = dc.replace(NETWORK, trunk=trunkfirst.ModesTrunk(width=4))  # compiles nothing
MODEL = Path("model") / "model.safetensors"
DATA = antiderivative(40)
INPUTS, OUTPUTS, POINTS = DATA.flat_inputs, DATA.outputs, DATA.points


@pytest.fixture(scope="module")
def chosen() -> Any:
    """The operator is linear, so that closed forms are exact and nothing is trained."""
    return trunkfirst.fit(INPUTS, OUTPUTS, POINTS, test_share=0.2)


@pytest.fixture(scope="module")
def plain() -> Any:
    return trunkfirst.fit(INPUTS, OUTPUTS, POINTS, method=MODES)


def test_what_is_open_is_chosen_and_shown(chosen: Any):
    assert chosen.status == "finished"
    assert chosen.method.trunk.kind == "modes"
    assert isinstance(chosen.method.branch, trunkfirst.Linear)
    assert not isinstance(chosen.method.inputs, trunkfirst.AutoInputs)
    assert chosen.method.weights in ("relative", "none")
    assert chosen.samples == {"train": 32, "validation": 0, "test": 8}
    assert 0 < chosen.validation_error < 1e-10
    assert chosen.evaluation.errors.mean() < 1e-10
    for word in ("inputs", "validation error", "test error", "seconds"):
        assert f"{word}: " in repr(chosen)
        assert f">{word}</th>" in chosen._repr_html_()


def test_data_may_come_in_several_forms(plain: Any, tmp_path: Path):
    arrays = {"inputs": INPUTS, "points": POINTS, "outputs": OUTPUTS}
    np.savez(tmp_path / "my.npz", **arrays)
    forms = (DATA, arrays, tmp_path / "my.npz", str(tmp_path / "my.npz"))
    for form in forms:
        again = trunkfirst.fit(form, method=MODES)
        assert np.array_equal(again.operator.predict(INPUTS), plain.operator.predict(INPUTS))


def test_lists_are_arrays(plain: Any):
    found = plain.operator.predict(INPUTS[:2].tolist(), POINTS[:3].tolist())
    assert found.shape == (2, 3)


@pytest.mark.usefixtures("no_report")
def test_the_command_gives_the_same_operator(call: Call, tmp_path: Path):
    np.savez(tmp_path / "my.npz", inputs=INPUTS, points=POINTS, outputs=OUTPUTS)
    trunk = "trunk={hidden=[6],width=4,iterations=20,starts=1}"
    settings = (trunk, "branch=linear", "inputs=standardise", "weights=none")
    options = [word for setting in settings for word in ("--set", setting)]
    code, _, err = call("fit", "--data", tmp_path / "my.npz", *options, "--out", tmp_path / "a", "--quiet")
    assert code == 0, err
    trunkfirst.fit(tmp_path / "my.npz", method=NETWORK, out=tmp_path / "b", test_share=0.1, intervals=True)
    assert sha256_of(tmp_path / "a" / MODEL) == sha256_of(tmp_path / "b" / MODEL)


def test_a_folder_holds_the_run_with_its_data(tmp_path: Path):
    result = trunkfirst.fit(INPUTS, OUTPUTS, POINTS, method=MODES, out=tmp_path / "run", test_share=0.1)
    assert result.folder == tmp_path / "run"
    stored = trunkfirst.read_data(tmp_path / "run" / "data.npz")
    assert np.array_equal(stored.outputs, OUTPUTS)
    operator = trunkfirst.load(tmp_path / "run")
    assert np.array_equal(operator.predict(INPUTS), result.operator.predict(INPUTS))


def test_test_samples_touch_no_size():
    """Other outputs of the test samples: the same sizes of a network trunk, and the same bits."""
    test = trunkfirst.Split.random(40, validation_share=0.1, test_share=0.2, seed=0).test
    outputs = OUTPUTS.copy()
    outputs[test] = np.random.default_rng(1).normal(size=(len(test), outputs.shape[1]))
    method = dc.replace(NETWORK, trunk=dc.replace(TRUNK, width=None, hidden=None, iterations=2))
    first, second = (trunkfirst.fit(INPUTS, u, POINTS, method=method, test_share=0.2) for u in (OUTPUTS, outputs))
    assert first.method == second.method
    assert np.array_equal(first.operator.predict(INPUTS), second.operator.predict(INPUTS))


def test_an_operator_remembers_its_training_data(chosen: Any, tmp_path: Path):
    again = trunkfirst.load(chosen.operator.save(tmp_path / "model"))
    for operator in (chosen.operator, again):
        assert np.array_equal(operator.predict(INPUTS), operator.predict(INPUTS, POINTS))
        found = operator.predict(INPUTS, interval=0.9)
        assert isinstance(found, trunkfirst.Prediction)
        assert (found.lower <= found.values).all()
        assert (found.values <= found.upper).all()
        assert found.is_outlier.mean() < 0.2  # some of the test samples
        assert operator.predict(100 * INPUTS[:1], interval=0.9).is_outlier.all()


def test_intervals_must_have_been_calibrated(plain: Any, chosen: Any):
    with pytest.raises(UsageError, match="fit it with intervals=True"):
        plain.operator.predict(INPUTS, interval=0.9)
    with pytest.raises(ValueRangeError, match="intervals are known for"):
        chosen.operator.predict(INPUTS, interval=0.5)


def test_results_can_be_drawn(chosen: Any):
    assert len(chosen.plot()) >= 1
    assert chosen.operator.plot(INPUTS).shape[0] == 1
    assert chosen.evaluation.plot().get_ylabel() == "relative l2 error"
    assert "8 samples" in repr(chosen.evaluation)
    assert ">error</th>" in chosen.evaluation._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((INPUTS, OUTPUTS), UsageError, "points: not given"),
        ((INPUTS, None, POINTS), UsageError, "outputs: not given"),
        ((INPUTS[:5], OUTPUTS, POINTS), DataError, "5"),
        ((INPUTS, OUTPUTS, POINTS[:3]), DataError, "points"),
        (({"inputs": INPUTS},), DataError, "points"),
    ],
)
def test_what_is_missing_or_does_not_fit_is_named(arguments: tuple[Any, ...], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        trunkfirst.fit(*arguments, method=MODES)
