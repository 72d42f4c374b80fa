"""Your own data, from a file to an operator: settings, minutes, more samples."""

import dataclasses as dc
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import network_of, read_file
from own_problems import OPTIONS, SETTINGS, Call, antiderivative, shared_data

from trunkfirst import sizing
from trunkfirst.data.operator_data import InputFunction
from trunkfirst.data.read_write import write_data
from trunkfirst.data.scattered_data import AnyData, ScatteredData
from trunkfirst.errors import DataError, UsageError
from trunkfirst.files.integrity import verify_manifest
from trunkfirst.files.text_files import read_json
from trunkfirst.method import AbstractMethod
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.operator import load
from trunkfirst.progress import Silent
from trunkfirst.regressors.network import AutoBranch, NetworkBranch
from trunkfirst.run_data import read_samples
from trunkfirst.runs.config import RunConfig, make_config, nested
from trunkfirst.runs.resume import is_still_good, joined
from trunkfirst.runs.run import run
from trunkfirst.sizing import with_sizes, within_minutes
from trunkfirst.two_step import TwoStep

pytestmark = pytest.mark.usefixtures("no_report")


def model(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


# -- fit


def test_a_fit_leaves_everything_in_its_folder(place: Path):
    run = place / "run"
    verify_manifest(run)
    metrics = read_json(run / "metrics.json")
    assert metrics["status"] == "finished"
    assert metrics["samples"] == {"train": 36, "validation": 0, "test": 4}
    assert metrics["test"]["mean_relative_l2"] < 1e-2
    assert load(run).input_names == ("f",)


def test_the_same_settings_in_python_give_the_same_operator(place: Path, tmp_path: Path):
    outer = {"data": {"file": str(place / "train.npz")}, "intervals": True}
    outcome = run(make_config(nested({**SETTINGS, **outer})), tmp_path / "a")
    assert model(tmp_path / "a") == model(place / "run")
    assert outcome.metrics["test"] == read_json(place / "run" / "metrics.json")["test"]


def test_the_configuration_can_be_run_again_and_gives_the_same(call: Call, place: Path, tmp_path: Path):
    assert call("fit", "--config", place / "run" / "config.toml", "--out", tmp_path / "a", "--quiet") == (
        0,
        "",
        "",
    )
    assert model(tmp_path / "a") == model(place / "run")
    assert (tmp_path / "a" / "config.toml").read_text() == (place / "run" / "config.toml").read_text()


def test_options_are_stronger_than_the_file_and_the_file_than_defaults(
    call: Call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also the share of test samples, which has a default on the command line."""
    text = (place / "run" / "config.toml").read_text().replace("test_share = 0.1", "test_share = 0.0")
    (tmp_path / "mine.toml").write_text(text)
    seen: list[RunConfig] = []

    def stop(config: RunConfig, *_: Any, **__: Any) -> None:
        seen.append(config)
        raise UsageError("that will do")

    monkeypatch.setattr("trunkfirst.runs.run.run", stop)
    options = ("--seed", "7", "--set", "seed=9", "--set", "intervals=false")
    for more in ((), options, ("--test-share", "0.2")):
        assert call("fit", "--config", tmp_path / "mine.toml", *more)[0] == 2
    assert [config.data.test_share for config in seen] == [0.0, 0.0, 0.2]
    assert [config.seed for config in seen] == [0, 9, 0]
    assert [config.intervals for config in seen] == [True, False, True]


def test_fewer_samples_than_the_file_has(place: Path):
    assert read_samples(place / "train.npz", None, 30).samples == 30
    assert read_samples(place / "train.npz", None, 300).samples == 40


# -- more samples


def test_more_samples_keep_a_trunk_that_still_serves(call: Call, place: Path, tmp_path: Path):
    arguments = ("fit", "--data", place / "new.npz", "--from", place / "run", "--out", tmp_path / "a")
    code, _, err = call(*arguments, "--set", "intervals=false")
    assert code == 0
    assert "it is kept; only the branch is trained" in " ".join(err.split())
    metrics = read_json(tmp_path / "a" / "metrics.json")
    assert sum(metrics["samples"].values()) == 60
    assert metrics["trunk"]["iterations"] == 0
    old, new = load(place / "run"), load(tmp_path / "a")
    assert all(np.array_equal(a, b) for a, b in zip(network_of(old).weights, network_of(new).weights, strict=True))
    assert metrics["test"]["mean_relative_l2"] < 1e-2
    # Its configuration names both files, so that its test samples are found again.
    code, out, _ = call("evaluate", tmp_path / "a", "--json")
    assert code == 0
    assert json.loads(out)["test"]["mean_relative_l2"] == metrics["test"]["mean_relative_l2"]


class Talkative(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize("has_test", [True, False], ids=["with test samples", "without"])
@pytest.mark.parametrize("modes", [5, 12], ids=["alike", "much rougher"])
def test_a_trunk_is_judged_by_what_it_can_represent(place: Path, tmp_path: Path, modes: int, has_test: bool):
    folder = place / "run"
    if not has_test:
        (tmp_path / "metrics.json").write_text(json.dumps({"test": None}))
        folder = tmp_path
    reporter, operator = Talkative(), load(place / "run")
    new = antiderivative(20, modes=modes, seed=3)
    is_good = is_still_good(operator, antiderivative(40), new, folder, reporter)
    assert is_good == (modes == 5)
    assert ("kept" if is_good else "trained anew") in reporter.said[0]


def scattered(samples: int, most: int, **more: Any) -> ScatteredData:
    rng = np.random.default_rng(0)
    return ScatteredData(
        np.ones((samples, 2)), rng.uniform(size=(samples, most, 1)), np.ones((samples, most)), **more
    )


def test_scattered_samples_of_different_lengths_arejoined():
    together = joined(scattered(3, 4), scattered(2, 6))
    assert isinstance(together, ScatteredData)
    assert together.counts.tolist() == [4, 4, 4, 6, 6]
    weights = {"point_weights": np.ones((3, 4)), "sample_weights": np.arange(1.0, 4.0)}
    others = {"point_weights": np.ones((2, 6)), "sample_weights": np.arange(4.0, 6.0)}
    together = joined(scattered(3, 4, **weights), scattered(2, 6, **others))
    assert together.sample_weights is not None
    assert together.sample_weights.tolist() == [1, 2, 3, 4, 5]


TRAIN = antiderivative(4)
CANNOT_JOIN: dict[str, tuple[AnyData, str]] = {
    "other points": (
        dc.replace(TRAIN, points=TRAIN.points**2),
        "points: the new samples are given at other points",
    ),
    "other sensors": (
        dc.replace(TRAIN, inputs={"f": InputFunction(np.ones((4, 7)))}),
        r"inputs\['f'\]: the new samples have the shape \(4, 7\), the earlier ones \(4, 24\)",
    ),
    "other inputs": (dc.replace(TRAIN, inputs={"g": TRAIN.inputs["f"]}), "in their inputs"),
    "channels": (dc.replace(TRAIN, outputs=TRAIN.outputs[..., None]), "outputs: the new samples have the shape"),
    "scattered": (scattered(4, 24), "in their inputs or in the kind of points"),
    "weights": (dc.replace(TRAIN, sample_weights=np.ones(4)), "sample_weights: given only for"),
}


@pytest.mark.parametrize("name", CANNOT_JOIN)
def test_samples_that_do_not_go_together(name: str):
    new, words = CANNOT_JOIN[name]
    with pytest.raises(DataError, match=words):
        joined(TRAIN, new)


# -- minutes become iterations


def timed(method: AbstractMethod, samples: int = 40, *, minutes: float = 5) -> TwoStep:
    data = antiderivative(samples)
    found = within_minutes(with_sizes(method, data), data, minutes)
    assert isinstance(found, TwoStep)
    return found


@pytest.mark.parametrize(("minutes", "seconds", "count"), [(5, 0.05, 1600), (1, 0.1, 200), (100, 1e-3, 6000)])
def test_time_is_turned_into_iterations(
    monkeypatch: pytest.MonkeyPatch, minutes: float, seconds: float, count: int
):
    """Four tenths of the time, at that many seconds an iteration, half as much again for starts; 200 to 6000."""
    monkeypatch.setattr(sizing, "_seconds_per_iteration", lambda *_: seconds)
    monkeypatch.setattr(sizing, "_seconds_of_branch", lambda *_: 1e-4)
    trunk = NetworkTrunk((20,), 8, starts=1)
    assert timed(TwoStep(trunk), minutes=minutes).trunk == dc.replace(trunk, iterations=count)
    by_hand = dc.replace(trunk, iterations=60)
    assert timed(TwoStep(by_hand), minutes=minutes).trunk == by_hand


@pytest.mark.parametrize(
    ("samples", "seconds", "trial", "whole"),
    [(40, 1e-4, 80, 400), (40, 0.05, 80, 150), (600, 0.05, 80, 150), (600, 0.5, 20, 50)],
)
def test_choosing_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch, samples: int, seconds: float, trial: int, whole: int
):
    """Five minutes: 45 s for some ten trials, and 45 s for six fits of the branch."""
    monkeypatch.setattr(sizing, "_seconds_per_iteration", lambda *_: 0.01)
    monkeypatch.setattr(sizing, "_seconds_of_branch", lambda *_: seconds)
    trunk = NetworkTrunk((20,), 8, starts=1)
    assert timed(TwoStep(trunk), samples).branch == AutoBranch(NetworkBranch(iterations=whole), trial)
    by_hand = NetworkBranch(iterations=77)
    assert timed(TwoStep(trunk, by_hand), samples).branch == by_hand


def test_a_branch_iteration_is_measured():
    assert 0 < sizing._seconds_of_branch(AutoBranch(), 9, antiderivative(40)) < 60


def test_minutes_are_written_down_as_iterations(call: Call, place: Path, tmp_path: Path):
    options = [option for option in OPTIONS if "iterations" not in option]
    arguments = ("--data", place / "train.npz", "--out", tmp_path / "a", "--minutes", "0.1", *options, "--quiet")
    assert call("fit", *arguments, "--set", "intervals=false")[0] == 0
    count = tomllib.loads((tmp_path / "a" / "config.toml").read_text())["method"]["trunk"]["iterations"]
    assert 200 <= count <= 6000
    assert count == int(f"{count:.1e}".split("e")[0].replace(".", "")) * 10 ** (len(str(count)) - 2)  # two digits
    assert read_json(tmp_path / "a" / "metrics.json")["trunk"]["iterations"] <= count


# -- the public set of antiderivatives, and one made from a seed in the same sizes


def public_set() -> tuple[AnyData, AnyData]:
    return read_file(shared_data("antiderivative_train.npz")), read_file(shared_data("antiderivative_test.npz"))


def seeded_set() -> tuple[AnyData, AnyData]:
    return antiderivative(150, sensors=100, modes=12), antiderivative(1000, sensors=100, modes=12, seed=1)


@pytest.mark.parametrize(("make", "most"), [(public_set, 3.8e-3), (seeded_set, 1e-2)], ids=["public", "seeded"])
def test_antiderivatives(call: Call, tmp_path: Path, make: Callable[[], tuple[AnyData, AnyData]], most: float):
    """Fitted on 150 samples, judged on 1000; a plain linear ridge has 3.5e-3 on the public set."""
    for name, data in zip(("train", "test"), make(), strict=True):
        write_data(data, tmp_path / f"{name}.npz")
    options = [option for option in OPTIONS if not option.startswith("--set=trunk")]
    sizes = ("hidden=[30]", "width=16", "iterations=300", "starts=1")
    trunk = [f"--set=trunk.{size}" for size in sizes]
    known = ["--set", "intervals=false", "--test-share", "0", "--quiet"]
    arguments = ("--data", tmp_path / "train.npz", "--out", tmp_path / "run", *options, *trunk, *known)
    assert call("fit", *arguments) == (0, "", "")
    code, out, _ = call("evaluate", tmp_path / "run", "--data", tmp_path / "test.npz", "--json")
    assert code == 0
    assert json.loads(out)["test"]["mean_relative_l2"] < most
