"""Outputs on grids, channels by name, tables of parameters: what the axes are is known, found, or asked for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from helpers import read_file
from own_problems import Call

import trunkfirst
from trunkfirst.candidates import encoding_candidates, kernel_encodings
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import DataError

rng = np.random.default_rng(0)
A, X, T = rng.normal(size=(20, 3)), np.linspace(0, 1, 8), np.linspace(0, 2, 5)
U = np.einsum("ki,ixt->kxt", A, rng.normal(size=(3, 8, 5)))
KEYS = {"inputs": "a", "points": "x,t", "outputs": "u"}
METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(width=3), trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none"
)


def source(**more: Any) -> dict[str, Any]:
    return {"a": A, "x": X, "t": T, "u": U, **more}


@pytest.mark.parametrize("order", ["ktx", "txk", "xkt", "kxt"])
def test_axes_are_found_by_their_lengths(order: str):
    data = read_file(source(u=np.einsum(f"kxt->{order}", U)), keys=KEYS)
    assert data.coordinate_names == ("x", "t")
    assert np.array_equal(data.outputs.reshape(20, 8, 5), U)
    assert np.array_equal(data.points.reshape(8, 5, 2)[2, 3], [X[2], T[3]])


def test_channels_in_any_place():
    both = np.stack([U, 2 * U])  # channels first
    data = read_file(source(u=both), keys=KEYS)
    assert data.outputs.shape == (20, 40, 2)
    assert np.array_equal(data.outputs[..., 1], 2 * data.outputs[..., 0])


def test_several_arrays_are_channels():
    data = read_file(source(gradient=np.stack([U, -U], axis=-1)), keys={**KEYS, "outputs": "u,gradient"})
    assert data.channel_names == ("u", "gradient 1", "gradient 2")
    assert np.array_equal(data.outputs[..., 2], -data.outputs[..., 0])
    plain = read_file({"inputs": A, "points": X, "outputs": {"p": U[..., 0], "q": U[..., 1]}})
    assert plain.channel_names == ("p", "q")
    with pytest.raises(DataError, match=r"channels need the same samples and points.*p \(20, 8\), q \(20, 7\)"):
        read_file({"inputs": A, "points": X, "outputs": {"p": U[..., 0], "q": U[:, :7, 1]}})


def test_a_mesh_at_several_times():
    mesh = rng.normal(size=(8, 2))
    data = read_file(source(x=mesh), keys=KEYS)
    assert data.coordinate_names == ("x", "y", "t")
    assert np.array_equal(data.points[7], [*mesh[1], T[2]])


def test_columns_of_coordinates_of_the_same_points():
    data = read_file({"inputs": A, "points": {"r": X, "phi": X**2}, "outputs": U[..., 0]})
    assert data.coordinate_names == ("r", "phi")
    assert np.array_equal(data.points, np.stack([X, X**2], axis=1))


QUESTIONS: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "channels or a coordinate": (
        source(),
        {**KEYS, "points": "x"},
        r"axis 2 .* as many entries as 't', .*--key points=x,t\), or channels \(--key axes=samples,x,channels\)",
    ),
    "channels before points": (
        {"inputs": A, "points": X, "outputs": U.swapaxes(1, 2), "t": T},
        {},
        r"axis 1 .* as 't'.*--key points=points,t\), or channels \(--key axes=samples,channels,points\)",
    ),
    "two of one length": (
        source(t=X + 1, u=U[:, :5]),
        KEYS,
        r"no axes of the shape \(20, 5, 5\) match samples \(20\), x \(8\), t \(8\)",
    ),
    "two readings": (
        source(x=T + 1, u=U[:, :5]),
        KEYS,
        r"\(samples, x, t\) with --key axes=samples,x,t or \(samples, t, x\) with --key axes=samples,t,x",
    ),
    "nothing named": (source(), {}, "--key inputs=a --key points=x,t --key outputs=u"),
    "wrong names": (source(), {**KEYS, "axes": "x,y"}, "axes samples, x, y do not name the 3 axes"),
    "wrong lengths": (source(), {**KEYS, "axes": "t,x"}, r"axes samples, t, x have \(20, 8, 5\) entries"),
    "twice": ({"inputs": A, "points": X, "outputs": U, "outputs_v": U}, {}, "both 'outputs' and 'outputs.v'"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_is_ambiguous_is_asked(name: str):
    arrays, keys, words = QUESTIONS[name]
    with pytest.raises(DataError, match=words):
        read_file(arrays, keys=keys)


def test_the_options_choose():
    data = read_file(source(), keys={**KEYS, "points": "x", "axes": "samples,x,channels"})
    assert (data.outputs.shape, data.coordinate_names) == ((20, 8, 5), ("x",))
    square = source(x=T + 1, u=U[:, :5])
    data = read_file(square, keys={**KEYS, "axes": ("t", "x")})
    assert np.array_equal(data.outputs.reshape(20, 5, 5), U[:, :5].swapaxes(1, 2))


def test_arrays_that_are_not_used_are_noted():
    arrays = {"inputs": A, "points": X, "outputs": U[..., 0], "description": np.array("mine")}
    with pytest.warns(UserWarning, match="not used: description"):
        trunkfirst.read_data(arrays)
    with pytest.raises(DataError, match=r"'point_weight' \(did you mean 'point_weights'"):
        trunkfirst.read_data({**arrays, "point_weight": X})


def test_fit_takes_a_grid_in_python():
    result = trunkfirst.fit(A, U.swapaxes(1, 2), {"x": X, "t": T}, axes=("t", "x"), method=METHOD)
    assert np.allclose(result.operator.predict(A), U.reshape(20, 40))
    some = result.operator.predict(A, {"t": T[2:4], "x": X[1:]})
    assert np.allclose(some, U[:, 1:, 2:4].reshape(20, -1), atol=1e-12)
    with pytest.raises(DataError, match="expected the coordinates x, t; got x, y"):
        result.operator.predict(A, {"x": X, "y": T})


@pytest.mark.usefixtures("no_report")
def test_fit_and_predict_on_the_command_line(call: Call, tmp_path: Path):
    np.savez(tmp_path / "my.npz", **source())
    np.savez(tmp_path / "new.npz", b=A[:4])
    options = ["--set=trunk.kind=modes", "--set=trunk.width=3", "--set=branch.kind=linear"]
    keys = [f"--key={key}={name}" for key, name in KEYS.items()]
    code, _, err = call(
        "fit", "--data", tmp_path / "my.npz", *keys, *options, "--out", tmp_path / "run", "--quiet"
    )
    assert (code, err) == (0, "")
    code, _, err = call(
        *("predict", tmp_path / "run", "--inputs", tmp_path / "new.npz", "--key", "inputs=b"),
        *("--out", tmp_path / "u.npz"),
    )
    assert (code, err) == (0, "")
    with np.load(tmp_path / "u.npz") as found:
        assert np.allclose(found["outputs"], U[:4].reshape(4, 40))


# -- tables


def test_a_table_of_pandas_names_the_inputs():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame(A, columns=["alpha", "beta", "gamma"])
    operator = trunkfirst.fit(table, U[..., 0], X[:, None], method=METHOD).operator
    assert operator.input_names == ("alpha", "beta", "gamma")
    assert np.allclose(operator.predict(table[["gamma", "alpha", "beta"]]), U[..., 0])
    data = trunkfirst.read_data({"inputs": table, "points": X, "outputs": U[..., 0]})
    assert np.array_equal(data.flat_inputs, A)
    with pytest.raises(DataError, match="trained on alpha, beta, gamma; got alpha"):
        operator.predict(table[["alpha"]])


@pytest.mark.usefixtures("no_report")
def test_predictions_for_matlab(call: Call, tmp_path: Path):
    """From a file that SciPy wrote to one that SciPy reads."""
    scipy.io.savemat(tmp_path / "my.mat", source())
    scipy.io.savemat(tmp_path / "new.mat", {"inputs": A[:4]})
    data = trunkfirst.read_data(tmp_path / "my.mat", keys=KEYS)
    trunkfirst.fit(data, method=METHOD, out=tmp_path / "run")
    files = ("--inputs", tmp_path / "new.mat", "--out", tmp_path / "u.mat")
    code, _, err = call("predict", tmp_path / "run", *files)
    assert (code, err) == (0, "")
    found = scipy.io.loadmat(tmp_path / "u.mat")
    assert np.allclose(found["outputs"], U[:4].reshape(4, 40))
    assert not np.any(found["is_outlier"])


@pytest.mark.usefixtures("no_report")
@pytest.mark.filterwarnings("always:not used")
def test_further_columns_of_a_table_are_left_out_with_a_note(call: Call, tmp_path: Path):
    """Parameters are found by their titles, in any order, next to a column with the number of the case."""
    trunkfirst.fit({"a": A[:, :1], "b": A[:, 1:2]}, U[..., 0], X[:, None], method=METHOD, out=tmp_path / "run")
    operator = trunkfirst.load(tmp_path / "run")
    (tmp_path / "new.csv").write_text("case,b,a\n1,0.5,-0.2\n2,0.1,0.3\n")
    files = ("--inputs", tmp_path / "new.csv", "--out", tmp_path / "u.npz")
    code, _, err = call("predict", tmp_path / "run", *files)
    assert (code, err) == (0, "trunkfirst: warning: not used: case\n")
    with np.load(tmp_path / "u.npz") as found:
        assert np.array_equal(found["outputs"], operator.predict({"a": [[-0.2], [0.3]], "b": [[0.5], [0.1]]}))


def test_names_do_not_change_what_is_tried():
    values = rng.normal(size=(30, 12))
    named = OperatorData(
        {f"p{i}": column[:, None] for i, column in enumerate(values.T)}, X[:, None], values[:, :8]
    )
    plain = OperatorData(values, X[:, None], values[:, :8])
    for options in (kernel_encodings, encoding_candidates):
        assert options(named) == options(plain)


@pytest.mark.usefixtures("no_report")
def test_titles_of_a_csv_table_name_the_inputs(call: Call, tmp_path: Path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    folder, table = tmp_path / "my", pandas.DataFrame(A, columns=["alpha", "beta", "gamma"])
    folder.mkdir()
    table.to_csv(folder / "inputs.csv", index=False)
    np.savetxt(folder / "points.csv", X)
    np.savetxt(folder / "outputs.csv", U[..., 0], delimiter=",")
    data = trunkfirst.read_data(folder)
    assert isinstance(data, OperatorData)
    assert list(data.inputs) == ["alpha", "beta", "gamma"]
    trunkfirst.fit(folder, method=METHOD, out=tmp_path / "run")
    table[["beta", "gamma", "alpha"]].to_csv(tmp_path / "new.csv", index=False)
    np.savetxt(tmp_path / "bare.csv", A, delimiter=",")
    for name in ("new", "bare"):
        inputs, out = tmp_path / f"{name}.csv", tmp_path / f"{name}.npz"
        assert call("predict", tmp_path / "run", "--inputs", inputs, "--out", out)[::2] == (0, "")
        with np.load(out) as found:
            assert np.allclose(found["outputs"], U[..., 0])
