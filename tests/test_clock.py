"""The time allowed: a resumed run carries out the units of work of the first attempt; Ctrl-C leaves a result."""

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_resume import Crash, assert_same, crash
from test_search import nonlinear

import trunkfirst
from trunkfirst import search, trials
from trunkfirst.checkpoints import Journal, keep_checkpoints
from trunkfirst.clock import Clock
from trunkfirst.data.read_write import write_data
from trunkfirst.files.integrity import verify_manifest
from trunkfirst.files.text_files import read_json
from trunkfirst.minimisers import loop
from trunkfirst.regressors.network import AutoBranch, NetworkBranch
from trunkfirst.runs.resume import resume
from trunkfirst.two_step import TwoStep

SMALL = TwoStep(branch=AutoBranch(NetworkBranch((4,), iterations=3), trial_iterations=3))


# -- the clock


def test_time_is_counted_from_the_start():
    clock = Clock(2.0)
    assert clock.minutes == 2.0
    assert 0 <= clock.used < 60 < clock.left <= 120
    assert Clock(1.0, start=-math.inf).left == -math.inf
    assert Clock().minutes is None
    assert Clock().left == math.inf


@pytest.mark.parametrize(("seconds", "is_allowed"), [(0.0, True), (50.0, True), (70.0, False)])
def test_a_unit_must_fit_into_the_time_left(seconds: float, is_allowed: bool):
    assert Clock(1.0).allows("unit", seconds) == is_allowed
    assert Clock().allows("unit", seconds)


def test_a_share_is_never_negative_and_at_most_what_is_asked():
    assert Clock(1.0).share("unit", 0.5) == pytest.approx(30, abs=5)
    assert Clock(1.0).share("unit", 0.5, most=3.0) == 3.0
    assert Clock(1.0, start=-1e9).share("unit", 0.5) == 0.0


def test_answers_are_kept_for_a_run_that_is_resumed(tmp_path: Path):
    """A clock whose time is over repeats what it said before, and counts the time before the interruption."""

    def asked(clock: Clock) -> tuple[bool, float, bool]:
        return clock.allows("a", 10.0), clock.share("b", 0.1), clock.allows("c", 1e6)

    with keep_checkpoints(tmp_path, interval=0):
        first = asked(Clock(1.0))
    late = Clock(1.0, start=-1e9)
    with keep_checkpoints(tmp_path, interval=0):
        assert asked(late) == first == (True, first[1], False)
    assert asked(late) == (False, 0.0, False)


def test_time_before_an_interruption_counts(tmp_path: Path):
    with keep_checkpoints(tmp_path, interval=0):
        before = Clock(1.0)
        before._start -= 45
        before.allows("a")
    again = Clock(1.0)
    with keep_checkpoints(tmp_path, interval=0):
        again.allows("a")
    assert again.used >= 45


# -- runs


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.npz"
    write_data(nonlinear(20), path)
    return path


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stops at the n-th trial of a network with an error; only few things are tried, because they take long."""
    state: dict[str, Any] = {"count": 0, "at": 0, "error": KeyboardInterrupt}
    real = trials._trained

    def counted(*arguments: Any, **options: Any) -> Any:
        state["count"] += 1
        if state["count"] == state["at"]:
            raise state["error"]
        return real(*arguments, **options)

    monkeypatch.setattr(trials, "_trained", counted)
    monkeypatch.setattr(search, "special_branches", lambda *_: {})
    monkeypatch.setattr(search, "with_decays", lambda *_: {})
    monkeypatch.setattr(search, "anisotropic_encodings", lambda *_: [])
    monkeypatch.setattr(search, "_BEST_ENCODERS", 1)
    return state


def test_a_trial_that_was_interrupted_is_repeated_and_no_other(
    file: Path, tmp_path: Path, networks: Any, monkeypatch: pytest.MonkeyPatch
):
    fit: dict[str, Any] = {"method": SMALL, "minutes": 60.0}
    trunkfirst.fit(file, out=tmp_path / "whole", **fit)
    whole = networks["count"]
    assert whole >= 1
    networks.update(count=0, at=whole, error=Crash)
    monkeypatch.setattr(Journal, "is_due", lambda _: True)
    with pytest.raises(Crash):
        trunkfirst.fit(file, out=tmp_path / "a", **fit)
    assert read_json(tmp_path / "a" / "metrics.json")["status"] == "interrupted"  # and not finished
    resume(tmp_path / "a")
    assert networks["count"] == whole + 1  # the last trial alone was repeated
    assert_same(tmp_path / "whole", tmp_path / "a")


def test_units_are_those_of_the_journal(
    file: Path, tmp_path: Path, networks: Any, monkeypatch: pytest.MonkeyPatch
):
    """The first attempt has no time for networks; the second would have, and does not begin them."""
    fit: dict[str, Any] = {"method": SMALL, "minutes": 60.0, "intervals": False}
    with monkeypatch.context() as patch:
        patch.setattr(search, "_MIN_SECONDS", np.inf)
        trunkfirst.fit(file, out=tmp_path / "whole", **fit)
        assert networks["count"] == 0
        patch.setattr(Journal, "is_due", lambda _: True)
        run_module: Any = importlib.import_module("trunkfirst.runs.run")
        patch.setattr(run_module, "describe", lambda _: crash())  # when everything is chosen
        with pytest.raises(Crash):
            trunkfirst.fit(file, out=tmp_path / "a", **fit)
    resume(tmp_path / "a")
    assert networks["count"] == 0
    assert_same(tmp_path / "whole", tmp_path / "a")


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("moment", ["between", "within", "measuring"])
def test_ctrl_c_returns_the_best_so_far(networks: Any, moment: str, monkeypatch: pytest.MonkeyPatch):
    """Before a network is trained, or while it is: a minimiser would end early, and the search go on."""
    if moment == "within":
        monkeypatch.setattr(search, "seconds_of_branch", lambda *_: 1.0)
    if moment in ("within", "measuring"):
        monkeypatch.setattr(loop, "advance_chunk", interrupt)
    else:
        networks["at"] = 1
    data = nonlinear(20)
    with pytest.warns(UserWarning, match="interrupted: this is the best operator found so far"):
        result = trunkfirst.fit(data, method=SMALL, minutes=60.0)
    assert result.status == "interrupted"
    assert result.validation_error is not None
    assert np.abs(result.operator.predict(data.flat_inputs) - data.outputs).max() < 0.1
    assert networks["count"] <= 1
    assert result.operator.predict(data.flat_inputs, interval=0.8).upper.shape == data.outputs.shape


def test_ctrl_c_leaves_a_complete_folder(file: Path, tmp_path: Path, networks: Any):
    networks["at"] = 1
    with pytest.raises(KeyboardInterrupt):
        trunkfirst.fit(file, method=SMALL, minutes=60.0, test_share=0.1, out=tmp_path / "run")
    verify_manifest(tmp_path / "run")
    metrics = read_json(tmp_path / "run" / "metrics.json")
    assert metrics["status"] == "interrupted"
    assert metrics["validation"]["mean_relative_l2"] > 0
    assert [each["kind"] for each in metrics["baseline"]] == ["pca-ridge", "pca-kernel-ridge"]
    data = nonlinear(20)
    found = trunkfirst.load(tmp_path / "run").predict(data.flat_inputs)
    assert np.abs(found - data.outputs).max() < 0.5
