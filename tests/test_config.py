"""The configuration: precedence, messages, files."""

import math
from pathlib import Path
from typing import Any

import pytest
from helpers import waves

from trunkfirst.cli.resolve import resolve
from trunkfirst.encoders import BasisInputs, RawInputs, StandardisedInputs
from trunkfirst.errors import (
    DataError,
    SettingError,
    TrunkfirstError,
    UnknownNameError,
    UsageError,
    ValueRangeError,
)
from trunkfirst.files import read_toml
from trunkfirst.linear import QR, SVD
from trunkfirst.losses import Batches
from trunkfirst.minimisers import Adam
from trunkfirst.monolithic import Monolithic
from trunkfirst.presets import preset_method
from trunkfirst.problems import problem_names
from trunkfirst.runs.config import RunConfig, load_config, make_config
from trunkfirst.settings import merge, parse_setting, put, to_toml
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


# -- precedence


def test_rising_order_of_force(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(f'problem = "{NAME}"\nseed = 1\n[trunk]\niterations = 11\nrate = 0.5\n[data]\nsamples = 44\n')
    plain = resolved()
    assert (plain.seed, plain.trunk.rate, plain.trunk.activation) == (0, 1e-3, "relu")  # defaults
    assert (plain.trunk.architecture, plain.branch.architecture) == ((2, 50, 50, 50, 50), (1, 500, 51))  # preset
    assert plain.orthonormalise.unit_columns  # the preset, against the default
    from_file = resolved(str(file))
    assert (from_file.seed, from_file.trunk.iterations, from_file.trunk.rate, from_file.data.samples) == (
        1,
        11,
        0.5,
        44,
    )
    assert from_file.trunk.architecture == (2, 50, 50, 50, 50)
    with_options = resolved(str(file), seed=2, iterations=22, samples=55)
    assert (with_options.seed, with_options.trunk.iterations, with_options.branch.iterations) == (2, 22, 22)
    assert (with_options.data.samples, with_options.trunk.rate) == (55, 0.5)
    with_set = resolved(str(file), "seed=3", "branch.iterations=33", seed=2, iterations=22)
    assert (with_set.seed, with_set.trunk.iterations, with_set.branch.iterations) == (3, 22, 33)


def test_method_from_file_option_and_set(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(f'problem = "{NAME}"\nmethod = "monolithic"\n')
    assert resolved().method == "two-step"
    assert resolved(str(file)).method == "monolithic"
    assert resolved(str(file), methods=["two-step-without-qr"]).method == "two-step-without-qr"
    assert resolved(NAME, "method=monolithic").method == "monolithic"


def test_another_problem_brings_its_own_preset():
    assert resolved(NAME, "problem=multiple-inputs") == resolved("multiple-inputs")
    with pytest.raises(UnknownNameError, match="no problem 'other'"):
        resolved(NAME, "problem=other")


# -- the paper

PAPER: dict[str, dict[str, Any]] = {
    "nonlinear-conductivity": {"trunk": (2, 50, 50, 50, 50), "branch": (1, 500, 51), "activation": "relu"},
    "discontinuous-conductivity": {
        "trunk": (2, 25, 25, 25, 25, 25),
        "branch": (4225, 100, 26),
        "activation": "relu",
    },
    "multiple-inputs": {"trunk": (2, 100, 100, 100, 200), "branch": (3, 100, 100, 100, 201), "activation": "tanh"},
}


@pytest.mark.parametrize("problem", list(PAPER))
def test_preset_is_the_papers(problem: str):
    config, expected = resolved(problem), PAPER[problem]
    sections = (config.trunk, config.branch)
    assert [section.architecture for section in sections] == [expected["trunk"], expected["branch"]]
    assert {section.activation for section in sections} == {expected["activation"]}
    initialisation = {"relu": "he", "tanh": "xavier"}[expected["activation"]]
    assert {section.initialisation for section in sections} == {initialisation}
    assert {(section.minimiser, section.rate, section.batch_samples) for section in sections} == {
        ("adam", 1e-3, None)
    }
    assert config.branch.halve_every == (100_000 if problem == "multiple-inputs" else None)
    assert (config.loss.p, config.data.test_share, config.precision) == (2.0, 0.1, "double")
    assert (config.orthonormalise.method, config.orthonormalise.unit_columns) == ("qr", True)
    assert (config.branch.encoder, config.branch.stacked) == ("none", False)


def test_unknown_preset():
    with pytest.raises(UnknownNameError, match=r"no preset 'quick'; choose one of: .*paper"):
        preset_method("quick", NAME)


# -- messages

WRONG: list[tuple[str, type[TrunkfirstError], str]] = [
    ("trunk.colour=1", SettingError, "no setting 'trunk.colour'; known here: .*activation"),
    ("colour=1", SettingError, "no setting 'colour'; known here: problem, method"),
    ("colour.trunk=1", SettingError, "no setting 'colour'"),
    ("seed.trunk=1", TrunkfirstError, "seed"),
    ("trunk.iterations", SettingError, "expected key=value"),
    ("=1", SettingError, "expected key=value"),
    ("trunk.iterations=many", ValueRangeError, "trunk.iterations is 'many'"),
    ("trunk.iterations=1.5", ValueRangeError, "trunk.iterations is 1.5"),
    ("trunk.iterations=0", ValueRangeError, "trunk.iterations is 0.*greater than or equal to 1"),
    ("trunk.rate=0", ValueRangeError, "trunk.rate is 0"),
    ("trunk.rate=-1e-3", ValueRangeError, "trunk.rate is -0.001"),
    ("trunk.architecture=[2, 'wide']", ValueRangeError, "trunk.architecture.1 is 'wide'"),
    ("trunk.architecture=[]", ValueRangeError, "trunk.architecture is"),
    ("branch.architecture=[1]", ValueRangeError, "branch.architecture is"),
    ("trunk=5", ValueRangeError, "trunk is 5"),
    ("trunk.minimiser=magic", ValueRangeError, "trunk.minimiser is 'magic'"),
    ("orthonormalise.method=lu", ValueRangeError, "'qr' or 'svd'"),
    ("orthonormalise.tolerance=2", ValueRangeError, "orthonormalise.tolerance is 2"),
    ("precision=half", ValueRangeError, "'double' or 'single'"),
    ("method=magic", UnknownNameError, "no method 'magic'"),
    ("data.samples=3", ValueRangeError, "data.samples is 3"),
    ("data.test_share=1", ValueRangeError, "data.test_share is 1"),
    ("data.split_seed=-1", ValueRangeError, "data.split_seed is -1"),
    ("seed=99999999999999999999", ValueRangeError, "seed is 99999999999999999999"),
    ("loss.p=0.5", ValueRangeError, "loss.p is 0.5.*p >= 1"),
    ("loss.p=nan", ValueRangeError, "loss.p is nan"),
    ("loss.p=inf", ValueRangeError, "loss.p is inf"),
    ("loss.p=two", ValueRangeError, "loss.p is 'two'"),
]


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
        (f'problem = "{NAME}"\n[colours]\nred = 1', SettingError, "no setting 'colours'"),
        (f'problem = "{NAME}"\n[trunk', SettingError, "not valid TOML"),
        (f'problem = "{NAME}"\npreset = "quick"', UnknownNameError, "no preset 'quick'"),
        (f'problem = "{NAME}"\n[branch]\ntrain_transform = true', SettingError, "no effect on two-step"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, content: str, error: type[TrunkfirstError], words: str):
    (tmp_path / "mine.toml").write_text(content)
    with pytest.raises(error, match=words):
        resolved(str(tmp_path / "mine.toml"), preset=None if "preset" in content else "paper")


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(UsageError, match=r"no configuration file .*absent\.toml"):
        resolved(str(tmp_path / "absent.toml"))


UNUSED = [
    ("two-step", "branch.train_transform=true"),
    ("two-step-without-qr", "branch.train_transform=true"),
    ("two-step-without-qr", "orthonormalise.method=svd"),
    ("monolithic", "orthonormalise.tolerance=1e-9"),
    ("monolithic", "branch.iterations=7"),
    ("monolithic", "branch.rate=1e-2"),
    ("monolithic", "branch.batch_samples=7"),
]


@pytest.mark.parametrize(("method", "setting"), UNUSED)
def test_settings_without_effect_are_refused(method: str, setting: str):
    key = setting.partition("=")[0]
    with pytest.raises(SettingError, match=f"setting '{key}' has no effect on {method}"):
        resolved(NAME, setting, methods=[method])


def test_a_setting_need_matter_to_one_method_only():
    both = ["two-step", "monolithic"]
    found = resolved_all(NAME, "branch.iterations=7", "branch.train_transform=true", methods=both)
    assert [config.method for config in found] == both
    with pytest.raises(SettingError, match="two-step or two-step-without-qr"):
        resolved_all(NAME, "branch.train_transform=true", methods=["two-step", "two-step-without-qr"])


def test_iterations_for_each_step_suit_every_method():
    assert resolved(methods=["monolithic"], iterations=7).trunk.iterations == 7


# -- pieces


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("seed=3", ["seed"], 3),
        ("trunk.rate=1e-2", ["trunk", "rate"], 0.01),
        ("trunk.activation=tanh", ["trunk", "activation"], "tanh"),
        ('trunk.activation="tanh"', ["trunk", "activation"], "tanh"),
        ("trunk.architecture=[2, 5, 4]", ["trunk", "architecture"], [2, 5, 4]),
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


# -- files


@pytest.mark.parametrize("problem", problem_names())
@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("trunk.rate=1e-5", "loss.p=1.5", "branch.encoder=legendre:8", "data.points=random:99"),
        ("orthonormalise.method=svd", "orthonormalise.tolerance=1e-9", "branch.halve_every=7", "precision=single"),
    ],
    ids=["preset", "some", "others"],
)
def test_toml_round_trip(tmp_path: Path, problem: str, settings: tuple[str, ...]):
    config = resolved(problem, *settings)
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load_config(tmp_path / "config.toml") == config
    values = read_toml(tmp_path / "config.toml")
    assert values["trunk"]["architecture"] == list(config.trunk.architecture)
    assert math.isclose(values["trunk"]["rate"], config.trunk.rate, rel_tol=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_file_of_a_run_can_be_run_again(tmp_path: Path, method: str):
    config = resolved(
        NAME, "trunk.architecture=[2, 6, 4]", "branch.architecture=[2, 6, 5]", methods=[method], iterations=7
    )
    (tmp_path / "config.toml").write_text(to_toml(config))
    again = resolved(str(tmp_path / "config.toml"))
    assert build_method(again, waves()) == build_method(config, waves())
    assert (again.seed, again.data, again.preset) == (config.seed, config.data, config.preset)


# -- records


def small(*settings: str, **options: Any) -> RunConfig:
    return resolved(NAME, "trunk.architecture=[2, 6, 4]", "branch.architecture=[2, 6, 5]", *settings, **options)


def test_two_step_record():
    config = small(
        "trunk.rate=0.1",
        "trunk.halve_every=5",
        "trunk.batch_samples=3",
        "trunk.batch_points=4",
        "branch.batch_samples=2",
        "orthonormalise.method=svd",
        "loss.p=4",
        iterations=9,
    )
    method = build_method(config, waves())
    assert isinstance(method, TwoStep)
    step1: Any = method.trunk
    branch: Any = method.branch
    assert (step1.minimiser, step1.iterations, step1.p, step1.batches) == (Adam(0.1, 5), 9, 4.0, Batches(3, 4))
    assert step1.network.architecture == (2, 6, 4)
    assert (branch.minimiser, branch.iterations, branch.batch) == (Adam(1e-3, None), 9, 2)
    assert branch.network.hidden == (6,)
    assert method.orthonormalise == SVD(None, unit_columns=True)
    assert method.inputs == RawInputs()


def test_other_records():
    without = build_method(small(methods=["two-step-without-qr"]), waves())
    assert isinstance(without, TwoStep)
    assert without.orthonormalise is None
    together = build_method(small("branch.train_transform=true", methods=["monolithic"]), waves())
    assert isinstance(together, Monolithic)
    assert (together.train_transform, together.branch.hidden, together.minimiser) == (True, (6,), Adam(1e-3))
    tolerant = build_method(small("orthonormalise.tolerance=1e-3"), waves())
    assert isinstance(tolerant, TwoStep)
    assert tolerant.orthonormalise == QR(1e-3, unit_columns=True)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("none", RawInputs()), ("standardise", StandardisedInputs()), ("fourier:5", BasisInputs("fourier", 5))],
)
def test_encoders_by_name(text: str, encoding: object):
    settings = ("branch.architecture=[5, 6, 5]",) if text == "fourier:5" else ()
    assert build_method(small(f"branch.encoder={text}", *settings), waves()).inputs == encoding


@pytest.mark.parametrize(
    ("setting", "error", "words"),
    [
        ("branch.encoder=magic", UnknownNameError, "no encoder 'magic'"),
        ("branch.encoder=legendre", UnknownNameError, "no encoder 'legendre'"),
        ("branch.architecture=[2, 6, 4]", DataError, "ends with 4.*N = 4 needs N \\+ 1 = 5"),
        ("branch.architecture=[7, 6, 5]", DataError, "starts with 7.*2"),
        ("trunk.architecture=[3, 6, 4]", DataError, "starts with 3, but points have 2"),
    ],
)
def test_what_does_not_fit_the_data(setting: str, error: type[TrunkfirstError], words: str):
    with pytest.raises(error, match=words):
        build_method(small(setting), waves())


def test_make_config_names_what_is_missing():
    with pytest.raises(ValueRangeError, match="problem"):
        make_config({"seed": 1})
