"""`trunkfirst sensors` on a small fit: files, least squares from the sensors, and wrong calls in one line."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_problems import Call, antiderivative, known_trunk, linear_layer

from trunkfirst.encoders import Identity
from trunkfirst.files.integrity import write_manifest
from trunkfirst.files.npz import read_npz
from trunkfirst.files.text_files import read_csv
from trunkfirst.networks.operator import Operator, load
from trunkfirst.outputs import Boundary, OutputMap
from trunkfirst.runs.place_sensors import measured_functions, measured_outputs
from trunkfirst.training_summary import read_summary

COUNT = 14
METHODS = pytest.mark.parametrize("method", ["christoffel", "pivoted", "exchange"])


def basis_of(run: Path) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(load(run).basis(read_summary(run).points))


def weighted_fit(functions: np.ndarray, values: np.ndarray, chosen: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Values everywhere, by weighted least squares from those at the chosen places."""
    roots = np.sqrt(weights)[:, None]
    c = np.linalg.lstsq(functions[chosen] * roots, values[:, chosen].T * roots, rcond=None)[0]
    return (functions @ c).T


@METHODS
def test_a_prediction_is_known_from_the_sensors(call: Call, place: Path, tmp_path: Path, method: str):
    out = tmp_path / "sensors.npz"
    code, printed, err = call(
        "sensors", place / "run", "--count", COUNT, "--method", method, "--out", out, "--json"
    )
    assert (code, err) == (0, "")
    found, arrays = json.loads(printed), read_npz(out)
    points = read_summary(place / "run").points
    np.testing.assert_array_equal(arrays["points"], points[arrays["indices"]])
    assert arrays["weights"].shape == (COUNT,)
    assert found["distinct"] == len(np.unique(arrays["indices"]))
    fields = load(place / "run").predict(antiderivative(6, seed=2).flat_inputs, points)
    basis = basis_of(place / "run")
    known = weighted_fit(basis, fields, arrays["indices"], arrays["weights"])
    rows = basis[arrays["indices"]] * np.sqrt(arrays["weights"])[:, None]
    rounding = 1e3 * np.finfo(float).eps * np.linalg.cond(rows) * np.abs(fields).max()
    np.testing.assert_allclose(known, fields, rtol=0, atol=rounding)
    assert rounding < 1e-3


def test_weights_make_every_sensor_count_alike_and_g_is_as_said(call: Call, place: Path, tmp_path: Path):
    out = tmp_path / "sensors.npz"
    _, printed, _ = call(
        "sensors", place / "run", "--count", COUNT, "--method", "exchange", "--out", out, "--json"
    )
    found, arrays = json.loads(printed), read_npz(out)
    basis = basis_of(place / "run")
    psi = np.linalg.qr(basis)[0] * np.sqrt(len(basis))
    rows = psi[arrays["indices"]] * np.sqrt(arrays["weights"])[:, None]
    np.testing.assert_allclose(np.sum(rows**2, axis=1), found["functions"], rtol=1e-8)
    deviation = np.linalg.norm(rows.T @ rows / COUNT - np.eye(psi.shape[1]), 2)
    assert found["deviation"] == pytest.approx(deviation, rel=1e-6)
    assert found["largest"] == pytest.approx(np.sum(psi**2, axis=1).max(), rel=1e-8)


def test_csv_holds_the_same_as_npz_and_a_picture_lies_beside(call: Call, place: Path, tmp_path: Path):
    for name in ("a.npz", "a.csv"):
        assert call("sensors", place / "run", "--count", COUNT, "--out", tmp_path / name, "--quiet") == (0, "", "")
    arrays = read_npz(tmp_path / "a.npz")
    table = np.column_stack([arrays["points"], arrays["indices"], arrays["weights"]])
    np.testing.assert_array_equal(read_csv(tmp_path / "a.csv"), table)
    picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert f"{COUNT} sensors of 24 places" in picture
    assert "How many are enough" in picture
    assert not list(tmp_path.glob("*tmp*"))


def test_the_seed_draws_others(call: Call, place: Path, tmp_path: Path):
    drawn: list[np.ndarray] = []
    for seed in (0, 1):
        out = tmp_path / f"{seed}.npz"
        call("sensors", place / "run", "--count", COUNT, "--seed", seed, "--out", out, "--quiet")
        drawn.append(read_npz(out)["indices"])
    assert (drawn[0] != drawn[1]).any()


def test_the_table_sets_uniform_beside_christoffel_and_says_vacuous(call: Call, place: Path, tmp_path: Path):
    code, out, _ = call("sensors", place / "run", "--count", COUNT, "--out", tmp_path / "a.npz")
    assert code == 0
    words = ("uniform", "Christoffel", "1.1 times", "1.25 times", "|G - I| = ", "vacuous", "it asks for")
    assert all(word in out for word in words)


def test_input_sensors_determine_new_inputs(call: Call, place: Path, tmp_path: Path):
    out = tmp_path / "inputs.npz"
    code, printed, _ = call("sensors", place / "run", "--inputs", "--count", 8, "--out", out, "--json")
    found, arrays = json.loads(printed), read_npz(out)
    assert code == 0
    assert (found["what"], found["functions"]) == ("inputs", 5)  # a field of five cosines
    x = np.linspace(0, 1, 24)
    np.testing.assert_allclose(arrays["points"][:, 0], x[arrays["indices"]])
    modes = np.cos(np.pi * np.arange(1, 6) * x[:, None])
    new = antiderivative(5, seed=7).flat_inputs
    fitted = weighted_fit(modes, new, arrays["indices"], arrays["weights"])
    rounding = 1e3 * np.finfo(float).eps * np.linalg.cond(modes[arrays["indices"]]) * np.abs(new).max()
    np.testing.assert_allclose(fitted, new, rtol=0, atol=rounding)
    assert "up to rounding" in found["notes"][-1]


def test_without_its_data_a_run_still_places_output_sensors(call: Call, place: Path, tmp_path: Path):
    run = shutil.copytree(place / "run", tmp_path / "run")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("train.npz", "gone.npz"))
    write_manifest(run)
    code, out, _ = call("sensors", run, "--count", COUNT, "--out", tmp_path / "a.npz", "--json")
    found = json.loads(out)
    assert (code, found["ratio"], found["ladders"]) == (0, None, {})
    assert "were not found again" in found["notes"][0]
    code, _, err = call("sensors", run, "--inputs", "--count", COUNT, "--out", tmp_path / "b.npz")
    assert code != 0
    assert "gone.npz" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--count", 3], 5, "count is 3; "),
        (["--count", 0], 2, "--count"),
        (["--count", 25], 5, "count is 25; the run has only 24 places"),
        (["--count", COUNT, "--method", "guess"], 3, "there is no method 'guess'"),
        (["--count", COUNT, "--out", "sensors.txt"], 2, "ending in .npz or .csv"),
    ],
)
def test_wrong_calls_are_one_line(call: Call, place: Path, arguments: list[Any], code: int, said: str):
    found, out, err = call("sensors", place / "run", *arguments)
    assert (found, out) == (code, "")
    assert said in err
    assert err.count("\n") == 1


def test_an_operator_without_points_is_refused(call: Call, place: Path, tmp_path: Path):
    shutil.copytree(place / "run" / "model", tmp_path / "model")
    code, _, err = call("sensors", tmp_path / "model", "--count", COUNT, "--out", tmp_path / "a.npz")
    assert code == 2
    assert "has an operator but no points" in err


def test_fixed_and_positive_outputs_are_seen_as_sensors_see_them():
    """log u = value + d(y) phi(y)^T c must be linear in the functions returned."""
    with jax.enable_x64(True):
        boundary = Boundary((0.0,), (1.0,), ((0, False),), 0.5)
        operator = Operator(
            Identity(),
            linear_layer(3, 21, seed=1),
            known_trunk(),
            output=OutputMap(jnp.ones(1), boundary, is_positive=True),
        )
        y = np.linspace(0, 1, 30)[:, None]
        inputs = np.random.default_rng(0).normal(size=(4, 3))
        c = np.asarray(operator.coefficients(inputs))
    functions = measured_functions(operator, y)
    assert not functions[0].any()
    np.testing.assert_allclose(
        measured_outputs(operator, operator.predict(inputs, y)), c @ functions.T, atol=1e-12
    )
