"""Operator data in files, dictionaries and xarray: what is written is read again."""

import dataclasses as dc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
from helpers import read_file

from trunkfirst.data.named_arrays import arrays_from_data
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.read_write import read_data, write_data
from trunkfirst.data.scattered_data import AnyData, ScatteredData
from trunkfirst.errors import DataError
from trunkfirst.files.npz import read_npz, write_npz

rng = np.random.default_rng(0)
PLAIN = OperatorData(rng.normal(size=(3, 5)), rng.normal(size=(4, 2)), rng.normal(size=(3, 4)))
SINGLE = OperatorData(*(np.asarray(a, np.float32) for a in (PLAIN.flat_inputs, PLAIN.points, PLAIN.outputs)))
FULL = OperatorData(
    {
        "g": InputFunction(
            rng.normal(size=(3, 6)), rng.normal(size=(6, 2)), sensor_weights=np.ones(6), grid_shape=(2, 3)
        ),
        "f": InputFunction(rng.normal(size=(3, 1)), sensors=np.zeros((1, 1))),
    },
    rng.normal(size=(4, 2)),
    rng.normal(size=(3, 4)),
    point_weights=np.array([1, 2, 3, 4]),
    sample_weights=np.arange(1.0, 4),
    reference_outputs=rng.normal(size=(3, 4)),
    triangles=np.array([[0, 1, 2], [1, 2, 3]]),
    labels={"beta": np.arange(3.0)},
    output_name="pressure",
    coordinate_names=("r", "φ"),
    units={"pressure": "Pa", "r": "m"},
)
CHANNELS = dc.replace(PLAIN, outputs=rng.normal(size=(3, 4, 2)), channel_names=("velocity", "density"))
HOLES = np.where(np.arange(4)[None, :, None] < np.array([4, 2, 3])[:, None, None], 1.0, np.nan)
SCATTERED = ScatteredData(
    {"f": PLAIN.flat_inputs},
    rng.normal(size=(3, 4, 2)) * HOLES,
    rng.normal(size=(3, 4)) * HOLES[..., 0],
    point_weights=np.nan_to_num(HOLES[..., 0]),
    labels={"beta": np.arange(3.0)},
)
DATA: dict[str, AnyData] = {
    "plain": PLAIN,
    "single": SINGLE,
    "full": FULL,
    "channels": CHANNELS,
    "scattered": SCATTERED,
}


def assert_same(found: AnyData, expected: AnyData) -> None:
    """The same kind, names and order, and the same bits (weights, which are scaled again, up to rounding)."""
    assert type(found) is type(expected)
    assert list(found.inputs) == list(expected.inputs)
    a, b = arrays_from_data(found), arrays_from_data(expected)
    assert set(a) == set(b)
    for name in a:
        assert a[name].shape == b[name].shape, name
        if a[name].dtype.kind == "U":
            assert a[name].tolist() == b[name].tolist()
        else:
            assert np.allclose(a[name], b[name], rtol=3e-16, atol=0, equal_nan=True), name


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("suffix", [".npz", ".mat", ".h5", ".hdf5"])
def test_round_trip(tmp_path: Path, name: str, suffix: str):
    if suffix in (".h5", ".hdf5"):
        pytest.importorskip("h5py", reason="HDF5 needs the extra hdf5")
    write_data(DATA[name], tmp_path / f"a{suffix}")
    found = read_file(tmp_path / f"a{suffix}")
    assert_same(found, DATA[name])
    assert found.outputs.dtype == DATA[name].outputs.dtype
    assert [path.name for path in tmp_path.iterdir()] == [f"a{suffix}"]


@pytest.mark.parametrize("name", ["plain", "single", "full"])
def test_round_trip_through_a_folder_of_csv_files(tmp_path: Path, name: str):
    write_data(DATA[name], tmp_path / "a")
    assert_same(read_data(str(tmp_path / "a")), dc.replace(DATA[name]))
    assert (tmp_path / "a" / "outputs.csv").read_text().count("\n") == 3


@pytest.mark.parametrize("name", DATA)
def test_round_trip_through_a_dictionary(name: str):
    assert_same(read_data(arrays_from_data(DATA[name])), DATA[name])


def test_plain_data_have_three_plain_keys(tmp_path: Path):
    write_data(PLAIN, tmp_path / "a.npz")
    assert set(read_npz(tmp_path / "a.npz")) == {"inputs", "points", "outputs"}


# -- what users write


def arrays(**more: Any) -> dict[str, Any]:
    return {"inputs": PLAIN.flat_inputs, "points": PLAIN.points, "outputs": PLAIN.outputs, **more}


def test_a_dictionary_of_dictionaries_and_lists():
    f, g = PLAIN.flat_inputs.tolist(), [[1], [2], [3]]
    data = read_data({**arrays(labels={"beta": [1, 2, 3]}), "inputs": {"f": f, "g": g}})
    assert {name: function.values.shape for name, function in data.inputs.items()} == {"f": (3, 5), "g": (3, 1)}
    assert data.labels["beta"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("key", ["inputs.f", "inputs/f", "inputs_f"])
def test_spellings_of_a_named_input(key: str):
    named = {key if name == "inputs" else name: array for name, array in arrays().items()}
    assert list(read_data(named).inputs) == ["f"]


def test_input_functions_as_data_have_them():
    """`data.inputs` in a dictionary keeps sensors and weights; it was refused as an array of objects."""
    sensors = np.linspace(0, 1, 5)[:, None]
    function = InputFunction(PLAIN.flat_inputs, sensors, sensor_weights=np.full(5, 0.2))
    data = dc.replace(PLAIN, inputs={"f": function, "k": PLAIN.flat_inputs[:, :1]})
    arrays = {"points": data.points, "outputs": data.outputs, "labels": {}}
    assert_same(read_data({"inputs": data.inputs, **arrays}), data)
    assert_same(read_data({"inputs": function, **arrays}), dc.replace(PLAIN, inputs={"input": function}))


def test_renamed_arrays_and_what_is_left_aside():
    source = {"a": PLAIN.flat_inputs, "x": PLAIN.points, "u": PLAIN.outputs, "author": np.array("me")}
    named = dc.replace(PLAIN, output_name="u")
    assert_same(read_data(source, keys={"inputs": "a", "points": "x", "outputs": "u"}), named)
    two = read_data(source, keys={"inputs.f": "a", "inputs.g": "u", "points": "x", "outputs": "u"})
    assert list(two.inputs) == ["f", "g"]


def test_one_axis_is_one_coordinate_and_one_sensor():
    data = read_data(
        {"inputs": np.arange(3.0), "points": np.arange(4.0), "outputs": PLAIN.outputs, "sensors": [0]}
    )
    assert isinstance(data, OperatorData)
    assert (data.flat_inputs.shape, data.points.shape) == ((3, 1), (4, 1))
    assert data.inputs["input"].sensors is not None


def test_inputs_on_a_grid():
    data = read_data(arrays(inputs=np.arange(18.0).reshape(3, 2, 3)))
    assert data.inputs["input"].grid_shape == (2, 3)
    assert data.flat_inputs[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "single", [("outputs",), ("inputs", "points"), ("points", "outputs"), ("inputs", "outputs")]
)
def test_single_beside_double_becomes_double(single: tuple[str, ...]):
    data = read_data(arrays(**{name: arrays()[name].astype(np.float32) for name in single}))
    assert {a.dtype.name for a in (data.flat_inputs, data.points, data.outputs)} == {"float64"}
    expected = PLAIN.outputs.astype(np.float32 if "outputs" in single else np.float64)
    assert np.array_equal(data.outputs, expected.astype(np.float64))


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (4,)])
def test_vectors_may_be_columns_or_rows(shape: tuple[int, ...]):
    data = read_data(arrays(point_weights=np.ones(shape)))
    assert isinstance(data, OperatorData)
    assert data.point_weights is not None
    assert data.point_weights.tolist() == [0.25] * 4


# -- MATLAB


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_struct_of_inputs(tmp_path: Path, is_compressed: bool):
    """As MATLAB writes `inputs.f = ...; inputs.g = ...; save`."""
    struct = {"f": PLAIN.flat_inputs, "g": np.ones((3, 2), np.int8)}
    scipy.io.savemat(tmp_path / "a.mat", arrays(inputs=struct), do_compression=is_compressed)
    data = read_file(tmp_path / "a.mat")
    assert list(data.inputs) == ["f", "g"]
    assert np.array_equal(data.inputs["f"].values, PLAIN.flat_inputs)


def test_other_variables_do_not_disturb(tmp_path: Path):
    other = {"notes": np.array(["a", [1, 2]], dtype=object), "sparse": scipy.sparse.eye(3), "flag": True}
    named = {"a": PLAIN.flat_inputs, "x": PLAIN.points, "u": PLAIN.outputs}
    scipy.io.savemat(tmp_path / "a.mat", {**named, **other})
    named = dc.replace(PLAIN, output_name="u")
    assert_same(read_data(tmp_path / "a.mat", keys={"inputs": "a", "points": "x", "outputs": "u"}), named)


def matlab_7_3(path: Path, matrices: dict[str, np.ndarray]) -> None:
    """A file as MATLAB's `save -v7.3` writes it: HDF5 behind 512 bytes, axes in reverse order."""
    h5py = pytest.importorskip("h5py", reason="MATLAB 7.3 needs the extra hdf5")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, matrix in matrices.items():
            is_text = matrix.dtype.kind == "U"
            stored = (
                np.array([[ord(letter) for letter in word] for word in matrix], np.uint16) if is_text else matrix
            )
            file.create_dataset(name, data=stored.T)
            file[name].attrs["MATLAB_class"] = np.bytes_("char" if is_text else "double")
        file.create_group("#refs#")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


def test_matlab_7_3(tmp_path: Path):
    path = tmp_path / "a.mat"
    matlab_7_3(path, arrays(coordinate_names=np.array(["aa", "b "])))
    data = read_file(path)
    assert np.array_equal(data.outputs, PLAIN.outputs)
    assert data.coordinate_names == ("aa", "b")


def test_matlab_7_3_without_h5py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.mat").write_bytes(b"MATLAB 7.3 MAT-file".ljust(600))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        ImportError, match=r"a\.mat is HDF5, which needs h5py; install it with: pip install 'trunkf"
    ):
        read_data(tmp_path / "a.mat")


# -- CSV


def test_csv_with_and_without_titles(tmp_path: Path):
    (tmp_path / "inputs.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "points.csv").write_bytes(b"\xef\xbb\xbf0.0\r\n0.5\r\n1e0\r\n")
    (tmp_path / "outputs.csv").write_text("1,2,3\n4,5,6\n\n")
    data = read_file(tmp_path)
    assert data.flat_inputs.tolist() == [[1, 2], [3, 4]]
    assert data.points.tolist() == [[0], [0.5], [1]]
    assert data.outputs.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("data", [CHANNELS, SCATTERED], ids=["channels", "scattered"])
def test_csv_holds_two_axes(tmp_path: Path, data: AnyData):
    with pytest.raises(DataError, match=r"shape \(3, 4, 2\) does not fit into CSV.*use .npz"):
        write_data(data, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


# -- names that a format cannot have


def test_mat_refuses_names_that_matlab_cannot_have(tmp_path: Path):
    with pytest.raises(DataError, match="'inputs_my input' is not a valid name in MATLAB"):
        write_data(dc.replace(PLAIN, inputs={"my input": PLAIN.flat_inputs}), tmp_path / "a.mat")
    assert list(tmp_path.iterdir()) == []


# -- xarray, and something that looks like it


class Variable:
    def __init__(self, dims: tuple[str, ...], values: np.ndarray):
        self.dims, self.values = dims, values

    def transpose(self, *dims: str) -> "Variable":
        return Variable(dims, self.values.transpose([self.dims.index(name) for name in dims]))


@dc.dataclass
class Dataset:
    data_vars: dict[str, Variable]
    coords: dict[str, Variable]

    def __getitem__(self, name: str) -> Variable:
        return (self.data_vars | self.coords)[name]


def make_lookalike(variables: dict[str, Any], coordinates: dict[str, Any]) -> Any:
    return Dataset(
        {name: Variable(*pair) for name, pair in variables.items()},
        {name: Variable(*pair) for name, pair in coordinates.items()},
    )


def make_xarray(variables: dict[str, Any], coordinates: dict[str, Any]) -> Any:
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    return xarray.Dataset(variables, coords=coordinates)


@pytest.mark.parametrize("make", [make_lookalike, make_xarray])
def test_a_dataset_knows_its_axes(make: Callable[..., Any]):
    dataset = make(
        {
            "inputs": (("samples", "sensors"), PLAIN.flat_inputs),
            "outputs": (("points", "samples"), PLAIN.outputs.T),
        },
        {"points": (("places", "directions"), PLAIN.points), "sensors": (("sensors",), np.arange(5.0))}
        if make is make_lookalike
        else {"samples": ("samples", np.arange(3)), "sensors": ("sensors", np.arange(5.0))},
    )
    if make is make_xarray:  # a coordinate of xarray with the name of an axis has one axis
        dataset["points"] = (("points", "coordinates"), PLAIN.points)
    data = read_file(dataset)
    assert np.array_equal(data.outputs, PLAIN.outputs)
    assert np.array_equal(data.points, PLAIN.points)
    assert data.inputs["input"].sensors is not None


# -- how light it is


def test_reading_and_checking_load_no_jax(tmp_path: Path):
    write_npz(tmp_path / "a.npz", arrays())
    script = """
import sys
from trunkfirst.data.data_check import check_data
from trunkfirst.data.read_write import read_data, write_data
from trunkfirst.cli import run_command as main
write_data(read_data("a.npz"), "b.npz")
check_data("b.npz")
for command in (["check", "b.npz", "--quiet"], ["convert", "b.npz", "c.npz"]):
    sys.argv = ["trunkfirst", "data", *command]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0
assert not {"jax", "scipy", "h5py", "xarray", "matplotlib", "skfem"} & set(sys.modules)
"""
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
