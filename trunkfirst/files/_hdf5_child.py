"""The process that reads an HDF5 file for `_hdf5.py`, within bounds of time and memory that the system keeps.

It is told on standard input what to read, and writes to standard output: for every array a line of JSON about it,
then its bytes; at the end, or instead, a line with the error.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, UnsafeFileError
from ._hdf5 import import_h5py
from ._limits import Budget

_MOST_DATASETS = 10_000
_DEEPEST_GROUP = 2
_MOST_WORDS = 10_000
# Beyond what the arrays need
_SPARE_BYTES = 2**27
_SPARE_SECONDS = 0.5
_SLOWEST_BYTES = 2**24
"""A second."""


def main() -> None:
    """Read one file."""
    job = json.loads(sys.stdin.buffer.read())
    path = Path(job["path"])
    h5py = import_h5py(path)
    try:
        _limit(0, job["size"])
        with path.open("rb") as raw, h5py.File(raw, "r") as file:
            found = dict(_datasets(path, file, "", h5py))
            budget = Budget(path, job["size"], job["most"])
            claims = {name: _claim(path, name, item) for name, item in found.items()}
            for name, claim in claims.items():
                budget.take(name, claim)
            claimed = sum(claims.values())
            _limit(2 * claimed, claimed)
            for name, dataset in found.items():
                _send(name, _array(dataset, h5py, is_matlab=job["is_matlab"]))
            _say({})
    except CorruptFileError as error:
        _say({"error": type(error).__name__, "message": str(error)})
    except Exception as error:  # whatever the library raises on damage
        _say({"error": "CorruptFileError", "message": f"cannot read {path} as HDF5: {error}"})


def _limit(memory: int, work: int) -> None:
    """From now on so many bytes more, and seconds for so many bytes of `work`; then the system ends us."""
    try:
        import resource
    except ImportError:  # Windows
        return
    seconds = math.ceil(time.process_time() + _SPARE_SECONDS) + work // _SLOWEST_BYTES
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
    pages = Path("/proc/self/statm")
    if pages.exists():
        used = int(pages.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _SPARE_BYTES + memory, resource.RLIM_INFINITY))


def _datasets(path: Path, group: Any, prefix: str, h5py: Any) -> Iterator[tuple[str, Any]]:
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


def _claim(path: Path, name: str, dataset: Any) -> int:
    """How many bytes the dataset takes in memory; it must lie in this file, and wholly."""
    if dataset.is_virtual or dataset.external:
        raise UnsafeFileError(f"{path}: {name} takes its values from other files; it is refused: copy the data")
    if dataset.shape is None:
        raise CorruptFileError(f"{path}: {name} has no values")
    if dataset.chunks is not None:
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
        expected = math.prod(math.ceil(n / c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
        is_whole = dataset.id.get_num_chunks() >= expected
    else:
        chunk = 0
        is_whole = dataset.id.get_storage_size() > 0 or dataset.nbytes == 0
    if not is_whole:
        raise CorruptFileError(f"{path}: {name} was never written completely; the rest would read as zeros")
    return max(dataset.nbytes, chunk)


def _array(dataset: Any, h5py: Any, *, is_matlab: bool) -> np.ndarray:
    if h5py.check_string_dtype(dataset.dtype) is not None:
        if dataset.size > _MOST_WORDS:
            raise ValueError(f"{dataset.name} holds {dataset.size:,} words")
        return np.asarray(dataset.asstr()[()], dtype=np.str_)
    if dataset.dtype.hasobject:  # references, as a MATLAB cell has them
        return np.full((), None)
    array = np.asarray(dataset[()])
    if is_matlab and dataset.attrs.get("MATLAB_class") == b"char":
        return np.array(["".join(map(chr, row)).rstrip() for row in np.atleast_2d(array.T)])
    return array.T if is_matlab else array


def _send(name: str, array: np.ndarray) -> None:
    if array.dtype.kind == "U":
        _say({"name": name, "words": array.tolist(), "shape": array.shape})
    elif array.dtype.kind in "biufc":
        _say({"name": name, "dtype": array.dtype.str, "shape": array.shape})
        sys.stdout.buffer.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    else:
        _say({"name": name})


def _say(about: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n")
    sys.stdout.buffer.flush()
