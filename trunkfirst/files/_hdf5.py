"""Named arrays in HDF5, as far as they lie in the file itself. Needs h5py, which is imported on use."""

import importlib
import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, MissingExtraError, TrunkfirstError, UnsafeFileError
from ._atomic import atomic_write
from ._limits import check_expansion

_MOST_DATASETS = 10_000
_DEEPEST_GROUP = 2


def write_hdf5(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays with checksums; the name "inputs.f" becomes the dataset f in the group inputs."""
    h5py = _h5py(path)
    memory = io.BytesIO()
    with h5py.File(memory, "w", track_order=True) as file:
        for name, array in arrays.items():
            is_text = array.dtype.kind == "U"
            file.create_dataset(
                "/".join(name.split(".", 1)),
                data=array.astype(object) if is_text else array,
                dtype=h5py.string_dtype() if is_text else None,
                fletcher32=array.ndim > 0 and not is_text,
            )
    with atomic_write(path) as file:
        file.write(memory.getbuffer())


def read_hdf5(path: Path | str, *, is_matlab: bool = False) -> dict[str, np.ndarray]:
    """Read all arrays; the dataset f in the group inputs is called "inputs.f".

    Links and storage that lead out of the file are refused, and arrays of which nothing was ever written. A
    MATLAB file has its axes in reverse order and its texts as numbers; both are put right. What is neither numbers
    nor text stands there as an array of objects, all None.
    """
    h5py = _h5py(path)
    try:
        with Path(path).open("rb") as raw, h5py.File(raw, "r") as file:
            found = dict(_datasets(path, file, "", h5py))
            return {name: _array(path, name, item, h5py, is_matlab=is_matlab) for name, item in found.items()}
    except TrunkfirstError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError, OverflowError) as error:
        raise CorruptFileError(f"cannot read {path} as HDF5: {error}") from error


def _h5py(path: Path | str) -> Any:
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise MissingExtraError(f"{path} is HDF5, which", "h5py", "hdf5") from error


def _datasets(path: Path | str, group: Any, prefix: str, h5py: Any) -> Iterator[tuple[str, Any]]:
    """All datasets below `group` by name, reached by hard links alone."""
    if len(group) > _MOST_DATASETS or prefix.count(".") > _DEEPEST_GROUP:
        raise CorruptFileError(f"{path}: the group {prefix or '/'} holds too much or lies too deep")
    for key in group:
        name = f"{prefix}{key}"
        if key.startswith("#"):  # MATLAB's store for cells and objects
            continue
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise UnsafeFileError(
                f"{path}: {name} is a link to another place or file; it is refused: copy the data"
            )
        item = group[key]
        if isinstance(item, h5py.Group):
            yield from _datasets(path, item, f"{name}.", h5py)
        elif isinstance(item, h5py.Dataset):
            yield name, item


def _array(path: Path | str, name: str, dataset: Any, h5py: Any, *, is_matlab: bool) -> np.ndarray:
    _check_storage(path, name, dataset)
    if h5py.check_string_dtype(dataset.dtype) is not None:
        return np.asarray(dataset.asstr()[()], dtype=np.str_)
    if dataset.dtype.hasobject:  # references, as a MATLAB cell has them
        return np.full((), None)
    array = np.asarray(dataset[()])
    if is_matlab and dataset.attrs.get("MATLAB_class") == b"char":
        return np.array(["".join(map(chr, row)).rstrip() for row in np.atleast_2d(array.T)])
    return array.T if is_matlab else array


def _check_storage(path: Path | str, name: str, dataset: Any) -> None:
    if dataset.is_virtual or dataset.external:
        raise UnsafeFileError(f"{path}: {name} takes its values from other files; it is refused: copy the data")
    if dataset.shape is None:
        raise CorruptFileError(f"{path}: {name} has no values")
    stored = dataset.id.get_storage_size()
    check_expansion(path, name, dataset.nbytes, stored)
    if dataset.chunks is not None:
        expected = math.prod(math.ceil(n / c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        is_whole = dataset.id.get_num_chunks() >= expected
    else:
        is_whole = stored > 0 or dataset.nbytes == 0
    if not is_whole:
        raise CorruptFileError(f"{path}: {name} was never written completely; the rest would read as zeros")
