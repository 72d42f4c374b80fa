"""What a fit of your own data chooses: candidates, encoders, widths."""

import dataclasses as dc
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import OPTIONS, Call, antiderivative

from trunkfirst.data import AnyData, InputFunction, OperatorData
from trunkfirst.files import read_json, sha256_of
from trunkfirst.progress import Silent
from trunkfirst.records import Choice
from trunkfirst.runs import _choose as choices
from trunkfirst.runs.config import RunConfig, make_config
from trunkfirst.settings import to_toml

pytestmark = pytest.mark.usefixtures("no_report")


def test_everything_chosen_is_told_written_and_run_again(
    call: Call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(choices, "CROSS_VALIDATED", 0)  # one split, not five
    monkeypatch.setattr(choices, "_DECAYS", (1e-3,))
    monkeypatch.setattr(choices, "_special", lambda *_: {})  # active neurons take long to compile
    options = [option for option in OPTIONS if "kind" not in option and "weights" not in option]
    more = [
        "--set",
        "branch.architecture=[24, 4, 9]",
        "--set",
        "branch.iterations=5",
        "--set",
        "output.intervals=false",
    ]
    code, _, err = call("fit", "--data", place / "train.npz", "--out", tmp_path / "a", *options, *more)
    assert code == 0
    lines = err.splitlines()
    chosen = read_json(tmp_path / "a" / "metrics.json")["chosen"]
    names = list(chosen["validation_errors"])
    assert names == [
        "linear, standardise",
        "kernel, standardise",
        "network, standardise",
        "network, standardise, decay 1e-03",
        "linear, standardise, weights none",
    ]
    for name, error in chosen["validation_errors"].items():
        assert f"  {name}: {error:.2e}" in lines
    assert list(chosen["candidates"]) == names
    settings = {"branch": "network", "encoder": "standardise", "decay": 1e-3, "is_trained": True}
    assert settings.items() <= chosen["candidates"]["network, standardise, decay 1e-03"].items()
    best = min(names, key=chosen["validation_errors"].__getitem__)
    assert f"chosen: {best} ({chosen['validation_errors'][best]:.2e})" in lines
    assert chosen["candidate"] == best
    assert best.startswith("linear, standardise")  # the operator is linear
    assert any(line.startswith("best network: network, standardise") for line in lines)
    config = tomllib.loads((tmp_path / "a" / "config.toml").read_text())
    assert "auto" not in (tmp_path / "a" / "config.toml").read_text()
    assert (config["branch"]["kind"], config["branch"]["encoder"]) == ("linear", "standardise")
    assert config["loss"]["weights"] == ("none" if best.endswith("none") else "relative")
    again = call("fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--json")
    assert again[0] == 0
    assert json.loads(again[1])["chosen"] is None
    first, second = (sha256_of(tmp_path / name / "model" / "model.safetensors") for name in "ab")
    assert first == second


def on_a_grid() -> OperatorData:
    data = antiderivative(30, sensors=25)
    return dc.replace(data, inputs={"f": InputFunction(data.flat_inputs, grid_shape=(5, 5))})


def without_unused(config: RunConfig, data: AnyData) -> RunConfig:
    """What comes back from the text of a configuration, completed from the same data."""
    return own_config(tomllib.loads(to_toml(config)), data, minutes=1)


def test_every_candidate_can_be_built_and_survives_its_configuration(monkeypatch: pytest.MonkeyPatch):
    """Whatever wins must be a method that can be run, and run again from config.toml."""
    data = on_a_grid()
    config = make_config({**choice_settings(data), "data": {"file": "mine.npz"}})
    monkeypatch.setattr(
        choices, "choose", lambda trials, candidates, **_: Choice("", dict.fromkeys(candidates, 1.0))
    )
    search = choices._Search(config, data, [], Silent())
    choices._try_kinds(search, ("standardise", "principal:4", "principal:8"), "relative")
    kinds = {search.kind(name) for name in search.tried}
    assert kinds == {"linear", "kernel", "network", "convolution", "active-neurons"}
    search.try_all(choices._with_decays("network, standardise", search.tried["network, standardise"]))
    search.try_all(choices._with_weights("kernel", search.tried["kernel, principal:4"], ("none",)))
    for updates in search.tried.values():
        settled = choices.updated(config, updates)
        method = build_method(settled, data)
        assert build_method(without_unused(settled, data), data) == method


def test_networks_are_tried_with_the_encoders_that_are_best_for_a_kernel(monkeypatch: pytest.MonkeyPatch):
    data = on_a_grid()
    config = make_config({**choice_settings(data), "data": {"file": "mine.npz"}})
    errors = {"kernel, a:1": 3.0, "kernel, b:1": 1.0, "kernel, c:1": 2.0}
    monkeypatch.setattr(choices, "_candidate", lambda *_: None)
    monkeypatch.setattr(choices, "_special", lambda *_: {})
    monkeypatch.setattr(
        choices, "choose", lambda trials, candidates, **_: Choice("", {n: errors.get(n, 9.0) for n in candidates})
    )
    search = choices._Search(config, data, [], Silent())
    choices._try_kinds(search, ("a:1", "b:1", "c:1"), "none")
    assert [name for name in search.tried if search.kind(name) == "network"] == ["network, b:1", "network, c:1"]


def test_networks_are_trained_behind_the_encoders_that_are_best_untrained(monkeypatch: pytest.MonkeyPatch):
    data = on_a_grid()
    config = make_config({**choice_settings(data), "data": {"file": "mine.npz"}})
    looks = {"network, a:1, untrained": np.nan, "network, b:1, untrained": 2.0, "network, d:1, untrained": 1.0}
    iterations: dict[str, int] = {}
    monkeypatch.setattr(choices, "_candidate", lambda config, data, most: most)

    def chosen(_: Any, candidates: dict[str, int], **__: Any) -> Choice:
        iterations.update(candidates)
        return Choice("", {name: looks.get(name, 9.0) for name in candidates})

    monkeypatch.setattr(choices, "choose", chosen)
    search = choices._Search(config, data, [], Silent())
    assert search.promising("network", ("a:1", "b:1", "c:1", "d:1"), "none") == ("b:1", "d:1")
    assert set(iterations.values()) == {0}
    assert search.tried == {}
    assert search.promising("kernel", ("a:1", "b:1", "c:1"), "none") == ("a:1", "b:1", "c:1")


def choice_settings(data: AnyData) -> dict[str, Any]:
    values = own_values(data)
    values["trunk"] |= {"iterations": 60}
    values["branch"] |= {"decay": 1e-3, "skip": False}  # not the values that follow from the data
    return values


@pytest.mark.parametrize("width", [3, 7])
def test_widths_follow_the_trunk_that_is_given(width: int):
    data = on_a_grid()
    trunk = {"architecture": (1, 10, width), "iterations": 5}
    for kind, hidden in (("network", 1), ("convolution", 3)):
        branch = {"kind": kind, "encoder": "standardise"}
        settings = {"data": {"file": "mine.npz"}, "trunk": trunk, "branch": branch, "loss": {"weights": "none"}}
        config = own_config(settings, data, minutes=1)
        assert config.branch.architecture[-1] == width + 1
        assert len(config.branch.architecture) == hidden + 2
        assert build_method(config, data)


def test_many_functions_on_few_points_of_a_plane_have_one_hidden_layer():
    rng = np.random.default_rng(0)
    points, outputs = rng.random((90, 2)), rng.normal(size=(60, 90))  # of full rank

    def architecture(points: np.ndarray, outputs: np.ndarray) -> tuple[int, ...]:
        return own_values(OperatorData(rng.random((60, 3)), points, outputs))["trunk"]["architecture"]

    assert architecture(points, outputs) == (2, 118, 59)
    assert architecture(points[:, :1], outputs) == (1, 59, 59, 59, 59)
    assert architecture(points, rng.normal(size=(60, 2)) @ outputs[:2]) == (2, 40, 40, 40, 30)


def test_the_trunk_takes_in_what_the_settings_add():
    data = antiderivative(10)
    trunk = {"periods": {"x": 2.0}, "fourier": 3, "iterations": 5}
    config = own_config({"data": {"file": "mine.npz"}, "trunk": trunk}, data, minutes=1)
    assert config.trunk.architecture[0] == 2 + 6
