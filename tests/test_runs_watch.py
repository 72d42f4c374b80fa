"""What a run notes beside its result: active neurons as they go, and warnings about single precision."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_runs import DATA, SPLIT, Listening, changed, config_of, prepared

from trunkfirst import fitting
from trunkfirst.files.integrity import sha256_of, verify_manifest
from trunkfirst.files.npz import read_npz
from trunkfirst.files.text_files import read_json
from trunkfirst.fitting import precision_warnings
from trunkfirst.regressors import active_neurons
from trunkfirst.runs.run import run

ACTIVE = {"kind": "active-neurons", "width": 6, "iterations": 7}

# -- active neurons


def test_active_neurons_are_recorded_as_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(active_neurons, "_MAX_KEPT", 4)
    found = run(config_of(branch=ACTIVE), tmp_path / "a", data=prepared())
    arrays = read_npz(tmp_path / "a" / "anls.npz")
    verify_manifest(tmp_path / "a")
    steps = {step.iteration: step.loss for step in found.result.history if step.stage == "branch"}
    assert arrays["iterations"].tolist() == [2, 4, 6, 7][: len(arrays["iterations"])]  # it may end early
    assert arrays["iterations"][-1] == max(steps)
    assert arrays["branch_losses"].tolist() == [steps[i] for i in arrays["iterations"].tolist()]
    assert arrays["test_errors"].shape == arrays["iterations"].shape
    assert arrays["test_errors"][-1] == pytest.approx(found.metrics["test"]["mean_relative_l2"], rel=1e-12)
    assert arrays["test_errors"][0] != arrays["test_errors"][-1]


def test_test_samples_have_no_say_in_active_neurons(tmp_path: Path):
    runs = {"a": prepared(), "b": prepared(changed(SPLIT.test))}
    for name, data in runs.items():
        run(config_of(branch=ACTIVE), tmp_path / name, data=data)
    models = [sha256_of(tmp_path / name / "model" / "model.safetensors") for name in runs]
    errors = [read_npz(tmp_path / name / "anls.npz")["test_errors"] for name in runs]
    assert models[0] == models[1]
    assert (errors[0] != errors[1]).all()


# -- single precision

FIXED = SimpleNamespace(depends_on_input=False)


@pytest.mark.parametrize(
    ("precision", "method", "condition", "is_warned"),
    [
        ("single", "two-step", 9e3, False),
        ("single", "two-step", 1.1e4, True),
        ("single", "two-step", np.inf, True),
        ("double", "two-step", 1e12, False),
        ("single", "monolithic", None, False),  # solves no linear system
        ("single", "two-step-without-qr", None, True),  # not recorded, and found to be too large
    ],
)
def test_single_precision_is_questioned(precision: str, method: str, condition: float | None, is_warned: bool):
    basis = np.array([[1.0, 1.0], [1.0, 1.0 + 1e-6], [1.0, 1.0]])  # two columns that are nearly the same
    result: Any = SimpleNamespace(
        diagnostics={"trunk": {"condition": condition}},
        operator=SimpleNamespace(basis=lambda _: basis, trunk=FIXED),
    )
    found = precision_warnings(config_of(method, precision=precision).method, result, DATA)
    assert bool(found) == is_warned


def test_the_warning_says_what_it_means_and_what_to_do():
    result: Any = SimpleNamespace(diagnostics={"trunk": {"condition": 3e6}}, operator=SimpleNamespace(trunk=FIXED))
    (warning,) = precision_warnings(config_of(precision="single").method, result, DATA)
    for part in ("condition number is 3.0e+06", "about 1 are left", 'set precision = "double"'):
        assert part in warning


@pytest.mark.parametrize(("largest", "count"), [(1.0, 1), (1e4, 0)])
def test_warnings_are_said_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest: float, count: int
):
    monkeypatch.setattr(fitting, "_MAX_CONDITION_SINGLE", largest)
    listener = Listening()
    run(config_of(precision="single"), tmp_path / "a", data=prepared(), reporter=listener)
    warnings = read_json(tmp_path / "a" / "metrics.json")["warnings"]
    assert len(warnings) == count
    assert [text for text in listener.said if text.startswith("warning")] == [f"warning: {w}" for w in warnings]
