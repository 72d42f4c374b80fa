"""Bad data: every kind is a typed error whose one line says what is wrong and what to do; no traceback."""

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from helpers import read_file
from own_problems import Call

from trunkfirst.data.read_write import read_data, write_data
from trunkfirst.errors import (
    CorruptFileError,
    DataError,
    OutputExistsError,
    OutputNotWritableError,
    TrunkfirstError,
    UnknownNameError,
    UnsafeFileError,
    UsageError,
)

INPUTS, POINTS, OUTPUTS = (
    np.arange(15.0).reshape(3, 5),
    np.arange(8.0).reshape(4, 2),
    np.arange(12.0).reshape(3, 4),
)
Builder = Callable[[Path], Any]


def arrays(**changes: Any) -> dict[str, Any]:
    """Good arrays with changes; None takes one away."""
    named = {"inputs": INPUTS, "points": POINTS, "outputs": OUTPUTS, **changes}
    return {name: array for name, array in named.items() if array is not None}


def with_value(array: np.ndarray, place: tuple[int, ...], value: Any) -> np.ndarray:
    array = array.astype(float)
    array[place] = value
    return array


def npz(**changes: Any) -> Builder:
    """A file x.npz with these arrays."""

    def build(folder: Path) -> Path:
        np.savez(folder / "x.npz", **arrays(**changes))
        return folder / "x.npz"

    return build


def mat(**changes: Any) -> Builder:
    def build(folder: Path) -> Path:
        scipy.io.savemat(folder / "x.mat", arrays(**changes))
        return folder / "x.mat"

    return build


def raw(name: str, content: bytes) -> Builder:
    """A file with any content."""

    def build(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return build


def csv(**changes: str) -> Builder:
    """A folder of tables."""

    def build(folder: Path) -> Path:
        tables = {"inputs": "1,2\n3,4\n", "points": "0\n1\n", "outputs": "1,2\n3,4\n", **changes}
        for name, text in tables.items():
            (folder / f"{name}.csv").write_text(text)
        return folder

    return build


def cut(builder: Builder, length: int) -> Builder:
    """The file of a builder, cut short."""

    def build(folder: Path) -> Path:
        path = builder(folder)
        path.write_bytes(path.read_bytes()[:length])
        return path

    return build


def zipped(**members: bytes) -> Builder:
    def build(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name.replace("__", "."), content)
        return folder / "x.npz"

    return build


def npy(shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """An npy file whose header claims a shape."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return file.getvalue() + content


NAN = np.nan
RAGGED = np.array([np.ones(2), np.ones(3), np.ones(1)], dtype=object)
FULL = np.ones((3, 4, 2))


def spoilt_table(folder: Path) -> Path:
    csv()(folder)
    (folder / "inputs.csv").write_bytes(b"\xff\xfe\x00")
    return folder


WRONG: dict[str, tuple[Builder, str]] = {
    # shapes
    "outputs transposed": (npz(outputs=OUTPUTS.T), "outputs looks transposed; use .T"),
    "points transposed": (npz(points=POINTS.T), "points looks transposed; use .T"),
    "inputs transposed": (npz(inputs=INPUTS.T), "inputs['input']: axis 'samples' has 5 entries, but outputs"),
    "outputs too short": (npz(outputs=OUTPUTS[:, :3]), "outputs: axis 'points' has 3 entries, but points has 4"),
    "too few inputs": (npz(inputs=INPUTS[:2]), "axis 'samples' has 2 entries, but outputs has 3"),
    "outputs of one axis": (npz(outputs=np.ones(4)), "outputs: expected 2 axes (samples, points)"),
    "outputs of four axes": (npz(outputs=np.ones((3, 4, 1, 1))), "got shape (3, 4, 1, 1)"),
    "outputs on a grid": (npz(outputs=np.ones((3, 2, 2))), "outputs.reshape(len(outputs), -1)"),
    "channels in the middle": (npz(outputs=np.ones((3, 2, 4))), "np.moveaxis(outputs, 1, 2)"),
    "a single number": (npz(points=np.array(1.0)), "points: expected 2 axes (points, coordinates)"),
    "no samples": (npz(inputs=INPUTS[:0], outputs=OUTPUTS[:0]), "outputs: axis 'samples' is empty"),
    "no points": (npz(points=POINTS[:0], outputs=OUTPUTS[:, :0]), "points: axis 'points' is empty"),
    "no sensors": (npz(inputs=np.ones((3, 0))), "axis 'sensors' is empty"),
    "no channels": (npz(outputs=np.ones((3, 4, 0))), "outputs: axis 'channels' is empty"),
    "rows of different lengths": (lambda _: arrays(outputs=[[1, 2], [3]]), "outputs: rows have different lengths"),
    # types
    "complex": (npz(outputs=OUTPUTS + 1j), "complex128; give real and imaginary part as two channels"),
    "strings": (npz(outputs=OUTPUTS.astype(str)), "outputs: expected real numbers, got dtype <U"),
    "bytes": (npz(points=POINTS.astype("S4")), "points: expected real numbers, got dtype |S4"),
    "dates": (npz(points=POINTS.astype("datetime64[s]")), "subtract the first time"),
    "durations": (npz(points=POINTS.astype("timedelta64[s]")), "divide by np.timedelta64(1, 's')"),
    "records": (npz(points=np.zeros((4, 2), "f8,f8")), "give each of its fields as an array of its own"),
    "objects in memory": (lambda _: arrays(inputs=RAGGED), "got dtype object; entry 0 is"),
    "huge integers": (npz(inputs=np.full((3, 5), 2**62)), "inputs['input']: has integers beyond 2^53"),
    "masked": (lambda _: arrays(inputs=np.ma.masked_equal(INPUTS, 2)), "inputs: 1 values are masked"),
    "a cell": (mat(outputs=RAGGED), "outputs: expected real numbers, got None; make one full array"),
    "complex in MATLAB": (mat(outputs=OUTPUTS + 1j), "outputs: expected real numbers, got dtype complex128"),
    # values
    "NaN": (
        npz(outputs=with_value(OUTPUTS, (1, 3), NAN)),
        "outputs: 1 of 12 values are not finite; the first is nan at samples 1, points 3",
    ),
    "infinity": (npz(inputs=with_value(INPUTS, (2, 0), -np.inf)), "-inf at samples 2, sensors 0"),
    "NaN in points": (npz(points=with_value(POINTS, (3, 1), NAN)), "points: 1 of 8 values are not finite"),
    "negative weights": (npz(point_weights=[1, 1, -1, 1]), "point_weights: weights must not be negative"),
    "weights of another length": (npz(sample_weights=np.ones(4)), "sample_weights: axis 'samples' has 4"),
    "label of another length": (npz(**{"labels.beta": np.ones(2)}), "labels['beta']: axis 'samples' has 2"),
    "reference of another shape": (
        npz(reference_outputs=OUTPUTS[:, :2]),
        "reference_outputs: axis 'points' has 2",
    ),
    "triangles from 1": (npz(triangles=[[1, 2, 3], [2, 3, 4]]), "count from 0: subtract 1"),
    "a grid that does not fit": (
        npz(grid_shape=[2, 2]),
        "grid_shape: the product of (2, 2) is not the number of sensors, 5",
    ),
    "sensors of another length": (npz(sensors=np.ones((4, 1))), "sensors: axis 'sensors' has 4 entries"),
    "one name for two coordinates": (npz(coordinate_names=["x"]), "coordinate_names: got 1 names"),
    "numbers for words": (npz(channel_names=[1.0]), "channel_names: expected words, got dtype float64"),
    "two words for one": (npz(output_name=["a", "b"]), "output_name: expected one word, got 2"),
    # keys
    "no outputs": (npz(outputs=None), "no outputs here; found: inputs (3, 5) float64, points (4, 2) float64"),
    "other names": (
        npz(inputs=None, points=None, outputs=None, a=INPUTS, x=POINTS, u=OUTPUTS),
        "--key inputs=a --key points=x --key outputs=u",
    ),
    "other names, outputs transposed": (
        npz(inputs=None, points=None, outputs=None, a=INPUTS, x=POINTS, u=OUTPUTS.T),
        "--key inputs=a --key points=x --key outputs=u",
    ),
    "other names, two of one shape": (
        npz(inputs=None, points=None, outputs=None, a=OUTPUTS, x=POINTS, u=OUTPUTS),
        "--key inputs=NAME --key points=x --key outputs=NAME",
    ),
    "nearly the name": (npz(inputs=None, input=INPUTS), "name the arrays with --key inputs=input"),
    "nothing at all": (
        npz(inputs=None, points=None, outputs=None),
        "no inputs, points or outputs here; found: nothing",
    ),
    "a slip of the pen": (npz(point_weigths=np.ones(4)), "'point_weigths' (did you mean 'point_weights'?)"),
    "two spellings": (
        npz(**{"inputs.f": INPUTS, "inputs_f": INPUTS, "inputs": None}),
        "two arrays are given for 'inputs.f'",
    ),
    "inputs twice": (npz(**{"inputs.f": INPUTS}), "both 'inputs' and 'inputs.f' are given"),
    "sensors of no input": (
        npz(**{"sensors.g": np.ones((5, 1))}),
        "sensors.g: there is no input 'g'; inputs: input",
    ),
    "sensors of which input": (
        npz(**{"inputs": None, "inputs.f": INPUTS, "inputs.g": INPUTS, "sensors": np.ones((5, 1))}),
        "sensors: there are 2 inputs; name one of them",
    ),
    "other input names": (npz(input_names=["f", "g"]), "input_names: ('f', 'g') are not the inputs"),
    # scattered
    "scattered, NaN in points only": (
        npz(points=with_value(FULL, (1, 2), NAN)),
        "outputs: sample 1, point 2 has a value, but points is NaN there",
    ),
    "scattered, NaN in outputs only": (
        npz(points=FULL, outputs=with_value(OUTPUTS, (0, 1), NAN)),
        "outputs: sample 0, point 1 is NaN, but points has coordinates there",
    ),
    "scattered, half a point": (
        npz(points=with_value(FULL, (1, 2, 0), NAN)),
        "points: sample 1, point 2 has NaN in some coordinates only",
    ),
    "scattered, an empty sample": (
        npz(points=with_value(FULL, (1,), NAN), outputs=with_value(OUTPUTS, (1,), NAN)),
        "points: sample 1 has no points",
    ),
    "scattered triangles": (npz(points=FULL, triangles=[[0, 1, 2]]), "triangles: not for scattered data"),
    # files
    "one array": (
        raw("x.npy", npy((1,), bytes(8))),
        "has only one array; give a folder with inputs.npy, points.npy",
    ),
    "one table": (raw("x.csv", b"1,2\n"), "give a folder with inputs.csv and outputs.csv, a row"),
    "not a source": (lambda _: 3, "cannot read data from int; give a path, a dictionary"),
    # tables
    "words alone": (csv(inputs="one\ntwo\n"), "inputs['input']: expected real numbers, got dtype <U3"),
}
UNREADABLE: dict[str, tuple[Builder, str]] = {
    "no file": (lambda folder: folder / "absent.npz", "absent.npz does not exist"),
    "empty file": (raw("x.npz", b""), "cannot read"),
    "not a zip": (raw("x.npz", b"hello" * 100), "as npz: File is not a zip file"),
    "npz cut short": (cut(npz(), 400), "cannot read"),
    "mat cut short": (cut(mat(), 300), "an element is longer than the data around it"),
    "not a mat file": (raw("x.mat", b"hello" * 100), "not a mat file of version 5 to 7.3; save it again with -v7"),
    "npz that lies about its shape": (
        zipped(inputs__npy=npy((2**40,))),
        "inputs claims the shape (1099511627776,), but the file",
    ),
    "no array in the npz": (zipped(readme=b"hello"), "cannot read"),
    "no tables": (lambda folder: folder, "is a folder without .csv or .npy files"),
    "a word among numbers": (csv(points="0\nhalf\n"), "points.csv: row 2, column 1: 'half' is not a number"),
    "an empty cell": (csv(outputs="1,\n3,4\n"), "row 1, column 2: '' is not a number"),
    "rows of a table": (csv(outputs="1,2\n3\n"), "outputs.csv: row 2 has 1 cells, the first row 2"),
    "semicolons": (csv(inputs="a;b\n1;2\n3;4\n"), "inputs.csv: '3;4' is not a number; separate by commas"),
    "decimal commas": (csv(inputs="1,5;2,5\n"), "row 1, column 2: '5;2' is not a number; separate by commas"),
    "a table that is not text": (spoilt_table, "as CSV"),
}
UNSAFE: dict[str, tuple[Builder, str]] = {
    "torch": (raw("x.pt", b"PK"), "old = torch.load("),
    "torch state": (raw("x.pth", b"PK"), "import numpy as np, torch; old = torch.load("),
    "pickle": (raw("x.pkl", b"\x80"), "import numpy as np, pickle; old = pickle.load(open("),
    "joblib": (raw("x.joblib", b"\x80"), "old = joblib.load("),
    "pickle called npz": (raw("x.npz", pickle.dumps([1])), "is a pickle, which can run any code"),
    "torch called npz": (zipped(archive_data__pkl=b""), "holds a pickle, as torch.save writes it"),
    "objects in a file": (npz(outputs=RAGGED), "np.load("),
}
UNKNOWN: dict[str, tuple[Builder, str]] = {
    "unknown format": (raw("x.xyz", b""), "there is no file format '.xyz'; choose one of: .npz, .mat"),
}
UNNAMED: dict[str, tuple[Builder, str]] = {
    "no format": (raw("x", b""), "has no ending, which would name the format; rename it to end with one of: .npz"),
}
TABLES = (
    (WRONG, DataError),
    (UNREADABLE, CorruptFileError),
    (UNSAFE, UnsafeFileError),
    (UNKNOWN, UnknownNameError),
    (UNNAMED, UsageError),
)
BAD: dict[str, tuple[Builder, type[TrunkfirstError], str]] = {
    name: (build, error, words) for table, error in TABLES for name, (build, words) in table.items()
}


def test_there_are_many_kinds():
    assert len(BAD) >= 40
    assert {error for _, error, _ in BAD.values()} == {
        DataError,
        CorruptFileError,
        UnknownNameError,
        UnsafeFileError,
        UsageError,
    }


@pytest.mark.parametrize("name", BAD)
def test_bad_data(tmp_path: Path, name: str):
    build, error, words = BAD[name]
    source = build(tmp_path)
    with pytest.raises(error) as caught:
        read_data(source)
    message = str(caught.value)
    assert type(caught.value) is error
    assert words in message, message
    assert "\n" not in message
    if isinstance(source, Path) and error is DataError:
        assert message.startswith(str(source))


@pytest.mark.parametrize("name", BAD)
def test_bad_data_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, name: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    build, error, words = BAD[name]
    source = build(Path("here"))
    if not isinstance(source, Path):
        pytest.skip(reason="an object in memory, not a file")
    for arguments in (["data", "check", str(source)], ["data", "convert", str(source), "out.npz", "--json"]):
        code, out, err = call(*arguments)
        assert (code, out) == (error.exit_code, "")
        assert err.startswith("trunkfirst: ")
        assert err.count("\n") == 1, err
        assert words in err
    assert not Path("out.npz").exists()


# -- the way out of a refusal works


def test_the_line_that_converts_objects(tmp_path: Path):
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=object)
    np.savez(tmp_path / "x.npz", inputs=rows, points=rows, outputs=rows)
    with pytest.raises(UnsafeFileError) as caught:
        read_data(tmp_path / "x.npz")
    exec(str(caught.value).split("in Python: ")[1], {})
    assert read_file(tmp_path / "x-plain.npz").outputs.tolist() == [[1, 2], [3, 4]]


def test_the_line_that_converts_a_pickle(tmp_path: Path):
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(arrays()))
    with pytest.raises(UnsafeFileError) as caught:
        read_data(tmp_path / "x.pkl")
    with pytest.warns(ResourceWarning):  # one line cannot close the file
        exec(str(caught.value).split("in Python: ")[1], {})
    assert np.array_equal(read_file(tmp_path / "x.npz").outputs, OUTPUTS)


# -- keys


BAD_KEYS: list[tuple[dict[str, str], str]] = [
    ({"input": "a"}, "there is no key 'input' (did you mean 'inputs'?)"),
    ({"inputs": "b"}, "no array 'b' for 'inputs' here"),
    ({"inputs": "inpts"}, "no array 'inpts' for 'inputs' here (did you mean 'inputs'?)"),
    ({"labels.": "a"}, "there is no key 'labels.'"),
    ({"inputs": "a"}, "two arrays are given for 'inputs', one of them 'inputs'"),
]


@pytest.mark.parametrize(("keys", "words"), BAD_KEYS, ids=[words[:40] for _, words in BAD_KEYS])
def test_bad_keys(keys: dict[str, str], words: str):
    with pytest.raises(DataError) as caught:
        read_data(arrays(a=INPUTS), keys=keys)
    assert words in str(caught.value)


def test_a_slip_is_not_left_aside():
    with pytest.raises(DataError, match="did you mean 'sample_weights'"):
        read_data(arrays(u=OUTPUTS, outputs=None, sample_weigths=np.ones(3)), keys={"outputs": "u"})


@pytest.mark.parametrize("command", [["data", "check", "x.npz"], ["fit", "--data", "x.npz", "--out", "out"]])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["inputs"], "--key inputs is not KEY=NAME"),
        (["=a"], "--key =a is not KEY=NAME"),
        (["inputs="], "--key inputs= is not KEY=NAME"),
        (["inputs=a", "inputs=b"], "--key inputs is given twice, as 'a' and as 'b'"),
    ],
)
def test_bad_key_options(call: Call, command: list[str], options: list[str], words: str):
    code, _, err = call(*command, *(part for option in options for part in ("--key", option)))
    assert code == 2
    assert words in err


# -- writing


def test_bad_targets(tmp_path: Path):
    data = read_data(arrays())
    with pytest.raises(UnknownNameError, match=r"no file format '\.xyz'"):
        write_data(data, tmp_path / "x.xyz")
    with pytest.raises(OutputNotWritableError, match="cannot write"):
        write_data(data, tmp_path / "absent" / "x.npz")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(OutputExistsError, match="is not empty"):
        write_data(data, tmp_path / "full")


def test_convert_replaces_nothing(tmp_path: Path, call: Call):
    source = npz()(tmp_path)
    before = source.read_bytes()
    code, _, err = call("data", "convert", source, source)
    assert code == OutputExistsError.exit_code
    assert "exists already" in err
    assert source.read_bytes() == before
