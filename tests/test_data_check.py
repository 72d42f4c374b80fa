"""What `data check` says: in words, in numbers, and what looks suspicious."""

import dataclasses as dc
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import read_file
from own_problems import Call

import trunkfirst
from trunkfirst.data.data_check import check_data
from trunkfirst.data.fixed_functions import spectrum
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import read_inputs, write_data
from trunkfirst.data.scattered_data import ScatteredData, scattered_from_lists
from trunkfirst.errors import DataError
from trunkfirst.linear.low_rank import trunk_limit

SAMPLES, POINTS = 30, 40
rng = np.random.default_rng(0)
PLACES = rng.uniform(size=(POINTS, 2))
INPUTS = rng.normal(size=(SAMPLES, 6))
OUTPUTS = 2 + INPUTS @ np.cos(np.pi * np.arange(6)[:, None] * PLACES[:, 0]) + np.outer(INPUTS[:, 0], PLACES[:, 1])
GOOD = OperatorData(INPUTS, PLACES, OUTPUTS)


# -- rank and best error, against other ways of computing them


def test_rank():
    """Seven functions: the constant, five cosines, and one plus y."""
    assert spectrum(OUTPUTS).ranks == {1e-4: 7, 1e-8: 7, 1e-12: 7}
    noisy = OUTPUTS + 1e-6 * rng.normal(size=OUTPUTS.shape)
    assert spectrum(noisy).ranks == {1e-4: 7, 1e-8: SAMPLES, 1e-12: SAMPLES}


@pytest.mark.parametrize("samples", [20, 300], ids=["wide", "tall"])
def test_best_error_is_that_of_the_projection_on_the_best_functions(samples: int):
    outputs = 3 + rng.normal(size=(samples, POINTS)) * 0.7 ** np.arange(POINTS)
    weights = rng.uniform(0.5, 1, POINTS)
    found = spectrum(outputs, weights, widths=(4,)).best_errors[4]
    # Independently: an orthonormal basis of the constant and the right singular vectors, in the weighted mean.
    roots = np.sqrt(weights)
    scaled = outputs * roots / np.linalg.norm(outputs * roots, axis=1, keepdims=True)
    unit = roots / np.linalg.norm(roots)
    principal = np.linalg.svd(scaled @ (np.eye(POINTS) - np.outer(unit, unit)))[2][:4]
    basis = np.linalg.qr(np.vstack([unit, principal]).T)[0]
    errors = np.linalg.norm(scaled - scaled @ basis @ basis.T, axis=1)
    assert np.isclose(found, errors.mean(), rtol=1e-10)


def test_no_functions_do_better_than_the_limit():
    """The root mean square of relative errors is bounded below by Eckart and Young; the mean lies below it."""
    outputs = 3 + rng.normal(size=(50, POINTS)) * 0.8 ** np.arange(POINTS)
    scaled = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    root_mean_square = np.sqrt(trunk_limit(scaled, 5) * POINTS)
    assert 0.5 * root_mean_square < spectrum(outputs).best_errors[5] <= root_mean_square


def test_widths_end_where_nothing_is_left_and_below_the_number_of_samples():
    assert list(spectrum(OUTPUTS).best_errors) == [5, 10]
    assert list(spectrum(rng.normal(size=(12, 30))).best_errors) == [5, 10]
    assert spectrum(np.zeros((30, 30))).best_errors == {}


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_units_do_not_matter(scale: float):
    found = check_data(dc.replace(GOOD, outputs=scale * OUTPUTS))
    assert found.numbers["rank"] == check_data(GOOD).numbers["rank"]
    assert found.suspicious == ()


def test_channels_share_the_functions():
    both = np.stack([OUTPUTS, 1e6 * OUTPUTS], axis=2)
    assert spectrum(both).ranks == spectrum(OUTPUTS).ranks
    other = np.stack([OUTPUTS, 1e6 * rng.normal(size=(SAMPLES, 1)) * PLACES[:, 1] ** 2], axis=2)
    assert spectrum(other).ranks[1e-8] == 8


def test_large_data_are_looked_at_in_part():
    outputs = rng.normal(size=(2500, 3)) @ rng.normal(size=(3, 10))
    found = spectrum(outputs)
    assert (found.rows, found.points, found.ranks[1e-8]) == (1000, 10, 3)
    assert any(
        "1,000 rows at 10 points" in text
        for text in check_data(OperatorData(outputs, outputs.T[:, :1], outputs)).sentences
    )


# -- words


def test_what_is_found_in_words(tmp_path: Path):
    full = dc.replace(
        GOOD, point_weights=np.ones(POINTS), labels={"beta": np.arange(SAMPLES)}, output_name="pressure"
    )
    write_data(full, tmp_path / "a.npz")
    found = check_data(tmp_path / "a.npz")
    text = "\n".join(found.sentences)
    for words in (
        "30 samples, all on the same 40 points",
        "inputs: input, 6 sensors, values from -3.1",
        "parameters of input: 0 from -",
        "points: x from 0.0",
        "outputs: pressure, values from",
        "double precision",
        "also: point weights, label beta",
        "rank of the outputs: 7 (to 1e-04), 7 (to 1e-08), 7 (to 1e-12)",
        "a DeepONet of width N can at best reach here:",
        "(N = 5)",
    ):
        assert words in text, text
    assert found.suspicious == ()


def test_scattered_data_in_words():
    data = scattered_from_lists(
        INPUTS, [PLACES[: 10 + k] for k in range(SAMPLES)], [u[: 10 + k] for k, u in enumerate(OUTPUTS)]
    )
    found = check_data(data)
    assert found.sentences[0] == "30 samples, each on its own 10 to 39 points"
    assert "39 different points in all" in found.sentences
    assert "rank of the outputs: not known where samples lie on different points" in found.sentences
    assert found.suspicious == ()
    assert (found.numbers["kind"], found.numbers["rank"]) == ("scattered", None)


# -- suspicions


def changed(array: np.ndarray, *places: tuple[Any, Any]) -> np.ndarray:
    array = array.copy()
    for place, value in places:
        array[place] = value
    return array


def aligned(**changes: Any) -> OperatorData:
    return dc.replace(GOOD, **changes)


SUSPICIOUS: list[tuple[Callable[[], Any], str]] = [
    (lambda: GOOD.take(slice(0, 5)), "only 5 samples"),
    (
        lambda: aligned(inputs={"f": changed(INPUTS, ((slice(None), [2, 4]), 1.0))}),
        "inputs['f']: 2 of 6 sensors never change, the first is sensor 2",
    ),
    (
        lambda: aligned(inputs=changed(INPUTS, (7, INPUTS[3])), outputs=changed(OUTPUTS, (7, OUTPUTS[3]))),
        "inputs: 1 samples repeat an earlier one, the first are samples 3 and 7",
    ),
    (
        lambda: aligned(inputs=changed(INPUTS, (7, INPUTS[3]))),
        "outputs: samples 3 and 7 have the same inputs but other outputs",
    ),
    (
        lambda: aligned(
            points=changed(PLACES, (9, PLACES[1])), outputs=changed(OUTPUTS, ((slice(None), 9), OUTPUTS[:, 1]))
        ),
        "points: 1 repeat an earlier one, the first are points 1 and 9",
    ),
    (lambda: aligned(points=changed(PLACES, (9, PLACES[1]))), "outputs: differ by up to"),
    (
        lambda: aligned(points=changed(PLACES, ((slice(None), 1), 0.5))),
        "points: coordinate y is 0.5 at all points",
    ),
    (
        lambda: aligned(outputs=changed(OUTPUTS, (4, 0.0))),
        "outputs: 1 samples are zero everywhere, the first is sample 4",
    ),
    (lambda: aligned(outputs=changed(OUTPUTS, (4, 1e-9))), "times as large as sample 4; relative weights"),
    (lambda: aligned(outputs=np.ones_like(OUTPUTS)), "outputs: all samples are the same"),
    (
        lambda: aligned(outputs=OUTPUTS * np.where(np.arange(SAMPLES) % 6 == 2, 1000, 1)[:, None]),
        "outputs: 5 of 30 samples are much larger than the others, the first is sample 2",
    ),
    (
        lambda: aligned(inputs=INPUTS * np.where(np.arange(SAMPLES) % 6 == 2, 1000, 1)[:, None]),
        "inputs['input']: 5 of 30 samples are much larger than the others, the first is sample 2",
    ),
    (
        lambda: aligned(inputs=changed(2 + np.tile(INPUTS, 7), ((slice(None), 7), 1e5 * INPUTS[:, 0]))),
        "inputs['input']: 1 of 42 sensors are much larger than the others, the first is sensor 7",
    ),
    (
        lambda: aligned(inputs=changed(INPUTS * [1, 1, 1000, 1, 1, 1], ((4, 1), 900.0))),
        "1 values lie far from the others of their sensor, the first is 900 of sample 4, sensor 1",
    ),
    (
        lambda: aligned(inputs=INPUTS * [1, 1e9, 1, 1, 1e-3, 1]),
        "inputs['input']: parameter 1 is about 7e+08 and parameter 4 about",
    ),
    (
        lambda: aligned(outputs=np.stack([OUTPUTS, np.ones_like(OUTPUTS)], axis=2), channel_names=("u", "v")),
        "v: all samples are the same",
    ),
    (
        lambda: {"inputs": INPUTS, "points": PLACES, "outputs": OUTPUTS.astype(np.float16)},
        "outputs: half precision",
    ),
    (
        lambda: {"inputs": INPUTS.astype(np.float32), "points": PLACES, "outputs": OUTPUTS},
        "inputs: single precision next to double; all are used as double",
    ),
    (
        lambda: ScatteredData(INPUTS, np.broadcast_to(PLACES, (SAMPLES, POINTS, 2)), OUTPUTS),
        "points: all samples have the same points; give them once",
    ),
    (
        lambda: scattered_from_lists(
            INPUTS, [PLACES[: 2 + k] for k in range(SAMPLES)], [u[: 2 + k] for k, u in enumerate(OUTPUTS)]
        ),
        "points: 1 samples have fewer than 3 points, the first is sample 0",
    ),
]


@pytest.mark.parametrize(("make", "words"), SUSPICIOUS, ids=[words[:40] for _, words in SUSPICIOUS])
def test_suspicions(make: Callable[[], Any], words: str):
    found = check_data(make())
    assert any(words in text for text in found.suspicious), found.suspicious
    assert found.numbers["suspicious"] == list(found.suspicious)


def test_what_is_left_aside_is_told():
    source = {"a": INPUTS, "points": PLACES, "outputs": OUTPUTS, "author": np.array("me")}
    assert check_data(source, keys={"inputs": "a"}).suspicious == ("not used: author () <U2",)


# -- the command line


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("mine.npz", a=INPUTS, x=PLACES, u=OUTPUTS)
    return Path("mine.npz")


KEYS = ["--key", "inputs=a", "--key", "points=x", "--key", "outputs=u"]


def test_check_command(file: Path, call: Call):
    code, out, err = call("data", "check", file, *KEYS)
    assert (code, err) == (0, "")
    assert out.startswith("mine.npz:\n30 samples, all on the same 40 points\n")
    assert out.endswith("nothing looks suspicious\n")


def test_check_command_prints_one_json_object(file: Path, call: Call):
    code, out, err = call("data", "check", file, *KEYS, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["file"], found["samples"], found["points"], found["channels"]) == ("mine.npz", 30, 40, 1)
    assert found["rank"] == {"1e-04": 7, "1e-08": 7, "1e-12": 7}
    assert list(found["best_mean_relative_l2"]) == ["5", "10"]
    assert (found["kind"], found["suspicious"]) == ("aligned", [])


def test_suspicious_data_are_no_failure(file: Path, call: Call):
    np.savez(file, inputs=INPUTS[:5], points=PLACES, outputs=OUTPUTS[:5])
    code, out, _ = call("data", "check", file)
    assert code == 0
    assert "suspicious: only 5 samples" in out
    assert call("data", "check", file, "--quiet") == (0, "", "")


@pytest.mark.parametrize("target", ["other.npz", "other.mat", "tables"])
def test_convert_command(file: Path, call: Call, target: str):
    assert call("data", "convert", file, target, *KEYS) == (0, f"{target}: 30 samples at 40 points\n", "")
    assert np.array_equal(read_file(target).outputs, OUTPUTS)
    code, out, _ = call("data", "convert", target, "again.npz", "--json")
    assert (code, json.loads(out)) == (0, {"file": "again.npz", "samples": 30, "points": 40})
    assert np.array_equal(read_file("again.npz").flat_inputs, INPUTS)


def test_swapped_axes_of_a_square_are_suspected():
    """As many samples as points: the shapes reveal nothing, but curves are smooth along their points."""
    x, a = np.linspace(0.1, 1, 40)[:, None], np.random.default_rng(0).normal(size=(40, 3))
    outputs = a @ np.sin(np.arange(1, 4)[:, None] * x[:, 0])
    assert check_data(OperatorData(a, x, outputs)).suspicious == ()
    (found,) = check_data(OperatorData(a, x, outputs.T)).suspicious
    assert found.startswith("outputs: neighbouring samples are more alike than neighbouring points")


# -- names from files

ESCAPES = "\x1b[31mred\x1b[0m\u202e\x07"


def test_names_from_files_reach_no_terminal_with_escapes(tmp_path: Path, call: Call):
    names = {
        f"inputs.{ESCAPES}": INPUTS,
        f"labels.{ESCAPES}": INPUTS[:, 0],
        "coordinate_names": np.array([ESCAPES, "y"]),
        "output_name": np.array(ESCAPES),
        f"units.{ESCAPES}": np.array(ESCAPES),
    }
    np.savez(tmp_path / "a.npz", points=PLACES, outputs=OUTPUTS, **names)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, out, err = call("data", "check", tmp_path / "a.npz")
    assert code == 0
    assert r"warning: names: control characters were removed from '\x1b[31mred" in err
    assert not any(letter in err for letter in ESCAPES if not letter.isprintable())
    assert "inputs: [31mred[0m [[31mred[0m], 6 sensors" in out
    assert not any(letter in out for letter in ESCAPES if not letter.isprintable())
    with pytest.warns(UserWarning, match="control characters"):
        again = read_file(tmp_path / "a.npz")
    found = (*again.inputs, *again.labels, *again.coordinate_names, *again.units)
    assert all(name.isprintable() for name in found)
    np.savez(tmp_path / "b.npz", points=PLACES, outputs=OUTPUTS, inputs=INPUTS, **{ESCAPES: INPUTS})
    code, out, err = call("data", "check", tmp_path / "b.npz")
    assert (code, "not used: [31mred" in out) == (0, True)
    assert not any(letter in out + err for letter in ESCAPES if not letter.isprintable())


def test_names_that_differ_by_control_characters_alone_are_refused():
    with (
        pytest.warns(UserWarning, match="control characters"),
        pytest.raises(DataError, match="inputs: two names differ only by control characters"),
    ):
        aligned(inputs={"f": INPUTS, "f\x00": INPUTS})


def test_names_are_those_of_training_without_control_characters(tmp_path: Path):
    """The data of a fit were refused for predictions: only there the names were cleaned."""
    inputs = {"a\x1b[31m": np.arange(12.0)[:, None], "b": np.ones((12, 1))}
    arrays = {"points": np.arange(4.0)[:, None], "outputs": np.arange(12.0)[:, None] * np.ones(4)}
    np.savez(tmp_path / "my.npz", **{f"inputs.{name}": value for name, value in inputs.items()}, **arrays)
    with pytest.warns(UserWarning, match="control characters"):
        operator = trunkfirst.fit(tmp_path / "my.npz", method=trunkfirst.TwoStep("modes", "linear")).operator
    expected = operator.predict({"a[31m": inputs["a\x1b[31m"], "b": inputs["b"]})
    with pytest.warns(UserWarning, match="control characters"):
        given = read_inputs(tmp_path / "my.npz").functions
    assert np.array_equal(operator.predict(given), expected)
    assert np.array_equal(operator.predict(inputs), expected)
