"""What a fit of your own data chooses: candidates, encoders, widths."""

import dataclasses as dc
import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from own_problems import OPTIONS, Call, antiderivative

from trunkfirst import auto
from trunkfirst.coordinates import Coordinates
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encode import encode
from trunkfirst.encoders import RawInputs
from trunkfirst.files.integrity import sha256_of
from trunkfirst.files.text_files import read_json
from trunkfirst.method import AbstractMethod
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.progress import Silent
from trunkfirst.regressors.network import AutoBranch, NetworkBranch
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.run_data import DataSettings, split_data
from trunkfirst.runs.config import make_config
from trunkfirst.settings import from_values, to_toml, to_values
from trunkfirst.sizing import with_sizes
from trunkfirst.trials import Candidate
from trunkfirst.two_step import TwoStep

pytestmark = pytest.mark.usefixtures("no_report")


def test_everything_chosen_is_told_written_and_run_again(
    call: Call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(auto, "CROSS_VALIDATED", 0)  # one split, not five
    monkeypatch.setattr(auto, "_DECAYS", (1e-3,))
    monkeypatch.setattr(auto._Search, "_special", lambda *_: {})  # active neurons take long to compile
    options = [option for option in OPTIONS if "branch" not in option and "weights" not in option]
    more = ["--set=branch.network.hidden=[4]", "--set=branch.network.iterations=5", "--set=intervals=false"]
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
    method = tomllib.loads((tmp_path / "a" / "config.toml").read_text())["method"]
    assert "auto" not in (tmp_path / "a" / "config.toml").read_text()
    assert (method["branch"]["kind"], method["inputs"]["kind"]) == ("linear", "standardise")
    assert method["weights"] == ("none" if best.endswith("none") else "relative")
    again = call("fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--json")
    assert again[0] == 0
    assert json.loads(again[1])["chosen"] is None
    first, second = (sha256_of(tmp_path / name / "model" / "model.safetensors") for name in "ab")
    assert first == second


def on_a_grid() -> OperatorData:
    data = antiderivative(30, sensors=25)
    return dc.replace(data, inputs={"f": InputFunction(data.flat_inputs, grid_shape=(5, 5))})


Tried = dict[str, Candidate]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[[AbstractMethod, Mapping[str, float]], Tried]:
    """The candidates that choosing tries, with errors as given and 9 elsewhere; nothing is trained."""

    def go(method: AbstractMethod, errors: Mapping[str, float]) -> Tried:
        found: Tried = {}

        def measure(_: Any, candidates: Tried, **__: Any) -> dict[str, float]:
            found.update(candidates)
            return {name: errors.get(name, 9.0) for name in candidates}

        monkeypatch.setattr(auto, "measure", measure)
        data = split_data(on_a_grid(), DataSettings())
        auto.choose(with_sizes(method, data.data), data, seed=0, reporter=Silent())
        return found

    return go


def test_every_candidate_survives_its_configuration(tried: Any):
    """Whatever wins must be a method that can be run again from config.toml."""
    branch = AutoBranch(NetworkBranch(decay=1e-3, skip=False))  # not the defaults
    method = TwoStep(NetworkTrunk((10,), 4, iterations=60), branch)
    found = tried(method, {"network, standardise": 1.0})
    kinds = {name.partition(",")[0] for name in found}
    assert kinds == {"linear", "kernel", "network", "convolution", "active-neurons"}
    assert "network, standardise, decay 1e-06" in found
    assert "network, standardise, weights none" in found
    for each in found.values():
        final = dc.replace(method, inputs=each.inputs, branch=each.branch, weights=each.weights)
        assert from_values(TwoStep, to_values(final)) == final
        config = make_config({"data": {"file": "mine.npz"}, "method": to_values(final)})
        assert make_config(tomllib.loads(to_toml(config))).method == final


def test_networks_are_tried_with_the_encoders_that_are_best_for_a_kernel(tried: Any):
    errors = {"kernel, standardise": 3.0, "kernel, principal:8": 1.0, "kernel, principal:4": 2.0}
    found = tried(TwoStep(), errors)
    networks = [name for name in found if name.startswith("network") and name.count(",") == 1]
    assert networks == ["network, principal:8", "network, principal:4"]


def test_networks_are_trained_behind_the_encoders_that_are_best_untrained(tried: Any):
    looks = {"principal:1, untrained": np.nan, "principal:4, untrained": 2.0, "predictive:8, untrained": 1.0}
    found: Tried = tried(TwoStep(branch=NetworkBranch(decay=0.0), weights="none"), looks)
    untrained = [each for name, each in found.items() if name.endswith("untrained")]
    assert {each.branch.iterations for each in untrained if isinstance(each.branch, NetworkBranch)} == {0}
    assert len(untrained) > 3
    assert [name for name in found if not name.endswith("untrained")] == ["principal:4", "predictive:8"]
    assert not any("untrained" in name for name in tried(TwoStep(branch=Kernel(), weights="none"), {}))


def sizes(data: OperatorData, **given: Any) -> tuple[tuple[int, ...] | None, int | None]:
    method = with_sizes(TwoStep(NetworkTrunk(**given)), data)
    assert isinstance(method, TwoStep)
    assert isinstance(method.trunk, NetworkTrunk)
    return method.trunk.hidden, method.trunk.width


@pytest.mark.parametrize("width", [3, 7])
def test_sizes_that_are_given_stay(width: int):
    data = on_a_grid()
    assert sizes(data, hidden=(10,), width=width) == ((10,), width)
    assert sizes(data, width=width) == ((40, 40, 40), width)
    assert sizes(data, hidden=(10,))[0] == (10,)


def test_many_functions_on_few_points_of_a_plane_have_one_hidden_layer():
    rng = np.random.default_rng(0)
    points, outputs = rng.random((90, 2)), rng.normal(size=(60, 90))  # of full rank

    def found(points: np.ndarray, outputs: np.ndarray) -> tuple[tuple[int, ...] | None, int | None]:
        return sizes(OperatorData(rng.random((60, 3)), points, outputs))

    assert found(points, outputs) == ((118,), 59)
    assert found(points[:, :1], outputs) == ((59, 59, 59), 59)
    assert found(points, rng.normal(size=(60, 2)) @ outputs[:2]) == ((40, 40, 40), 30)


def test_the_trunk_takes_in_what_the_settings_add():
    coordinates = Coordinates(periods={"x": 2.0}, fourier=3)
    method = TwoStep(inputs=RawInputs(), coordinates=coordinates, weights="none")
    with jax.enable_x64(True):
        encoded = encode(antiderivative(10), method, np.dtype(np.float64))
    assert encoded.fields.points.shape[1] == coordinates.features(1) == 2 + 6
