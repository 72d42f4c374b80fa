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


def test_main_functions_have_examples():
    for name in ("OperatorData", "Operator", "TwoStepDeepONet", "check_data", "evaluate", "export", "fit", "load"):
        assert ">>> " in (getattr(trunkfirst, name).__doc__ or ""), name
