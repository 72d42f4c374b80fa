"""Hostile files: refused in words, nothing run, nothing outside touched, bounded time and memory."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from hostile import CASES, canary_of

USED = [name for name, case in CASES.items() if case.extra is None or importlib.util.find_spec(case.extra)]


def test_there_are_enough():
    assert len(CASES) >= 120


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of all files, each in a folder of its own, in a process whose memory is measured."""
    place = tmp_path_factory.mktemp("hostile")
    canary_of(place / "any").write_text("secret,4711\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the zip writer warns of two entries with one name
        for name in USED:
            (place / name).mkdir()
            (place / f"{name}.path").write_text(str(CASES[name].make(place / name)))
    here = Path(__file__).parent
    environment = os.environ | {"PYTHONPATH": f"{here}{os.pathsep}{here.parent}", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "hostile", str(place)]
    found = subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize("name", USED)
def test_hostile_file_is_refused(outcome: dict[str, Any], name: str):
    found = outcome["cases"][name]
    assert found["is_ours"], found["words"]
    assert CASES[name].words in found["words"]
    assert "4711" not in found["words"]  # the file outside
    assert len(found["words"]) < 1000
    assert found["is_clean"]


def test_memory_and_time_are_bounded(outcome: dict[str, Any]):
    """The files ask for up to petabytes; the guard of CPU time finds a reader that hangs, on any processor."""
    assert 0 < outcome["grown"] < 200
    assert max(case["seconds"] for case in outcome["cases"].values()) < 60
