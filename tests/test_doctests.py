"""The examples in docstrings run and print what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

import trunkfirst

ROOT = Path(trunkfirst.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
    for path in ROOT.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


# What functions return, shown in the examples of these; and records without settings.
WITHOUT = {"CrossValidation", "Evaluation", "FitResult", "Inversion", "LearningCurve", "Prediction", "Suggestion"}
WITHOUT |= {"ScatteredData", "ShardedData", "AutoInputs", "RawInputs", "save", "errors"}


@pytest.mark.parametrize("name", sorted(set(trunkfirst.__all__) - WITHOUT - {"__version__"}))
def test_public_names_have_an_example(name):
    assert ">>> " in (getattr(trunkfirst, name).__doc__ or "")
