"""Named arrays from wherever they are: a file of one of several formats, a dictionary, an xarray Dataset."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, DataError, UnknownNameError, UnsafeFileError
from ..files import (
    read_csv_folder,
    read_hdf5,
    read_mat,
    read_npz,
    write_csv_folder,
    write_hdf5,
    write_mat,
    write_npz,
)
from ._checks import any_array
from ._keys import is_key

Reader = Callable[[Path], dict[str, np.ndarray]]
Writer = Callable[[Path, Mapping[str, np.ndarray]], None]

_FORMATS: dict[str, tuple[Reader, Writer]] = {
    ".npz": (read_npz, write_npz),
    ".mat": (read_mat, write_mat),
    ".h5": (read_hdf5, write_hdf5),
    ".hdf5": (read_hdf5, write_hdf5),
}
_ENDINGS = (*_FORMATS, "a folder of .csv files")
# How a file that can run code is read by the one who trusts it; {0} is its path.
_LOADERS = {
    ".pt": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pth": ("torch", "torch.load({0}, weights_only=True)", ".numpy()"),
    ".pkl": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".pickle": ("pickle", "pickle.load(open({0}, 'rb'))", ""),
    ".joblib": ("joblib", "joblib.load({0})", ""),
}
# xarray knows its axes by name; this is our order of them.
_AXES = ("samples", "points", "sensors", "channels", "coordinates")


def read_arrays(source: Any) -> dict[str, np.ndarray]:
    """All arrays of a file, a dictionary or an xarray Dataset, by the names they have there."""
    if isinstance(source, (str, Path)):
        return _from_path(Path(source))
    if hasattr(source, "data_vars"):
        return _from_dataset(source)
    if isinstance(source, Mapping):
        return {name: any_array(name, value) for name, value in _flat(source).items()}
    raise DataError(
        f"cannot read data from {type(source).__name__}; give a path, a dictionary or an xarray Dataset"
    )


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays in the format that the ending of `path` names; without an ending, as a folder of CSV files."""
    if path.suffix and path.suffix.lower() not in _FORMATS:
        raise UnknownNameError("file format", path.suffix, _ENDINGS)
    write = _FORMATS[path.suffix.lower()][1] if path.suffix else write_csv_folder
    write(path, arrays)


def _from_path(path: Path) -> dict[str, np.ndarray]:
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
    """A dictionary of dictionaries becomes one: {"inputs": {"f": ...}} has the key "inputs.f"."""
    flat: dict[str, Any] = {}
    for name, value in source.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[str(name)] = value
    return flat


def _from_dataset(dataset: Any) -> dict[str, np.ndarray]:
    """The variables of an xarray Dataset, and those coordinates that have one of our names."""
    names = [str(name) for name in dataset.data_vars] + [str(n) for n in dataset.coords if is_key(str(n))]
    return {name: any_array(name, _in_order(dataset[name]).values) for name in names}


def _in_order(variable: Any) -> Any:
    """Axes in our order, where all of them have one of our names."""
    if set(variable.dims) <= set(_AXES):
        return variable.transpose(*(axis for axis in _AXES if axis in variable.dims))
    return variable
