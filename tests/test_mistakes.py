"""Mistakes of a newcomer, on the command line and in Python: what the message says, and the exit code."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import Call

import trunkfirst
from trunkfirst import errors

pytestmark = pytest.mark.usefixtures("no_report")

X, T = np.linspace(0, 1, 12), np.linspace(0, 2, 9)
A = np.random.default_rng(0).normal(size=(20, 3))
U = np.tanh(A @ np.stack([np.sin(3 * X), X**2, np.cos(5 * X)]))
GRID = U[:, :, None] * np.exp(-T)
CLOSED = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Linear(), inputs="standardise", weights="none")
SETTINGS = ["trunk.kind=modes", "branch.kind=linear", "inputs.kind=standardise", "weights=none"]
MISSPELT: dict[str, Any] = {"widht": 3}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files of a newcomer, and a run."""
    folder = tmp_path_factory.mktemp("desk")
    files: dict[str, dict[str, Any]] = {
        "my": {"inputs": A, "points": X, "outputs": U},
        "names": {"X": A, "x": X[:, None], "y": U},
        "misspelt": {"input": A, "points": X, "output": U},
        "transposed": {"inputs": A.T, "points": X, "outputs": U.T},
        "grid": {"inputs": A, "x": X, "t": T, "outputs": GRID},
        "channels-first": {"inputs": A, "x": X, "t": T, "outputs": np.stack([GRID, GRID**2], axis=1)},
        "nan": {"inputs": A, "points": X, "outputs": np.where(np.arange(12) == 4, np.nan, U)},
        "one": {"inputs": A[:1], "points": X, "outputs": U[:1]},
        "swapped": {"inputs": U, "points": X, "outputs": A},
        "words": {"inputs": A.astype(str), "points": X, "outputs": U},
        "fewer": {"inputs": A[:15], "points": X, "outputs": U},
        "new": {"inputs": A[:5]},
        "row": {"inputs": A[0]},
        "wide": {"inputs": np.ones((5, 4))},
    }
    for name, arrays in files.items():
        np.savez(folder / f"{name}.npz", **arrays)
    (folder / "npy").mkdir()
    for name, array in {"inputs": A, "points": X, "outputs": U}.items():
        np.save(folder / "npy" / f"{name}.npy", array)
    np.save(folder / "new.npy", A[:5])
    (folder / "table.csv").write_text("a,b\n1,2\n")
    (folder / "semicolons.csv").write_text("1,5;2;3\n1,5;2\n")
    (folder / "text.npz").write_text("hello")
    (folder / "table").write_text("hello")
    (folder / "empty").mkdir()
    trunkfirst.fit(folder / "my.npz", method=CLOSED, out=folder / "runs" / "mine", test_share=0.1)
    return folder


COMMANDS: dict[str, tuple[str, int, str]] = {
    "misspelt command": ("fitt my.npz", 2, "Did you mean 'fit'?"),
    "misspelt option": ("fit --dat my.npz", 2, "--data"),
    "misspelt problem": ("run nonlinear-conductivty", 3, "did you mean 'nonlinear-conductivity'?"),
    "a data file as a problem": ("run my.npz", 2, "train with: trunkfirst fit my.npz"),
    "info of a data file": ("data info my.npz", 2, "trunkfirst data check my.npz"),
    "misspelt setting": ("fit my.npz --set trunk.activaton=tanh", 4, "did you mean 'activation'?"),
    "misspelt value": (
        "fit my.npz --set trunk.kind=network --set trunk.activation=tnah",
        3,
        "did you mean 'tanh'?",
    ),
    "misspelt kind": ("fit my.npz --set branch.kind=kernle", 3, "did you mean 'kernel'?"),
    "value of another type": (
        "fit my.npz --set trunk.width=abc",
        5,
        "trunk.width is 'abc': input should be a valid integer",
    ),
    "setting without value": ("fit my.npz --set trunk.width", 4, "expected key=value"),
    "misspelt file": ("fit mi.npz", 10, "mi.npz does not exist; did you mean 'my.npz'?"),
    "missing folder": ("fit there/my.npz", 10, "there is no folder"),
    "misspelt configuration": ("sweep my.toml", 10, "my.toml does not exist"),
    "data as configuration": ("sweep my.npz", 10, "it is not a TOML file"),
    "two data files": ("fit my.npz --data grid.npz", 2, "two data files, my.npz and --data grid.npz"),
    "no data": ("fit", 4, "give --data FILE"),
    "no minutes": ("fit my.npz --minutes 0", 2, "'--minutes': Input should be greater than or equal to 0.1"),
    "folder exists": ("fit my.npz --out runs/mine", 8, "runs/mine is not empty; choose another folder with --out"),
    "folder is a file": ("fit my.npz --out table.csv", 8, "table.csv is a file; choose a folder"),
    "folder in a file": ("fit my.npz --out table.csv/a", 9, "cannot write to table.csv/a"),
    "other names": ("fit names.npz", 6, "--key inputs=X --key points=x --key outputs=y"),
    "misspelt names": ("fit misspelt.npz", 6, "--key inputs=input --key outputs=output"),
    "no such key": ("fit my.npz --key input=inputs", 6, "did you mean 'inputs'?"),
    "transposed": ("fit transposed.npz", 6, "outputs looks transposed; use .T"),
    "grid": ("fit grid.npz", 6, "--key points=x,t"),
    "channels first": ("fit channels-first.npz", 6, "--key points=x,t"),
    "one array": ("fit new.npy", 6, "give a folder with inputs.npy, points.npy and outputs.npy"),
    "one table": ("fit table.csv", 6, "give a folder with inputs.csv and outputs.csv, a row for each sample"),
    "NaN": ("fit nan.npz", 6, "outputs: 20 of 240 values are not finite; the first is nan at samples 0, points 4"),
    "one sample": ("fit one.npz", 6, "choosing and measuring need 3 or more"),
    "words": ("fit words.npz", 6, "expected real numbers, got dtype <U"),
    "fewer inputs": ("fit fewer.npz", 6, "axis 'samples' has 15 entries, but outputs has 20"),
    "misspelt run": ("evaluate runs/mime", 10, "no such run; did you mean 'runs/mine'?"),
    "folder of runs": (
        "predict runs --inputs new.npz --out u.npz",
        10,
        "runs is not the folder of a run; did you mean 'runs/mine'?",
    ),
    "file as a run": ("evaluate my.npz", 10, "my.npz is a file; give the folder of a run"),
    "report of nothing": ("report absent", 10, "absent: no such run"),
    "resume of a file": ("resume my.npz", 10, "my.npz is a file"),
    "other sensors": ("predict runs/mine --inputs wide.npz --out u.npz", 6, "4 sensors, but training had 3"),
    "one input": ("predict runs/mine --inputs row.npz --out u.npz", 6, "inputs[None] for one sample"),
    "no folder for predictions": (
        "predict runs/mine --inputs new.npz --out a/u.npz",
        9,
        "there is no folder a; make it first",
    ),
    "unknown ending": ("predict runs/mine --inputs new.npz --out u.txt", 3, "choose one of: .npz, .mat"),
    "a share in per cent": ("fit my.npz --test-share 10", 2, "'--test-share': Input should be less than or equal"),
    "seed with a point": ("fit my.npz --seed 1.5", 2, "'--seed': Input should be a valid integer"),
    "option without value": ("fit my.npz --out", 2, "'--out' requires an argument"),
    "key without name": ("fit my.npz --key inputs", 2, "write for example --key inputs=a"),
    "an option of run": ("fit my.npz --iterations 9", 2, "Use --minutes, or --set trunk.iterations=N"),
    "an option of others": ("fit my.npz --epochs 9", 2, "Use --minutes, or --set trunk.iterations=N"),
    "a command of others": ("train my.npz", 2, "Use trunkfirst fit FILE, or trunkfirst run PROBLEM"),
    "help as a command": ("help", 2, "Use trunkfirst --help"),
    "number of the paper": ("run 5.1", 2, "problem 5.1 of the paper is called 'nonlinear-conductivity' here"),
    "underscore": ("run nonlinear_conductivity", 3, "did you mean 'nonlinear-conductivity'?"),
    "misspelt method": ("compare nonlinear-conductivity --methods twostep", 3, "did you mean 'two-step'?"),
    "run without its folder": ("evaluate mine", 10, "mine: no such run; did you mean 'runs/mine'?"),
    "predictions over the data": (
        "predict runs/mine --inputs new.npz --out my.npz",
        8,
        "my.npz is read for these",
    ),
    "predictions over the inputs": ("predict runs/mine --inputs new.npz --out new.npz", 8, "to another file"),
    "swapped": ("fit swapped.npz", 6, "as many as a row of inputs; inputs and outputs look swapped"),
    "no ending of the data": ("fit table", 2, "table has no ending, which would name the format"),
    "data without its ending": ("fit my", 10, "my does not exist; did you mean 'my.npz'?"),
    "capitals": ("export runs/mine --to ONNX --out m.onnx", 3, "did you mean 'onnx'?"),
    "version as a command": ("version", 2, "Use trunkfirst --version"),
    "method as an option": ("fit my.npz --method two-step", 2, "Use --set trunk.kind=K"),
    "report as a run": ("report runs/mine/page.html", 10, "no such run; did you mean 'runs/mine'?"),
    "inputs by another name": ("predict runs/mine --inputs names.npz --out u.npz", 6, "--key inputs=NAME"),
    "semicolons": ("predict runs/mine --inputs semicolons.csv --out u.npz", 10, "separate by commas"),
    "columns by name": ("predict runs/mine --inputs table.csv --out u.npz", 6, "trained on input; got a, b"),
    "confidence in per cent": ("predict runs/mine --inputs new.npz --level 90 --out u.npz", 2, "'--level'"),
    "inputs as test data": ("evaluate runs/mine --data new.npz", 6, "no points or outputs here"),
    "no ending": ("export runs/mine --out model", 2, "model has no ending to select the format (.onnx"),
    "open to all": ("serve runs/mine --host 0.0.0.0", 2, "give a --token"),
    "text as data": ("fit text.npz", 10, "File is not a zip file"),
    "nothing in a folder": ("fit empty", 10, "expected inputs.csv, points.csv, outputs.csv"),
    "spreadsheet": ("fit my.xlsx", 10, "my.xlsx does not exist"),
    "unknown format": ("export runs/mine --to onxx --out m.onnx", 3, "did you mean 'onnx'?"),
    "unknown ending of a format": (
        "export runs/mine --out m.pt",
        3,
        "choose one of: .onnx, .stablehlo, .py, .html",
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_on_the_command_line(call: Call, desk: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.chdir(desk)
    line, code, words = COMMANDS[name]
    found, out, err = call(*line.split())
    assert (found, out, err.count("\n")) == (code, "", 1), err
    assert err.startswith("trunkfirst: ")
    assert words in err


def _fit(*arrays: Any, **options: Any) -> Any:
    return trunkfirst.fit(*arrays, **{"method": CLOSED, **options})


PYTHON: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "points before outputs": (lambda: _fit(A, X, U), errors.DataError, "outputs"),
    "swapped": (lambda: _fit(U, A, X), errors.DataError, "inputs and outputs look swapped"),
    "no points": (lambda: _fit(A, U), errors.UsageError, "points: not given; call fit(inputs, outputs, points)"),
    "one array": (lambda: _fit(A), errors.DataError, "give a path, a dictionary or an xarray Dataset"),
    "coordinates in a list": (lambda: _fit(A, GRID, [X, T]), errors.DataError, "{'x': x, 't': t}"),
    "points on a grid": (lambda: _fit(A, GRID, np.zeros((12, 9, 2))), errors.DataError, "points.reshape(-1, 2)"),
    "the last axis alone": (lambda: _fit(A, GRID, T), errors.DataError, "give its coordinates by name"),
    "None among numbers": (lambda: _fit([[1, None, 2]] * 20, U, X), errors.DataError, "entry 0, 1 is None"),
    "ragged lists": (lambda: _fit([[1, 2], [1]] * 10, U, X), errors.DataError, "rows have different lengths"),
    "no time": (lambda: _fit(A, U, X, minutes=-1), errors.ValueRangeError, "setting minutes is -1"),
    "words as a time": (lambda: _fit(A, U, X, minutes="two"), errors.ValueRangeError, "setting minutes is 'two'"),
    "words as a seed": (lambda: _fit(A, U, X, seed="a"), errors.ValueRangeError, "setting seed is 'a'"),
    "method by name": (
        lambda: _fit(A, U, X, method="two-step"),
        errors.UsageError,
        "trunkfirst.TwoStep(branch=...)",
    ),
    "branch as method": (lambda: _fit(A, U, X, method=trunkfirst.Kernel()), errors.UsageError, "is not a method"),
    "misspelt class": (
        lambda: vars(trunkfirst)["__getattr__"]("ModeTrunk"),
        AttributeError,
        "did you mean 'ModesTrunk'?",
    ),
    "misspelt setting": (
        lambda: trunkfirst.NetworkTrunk(**MISSPELT),
        errors.SettingError,
        "did you mean 'width'?",
    ),
    "misspelt activation": (
        lambda: trunkfirst.NetworkTrunk(activation="tnah"),
        errors.UnknownNameError,
        "did you mean 'tanh'?",
    ),
    "one width": (lambda: trunkfirst.NetworkTrunk(hidden=50), errors.ValueRangeError, "such as (50, 50)"),
    "no trunk": (lambda: trunkfirst.TwoStep(trunk=None), errors.ValueRangeError, "ModesTrunk() or 'modes'"),
    "predictions of a result": (
        lambda: _fit(A, U, X).predict(A),
        AttributeError,
        "write result.operator.predict",
    ),
    "error of a result": (
        lambda: _fit(A, U, X).error,
        AttributeError,
        "did you mean 'validation_error'?",
    ),
    "a file with arrays": (lambda: _fit("my.npz", U, X), errors.UsageError, "call fit(data) without others"),
    "an export by save": (
        lambda: _fit(A, U, X).operator.save("m.onnx"),
        errors.UsageError,
        "call trunkfirst.export(operator, path)",
    ),
    "class as trunk": (
        lambda: trunkfirst.TwoStep(trunk=trunkfirst.ModesTrunk),
        errors.ValueRangeError,
        "give one of its objects, ModesTrunk()",
    ),
    "file as inputs": (
        lambda: _fit(A, U, X).operator.predict("new.npz"),
        errors.DataError,
        "give an array, not the name of a file",
    ),
    "None as inputs": (
        lambda: _fit(None, U, X),
        errors.DataError,
        "expected real numbers, got None; make one full array",
    ),
    "one sample without its axis": (
        lambda: _fit(A, U, X).operator.predict(A[0]),
        errors.DataError,
        "one row is x[None]",
    ),
    "no such file": (lambda: trunkfirst.load("absent"), errors.CorruptFileError, "absent: no such run"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_mistake_in_python(name: str):
    call, error, words = PYTHON[name]
    with pytest.raises(error) as caught:
        call()
    assert words in str(caught.value)


def test_what_is_meant_is_understood(call: Call, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file without --data, a folder of npy files, an npy file of inputs and one of points."""
    monkeypatch.chdir(desk)
    options = [f"--set={setting}" for setting in SETTINGS]
    for source in ("my.npz", "npy"):
        code, _, err = call("fit", source, "--out", tmp_path / source, "--quiet", *options)
        assert (code, err) == (0, "")
    one, other = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("my.npz", "npy"))
    assert one["test"] == other["test"]
    np.save(tmp_path / "points.npy", X[:4])
    files = ["--inputs", "new.npy", "--points", tmp_path / "points.npy", "--out", tmp_path / "u.npz"]
    assert call("predict", "runs/mine", *files)[0] == 0
    operator = trunkfirst.load(desk / "runs" / "mine")
    expected = operator.predict(A[:5], X[:4])
    assert np.array_equal(np.load(tmp_path / "u.npz")["outputs"], expected)


def test_a_model_saved_alone_predicts(call: Call, desk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It knows its points, intervals and sensors, as the folder of a run does."""
    monkeypatch.chdir(desk)
    for name, folder in {"run": "runs/mine", "model": "runs/mine/model"}.items():
        assert call("predict", folder, "--inputs", "new.npz", "--out", tmp_path / f"{name}.npz")[0] == 0
    one, other = (np.load(tmp_path / f"{name}.npz") for name in ("run", "model"))
    assert set(one) == set(other)
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert call("evaluate", "runs/mine/model", "--data", "my.npz")[0] == 0


def test_a_row_of_points_is_one_coordinate(tmp_path: Path):
    """As MATLAB's linspace makes it, and SciPy writes vectors."""
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "my.mat", {"inputs": A, "points": X, "outputs": U})
    assert np.array_equal(trunkfirst.read_data(tmp_path / "my.mat").points, X[:, None])


def test_a_run_is_not_overwritten_by_a_model(desk: Path):
    operator = trunkfirst.load(desk / "runs" / "mine")
    with pytest.raises(errors.OutputExistsError, match="is the folder of a run"):
        operator.save(desk / "runs" / "mine")
    with pytest.raises(errors.OutputExistsError, match="is a file"):
        operator.save(desk / "my.npz")
    assert trunkfirst.load(desk / "runs" / "mine").sensors == 3


def test_arrays_of_objects_in_npy_are_refused(desk: Path, tmp_path: Path):
    np.save(tmp_path / "inputs.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(errors.UnsafeFileError, match="can run any code when read"):
        trunkfirst.read_data(tmp_path)


def test_numbers_in_words_are_numbers():
    assert _fit(A, U, X, minutes="0.5", seed="1").status == "finished"


def test_many_channels_are_named():
    """An axis of a grid that is read as channels is no silent mistake."""
    with pytest.warns(UserWarning, match=r"the last axis of \(20, 12, 9\) is read as 9 channels"):
        _fit(A, GRID, X)


def test_coordinates_of_one_length_are_no_grid_of_another():
    with pytest.warns(UserWarning, match=r"the last axis of \(20, 12, 9\) is read as 9 channels"):
        _fit(A, GRID, {"x": X, "t": X})


def test_equal_inputs_are_a_warning():
    result = _fit(np.ones((20, 3)), U, X)
    assert result.warnings == ["all samples have the same inputs, so that all predictions are the same"]


def test_a_result_can_be_exported_and_evaluated(tmp_path: Path):
    result = _fit(A, U, X)
    one = trunkfirst.export(result, tmp_path / "a.py").path.read_bytes()
    assert one == trunkfirst.export(result.operator, tmp_path / "b.py").path.read_bytes()
    found, expected = (trunkfirst.evaluate(each, A, U).errors for each in (result, result.operator))
    assert np.array_equal(found, expected)


def test_one_coordinate_needs_no_axis():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = _fit(A, U, X), _fit(A, U, X[:, None])
    assert np.array_equal(one.operator.predict(A, X[:5]), other.operator.predict(A, X[:5, None]))


def test_labelled_arrays_know_their_points():
    xarray = pytest.importorskip("xarray")
    a = xarray.DataArray(A, dims=("run", "parameter"), name="a")
    u = xarray.DataArray(GRID, dims=("run", "x", "t"), coords={"x": X, "t": T}, name="u")
    operator = _fit(a, u).operator
    assert operator.domain.coordinate_names == ("x", "t")
    grid = np.stack(np.meshgrid(X, T, indexing="ij"), axis=-1).reshape(-1, 2)
    assert np.array_equal(operator.domain.points, grid)
    with pytest.raises(errors.DataError, match=r"--key inputs=a --key outputs=u"):
        _fit(xarray.Dataset({"a": a, "u": u}))


def test_arrays_are_evaluated_as_data():
    operator = _fit(A[:15], U[:15], X).operator
    one = trunkfirst.evaluate(operator, A[15:], U[15:])
    other = trunkfirst.evaluate(operator, trunkfirst.OperatorData(A[15:], X, U[15:]))
    assert np.array_equal(one.errors, other.errors)
    with pytest.raises(errors.UsageError, match="outputs: not given"):
        trunkfirst.evaluate(operator, A[15:])


def test_the_ending_names_the_format(desk: Path, tmp_path: Path):
    operator = trunkfirst.load(desk / "runs" / "mine")
    one = trunkfirst.export(operator, tmp_path / "a.py")
    other = trunkfirst.export(operator, "numpy", tmp_path / "b.py")
    assert (one.to, one.path.read_bytes()) == ("numpy", other.path.read_bytes())
