"""The configuration: precedence, messages, files."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import pytest
from sklearn.linear_model import Ridge

from trunkfirst.errors import CorruptFileError, SettingError, TrunkfirstError, UnknownNameError, ValueRangeError
from trunkfirst.files.text_files import read_toml
from trunkfirst.inputs import BasisInputs, RawInputs, StandardisedInputs
from trunkfirst.linear.orthonormalise import QR, SVD
from trunkfirst.losses import Batches
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.monolithic import Monolithic
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.presets import preset_method
from trunkfirst.problems.generate import problem_names
from trunkfirst.regressors.base import Sklearn
from trunkfirst.regressors.network import AutoBranch, JointBranch
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.runs.config import RunConfig, load_config, make_config, resolve
from trunkfirst.settings import from_values, merge, parse_setting, put, to_toml, to_values
from trunkfirst.trunks import JointTrunk
from trunkfirst.two_step import TwoStep

NAME = "nonlinear-conductivity"
METHODS = ("two-step", "two-step-without-qr", "monolithic")


def resolved(target: str = NAME, *settings: str, **options: Any) -> RunConfig:
    """What one command would run with."""
    (config,) = resolved_all(target, *settings, **options)
    return config


def resolved_all(target: str = NAME, *settings: str, **options: Any) -> list[RunConfig]:
    nothing: dict[str, Any] = dict.fromkeys(("methods", "seed", "samples", "iterations"))
    return resolve(target, **{**nothing, "preset": "paper", **options}, settings=list(settings))


def two_step_of(config: RunConfig) -> tuple[JointTrunk, JointBranch]:
    """Trunk and branch of a two-step configuration of the preset `paper`."""
    method = config.method
    assert isinstance(method, TwoStep)
    assert isinstance(method.trunk, JointTrunk)
    assert isinstance(method.branch, JointBranch)
    return method.trunk, method.branch


# -- precedence


def test_rising_order_of_force(tmp_path: Path):
    file = tmp_path / "mine.toml"
    trunk = "[trunk]\niterations = 11\nminimiser.first_rate = 0.5"
    file.write_text(f'problem = "{NAME}"\nseed = 1\n{trunk}\n[data]\nsamples = 44\n')
    plain = resolved()
    trunk, branch = two_step_of(plain)
    assert (plain.seed, trunk.minimiser, trunk.activation) == (0, Adam(1e-3), "relu")  # defaults
    assert (trunk.hidden, trunk.width, branch.hidden) == ((50, 50, 50), 50, (500,))  # preset
    assert getattr(plain.method, "orthonormalise", None) == QR(unit_columns=True)  # the preset, not the default
    from_file = resolved(str(file))
    trunk, _ = two_step_of(from_file)
    assert (from_file.seed, trunk.iterations, from_file.data.samples) == (1, 11, 44)
    assert (trunk.minimiser, trunk.hidden) == (Adam(0.5), (50, 50, 50))
    with_options = resolved(str(file), seed=2, iterations=22, samples=55)
    trunk, branch = two_step_of(with_options)
    assert (with_options.seed, trunk.iterations, branch.iterations) == (2, 22, 22)
    assert (with_options.data.samples, trunk.minimiser) == (55, Adam(0.5))
    with_set = resolved(str(file), "seed=3", "branch.iterations=33", seed=2, iterations=22)
    trunk, branch = two_step_of(with_set)
    assert (with_set.seed, trunk.iterations, branch.iterations) == (3, 22, 33)


def test_method_from_file_option_and_set(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(f'problem = "{NAME}"\nmethod = "monolithic"\n')
    assert resolved().method.name == "two-step"
    assert resolved(str(file)).method.name == "monolithic"
    assert resolved(str(file), methods=["two-step-without-qr"]).method.name == "two-step-without-qr"
    assert resolved(NAME, "method=monolithic").method.name == "monolithic"
    assert resolved(NAME, "orthonormalise=none").method.name == "two-step-without-qr"
    assert resolved(NAME, "orthonormalise=none", methods=["two-step"]).method.name == "two-step"


def test_another_problem_brings_its_own_preset():
    assert resolved(NAME, "problem=multiple-inputs") == resolved("multiple-inputs")
    with pytest.raises(UnknownNameError, match="no problem 'other'"):
        resolved(NAME, "problem=other")


# -- the paper

PAPER: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], str]] = {
    "nonlinear-conductivity": ((50, 50, 50), 50, (500,), "relu"),
    "discontinuous-conductivity": ((25, 25, 25, 25), 25, (100,), "relu"),
    "multiple-inputs": ((100, 100, 100), 200, (100, 100, 100), "tanh"),
}


@pytest.mark.parametrize("problem", list(PAPER))
def test_preset_is_the_papers(problem: str):
    config = resolved(problem)
    method: Any = config.method
    hidden, width, branch_hidden, activation = PAPER[problem]
    initialisation = {"relu": "he", "tanh": "xavier"}[activation]
    trunk = method.trunk
    assert (trunk.hidden, trunk.width, trunk.activation, trunk.initialisation) == (
        hidden,
        width,
        activation,
        initialisation,
    )
    assert (trunk.minimiser, trunk.batches, trunk.p) == (Adam(1e-3), Batches(), 2.0)
    if problem == "discontinuous-conductivity":  # active neurons
        assert (method.branch.kind, (method.branch.width,)) == ("active-neurons", branch_hidden)
    else:
        rate = Adam(1e-3, 100_000 if problem == "multiple-inputs" else None)
        assert method.branch == JointBranch(branch_hidden, activation, initialisation, minimiser=rate)
    assert (config.data.test_share, method.precision) == (0.1, "double")
    assert method.orthonormalise == QR(unit_columns=True)
    inputs = StandardisedInputs() if problem == "nonlinear-conductivity" else RawInputs()  # beta is 1 to 1000
    assert (method.inputs, method.weights) == (inputs, "none")


@pytest.mark.parametrize("preset", ["fast", "paper"])
@pytest.mark.parametrize("problem", problem_names())
@pytest.mark.parametrize("name", [*METHODS, "monolithic-projected"])
def test_a_preset_is_a_method_that_a_file_can_hold(preset: str, problem: str, name: str):
    method = preset_method(preset, problem, name)
    assert method.name == name
    assert from_values(type(method), to_values(method)) == method


def test_unknown_preset():
    with pytest.raises(UnknownNameError, match=r"no preset 'quick'; choose one of: .*paper"):
        preset_method("quick", NAME)


# -- messages

WRONG: list[tuple[str, type[TrunkfirstError], str]] = [
    ("trunk.colour=1", SettingError, "no setting 'method.trunk.colour'; known here: .*activation"),
    ("colour=1", SettingError, "no setting 'method.colour'; known here: inputs"),
    ("colour.trunk=1", SettingError, "no setting 'method.colour'"),
    ("data.colour=1", SettingError, "no setting 'data.colour'; known here: file"),
    ("trunk.withd=1", SettingError, "no setting 'method.trunk.withd'; did you mean 'width'?"),
    ("trunk.architecture=[2, 5]", SettingError, "no setting 'method.trunk.architecture'"),  # of version 0.1
    ("seed.trunk=1", TrunkfirstError, "seed"),
    ("trunk.iterations", SettingError, "expected key=value"),
    ("=1", SettingError, "expected key=value"),
    ("trunk.iterations=many", ValueRangeError, "trunk.iterations is 'many'"),
    ("trunk.iterations=1.5", ValueRangeError, "trunk.iterations is 1.5"),
    ("trunk.iterations=0", ValueRangeError, "trunk.iterations is 0.*greater than or equal to 1"),
    ("trunk.minimiser.first_rate=0", ValueRangeError, "trunk.minimiser.first_rate is 0"),
    ("trunk.minimiser.first_rate=-1e-3", ValueRangeError, "trunk.minimiser.first_rate is -0.001"),
    ("trunk.hidden=[2, 'wide']", ValueRangeError, "trunk.hidden.1 is 'wide'"),
    ("trunk.hidden=[0]", ValueRangeError, "trunk.hidden.0 is 0"),
    ("branch.hidden=[]", ValueRangeError, "branch.hidden is"),
    ("trunk=5", ValueRangeError, "trunk is 5"),
    ("trunk.kind=magic", UnknownNameError, "choose one of: auto, modes, network, moving, joint, separate"),
    ("trunk.minimiser=magic", UnknownNameError, "no method.trunk.minimiser of kind 'magic'"),
    ("orthonormalise.kind=lu", UnknownNameError, "no method.orthonormalise of kind 'lu'; choose one of: qr, svd"),
    ("orthonormalise.tolerance=2", ValueRangeError, "orthonormalise.tolerance is 2"),
    ("inputs=magic", UnknownNameError, "no method.inputs of kind 'magic'; choose one of: raw, standardise"),
    ("inputs=principal", SettingError, "setting 'method.inputs.count' is missing"),
    ("inputs={kind='basis',basis='magic',count=2}", ValueRangeError, "method.inputs.basis is 'magic'.*legendre"),
    ("precision=half", ValueRangeError, "'double' or 'single'"),
    ("weights=heavy", ValueRangeError, "'relative', 'none' or 'auto'"),
    ("method=magic", UnknownNameError, "no method 'magic'"),
    ("data.samples=3", ValueRangeError, "data.samples is 3"),
    ("data.test_share=1", ValueRangeError, "data.test_share is 1"),
    ("data.split_seed=-1", ValueRangeError, "data.split_seed is -1"),
    ("data.file=mine.npz", ValueRangeError, "either a problem by name or data.file"),
    ("seed=99999999999999999999", ValueRangeError, "seed is 99999999999999999999"),
    ("trunk.p=0.5", ValueRangeError, "trunk.p is 0.5.*greater than or equal to 1"),
    ("trunk.p=nan", ValueRangeError, "trunk.p is nan"),
    ("trunk.p=inf", ValueRangeError, "trunk.p is inf"),
    ("trunk.p=two", ValueRangeError, "trunk.p is 'two'"),
]


def test_a_setting_of_another_kind_names_that_kind():
    """A stacked branch has no last layer to solve for: the default preset's kind does not know it."""
    words = (
        r"no setting 'method\.branch\.stacked'; network has none, set method\.branch\.kind = joint; known here: "
    )
    with pytest.raises(SettingError, match=words):
        resolved(NAME, "branch.stacked=true", preset="fast")


@pytest.mark.parametrize(("setting", "error", "words"), WRONG, ids=[setting for setting, *_ in WRONG])
def test_what_is_wrong_is_named(setting: str, error: type[TrunkfirstError], words: str):
    with pytest.raises(error, match=words) as caught:
        resolved(NAME, setting)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        ("seed = 1", UnknownNameError, "no problem"),
        ('problem = "nothing"', UnknownNameError, "no problem 'nothing'"),
        (f'problem = "{NAME}"\n[colours]\nred = 1', SettingError, "no setting 'method.colours'"),
        (f'problem = "{NAME}"\n[trunk', SettingError, "not valid TOML"),
        (f'problem = "{NAME}"\npreset = "quick"', UnknownNameError, "no preset 'quick'"),
        (f'problem = "{NAME}"\ntrain_transform = true', SettingError, "no setting 'method.train_transform'"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, content: str, error: type[TrunkfirstError], words: str):
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(error, match=words):
        resolved(str(tmp_path / "mine.toml"), preset=None if "preset" in content else "paper")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(CorruptFileError, match=r"absent\.toml does not exist"):
        resolved(str(tmp_path / "absent.toml"))


UNUSED = [
    ("two-step", "train_transform=true", "no setting 'method.train_transform'"),
    ("two-step", "branch.ridge=1e-3", "no setting 'method.branch.ridge'"),  # of kind joint
    ("two-step-without-qr", "train_transform=true", "no setting 'method.train_transform'"),
    ("two-step-without-qr", "orthonormalise.kind=svd", "'orthonormalise' has no effect on two-step-without-qr"),
    ("monolithic", "orthonormalise.tolerance=1e-9", "no setting 'method.orthonormalise'"),
    ("monolithic", "branch.iterations=7", "no setting 'method.branch.iterations'"),
    ("monolithic", "trunk.iterations=7", "no setting 'method.trunk.iterations'"),
    ("monolithic", "branch.minimiser.first_rate=1e-2", "no setting 'method.branch.minimiser'"),
    ("monolithic", "branch.batch=7", "no setting 'method.branch.batch'"),
    ("monolithic-projected", "p=3", "no setting 'method.p'"),
]


@pytest.mark.parametrize(("method", "setting", "words"), UNUSED)
def test_settings_without_effect_are_refused(method: str, setting: str, words: str):
    with pytest.raises(SettingError, match=words):
        resolved(NAME, setting, methods=[method])


def test_a_setting_need_matter_to_one_method_only():
    both = ["two-step", "monolithic"]
    first, second = resolved_all(NAME, "branch.iterations=7", "train_transform=true", methods=both)
    assert two_step_of(first)[1].iterations == 7
    assert isinstance(second.method, Monolithic)
    assert second.method.train_transform
    with pytest.raises(SettingError, match="'train_transform' does not exist in any of the methods compared"):
        resolved_all(NAME, "train_transform=true", methods=["two-step", "two-step-without-qr"])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [("orthonormalise.tolerance=1e-9", QR(1e-9, unit_columns=True)), ("orthonormalise=svd", SVD())],
)
def test_the_method_without_qr_stays_without(setting: str, expected: object):
    found = resolved_all(NAME, setting, methods=["two-step", "two-step-without-qr"])
    assert [getattr(config.method, "orthonormalise", 0) for config in found] == [expected, None]


def test_iterations_for_each_step_suit_every_method():
    method = resolved(methods=["monolithic"], iterations=7).method
    assert isinstance(method, Monolithic)
    assert method.iterations == 7
    exchanges = resolved("discontinuous-conductivity", iterations=7).method  # of neurons: another unit
    assert isinstance(exchanges, TwoStep)
    assert (getattr(exchanges.trunk, "iterations", 0), getattr(exchanges.branch, "iterations", 0)) == (7, 100)
    kernel = resolved("discontinuous-conductivity", iterations=7, preset="fast").method  # in closed form
    assert isinstance(kernel, TwoStep)
    assert (getattr(kernel.trunk, "iterations", 0), kernel.branch) == (7, Kernel())


# -- pieces


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("seed=3", ["seed"], 3),
        ("trunk.rate=1e-2", ["trunk", "rate"], 0.01),
        ("trunk.activation=tanh", ["trunk", "activation"], "tanh"),
        ('trunk.activation="tanh"', ["trunk", "activation"], "tanh"),
        ("trunk.hidden=[2, 5, 4]", ["trunk", "hidden"], [2, 5, 4]),
        ("branch.stacked=true", ["branch", "stacked"], True),
        ("data.points=random:30", ["data", "points"], "random:30"),
        ("a=b=c", ["a"], "b=c"),
        ("a=", ["a"], ""),
    ],
)
def test_parse_setting(text: str, place: list[str], value: object):
    assert parse_setting(text) == (place, value)


def test_put_and_merge_leave_the_rest_alone():
    low = {"a": 1, "b": {"c": 2, "d": 3}}
    high: dict[str, Any] = {}
    put(high, ["b", "c"], 4)
    put(high, ["e"], 5)
    assert merge(low, high) == {"a": 1, "b": {"c": 4, "d": 3}, "e": 5}
    assert low == {"a": 1, "b": {"c": 2, "d": 3}}


def test_another_kind_replaces_the_whole_section():
    low = {"branch": {"kind": "network", "hidden": [5]}}
    assert merge(low, {"branch": {"hidden": [6]}}) == {"branch": {"kind": "network", "hidden": [6]}}
    assert merge(low, {"branch": {"kind": "kernel", "ridge": 1}}) == {"branch": {"kind": "kernel", "ridge": 1}}
    assert merge(low, {"branch": "kernel"}) == {"branch": {"kind": "kernel"}}
    unnamed = {"branch": {"hidden": [5]}}
    assert merge(unnamed, {"branch": "network"}) == low


# -- files


@pytest.mark.parametrize("problem", problem_names())
@pytest.mark.parametrize(
    "settings",
    [
        (),
        (
            "trunk.minimiser.first_rate=1e-5",
            "trunk.p=1.5",
            "inputs={kind='basis',basis='legendre',count=8}",
            "data.points=random:99",
            "coordinates.periods={'the angle'=6.283185307179586}",
        ),
        (
            "orthonormalise={kind='svd',tolerance=1e-9}",
            "trunk.minimiser.halve_every=7",
            "precision=single",
            "inputs={kind='per-input',encodings={a='raw',b={kind='principal',count=3}}}",
            "output={fixed=['x-','t-'],value=2.5,channel_weights=[1,2]}",
        ),
    ],
    ids=["preset", "some", "others"],
)
def test_toml_round_trip(tmp_path: Path, problem: str, settings: tuple[str, ...]):
    config = resolved(problem, *settings)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config
    values, method = read_toml(tmp_path / "config.toml")["method"], config.method
    assert isinstance(method, TwoStep)
    assert isinstance(method.trunk, JointTrunk)
    assert isinstance(method.trunk.minimiser, Adam)
    assert values["trunk"]["hidden"] == list(method.trunk.hidden or ())
    assert values["trunk"]["minimiser"]["first_rate"] == method.trunk.minimiser.first_rate


@pytest.mark.parametrize("method", METHODS)
def test_the_file_of_a_run_can_be_run_again(tmp_path: Path, method: str):
    config = resolved(NAME, "trunk.hidden=[6]", "trunk.width=4", methods=[method], iterations=7)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert resolved(str(tmp_path / "config.toml"), preset=None) == config


def test_a_method_with_an_own_part_fits_no_file():
    config = resolved()
    assert isinstance(config.method, TwoStep)
    with pytest.raises(SettingError, match="an object of your own"):
        to_toml(dc.replace(config, method=dc.replace(config.method, branch=Sklearn(Ridge()))))


# -- records


def small(*settings: str, **options: Any) -> RunConfig:
    return resolved(NAME, "trunk.hidden=[6]", "trunk.width=4", "branch.hidden=[6]", *settings, **options)


def test_two_step_record():
    config = small(
        "trunk.minimiser.first_rate=0.1",
        "trunk.minimiser.halve_every=5",
        "trunk.batches={samples=3,points=4}",
        "branch.batch=2",
        "orthonormalise={kind='svd',unit_columns=true}",
        "trunk.p=4",
        iterations=9,
    )
    trunk, branch = two_step_of(config)
    assert (trunk.minimiser, trunk.iterations, trunk.p, trunk.batches) == (Adam(0.1, 5), 9, 4.0, Batches(3, 4))
    assert (trunk.hidden, trunk.width) == ((6,), 4)
    assert (branch.minimiser, branch.iterations, branch.batch) == (Adam(1e-3, None), 9, 2)
    assert branch.hidden == (6,)
    assert isinstance(config.method, TwoStep)
    assert config.method.orthonormalise == SVD(None, unit_columns=True)
    assert config.method.inputs == StandardisedInputs()


def test_other_records():
    without = small(methods=["two-step-without-qr"]).method
    assert isinstance(without, TwoStep)
    assert without.orthonormalise is None
    together = small("train_transform=true", methods=["monolithic"]).method
    assert isinstance(together, Monolithic)
    assert (together.train_transform, together.branch.hidden, together.minimiser) == (True, (6,), Adam(1e-3))
    tolerant = small("orthonormalise.tolerance=1e-3").method
    assert isinstance(tolerant, TwoStep)
    assert tolerant.orthonormalise == QR(1e-3, unit_columns=True)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("raw", RawInputs()),
        ("standardise", StandardisedInputs()),
        ("{kind='standardise',function='log'}", StandardisedInputs("log")),
        ("{kind='basis',basis='fourier',count=5}", BasisInputs("fourier", 5)),
    ],
)
def test_encoders_by_name(text: str, encoding: object):
    assert small(f"inputs={text}").method.inputs == encoding


def test_make_config_names_what_is_missing():
    with pytest.raises(ValueRangeError, match="problem"):
        make_config({"seed": 1})
    inputs = {"kind": "per-input", "encodings": {"a": {"function": "log"}}}
    with pytest.raises(SettingError, match=r"setting 'method.inputs.encodings.a.kind' is missing"):
        make_config({"problem": NAME, "method": {"inputs": inputs}})


@pytest.mark.parametrize(
    ("minimiser", "expected"),
    [
        ("l-bfgs", LBFGS(pairs=100)),
        ({"kind": "l-bfgs", "curvature": 0.5}, LBFGS(pairs=100, curvature=0.5)),
        ({"curvature": 0.5}, LBFGS(pairs=100, curvature=0.5)),
        ({"pairs": 7}, LBFGS(pairs=7)),
        ("adam", Adam()),
    ],
)
def test_a_minimiser_by_its_kind_keeps_what_its_trunk_sets(minimiser: object, expected: object):
    trunk = {"kind": "moving", "minimiser": minimiser}
    found: Any = make_config({"data": {"file": "x.npz"}, "method": {"trunk": trunk}}).method
    assert found.trunk.minimiser == expected


def test_a_section_without_a_kind_changes_the_default():
    method = {"trunk": {"width": 7}, "branch": {"trial_iterations": 5}, "orthonormalise": {"tolerance": 0.1}}
    found = make_config({"data": {"file": "x.npz"}, "method": method}).method
    assert found == TwoStep(NetworkTrunk(width=7), AutoBranch(trial_iterations=5), QR(0.1))
    without = make_config({"data": {"file": "x.npz"}, "method": {"orthonormalise": "none"}}).method
    assert without == TwoStep(orthonormalise=None)
