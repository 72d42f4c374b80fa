"""Results as version 0.1 found them: losses and gradients at stored weights, closed forms, stored operators.

A number may differ from the stored one by C * condition * eps, relative to the largest of its array: `condition`,
stored beside it, is how much it changes with the data (tests/make_golden.py), and C stands for the number of
roundings on the way. Nothing here is trained, so this holds for every processor.
"""

import json
from pathlib import Path
from typing import Any

import golden_cases as cases
import numpy as np
import pytest

C = 2_000


def stored(table: str) -> dict[str, Any]:
    return json.loads((cases.FOLDER / f"{table}.json").read_text())


def assert_golden(found: cases.Numbers, expected: dict[str, Any]) -> None:
    """Every stored array is found again, to C * condition * eps."""
    assert found.keys() == expected.keys()
    for name, entry in expected.items():
        value = np.asarray(entry["values"])
        assert found[name].shape == value.shape, name
        margin = C * entry["condition"] * np.finfo(float).eps
        assert np.abs(found[name] - value).max() <= margin * np.abs(value).max(), name


@pytest.mark.parametrize("name", cases.OBJECTIVES)
def test_loss_and_gradient(name: str, tmp_path: Path):
    assert_golden(cases.objective_numbers(name, tmp_path), stored("objectives")[name])


@pytest.mark.parametrize("name", cases.CLOSED_FORMS)
def test_closed_form(name: str, tmp_path: Path):
    assert_golden(cases.closed_form_numbers(name, tmp_path), stored("closed_forms")[name])


@pytest.mark.parametrize("name", cases.MODELS)
def test_model_folder_of_0_1(name: str, tmp_path: Path):
    assert_golden(cases.model_numbers(name, tmp_path), stored("models")[name])


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("two-step", "monolithic", "monolithic-projected")]


@pytest.mark.parametrize("method", ["two-step-without-qr", *SLOW])
def test_configuration_of_0_1(method: str, tmp_path: Path, call: Any, no_report: None):
    code, _, err = call("run", cases.config_file(method), "--out", tmp_path / "run", "--quiet")
    assert code == 0, err
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (metrics["method"], metrics["status"]) == (method, "finished")
    assert metrics["samples"] == {"train": 18, "validation": 0, "test": 2}
    assert metrics["parameters"]["trunk"] == 2 * 7 + 7 + 7 * 7 + 7
    assert metrics["parameters"]["branch"] == (2 * 8 if method == "two-step-without-qr" else 8 + 8 + 8 * 8 + 8)
    # Of two starts each has at least 21 iterations, however few are asked for; then the ridge fades in two stages.
    assert metrics["trunk"]["iterations"] == (21 + 2 if method == "two-step" else 5)
