"""What version 0.1 wrote is still read: configurations, as the same method in the present form, and models."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trunkfirst.errors import DataError, SettingError, UnknownNameError
from trunkfirst.files.text_files import read_json
from trunkfirst.inputs import (
    AbstractInputs,
    AutoInputs,
    BasisInputs,
    Coordinates,
    PerInput,
    PredictiveInputs,
    PrincipalInputs,
    RawInputs,
    StandardisedInputs,
)
from trunkfirst.linear.orthonormalise import QR, SVD
from trunkfirst.losses import Batches
from trunkfirst.method import AbstractMethod
from trunkfirst.minimisers import lbfgs
from trunkfirst.minimisers.adam import Adam
from trunkfirst.monolithic import Monolithic, MonolithicProjected
from trunkfirst.network_trunk import NetworkTrunk, SeparateTrunks
from trunkfirst.networks.operator import load
from trunkfirst.outputs import Output
from trunkfirst.presets import preset_method
from trunkfirst.regressors.active_neurons import ActiveNeurons
from trunkfirst.regressors.network import AutoBranch, BranchNetwork, JointBranch, NetworkBranch
from trunkfirst.regressors.ridge import Kernel, Linear
from trunkfirst.runs.config import fit_values, load_config, make_config, nested, parse_settings, resolve
from trunkfirst.settings import to_toml
from trunkfirst.trunks import JointTrunk, TrunkNetwork
from trunkfirst.two_step import TwoStep

NAME = "nonlinear-conductivity"
# As 0.1 wrote it for `trunkfirst run nonlinear-conductivity`: all that the run looked at, and nothing else.
FILE = """problem = "nonlinear-conductivity"
method = "two-step"
preset = "fast"
seed = 3
precision = "double"
checkpoint_seconds = 20.0

[data]
keys = {}
samples = 500
split_seed = 1
validation_share = 0.1
hold_validation = false
test_share = 0.2

[trunk]
minimiser = "l-bfgs"
iterations = 14000
projected = true
ridge = 0.001
architecture = [2, 50, 50, 50, 50]
activation = "relu"
initialisation = "he"
starts = 8
rescale = false
periods = {}
fourier = 0
separate = false

[orthonormalise]
method = "qr"
unit_columns = false

[branch]
minimiser = "l-bfgs"
iterations = 50
projected = true
ridge = 1e-05
kind = "network"
architecture = [1, 500, 51]
stacked = false
product = false
skip = false
decay = 0.0
activation = "relu"
initialisation = "he"
encoder = "auto"
trial_iterations = 80

[output]
fixed = []
value = 0.0
positive = false
intervals = false

[loss]
p = 2.0
weights = "relative"
"""

RELU: dict[str, Any] = {"activation": "relu", "initialisation": "he"}
ADAM: dict[str, Any] = {"minimiser": "adam", "iterations": 10_000, "rate": 1e-3}
LBFGS: dict[str, Any] = {"minimiser": "l-bfgs", "iterations": 14_000}
POINTS: dict[str, Any] = {"rescale": False, "periods": {}, "fourier": 0, "separate": False}
TRUNK: dict[str, Any] = {"architecture": [2, 50, 50, 50, 50], **RELU, **POINTS}
BRANCH: dict[str, Any] = {"architecture": [1, 500, 51], "skip": False, "product": False, "stacked": False, **RELU}
OUTPUT: dict[str, Any] = {"fixed": [], "value": 0.0, "positive": False, "intervals": False}


def old(method: str, trunk: dict[str, Any], branch: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The values of a configuration of 0.1."""
    first = {"problem": NAME, "method": method, "preset": "fast", "seed": 0, "precision": "double"}
    sections = {"data": {"keys": {}, "validation_share": 0.1}, "output": OUTPUT, "loss": {"weights": "relative"}}
    return {**first, **sections, "trunk": TRUNK | trunk, "branch": {"encoder": "auto"} | branch, **more}


def method_of(values: dict[str, Any]) -> Any:
    return make_config(nested(values)).method


def two_step_of(trunk: dict[str, Any] | None = None, branch: dict[str, Any] | None = None, **more: Any) -> TwoStep:
    """Of a small two-step configuration."""
    trunk = {"architecture": [2, 6, 4], "projected": True, **(trunk or {})}
    found = method_of(old("two-step", trunk, {"kind": "linear"} if branch is None else branch, **more))
    assert isinstance(found, TwoStep)
    return found


FAST = {"projected": True, "ridge": 1e-3, "starts": 8, **LBFGS}
FAST_BRANCH = {**BRANCH, "kind": "network", "projected": True, "minimiser": "l-bfgs", "iterations": 50}
FAST_BRANCH |= {"ridge": 1e-5, "decay": 0.0}
PAPER, PAPER_BRANCH = {"projected": False, **ADAM}, {**BRANCH, "kind": "network", "projected": False, **ADAM}
PLAIN: dict[str, Any] = {"loss": {"p": 2.0, "weights": "none"}}
UNIT = {"orthonormalise": {"method": "qr", "unit_columns": True}}
NONE = {"encoder": "none"}
PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("fast", "two-step"): old(
        "two-step", FAST, FAST_BRANCH, orthonormalise={"method": "qr", "unit_columns": False}
    ),
    ("fast", "two-step-without-qr"): old("two-step-without-qr", FAST, FAST_BRANCH),
    ("fast", "monolithic"): old("monolithic", LBFGS, {**BRANCH, "train_transform": False}),
    ("fast", "monolithic-projected"): old("monolithic-projected", {**LBFGS, "ridge": 1e-3}, BRANCH),
    ("paper", "two-step"): old("two-step", PAPER, PAPER_BRANCH | NONE, **PLAIN, **UNIT),
    ("paper", "two-step-without-qr"): old("two-step-without-qr", PAPER, PAPER_BRANCH | NONE, **PLAIN),
    ("paper", "monolithic"): old("monolithic", ADAM, {**BRANCH, "train_transform": False, **NONE}, **PLAIN),
    ("paper", "monolithic-projected"): old(
        "monolithic-projected", {**ADAM, "ridge": 1e-3}, BRANCH | NONE, **PLAIN
    ),
}


def preset_of_0_1(preset: str, name: str) -> AbstractMethod:
    """The preset of today but for the pairs that L-BFGS remembers for the trunk, and inputs as they are."""
    method = preset_method(preset, NAME, name)
    if preset == "paper":
        return dc.replace(method, inputs=RawInputs())
    if not (isinstance(method, TwoStep) and isinstance(method.trunk, NetworkTrunk)):
        return method
    return dc.replace(method, trunk=dc.replace(method.trunk, minimiser=lbfgs.LBFGS(pairs=30)))


@pytest.mark.parametrize(("preset", "name"), list(PRESETS))
def test_the_presets_of_0_1_are_those_of_today(preset: str, name: str):
    found = method_of(PRESETS[preset, name])
    assert found == preset_of_0_1(preset, name)
    assert found.name == name


def test_a_file_is_read_run_and_written_anew(tmp_path: Path):
    path = tmp_path / "config.toml"
    path.write_text(FILE)
    config = load_config(path)
    assert config.method == preset_of_0_1("fast", "two-step")
    assert (config.problem, config.preset, config.seed, config.checkpoint_seconds) == (NAME, "fast", 3, 20.0)
    assert (config.data.samples, config.data.split_seed, config.data.test_share) == (500, 1, 0.2)
    nothing: dict[str, Any] = dict.fromkeys(("methods", "preset", "seed", "samples", "iterations"))
    assert resolve(str(path), **nothing, settings=[]) == [config]
    (other,) = resolve(str(path), **nothing, settings=["trunk.width=7", "inputs=raw"])
    assert isinstance(other.method, TwoStep)
    assert getattr(other.method.trunk, "width", 0) == 7
    assert other.method.inputs == RawInputs()
    path.write_text(to_toml(config))
    assert load_config(path) == config


def test_a_file_for_own_data_serves_a_fit(tmp_path: Path):
    text = FILE.replace(f'problem = "{NAME}"\n', "").replace("[data]\n", '[data]\nfile = "mine.npz"\n')
    (tmp_path / "old.toml").write_text(text.replace("intervals = false", "intervals = true"))
    options: dict[str, Any] = {"minutes": 5.0, "test_share": None, "seed": None, "keys": {}}
    config = make_config(fit_values(None, tmp_path / "old.toml", **options, settings=[]))
    assert (config.data.file, config.intervals, config.data.test_share) == ("mine.npz", True, 0.2)
    assert config.method == preset_of_0_1("fast", "two-step")


def test_own_data_with_everything_open():
    trunk = {"architecture": [2, 40, 40, 30], "activation": "tanh", "initialisation": "xavier", **FAST}
    trunk |= {"starts": 2, "iterations": 6000, "rescale": True, "periods": {"the angle": 6.25}, "fourier": 3}
    branch = {"kind": "auto", "architecture": [24, 128, 31], "activation": "gelu", "initialisation": "xavier"}
    branch |= {"projected": True, "skip": True, "decay": 1e-6, "ridge": 1e-3, "iterations": 400}
    branch |= {"trial_iterations": 70, "product": False, "stacked": False, "minimiser": "l-bfgs"}
    output = {"fixed": ["x-"], "value": 2.0, "positive": False, "channel_weights": [1.0, 2.0], "intervals": True}
    given = {
        "data": {"file": "mine.npz"},
        "problem": None,
        "output": output,
        "loss": {"p": 2.0, "weights": "auto"},
    }
    config = make_config(nested(old("two-step", trunk, branch, **given)))
    assert (config.data.file, config.intervals) == ("mine.npz", True)
    assert config.method == TwoStep(
        NetworkTrunk((40, 40), 30, iterations=6000, starts=2),
        AutoBranch(NetworkBranch(), trial_iterations=70),
        inputs=AutoInputs(),
        coordinates=Coordinates(periods={"the angle": 6.25}, fourier=3),
        output=Output(("x-",), 2.0, channel_weights=(1.0, 2.0)),
        weights="auto",
    )


# -- trunks


def test_trunks():
    small = {"hidden": (6,), "width": 4, "activation": "relu", "initialisation": "he"}
    network = NetworkTrunk(**small, iterations=9, starts=3, ridge=0.5, p=3.0)
    values = {"iterations": 9, "starts": 3, "ridge": 0.5}
    loss = {"p": 3.0, "weights": "none"}
    assert two_step_of(values, loss=loss).trunk == network
    assert two_step_of({**values, "separate": True}, loss=loss).trunk == SeparateTrunks(network)
    with pytest.raises(UnknownNameError, match=r"minimiser of kind 'levenberg-marquardt'.*l-bfgs, adam"):
        two_step_of({"minimiser": "levenberg-marquardt"})
    joint = {
        "projected": False,
        "minimiser": "adam",
        "rate": 0.1,
        "halve_every": 7,
        "batch_points": 5,
        "iterations": 9,
    }
    found = two_step_of({**joint, "batch_samples": 6}, loss=loss).trunk
    assert found == JointTrunk(**small, minimiser=Adam(0.1, 7), iterations=9, p=3.0, batches=Batches(6, 5))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"method": "qr", "unit_columns": True}, QR(unit_columns=True)),
        ({"method": "svd", "tolerance": 1e-9, "unit_columns": False}, SVD(1e-9)),
        ({"method": "qr", "tolerance": None, "unit_columns": False}, QR()),  # as a checkpoint had it
    ],
)
def test_orthonormalisation(section: dict[str, Any], expected: object):
    assert two_step_of(orthonormalise=section).orthonormalise == expected


# -- branches

PROJECTED = {"projected": True, "minimiser": "l-bfgs", "iterations": 9, "ridge": 0.1, "decay": 0.2}
SMALL = {"architecture": [3, 6, 5], **RELU, "skip": True, "product": True}
DENSE: dict[str, Any] = {"hidden": (6,), **RELU, "skip": True, "product": True}
BRANCHES: dict[str, tuple[dict[str, Any], object]] = {
    "linear": ({"kind": "linear", "projected": True, "ridge": 1e-3}, Linear()),
    "kernel": ({"kind": "kernel", "minimiser": "l-bfgs", "ridge": 1e-3}, Kernel()),
    "active neurons": (
        {"kind": "active-neurons", "architecture": [3, 60, 5], "iterations": 7, **RELU},
        ActiveNeurons(width=60, iterations=7),
    ),
    "network": (
        {"kind": "network", **SMALL, **PROJECTED},
        NetworkBranch(**DENSE, iterations=9, ridge=0.1, decay=0.2),
    ),
    "convolution": (
        {"kind": "convolution", "architecture": [9, 4, 8, 5], **RELU, **PROJECTED, "skip": False},
        NetworkBranch((4, 8), **RELU, skip=False, convolution=True, iterations=9, ridge=0.1, decay=0.2),
    ),
    "joint": (
        {"kind": "network", **SMALL, "projected": False, **ADAM, "batch_samples": 7, "stacked": True},
        JointBranch(**DENSE, stacked=True, minimiser=Adam(1e-3), iterations=10_000, batch=7),
    ),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name: str):
    section, expected = BRANCHES[name]
    assert two_step_of(branch=section).branch == expected


def test_networks_of_monolithic_methods():
    trunk = {"architecture": [2, 6, 4], "activation": "tanh", "initialisation": "xavier"}
    branch = {**SMALL, "stacked": True, "product": False, "skip": False}
    adam = {"minimiser": "adam", "rate": 0.1, "iterations": 9}
    networks = TrunkNetwork((6,), 4), BranchNetwork((6,), **RELU, stacked=True)
    common: dict[str, Any] = {"coordinates": Coordinates(rescale=False), "precision": "single"}
    loss: dict[str, Any] = {"loss": {"p": 3.0, "weights": "none"}, "precision": "single"}
    values = old(
        "monolithic", {**trunk, **adam, "batch_samples": 5}, {**branch, "train_transform": True, **NONE}, **loss
    )
    assert method_of(values) == Monolithic(
        *networks,
        inputs=RawInputs(),
        weights="none",
        minimiser=Adam(0.1),
        iterations=9,
        p=3.0,
        batches=Batches(5),
        train_transform=True,
        **common,
    )
    projected = old("monolithic-projected", {**trunk, **adam, "ridge": 0.5}, branch, precision="single")
    assert method_of(projected) == MonolithicProjected(
        *networks, weights="relative", minimiser=Adam(0.1), iterations=9, ridge=0.5, **common
    )


# -- encoders

ENCODERS: dict[str, AbstractInputs] = {
    "auto": AutoInputs(),
    "none": RawInputs(),
    "standardise": StandardisedInputs(),
    "log": StandardisedInputs("log"),
    "inverse": StandardisedInputs("inverse"),
    "inverse-root": StandardisedInputs("inverse-root"),
    "principal:3": PrincipalInputs(3),
    "predictive:8": PredictiveInputs(8),
    "legendre:8": BasisInputs("legendre", 8),
    "chebyshev:8": BasisInputs("chebyshev", 8),
    "fourier:9": BasisInputs("fourier", 9),
    "kappa=log,f=principal:8": PerInput({"kappa": StandardisedInputs("log"), "f": PrincipalInputs(8)}),
    "a = none, b = standardise": PerInput({"a": RawInputs(), "b": StandardisedInputs()}),
}


@pytest.mark.parametrize("text", ENCODERS)
def test_encoders(text: str):
    assert two_step_of(branch={"kind": "linear", "encoder": text}).inputs == ENCODERS[text]


@pytest.mark.parametrize("text", ["magic", "principal", "principal:x", "legendre", ""])
def test_an_encoder_that_no_version_knew(text: str):
    with pytest.raises(SettingError, match=r"branch\.encoder is"):
        two_step_of(branch={"kind": "linear", "encoder": text})


# -- models


def test_a_model_folder_of_0_1_predicts_what_it_did():
    """Two inputs with encoders of their own, periodic coordinates, two positive channels; no training points."""
    here = Path(__file__).parent
    operator, known = load(here / "model_0_1"), read_json(here / "model_0_1_fields.json")
    fields = operator.predict(np.array(known["inputs"]), np.array(known["points"]))
    np.testing.assert_allclose(fields, known["fields"], rtol=1e-12)
    with pytest.raises(DataError, match="does not know its training points"):
        operator.predict(np.array(known["inputs"]))


# -- what is refused


def test_some_settings_of_0_1_are_refused_by_name():
    """A part of an old file says too little about the rest."""
    with pytest.raises(
        SettingError, match=r"no setting 'method\.trunk\.architecture'; known here: .*hidden, width"
    ):
        make_config(nested({"problem": NAME, "trunk": {"architecture": [2, 5, 4]}}))
    with pytest.raises(SettingError, match=r"no setting 'method\.trunk\.architecture'"):
        make_config({"problem": NAME} | parse_settings(["trunk.architecture=[2, 5, 4]"]))


def test_a_wrong_value_in_an_old_file_is_named_as_in_the_new_form():
    with pytest.raises(UnknownNameError, match=r"no method\.branch of kind 'magic'"):
        two_step_of(branch={"kind": "magic", "architecture": [1, 6, 5]})


@pytest.mark.parametrize(
    "change",
    [
        {"trunk": {"architecture": 5}},
        {"trunk": {"architecture": [2]}},
        {"branch": {"encoder": 3}},
        {"branch": {"kind": "active-neurons"}},
        {"branch": 7},
        {"loss": "heavy"},
    ],
)
def test_a_damaged_old_file_is_an_error_of_ours(change: dict[str, Any]):
    values = old("two-step", {"architecture": [2, 6, 4]}, {"kind": "linear"}) | change
    with pytest.raises(SettingError, match=r"configuration of version 0\.1"):
        nested(values)
