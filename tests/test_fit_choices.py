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
from own_problems import Call, antiderivative

from trunkfirst.candidates import Candidate, settings_of
from trunkfirst.clock import Clock
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encode import encode
from trunkfirst.files.integrity import sha256_of
from trunkfirst.files.text_files import read_json
from trunkfirst.fitting import choose
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.leaderboard import Leaderboard
from trunkfirst.method import AbstractMethod
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.regressors.network import AutoBranch, NetworkBranch
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.run_data import DataSettings, split_data
from trunkfirst.runs.config import make_config
from trunkfirst.settings import from_values, to_toml, to_values
from trunkfirst.sizing import with_sizes
from trunkfirst.trials import Folds
from trunkfirst.trunks import AutoTrunk, ModesTrunk
from trunkfirst.two_step import TwoStep

pytestmark = pytest.mark.usefixtures("no_report")


def test_everything_chosen_is_told_written_and_run_again(call: Call, place: Path, tmp_path: Path):
    more = ["--set=intervals=false"]
    code, _, err = call("fit", "--data", place / "train.npz", "--out", tmp_path / "a", *more)
    assert code == 0
    lines = err.splitlines()
    metrics = read_json(tmp_path / "a" / "metrics.json")
    chosen, names = metrics["chosen"], list(metrics["chosen"]["validation_errors"])
    # the operator is linear, so that nothing can be better
    assert names == ["PCA + ridge", "PCA + kernel ridge", "linear, standardise"]
    for name, error in chosen["validation_errors"].items():
        assert f"  {name}: {error:.2e}" in lines
    assert list(chosen["candidates"]) == names
    settings = {"branch": "kernel", "encoder": "standardise", "decay": 0.0, "is_trained": True}
    assert settings.items() <= chosen["candidates"]["PCA + kernel ridge"].items()
    best = min(names, key=chosen["validation_errors"].__getitem__)
    assert f"chosen: {best} ({chosen['validation_errors'][best]:.2e})" in lines
    assert (chosen["candidate"], chosen["branch"], chosen["trunk"]) == (best, "linear", "modes")
    method = tomllib.loads((tmp_path / "a" / "config.toml").read_text())["method"]
    assert 'kind = "auto"' not in (tmp_path / "a" / "config.toml").read_text()
    assert [method[part]["kind"] for part in ("trunk", "branch", "inputs")] == ["modes", "linear", "standardise"]
    again = call("fit", "--config", tmp_path / "a" / "config.toml", "--out", tmp_path / "b", "--json")
    assert again[0] == 0
    second = json.loads(again[1])
    assert second["baseline"][0]["mean_relative_l2"] == metrics["baseline"][0]["mean_relative_l2"]
    models = [sha256_of(tmp_path / name / "model" / "model.safetensors") for name in "ab"]
    assert models[0] == models[1]


def on_a_grid() -> OperatorData:
    data = antiderivative(30, sensors=25)
    return dc.replace(data, inputs={"f": InputFunction(data.flat_inputs, grid_shape=(5, 5))})


Tried = dict[str, Candidate]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Callable[[AbstractMethod, Mapping[str, float]], Tried]:
    """The candidates that choosing tries, with errors as given and 9 elsewhere; nothing is trained."""

    def go(method: AbstractMethod, errors: Mapping[str, float]) -> Tried:
        found: Tried = {}

        def measure(board: Any, candidates: Tried, parts: list[int] | None = None) -> None:
            del parts
            found.update(candidates)
            for name, candidate in candidates.items():
                board._errors.errors[name] = np.full(board._data.samples, errors.get(name, 9.0))
                board._seconds[name], board._settings[name] = 0.0, settings_of(candidate)
                board._modes[name] = {}

        monkeypatch.setattr(Leaderboard, "measure", measure)
        monkeypatch.setattr(Leaderboard, "measure_finely", lambda *_: None)
        data = split_data(on_a_grid(), DataSettings())
        choose(method, data, seed=0, clock=Clock(60.0))
        return found

    return go


@pytest.mark.parametrize("trunk", [NetworkTrunk((10,), 4, iterations=60), ModesTrunk(), AutoTrunk()])
def test_every_candidate_survives_its_configuration(tried: Any, trunk: Any):
    """Whatever wins must be a method that can be run again from config.toml."""
    branch = AutoBranch(NetworkBranch(decay=1e-3, skip=False))  # not the defaults
    method = TwoStep(trunk, branch)
    found = tried(method, {"network, standardise": 1.0})
    kinds = {name.partition(",")[0] for name in found} - {"PCA + ridge", "PCA + kernel ridge"}
    assert kinds >= {"linear", "kernel", "ARD kernel", "network", "active-neurons"}
    assert "network, standardise, decay 1e-06" in found
    assert "network, standardise, weights none" in found
    for each in found.values():
        final = dc.replace(method, inputs=each.inputs, branch=each.branch, weights=each.weights)
        final = final if each.trunk is None else dc.replace(final, trunk=each.trunk)
        assert from_values(TwoStep, to_values(final)) == final
        config = make_config({"data": {"file": "mine.npz"}, "method": to_values(final)})
        assert make_config(tomllib.loads(to_toml(config))).method == final


def test_networks_are_tried_with_the_encoders_that_are_best_for_a_kernel(tried: Any):
    errors = {"kernel, standardise": 3.0, "kernel, principal:8": 1.0, "kernel, principal:4": 2.0}
    found = tried(TwoStep(), errors)
    networks = [name for name in found if name.startswith("network") and name.count(",") == 1]
    assert networks == ["network, principal:8", "network, principal:4"]


@pytest.mark.parametrize("kind", ["kernel", "ARD kernel", "ARD kernel x linear"])
def test_the_best_kernel_of_a_kind_is_tried_rougher_else_smoother(tried: Any, kind: str):
    def of_this_kind(errors: dict[str, float]) -> set[str]:
        found = tried(TwoStep(), {f"{kind}, standardise": 1.0, **errors})
        return {
            name
            for name in found
            if name.endswith(f" {kind}, standardise") and "ARD" not in name.replace(kind, "")
        }

    rough, rougher, smooth = (f"{each} {kind}, standardise" for each in ("Matern 3/2", "Matern 1/2", "Gaussian"))
    assert of_this_kind({}) == {rough, smooth}
    assert of_this_kind({rough: 0.5}) == {rough, rougher}


def test_a_network_trunk_is_tried_where_modes_are_the_limit(tried: Any, monkeypatch: pytest.MonkeyPatch):
    for share, is_tried in ((0.9, True), (0.1, False)):
        monkeypatch.setattr(Folds, "projection_error", lambda *_, share=share: share)
        found = tried(TwoStep(), {"kernel, principal:4": 1.0})
        assert ("kernel, principal:4, network trunk" in found) == is_tried


def test_networks_are_trained_behind_the_encoders_that_are_best_untrained(tried: Any):
    looks = {"principal:1, untrained": np.nan, "principal:4, untrained": 2.0, "predictive:8, untrained": 1.0}
    found: Tried = tried(TwoStep(branch=NetworkBranch(decay=0.0), weights="none"), looks)
    found = {name: each for name, each in found.items() if not name.startswith("PCA")}
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
