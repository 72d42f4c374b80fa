"""xarray, netCDF and zarr: written by them, fitted, predicted, written back and read by them."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import read_file
from own_problems import Call

import trunkfirst
from trunkfirst.data.read_write import read_data
from trunkfirst.errors import CorruptFileError, DataError, OutputExistsError, UnsafeFileError
from trunkfirst.files import integrity

xarray = pytest.importorskip("xarray", reason="Datasets need the extra xarray")

rng = np.random.default_rng(0)
A, X, T = rng.normal(size=(20, 3)), np.linspace(1, 0, 8), np.linspace(0, 2, 5)
U = np.einsum("ki,itx->ktx", A, rng.normal(size=(3, 5, 8)))
KEYS = {"inputs": "f", "outputs": "u"}
METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(width=3), trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none"
)


def dataset() -> Any:
    """Axes in an unusual order; x falls."""
    return xarray.Dataset(
        {"f": (("s", "run"), A.T), "u": (("t", "run", "x"), U.swapaxes(0, 1), {"units": "K"})},
        coords={
            "x": ("x", X, {"units": "m"}),
            "t": T,
            "s": [0.0, 0.5, 1.0],
            "case": ("run", [f"case {i}" for i in range(20)]),
        },
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same Dataset in every format, and a fitted run."""
    folder = tmp_path_factory.mktemp("xarray")
    dataset().to_netcdf(folder / "four.nc", engine="h5netcdf")
    dataset().to_netcdf(folder / "three.nc", engine="scipy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zarr, on its own format 3
        dataset().to_zarr(folder / "two.zarr", zarr_format=2)
        dataset().to_zarr(folder / "three.zarr", zarr_format=3)
    result = trunkfirst.fit(read_data(dataset(), keys=KEYS), method=METHOD, intervals=True, out=folder / "run")
    assert result.status == "finished"
    return folder


@pytest.mark.parametrize("name", ["four.nc", "three.nc", "two.zarr", "three.zarr"])
def test_files_are_read_like_the_dataset(place: Path, name: str):
    data, expected = read_file(place / name, keys=KEYS), read_file(dataset(), keys=KEYS)
    assert np.array_equal(data.outputs, expected.outputs)
    assert np.array_equal(data.points, expected.points)
    assert np.array_equal(data.inputs["f"].sensors, expected.inputs["f"].sensors)
    assert (data.coordinate_names, data.output_name, data.units) == (("t", "x"), "u", {"u": "K", "x": "m"})
    assert np.array_equal(data.outputs.reshape(20, 5, 8), U)
    assert np.array_equal(data.flat_inputs, A)


def test_names_that_say_nothing_are_asked_for(call: Call, tmp_path: Path):
    """It ended in a KeyError."""
    dataset().rename(u="what").to_netcdf(tmp_path / "my.nc", engine="h5netcdf")
    code, _, err = call("data", "check", tmp_path / "my.nc")
    assert (code, "--key outputs=" in err) == (6, True)


def test_predictions_of_a_dataset_are_a_dataset(place: Path):
    operator = trunkfirst.load(place / "run")
    new = dataset()[["f"]].isel(run=slice(0, 4))
    found = operator.predict(new)
    expected = dataset()["u"].isel(run=slice(0, 4))
    xarray.testing.assert_allclose(found["u"], expected.transpose(*found["u"].dims))
    assert (found["u"].attrs, found["x"].attrs) == ({"units": "K"}, {"units": "m"})
    assert found["case"].values.tolist() == [f"case {i}" for i in range(4)]
    bounds = operator.predict(new, interval=0.9)
    assert bool((bounds["u_lower"] <= bounds["u"]).all())
    assert bounds["is_outlier"].dims == ("run",)
    points = np.stack(np.meshgrid([0.5, 9.0], [0.25, 0.5, 0.75], indexing="ij"), axis=-1).reshape(-1, 2)
    outside = operator.predict(new, points, interval=0.9, extrapolate=True)
    assert outside["is_extrapolated"].sel(t=9.0).values.tolist() == [True, True, True]
    assert not outside["is_extrapolated"].sel(t=0.5).any()
    with pytest.raises(DataError, match=r"the sensors differ from those in training; use dataset.interp"):
        operator.predict(new.assign_coords(s=[0.0, 0.4, 1.0]))


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(("name", "out"), [("four.nc", "u.nc"), ("two.zarr", "u.zarr")])
def test_predict_on_the_command_line(call: Call, place: Path, tmp_path: Path, name: str, out: str):
    arguments = ("predict", place / "run", "--inputs", place / name, "--out", tmp_path / out)
    assert call(*arguments)[::2] == (0, "")
    engine = {"engine": "zarr"} if out == "u.zarr" else {"engine": "h5netcdf"}
    with xarray.open_dataset(tmp_path / out, **engine) as found:
        xarray.testing.assert_allclose(found["u"], dataset()["u"].transpose("run", "t", "x"))
        assert found["u_upper"].attrs == {"units": "K"}
    if out == "u.zarr":
        assert call(*arguments)[0] == OutputExistsError.exit_code


def test_points_without_a_grid_and_components():
    nodes = {"x": ("node", rng.normal(size=8)), "y": ("node", rng.normal(size=8)), "component": ["ux", "uy"]}
    fields = {"k": ("sample", A[:, 0]), "u": (("component", "sample", "node"), rng.normal(size=(2, 20, 8)))}
    source = xarray.Dataset(fields, coords=nodes)
    data = read_file(source, keys={"inputs": "k", "outputs": "u"})
    assert (data.coordinate_names, data.channel_names) == (("x", "y"), ("ux", "uy"))
    assert np.array_equal(data.outputs[..., 1], source["u"].values[1])
    operator = trunkfirst.fit(data, method=METHOD).operator
    found = operator.predict(source[["k"]])
    assert found["uy"].dims == ("sample", "points")
    assert np.array_equal(found["y"].values, source["y"].values)


def test_packed_numbers_and_missing_ones(tmp_path: Path):
    packed = {"u": {"dtype": "i2", "scale_factor": 0.001, "add_offset": 1.0, "_FillValue": -32768}}
    dataset().to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=packed)
    assert np.abs(read_file(tmp_path / "a.nc", keys=KEYS).outputs.reshape(20, 5, 8) - U).max() <= 0.00051
    holes = dataset()
    holes["u"][2, 3, 4] = np.nan
    holes.to_netcdf(tmp_path / "b.nc", engine="h5netcdf", encoding=packed)
    with pytest.raises(DataError, match=r"b\.nc: outputs: 1 of 800 values are not finite.* at samples 3"):
        read_data(tmp_path / "b.nc", keys=KEYS)


def test_what_the_dimensions_leave_open_is_asked():
    same = dataset().rename(s="x2").assign_coords(run=np.arange(20.0))
    with pytest.raises(DataError, match=r"dimension 't' has no coordinates.*assign_coords"):
        read_data(same.drop_vars("t"), keys=KEYS)
    grid = xarray.Dataset(
        {"f": (("i", "x"), A), "u": (("i", "x"), A)}, coords={"x": np.arange(3.0), "i": np.arange(20.0)}
    )
    with pytest.raises(
        DataError, match=r"which of its dimensions \(i, x\) are the samples .* --key axes=samples,x"
    ):
        read_data(grid, keys=KEYS)
    assert read_file(grid, keys={**KEYS, "axes": "samples,x"}).samples == 20


# -- hostile files


def test_a_codec_that_runs_code_is_refused(place: Path, tmp_path: Path):
    source = tmp_path / "a.zarr"
    (source / "u").mkdir(parents=True)
    shape = {"shape": [1], "chunks": [1], "dtype": "|O", "fill_value": None, "order": "C", "zarr_format": 2}
    (source / "u" / ".zarray").write_text(json.dumps({**shape, "compressor": None, "filters": [{"id": "pickle"}]}))
    with pytest.raises(UnsafeFileError, match="u has the unknown codec 'pickle'; refused"):
        read_data(source)
    (source / "u" / ".zarray").unlink()
    (source / "v").symlink_to(place / "two.zarr" / "u")
    with pytest.raises(UnsafeFileError, match="v is a link to another place"):
        read_data(source)


@pytest.mark.parametrize("name", ["bomb.zarr", "bomb.nc"])
def test_a_claim_of_much_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    monkeypatch.setattr(integrity, "_HARMLESS_BYTES", 2**20)
    large = xarray.Dataset({"u": ("x", np.zeros(2**21))})
    if name.endswith(".nc"):
        large.to_netcdf(tmp_path / name, engine="h5netcdf", encoding={"u": {"compression": "gzip"}})
    else:
        large.to_zarr(tmp_path / name, zarr_format=2)
    with pytest.raises(CorruptFileError, match=r"u claims .* on disk"):
        read_data(tmp_path / name)


@pytest.mark.parametrize("name", ["four.nc", "three.nc"])
def test_a_damaged_file_is_refused(place: Path, tmp_path: Path, name: str):
    content = (place / name).read_bytes()
    for number, damaged in enumerate((content[: len(content) // 2], content[:40], b"CDF\x01" + b"\xff" * 200)):
        path = tmp_path / f"{number}.nc"
        path.write_bytes(damaged)
        with pytest.raises(CorruptFileError, match=f"{number}.nc"):
            read_data(path, keys=KEYS)


def test_variables_without_our_names_are_asked_for():
    dataset = xarray.Dataset(
        {"T": (("run", "x"), np.ones((4, 3))), "k": ("run", np.arange(4.0))}, {"x": [0, 1, 2]}
    )
    with pytest.raises(DataError, match=r"no inputs or outputs here; found: T \(4, 3\).*--key inputs=NAME"):
        read_data(dataset)
