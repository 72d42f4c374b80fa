"""Evaluation and prediction with an operator fitted to a file; errors in one line."""

import dataclasses as dc
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_problems import OPTIONS, Call, antiderivative

from trunkfirst.data.read_write import write_data
from trunkfirst.errors import DataError
from trunkfirst.files.integrity import write_manifest
from trunkfirst.files.npz import read_npz, write_npz
from trunkfirst.files.text_files import read_json
from trunkfirst.networks.operator import load

pytestmark = pytest.mark.usefixtures("no_report")


# -- evaluate and predict


def test_evaluate_on_a_file(call: Call, place: Path):
    code, out, err = call("evaluate", place / "run", "--data", place / "new.npz", "--json")
    test = json.loads(out)["test"]
    assert (code, err) == (0, "")
    assert test["mean_relative_l2"] < 1e-2
    assert test["optimal_mean_relative_l2"] <= test["mean_relative_l2"] * (1 + 1e-9)
    assert set(test["coverage"]) == {"0.8", "0.9", "0.95"}
    code, out, _ = call("evaluate", place / "run", "--data", place / "new.npz")
    assert code == 0
    assert "20 samples" in out


def test_evaluate_on_its_own_test_samples(call: Call, place: Path):
    test = json.loads(call("evaluate", place / "run", "--json")[1])["test"]
    written = read_json(place / "run" / "metrics.json")["test"]
    assert test["mean_relative_l2"] == pytest.approx(written["mean_relative_l2"], rel=1e-12)


def test_a_run_without_test_samples(call: Call, place: Path, tmp_path: Path):
    shutil.copytree(place / "run", tmp_path / "run")
    text = (place / "run" / "config.toml").read_text().replace("test_share = 0.1", "test_share = 0.0")
    (tmp_path / "run" / "config.toml").write_text(text)
    write_manifest(tmp_path / "run")
    code, _, err = call("evaluate", tmp_path / "run")
    assert (code, "has no test samples; give --data FILE" in err) == (2, True)


def test_coverage_needs_the_points_of_training(call: Call, place: Path, tmp_path: Path):
    """As many points, but others: the widths belong elsewhere."""
    data = antiderivative(20, seed=1)
    write_data(dc.replace(data, points=data.points**2), tmp_path / "other.npz")
    code, out, _ = call("evaluate", place / "run", "--data", tmp_path / "other.npz", "--json")
    assert code == 0
    assert "coverage" not in json.loads(out)["test"]


def test_predict_at_the_points_of_training(call: Call, place: Path, tmp_path: Path):
    code, out, err = call("predict", place / "run", "--inputs", place / "new.npz", "--out", tmp_path / "u.npz")
    assert (code, err) == (0, "")
    assert "20 samples at 24 points" in out
    arrays, data = read_npz(tmp_path / "u.npz"), antiderivative(20, seed=1)
    assert np.array_equal(arrays["points"], data.points)
    assert np.array_equal(arrays["outputs"], load(place / "run").predict(data.flat_inputs, data.points))
    assert np.abs(arrays["outputs"] - data.outputs).max() < 1e-2
    inside = (arrays["lower"] <= data.outputs) & (data.outputs <= arrays["upper"])
    assert inside.mean() > 0.7


def test_predict_elsewhere_from_other_sensors(call: Call, place: Path, tmp_path: Path):
    """Inputs at 60 sensors are interpolated to the 24 of training; the trunk answers anywhere."""
    fine = antiderivative(20, sensors=60, seed=1)
    write_npz(tmp_path / "in.npz", {"inputs": fine.flat_inputs, "sensors": fine.points})
    (tmp_path / "at.csv").write_text("0.1\n0.7\n0.95\n")
    arguments = ("predict", place / "run", "--inputs", tmp_path / "in.npz", "--points", tmp_path / "at.csv")
    code, out, _ = call(*arguments, "--out", tmp_path / "u.npz", "--level", "0.8", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["samples"], found["points"], found["level"]) == (20, 3, 0.8)
    arrays = read_npz(tmp_path / "u.npz")
    expected = [np.interp([0.1, 0.7, 0.95], fine.points[:, 0], u) for u in fine.outputs]
    assert np.abs(arrays["outputs"] - expected).max() < 1e-2


def test_points_outside_the_domain_are_refused_or_marked(call: Call, place: Path, tmp_path: Path):
    """They were answered with the interval of the nearest training point."""
    write_npz(tmp_path / "in.npz", {"inputs": antiderivative(5, seed=1).flat_inputs})
    (tmp_path / "at.csv").write_text("0.1\n5\n1e6\n")
    arguments = ("predict", place / "run", "--inputs", tmp_path / "in.npz", "--points", tmp_path / "at.csv")
    code, _, err = call(*arguments, "--out", tmp_path / "u.npz")
    assert code == DataError.exit_code
    assert "2 of 3 lie outside the training domain; the first is points[1] = (5)" in err
    assert "--extrapolate" in err
    assert not (tmp_path / "u.npz").exists()
    code, out, _ = call(*arguments, "--out", tmp_path / "u.npz", "--extrapolate", "--json")
    assert (code, json.loads(out)["extrapolated_points"]) == (0, 2)
    arrays = read_npz(tmp_path / "u.npz")
    assert arrays["is_extrapolated"].tolist() == [False, True, True]
    for bound in ("lower", "upper"):
        assert np.array_equal(np.isnan(arrays[bound]), np.broadcast_to(arrays["is_extrapolated"], (5, 3)))
    assert "2 of 3 points lie outside" in call(*arguments, "--out", tmp_path / "u.npz", "--extrapolate")[1]


def test_outliers_are_reported(call: Call, place: Path, tmp_path: Path):
    inputs = antiderivative(20, seed=1).flat_inputs
    inputs[:3] *= 100
    write_npz(tmp_path / "in.npz", {"inputs": inputs})
    arguments = ("predict", place / "run", "--inputs", tmp_path / "in.npz", "--out", tmp_path / "u.npz")
    code, out, _ = call(*arguments)
    assert code == 0
    assert "inputs are unlike the training inputs; their predictions are unreliable" in out
    found = read_npz(tmp_path / "u.npz")
    assert found["is_outlier"][:3].all()
    assert np.array_equal(found["is_strange"], found["is_outlier"])
    assert call(*arguments, "--quiet") == (0, "", "")


def test_an_operator_is_differentiated_after_loading(place: Path):
    """d/dx of the antiderivative is the function itself."""
    operator, data = load(place / "run"), antiderivative(20, seed=1)
    with jax.enable_x64(True):
        inputs = jnp.asarray(data.flat_inputs[:1])
        slope = jax.grad(lambda y: operator(inputs, y[None, None])[0, 0])
        found = [float(slope(jnp.asarray(x))) for x in data.points[4:-4:4, 0]]
    size = np.abs(data.flat_inputs[0]).max()
    assert np.abs(np.array(found) - data.flat_inputs[0][4:-4:4]).max() < 0.1 * size


# -- errors in one line


BAD: dict[str, tuple[list[str], int, str]] = {
    "no data": ([], 4, "no data: give --data FILE"),
    "no such file": (["--data", "absent.npz"], 10, "absent.npz does not exist"),
    "unknown setting": (["--data", "DATA", "--set", "branch.colour=red"], 4, "no setting 'method.branch.colour'"),
    "unknown section": (["--data", "DATA", "--set", "colour=red"], 4, "no setting 'method.colour'"),
    "not a section": (["--data", "DATA", "--set", "trunk=3"], 5, "setting method.trunk is 3"),
    "not widths": (["--data", "DATA", "--set", "trunk.hidden=5"], 5, "trunk.hidden is 5"),
    "not a number": (["--data", "DATA", "--set", "coordinates.fourier=many"], 5, "coordinates.fourier is 'many'"),
    "not periods": (["--data", "DATA", "--set", "coordinates.periods=3"], 5, "coordinates.periods is 3"),
    "no such coordinate": (
        ["--data", "DATA", *OPTIONS, "--set", "coordinates.periods={y = 1.0}"],
        4,
        "give a positive period for one of the coordinates x",
    ),
    "no such side": (["--data", "DATA", *OPTIONS, "--set", 'output.fixed=["y-"]'], 4, "'y-' is not a side"),
    "not positive": (["--data", "DATA", *OPTIONS, "--set", "output.positive=true"], 6, "learns the logarithm"),
    "no such kind": (["--data", "DATA", "--set", "branch.kind=magic"], 3, "no method.branch of kind 'magic'"),
    "no such encoder": (
        ["--data", "DATA", *OPTIONS, "--set", "inputs=magic"],
        3,
        "no method.inputs of kind",
    ),
    "no channels": (
        ["--data", "DATA", *OPTIONS, "--set", "branch={kind='network',convolution=true}"],
        4,
        "branch.convolution needs channels before the last width",
    ),
    "no product": (
        ["--data", "DATA", *OPTIONS, "--set", "branch.kind=network", "--set", "branch.product=true"],
        4,
        "needs several input functions",
    ),
    "too wide": (["--data", "DATA", *OPTIONS, "--set", "trunk.width=24"], 7, "N = 24 needs more"),
    "no key": (["--data", "DATA", "--key", "inputs"], 2, "is not KEY=NAME"),
    "two keys": (["--data", "DATA", "--key", "inputs=a", "--key", "inputs=b"], 2, "--key inputs is given twice"),
    "no such name": (["--data", "DATA", "--key", "inputs=a"], 6, "a"),
    "no time": (["--data", "DATA", "--minutes", "0"], 2, "--minutes"),
    "no earlier fit": (["--data", "DATA", "--from", "absent"], 10, "absent: no such run"),
    "no settings file": (["--config", "absent.toml"], 10, "absent.toml"),
    "folder not empty": (["--data", "DATA", *OPTIONS, "--out", "FULL"], 8, "is not empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings_are_one_line(call: Call, place: Path, tmp_path: Path, name: str):
    arguments, code, words = BAD[name]
    paths = {"DATA": place / "train.npz", "FULL": place / "run"}
    out = [] if "--out" in arguments else ["--out", tmp_path / "a"]
    found, stdout, err = call("fit", *(paths.get(argument, argument) for argument in arguments), *out, "--quiet")
    assert (found, stdout, err.count("\n")) == (code, "", 1), err
    assert err.startswith("trunkfirst: ")
    assert words in err


BAD_USE: dict[str, tuple[list[str], int, str]] = {
    "no run": (["evaluate", "absent"], 10, "absent: no such run"),
    "no inputs": (["predict", "RUN", "--inputs", "absent.npz", "--out", "u.npz"], 10, "absent.npz"),
    "other sensors": (["predict", "RUN", "--inputs", "SHORT", "--out", "u.npz"], 6, "give them as 'sensors'"),
    "wrong dimension": (
        ["predict", "RUN", "--inputs", "NEW", "--points", "PLANE", "--out", "u.npz"],
        6,
        "points: expected 1 coordinates on axis 1",
    ),
    "no such level": (
        ["predict", "RUN", "--inputs", "NEW", "--out", "u.npz", "--level", "0.99"],
        5,
        "intervals are known for 0.8, 0.9, 0.95",
    ),
}


@pytest.mark.parametrize("name", BAD_USE)
def test_bad_uses_are_one_line(
    call: Call, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "short.npz", {"inputs": np.ones((3, 7))})
    (tmp_path / "plane.csv").write_text("0.1,0.2\n0.3,0.4\n")
    paths = {"RUN": place / "run", "NEW": place / "new.npz", "SHORT": "short.npz", "PLANE": "plane.csv"}
    arguments, code, words = BAD_USE[name]
    found, stdout, err = call(*(paths.get(argument, argument) for argument in arguments), "--quiet")
    assert (found, stdout, err.count("\n")) == (code, "", 1), err
    assert words in err
    assert not (tmp_path / "u.npz").exists()
