"""Reading and writing data: files of several formats, dictionaries, xarray Datasets, folders of shards."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from ..errors import CorruptFileError, DataError, UnknownNameError, UnsafeFileError
from ..files.hdf5 import read_hdf5, write_hdf5
from ..files.mat import read_mat, write_mat
from ..files.npz import map_npz, read_npz, write_npz
from ..files.text_files import read_csv, read_csv_folder, write_csv_folder
from .array_checks import any_array, real_array, real_numbers
from .named_arrays import (
    AnyData,
    Arrays,
    arrays_from_data,
    canonical,
    column,
    data_from_arrays,
    inputs_from_arrays,
    is_key,
    is_per_sample,
    list_arrays,
    name_arrays,
)
from .operator_data import InputFunction, OperatorData
from .sharded_data import ShardedData, is_sharded, open_shards, write_shards

_FORMATS: dict[str, tuple[Callable[[Path], dict[str, np.ndarray]], Callable[[Path, Arrays], None]]] = {
    ".npz": (read_npz, write_npz),
    ".mat": (read_mat, write_mat),
    ".h5": (read_hdf5, write_hdf5),
    ".hdf5": (read_hdf5, write_hdf5),
}
_ENDINGS = (*_FORMATS, "a folder of .csv files")
# How to load a trusted file that can run code; {0} is its path.
_LOADERS = {
    ".pt": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pth": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pkl": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".pickle": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".joblib": ("joblib", "joblib.load({0})", ""),
}
# xarray names its axes; this is our order of them.
_AXES = ("samples", "points", "sensors", "channels", "coordinates")
# Default size of a shard: many fit into memory, and opening one costs little.
_SHARD_BYTES = 2**25


@overload
def read_data(source: Mapping[str, Any], *, keys: Mapping[str, str] | None = None) -> AnyData: ...
@overload
def read_data(source: object, *, keys: Mapping[str, str] | None = None) -> AnyData | ShardedData: ...
def read_data(source: object, *, keys: Mapping[str, str] | None = None) -> AnyData | ShardedData:
    """Read data from a file, a dictionary of arrays or an xarray Dataset.

    Files: `.npz`; `.mat`; `.h5` and `.hdf5` (needs the extra `hdf5`); a folder with `inputs.csv`, `points.csv`,
    `outputs.csv`. Arrays are called `inputs` (samples, sensors), or `inputs.NAME` where there are several;
    `points` (points, coordinates); `outputs` (samples, points) or (samples, points, channels). Points (samples,
    points, coordinates) give `ScatteredData`, everything else `OperatorData`. `keys` gives the names of the arrays
    where they differ: `read_data("my.mat", keys={"inputs": "a", "points": "x", "outputs": "u"})`.

    A folder of shards, made by `write_shards` or `trunkfirst data convert --out`, is opened as `ShardedData`; its
    samples stay on disk until they are used. All three kinds have the same attributes.

    Wrong arrays are a `DataError` that names array, axis and index; a file that cannot be read is a
    `CorruptFileError`, one that could run code an `UnsafeFileError`.

    >>> import numpy as np
    >>> np.savez("my.npz", a=np.eye(4), x=np.zeros((3, 1)), u=np.ones((4, 3)))
    >>> read_data("my.npz", keys={"inputs": "a", "points": "x", "outputs": "u"}).samples
    4
    """
    if isinstance(source, (str, Path)) and is_sharded(source):
        if keys:
            raise DataError(f"{source}: the arrays of shards have the usual names; leave keys out")
        return open_shards(source)
    return data_and_rest(source, keys)[0]


def data_and_rest(source: Any, keys: Mapping[str, str] | None) -> tuple[AnyData, dict[str, Any], dict[str, Any]]:
    """Return the data, the arrays that they were made of, and the arrays that are not used."""
    arrays = _read_arrays(source)
    try:
        named, rest = name_arrays(arrays, keys)
        return data_from_arrays(named), named, rest
    except DataError as error:
        if isinstance(source, (str, Path)):
            raise DataError(f"{source}: {error}") from error
        raise


def read_inputs(path: Path | str) -> dict[str, InputFunction]:
    """Read input functions for predictions: `inputs` or `inputs.NAME`, with their sensors if known.

    A .csv file is one table, a row for each sample.
    """
    arrays = _table_or_arrays(Path(path), "inputs")
    named = {canonical(name): array for name, array in arrays.items() if is_key(canonical(name))}
    if not any(name.split(".")[0] == "inputs" for name in named):
        raise DataError(
            f"{path}: no array 'inputs' or 'inputs.NAME' here; found: {list_arrays(arrays)}; "
            "save it under that name, np.savez(..., inputs=...)"
        )
    functions = inputs_from_arrays(named)
    return {name: function.checked(f"inputs[{name!r}]") for name, function in functions.items()}


def read_points(path: Path | str) -> Float[np.ndarray, "points coordinates"]:
    """Read points for predictions: the array `points`, or a .csv table with a row for each point."""
    arrays = _table_or_arrays(Path(path), "points")
    if "points" not in arrays:
        raise DataError(f"{path}: no array 'points' here; found: {list_arrays(arrays)}")
    return real_array("points", column(real_numbers("points", arrays["points"])), ("points", "coordinates"))


def _table_or_arrays(path: Path, name: str) -> dict[str, Any]:
    return {name: read_csv(path)} if path.suffix.lower() == ".csv" else _read_arrays(path)


def write_data(data: AnyData, path: Path | str) -> None:
    """Write data in the format that the ending of `path` names; `read_data` returns the same.

    `.npz`, `.mat`, `.h5` or `.hdf5`; a path without an ending becomes a folder of CSV files. An existing file is
    replaced.
    """
    path = Path(path)
    if path.suffix and path.suffix.lower() not in _FORMATS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)
    write = _FORMATS[path.suffix.lower()][1] if path.suffix else write_csv_folder
    write(path, arrays_from_data(data))


# -- arrays from any source


def _read_arrays(source: Any) -> dict[str, np.ndarray]:
    """Return all arrays of a file, a dictionary or an xarray Dataset, by their names there."""
    if isinstance(source, (str, Path)):
        return _read_path(Path(source))
    if hasattr(source, "data_vars"):
        return _from_dataset(source)
    if isinstance(source, Mapping):
        return {name: any_array(name, value) for name, value in _flat(source).items()}
    raise DataError(
        f"cannot read data from {type(source).__name__}; give a path, a dictionary or an xarray Dataset"
    )


def _read_path(path: Path) -> dict[str, np.ndarray]:
    suffix = path.suffix.lower()
    if path.is_dir():
        return read_csv_folder(path)
    if not path.exists():
        raise CorruptFileError(f"{path} does not exist")
    if suffix in _LOADERS:
        raise UnsafeFileError(_how_to_convert(path))
    if suffix == ".npy":
        raise DataError(
            f"{path} holds one array; save three with np.savez(..., inputs=..., points=..., outputs=...)"
        )
    if suffix in (".csv", ".txt", ".dat"):
        raise DataError(f"{path} is one table; give a folder with inputs.csv, points.csv and outputs.csv")
    if suffix not in _FORMATS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)
    return _FORMATS[suffix][0](path)


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
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[str(name)] = value
    return flat


def _from_dataset(dataset: Any) -> dict[str, np.ndarray]:
    """Return the variables of an xarray Dataset, and those coordinates that have one of our names."""
    names = [str(name) for name in dataset.data_vars] + [str(n) for n in dataset.coords if is_key(str(n))]
    return {name: any_array(name, _in_order(dataset[name]).values) for name in names}


def _in_order(variable: Any) -> Any:
    """Put axes in our order, where all of them have one of our names."""
    if set(variable.dims) <= set(_AXES):
        return variable.transpose(*(axis for axis in _AXES if axis in variable.dims))
    return variable


# -- one file to shards


def shard_data(
    source: Path | str,
    folder: Path | str,
    *,
    keys: Mapping[str, str] | None = None,
    samples_per_shard: int | None = None,
) -> ShardedData:
    """Write the samples of a file, in the formats of `read_data`, as a folder of shards.

    An uncompressed npz file is memory-mapped and may be larger than memory; others are read. By default a shard
    has about 32 MiB.
    """
    if is_sharded(source):
        return write_shards(open_shards(source).blocks(), folder)
    is_npz = Path(source).suffix.lower() == ".npz" and Path(source).is_file()
    arrays = map_npz(source) if is_npz else _read_arrays(source)
    try:
        named, _ = name_arrays(arrays, keys)
        return write_shards(_blocks(named, samples_per_shard), folder)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


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
        try:
            yield _aligned({**named, **part})
        except DataError as error:
            raise DataError(f"samples from {begin} on: {error}") from error


def _aligned(named: Arrays) -> OperatorData:
    data = data_from_arrays(named)
    assert isinstance(data, OperatorData)
    return data
