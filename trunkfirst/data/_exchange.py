"""Reading and writing operator data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..files import read_csv
from ._arrays import AnyData, arrays_from_data, column, data_from_arrays, inputs_from_arrays
from ._checks import real_array, real_numbers
from ._input_functions import InputFunction
from ._keys import canonical, describe, is_key, name_arrays
from ._sharded_data import ShardedData, is_sharded, open_shards
from ._sources import read_arrays, write_arrays


@overload
def read_data(source: Mapping[str, Any], *, keys: Mapping[str, str] | None = None) -> AnyData: ...
@overload
def read_data(source: object, *, keys: Mapping[str, str] | None = None) -> AnyData | ShardedData: ...
def read_data(source: object, *, keys: Mapping[str, str] | None = None) -> AnyData | ShardedData:
    """Operator data from a file, a dictionary or an xarray Dataset.

    Files: `.npz`; `.mat`; `.h5` and `.hdf5` (needs the extra `hdf5`); a folder with `inputs.csv`, `points.csv`,
    `outputs.csv`. Arrays are called `inputs` (samples, sensors), or `inputs.NAME` where there are several;
    `points` (points, coordinates); `outputs` (samples, points) or (samples, points, channels). Points (samples,
    points, coordinates) give `ScatteredData`, everything else `OperatorData`. `keys` says what they are called
    where that is otherwise: `read_data("my.mat", keys={"inputs": "a", "points": "x", "outputs": "u"})`.

    A folder of shards, which `write_shards` and `trunkfirst data convert --out` make, is not read but opened: it
    gives `ShardedData`.

    What is wrong is a `DataError` that names array, axis and index; a file that cannot be read is a
    `CorruptFileError`, one that could run code an `UnsafeFileError`.

    >>> import numpy as np
    >>> np.savez("my.npz", a=np.eye(4), x=np.zeros((3, 1)), u=np.ones((4, 3)))
    >>> read_data("my.npz", keys={"inputs": "a", "points": "x", "outputs": "u"}).samples
    4
    """
    if isinstance(source, (str, Path)) and is_sharded(Path(source)):
        if keys:
            raise DataError(f"{source}: the arrays of shards have the usual names; leave keys out")
        return open_shards(source)
    return data_and_rest(source, keys)[0]


def data_and_rest(source: Any, keys: Mapping[str, str] | None) -> tuple[AnyData, dict[str, Any], dict[str, Any]]:
    """The data, the arrays that they were made of, and the arrays that were left aside."""
    arrays = read_arrays(source)
    try:
        named, rest = name_arrays(arrays, keys)
        return data_from_arrays(named), named, rest
    except DataError as error:
        if isinstance(source, (str, Path)):
            raise DataError(f"{source}: {error}") from error
        raise


def read_inputs(path: Path | str) -> dict[str, InputFunction]:
    """Input functions alone, for predictions: `inputs` or `inputs.NAME`, with their sensors if known.

    A .csv file is one table, a row for each sample.
    """
    arrays = _table_or_arrays(Path(path), "inputs")
    named = {canonical(name): array for name, array in arrays.items() if is_key(canonical(name))}
    if not any(name.split(".")[0] == "inputs" for name in named):
        raise DataError(
            f"{path}: no array 'inputs' or 'inputs.NAME' here; found: {describe(arrays)}; "
            "save it under that name, np.savez(..., inputs=...)"
        )
    functions = inputs_from_arrays(named)
    return {name: function.checked(f"inputs[{name!r}]") for name, function in functions.items()}


def read_points(path: Path | str) -> Float[np.ndarray, "points coordinates"]:
    """Points alone, for predictions: the array `points`, or a .csv table with a row for each point."""
    arrays = _table_or_arrays(Path(path), "points")
    if "points" not in arrays:
        raise DataError(f"{path}: no array 'points' here; found: {describe(arrays)}")
    return real_array("points", column(real_numbers("points", arrays["points"])), ("points", "coordinates"))


def _table_or_arrays(path: Path, name: str) -> dict[str, Any]:
    return {name: read_csv(path)} if path.suffix.lower() == ".csv" else read_arrays(path)


def write_data(data: AnyData, path: Path | str) -> None:
    """Write operator data in the format that the ending of `path` names.

    `.npz`, `.mat`, `.h5` or `.hdf5`; a path without an ending becomes a folder of CSV files. `read_data` gives
    back the same. A file that is there already is replaced.
    """
    write_arrays(Path(path), arrays_from_data(data))
