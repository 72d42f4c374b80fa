"""Reading and writing data: files of several formats, dictionaries, xarray Datasets, folders of shards."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from ..errors import DataError, UnknownNameError, UnsafeFileError, UsageError
from ..files.hdf5 import read_hdf5, write_hdf5
from ..files.integrity import absent, inside
from ..files.mat import read_mat, write_mat
from ..files.mesh_files import is_mesh, read_meshes
from ..files.npz import map_npz, read_npy, read_npz, write_npz
from ..files.text_files import read_columns, read_csv, read_csv_folder, write_csv_folder
from ..files.xarray_files import Labelled, from_dataset, read_netcdf, read_zarr
from .array_checks import any_array, real_array, real_numbers, source_named
from .gridded import Arrays, column, inputs_by_name, on_points
from .named_arrays import (
    AnyData,
    Keys,
    NewInputs,
    arrays_from_data,
    data_from_arrays,
    inputs_from_arrays,
    is_per_sample,
    list_arrays,
    listed,
    name_arrays,
    name_inputs,
)
from .operator_data import InputFunction, OperatorData, columns_of
from .sharded_data import ShardedData, is_sharded, open_shards, write_shards

_FORMATS: dict[str, tuple[Callable[[Path], dict[str, np.ndarray]], Callable[[Path, Arrays], None]]] = {
    ".npz": (read_npz, write_npz),
    ".mat": (read_mat, write_mat),
    ".h5": (read_hdf5, write_hdf5),
    ".hdf5": (read_hdf5, write_hdf5),
}
_LABELLED: dict[str, Callable[[Path], Labelled]] = {".nc": read_netcdf, ".zarr": read_zarr}
_ENDINGS = (*_FORMATS, *_LABELLED, ".vtu", ".xdmf", ".msh", "a folder of meshes", "a folder of .csv or .npy files")
# How to load a trusted file that can run code; {0} is its path.
_LOADERS = {
    ".pt": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pth": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pkl": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".pickle": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".joblib": ("joblib", "joblib.load({0})", ""),
}
# Default size of a shard: many fit into memory, and opening one costs little.
_SHARD_BYTES = 2**25


@overload
def read_data(source: Mapping[str, Any], *, keys: Keys | None = None) -> AnyData: ...
@overload
def read_data(source: object, *, keys: Keys | None = None) -> AnyData | ShardedData: ...
def read_data(source: object, *, keys: Keys | None = None) -> AnyData | ShardedData:
    """Read data from a file, a dictionary of arrays or an xarray Dataset.

    Points (samples, points, coordinates) give `ScatteredData`, a folder of shards `ShardedData`, whose samples
    stay on disk, and everything else `OperatorData`. All three have the same attributes.

    Args:
        source: a dictionary of arrays, an xarray Dataset, or a path: `.npz`; `.mat`; `.h5` and `.hdf5` (extra
            `hdf5`); `.nc` and `.zarr` (extra `xarray`); `.vtu`, `.vtk`, `.xdmf` and `.msh` with the fields of all
            samples, or a folder of them, one for each sample, with a table of parameters (extra `mesh`); a folder
            with `inputs.csv`, `points.csv`, `outputs.csv`, or the same as `.npy`; a folder of shards. Arrays are
            called `inputs` (samples, sensors), or `inputs.NAME` if there are several; `points` (points,
            coordinates); `outputs` (samples, points) or (samples, points, channels).
        keys: other names of the arrays, {"inputs": "a", "points": "x", "outputs": "u"}. Several names of `points`,
            ("x", "t"), are the coordinates of a grid, several names of `outputs` are channels, and "axes" names
            the axes of the outputs if their lengths do not determine them. For a Dataset, `.nc` and `.zarr` it
            names the variables that are inputs and outputs.

    Returns:
        `OperatorData`, `ScatteredData` or `ShardedData`.

    Raises:
        DataError: an array is wrong; the message names array, axis and index.
        CorruptFileError: a file cannot be read.
        UnsafeFileError: a file could run code.

    >>> import numpy as np
    >>> np.savez("my.npz", a=np.eye(4), x=np.zeros((3, 1)), u=np.ones((4, 3)))
    >>> read_data("my.npz", keys={"inputs": "a", "points": "x", "outputs": "u"}).samples
    4
    """
    if isinstance(source, (str, Path)) and is_sharded(source):
        if keys:
            raise DataError(f"{source}: the arrays of shards have the standard names; leave keys out")
        return open_shards(source)
    data, _, rest = data_and_rest(source, keys)
    if rest and not keys:
        where = f"{source}: " if isinstance(source, (str, Path)) else ""
        warnings.warn(f"{where}not used: {list_arrays(rest)}", UserWarning, stacklevel=2)
    return data


def data_and_rest(source: Any, keys: Keys | None) -> tuple[AnyData, dict[str, Any], dict[str, Any]]:
    """Return the data, the arrays that they were made of, and the arrays that are not used."""
    found = _read_arrays(source)
    with source_named(source):
        named, rest = _arranged(found, keys)
        return data_from_arrays(named), named, rest


def _arranged(found: Labelled, keys: Keys | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by our keys, with outputs (samples, points, ...); and those that are not used."""
    keys = dict(keys or {})
    order = keys.pop("axes", None)
    # Points are the coordinates of the outputs where the axes have names.
    names, unused = name_arrays(found.arrays, keys, *([("inputs", "outputs")] if found.axes else []))
    if found.axes:  # variables have names of their own
        only = {"inputs": f"inputs.{names.get('inputs')}", "outputs": f"outputs.{names.get('outputs')}"}
        names = {only[key] if key in only and key != name else key: name for key, name in names.items()}
    named: dict[str, Any] = {key: found.arrays[name] for key, name in names.items()}
    named |= {} if order is None else {"axes": np.array(listed(order))}
    if names.get("outputs", "outputs") != "outputs":
        named.setdefault("output_name", np.array(names["outputs"].removeprefix("outputs.")))
    rest = {name: found.arrays[name] for name in unused if name not in found.coordinates}
    axes = {key: found.axes[name] for key, name in names.items() if name in found.axes}
    if not axes:
        return on_points(named, rest, {}), rest
    coordinates = {name: found.arrays[name] for name in found.coordinates}
    units = {f"units.{name}": np.array(unit) for name, unit in found.units.items() if name not in rest}
    return {**units, **on_points(named, coordinates, {**found.axes, **axes})}, rest


def read_inputs(source: Any, *, keys: Keys | None = None, names: Sequence[str] = ()) -> NewInputs:
    """Read input functions for predictions: `inputs` or `inputs.NAME`, with their sensors if known.

    A .csv or .npy file is one table, a row for each sample; a line of titles names the inputs. `names` are those
    of the inputs in training, which a file may use too; `keys` gives other names.
    """
    with source_named(source):
        return _new_inputs(_read_arrays(source, table="inputs"), keys, names)


def _new_inputs(found: Labelled, keys: Keys | None, names: Sequence[str]) -> NewInputs:
    sources = name_inputs(found.arrays, keys, names)
    if not any(key.split(".")[0] == "inputs" for key in sources):
        raise DataError(
            f"no array 'inputs' or 'inputs.NAME' here; found: {list_arrays(found.arrays)}; "
            "save it under that name, np.savez(..., inputs=...), or name it with --key inputs=NAME"
        )
    named = {key: found.arrays[name] for key, name in sources.items()}
    axes = {key: found.axes[name] for key, name in sources.items() if name in found.axes}
    more: dict[str, Any] = {}
    if axes:
        coordinates = {name: found.arrays[name] for name in found.coordinates}
        named, axis = inputs_by_name(named, coordinates, axes)
        along = [name for name in coordinates if found.axes.get(name) == (axis,)]
        more = {"sample_axis": axis, "sample_coordinates": {name: (axis, coordinates[name]) for name in along}}
    functions = inputs_from_arrays(named)
    return NewInputs({name: f.checked(f"inputs[{name!r}]") for name, f in functions.items()}, **more)


def read_points(path: Path | str) -> Float[np.ndarray, "points coordinates"]:
    """Read points for predictions: the array `points`, or a .csv or .npy table with a row for each point."""
    is_csv = Path(path).suffix.lower() == ".csv"
    arrays = {"points": read_csv(path)} if is_csv else _read_arrays(path, table="points").arrays
    if "points" not in arrays:
        raise DataError(f"{path}: no array 'points' here; found: {list_arrays(arrays)}")
    return real_array("points", column(real_numbers("points", arrays["points"])), ("points", "coordinates"))


def write_data(data: AnyData, path: Path | str) -> None:
    """Write data to a file in the format of its ending; `read_data` returns the same data.

    Args:
        data: `OperatorData` or `ScatteredData`.
        path: a file ending in .npz, .mat, .h5 or .hdf5; without an ending, a folder of CSV files. An existing file
            is replaced.

    Raises:
        UnknownNameError: another ending.
        DataError: the format cannot hold the data.
        OutputNotWritableError: the file cannot be written.

    >>> import numpy as np
    >>> data = OperatorData(inputs=np.eye(4), points=np.linspace(0, 1, 3), outputs=np.ones((4, 3)))
    >>> write_data(data, "my.npz")
    >>> read_data("my.npz").samples
    4
    """
    path = Path(path)
    if path.suffix and path.suffix.lower() not in _FORMATS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)
    write = _FORMATS[path.suffix.lower()][1] if path.suffix else write_csv_folder
    write(path, arrays_from_data(data))


# -- arrays from any source


def _read_arrays(source: Any, *, table: str | None = None) -> Labelled:
    """Return all arrays of a file, a dictionary or an xarray Dataset, by their names there.

    `table` is the name of what a single .csv file holds.
    """
    if isinstance(source, (str, Path)):
        path = Path(source)
        if table is not None and path.suffix.lower() == ".csv":
            return Labelled(read_columns(path, table))
        if table is not None and path.suffix.lower() == ".npy":
            return Labelled({table: read_npy(path)})
        is_labelled = path.suffix.lower() in _LABELLED and path.exists()
        return _LABELLED[path.suffix.lower()](path) if is_labelled else Labelled(_read_path(path))
    if hasattr(source, "data_vars"):
        return from_dataset(source)
    if isinstance(source, Mapping):
        return Labelled({name: any_array(name, value) for name, value in _flat(source).items()})
    raise DataError(
        f"cannot read data from {type(source).__name__}; give a path, a dictionary or an xarray Dataset"
    )


def _read_path(path: Path) -> dict[str, np.ndarray]:
    suffix = path.suffix.lower()
    if path.exists() and is_mesh(path):
        return read_meshes(path)
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise absent(path)
    if suffix in _LOADERS:
        raise UnsafeFileError(_how_to_convert(path))
    if suffix == ".npy":
        raise DataError(
            f"{path} has only one array; give a folder with inputs.npy, points.npy and outputs.npy, or one file, "
            "np.savez('my.npz', inputs=..., points=..., outputs=...)"
        )
    if suffix in (".csv", ".txt", ".dat"):
        raise DataError(
            f"{path} is only one table; give a folder with inputs.csv and outputs.csv, a row for each sample, and "
            "points.csv, a row for each point"
        )
    if not suffix:
        known = ", ".join(_FORMATS)
        raise UsageError(
            f"{path} has no ending, which would name the format; rename it to end with one of: {known}"
        )
    if suffix not in _FORMATS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)
    return _FORMATS[suffix][0](path)


def _read_folder(path: Path) -> dict[str, np.ndarray]:
    """The arrays of NAME.csv and NAME.npy in a folder."""
    arrays = {file.stem: read_npy(inside(path, file.name)) for file in sorted(path.glob("*.npy"))}
    if arrays and not any(path.glob("*.csv")):
        return arrays
    tables = read_csv_folder(path, titled=("inputs",))
    if both := arrays.keys() & {name.split(".")[0] for name in tables}:
        name = min(both)
        raise DataError(f"{path} has both {name}.csv and {name}.npy; leave one of them out")
    return arrays | tables


def _how_to_convert(path: Path) -> str:
    module, load, method = _LOADERS[path.suffix.lower()]
    arrays = ", ".join(f"{key}=old[{key!r}]{method}" for key in ("inputs", "points", "outputs"))
    read, target = load.format(repr(str(path))), str(path.with_suffix(".npz"))
    return (
        f"{path} can run any code when read; it is refused. If you trust it, convert it in Python: "
        f"import numpy as np, {module}; old = {read}; np.savez({target!r}, {arrays})"
    )


def _flat(source: Mapping[Any, Any]) -> dict[str, Any]:
    """Flatten a dictionary of dictionaries: {"inputs": {"f": ...}} has the key "inputs.f"."""
    flat: dict[str, Any] = {}
    for name, value in source.items():
        parts = columns_of(value) or value
        is_group = isinstance(parts, Mapping)
        entries = {f"{name}.{inner}": item for inner, item in parts.items()} if is_group else {str(name): value}
        for key, item in entries.items():
            flat |= _function_arrays(key, item) if isinstance(item, InputFunction) else {key: item}
    return flat


def _function_arrays(key: str, function: InputFunction) -> dict[str, Any]:
    """The arrays of `data.inputs["f"]` by the keys "inputs.f", "sensors.f" and so on."""
    ending = key.removeprefix("inputs")
    fields = ("sensors", "sensor_weights", "grid_shape")
    more = {f"{name}{ending}": getattr(function, name) for name in fields}
    return {key: function.values, **{name: array for name, array in more.items() if array is not None}}


# -- one file to shards


def shard_data(
    source: Path | str,
    folder: Path | str,
    *,
    keys: Keys | None = None,
    samples_per_shard: int | None = None,
) -> ShardedData:
    """Write the samples of a file, in the formats of `read_data`, as a folder of shards.

    An uncompressed npz file is memory-mapped and may be larger than memory; others are read. By default a shard
    has about 32 MiB.
    """
    if is_sharded(source):
        return write_shards(open_shards(source).blocks(), folder)
    is_npz = Path(source).suffix.lower() == ".npz" and Path(source).is_file()
    found = Labelled(map_npz(source)) if is_npz else _read_arrays(source)
    with source_named(source):
        named, _ = _arranged(found, keys)
        return write_shards(_blocks(named, samples_per_shard), folder)


def _blocks(named: Arrays, size: int | None) -> Iterator[OperatorData]:
    if named["points"].ndim == 3:
        raise DataError("points: shards need points that all samples share, (points, coordinates)")
    own = {name: array for name, array in named.items() if is_per_sample(name)}
    samples = len(named["outputs"])
    if any(array.ndim == 0 or len(array) != samples for array in own.values()):
        yield _aligned(named)  # raises the right error, or takes a row for a column
        return
    size = size or max(1, int(_SHARD_BYTES * samples / sum(array.nbytes for array in own.values())))
    for begin in range(0, samples, size):
        part = {name: np.array(array[begin : begin + size]) for name, array in own.items()}
        with source_named(f"samples from {begin} on"):
            block = _aligned({**named, **part})
        yield block


def _aligned(named: Arrays) -> OperatorData:
    data = data_from_arrays(named)
    assert isinstance(data, OperatorData)
    return data
