"""Named arrays in HDF5. Needs h5py, which is imported on use.

A damaged file can crash or hang the HDF5 library itself (about one in a thousand with a few bytes changed, h5py
3.16). So a child process, `serve_child`, reads the file under limits of memory and time. It gets its job as JSON
on standard input and writes to standard output: for every array a line of JSON, then its bytes; at the end, or
instead, a line with the error.
"""

import faulthandler
import importlib.util
import io
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from ..errors import CorruptFileError, MissingExtraError, UnsafeFileError, import_extra
from .integrity import Budget, atomic_write, open_file, size_of
from .text_files import parse_json

Labels: TypeAlias = dict[str, Any]
"""Of an array: the names of its `axes`, and attributes of netCDF."""
# Attributes of netCDF that matter here.
ATTRIBUTES = ("units", "coordinates", "scale_factor", "add_offset", "_FillValue", "missing_value")
# What netCDF stores for a dimension without coordinates.
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
# The child uses this process's import path, but never the current folder.
_CHILD = "import sys; sys.path[:] = sys.argv[1:]; from trunkfirst.files.{} import serve_child; serve_child()"
_LONGEST_HEADER = 2**22
_KINDS = {kind.__name__: kind for kind in (CorruptFileError, UnsafeFileError)}
_MOST_DATASETS = 10_000
_DEEPEST_GROUP = 2
_MOST_WORDS = 10_000
# The child may use this much beyond the arrays; bytes per second below which reading counts as stuck.
_SPARE_BYTES, _SPARE_SECONDS, _SLOWEST_RATE = 2**27, 0.5, 2**24


def write_hdf5(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays with checksums; the name "inputs.f" becomes the dataset f in the group inputs."""
    h5py = import_extra(_needs(path), "h5py", "hdf5")
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

    Links and storage outside of the file are refused, and arrays that were never written. A MATLAB file has its
    axes in reverse order and its texts as numbers; both are corrected. A dataset that is neither numbers nor text
    becomes an array of objects, all None.
    """
    return {name: array for name, (array, _) in read_with_labels(path, is_matlab=is_matlab).items()}


def read_with_labels(path: Path | str, *, is_matlab: bool = False) -> dict[str, tuple[np.ndarray, Labels]]:
    """Read all arrays as `read_hdf5` does, with the names of their axes and their attributes, as netCDF has."""
    if importlib.util.find_spec("h5py") is None:
        raise MissingExtraError(_needs(path), "h5py", "hdf5")
    with open_file(path) as file:
        size = size_of(file)
    return read_in_child("hdf5", path, size, is_matlab=is_matlab)


def read_in_child(module: str, path: Path | str, size: int, **job: Any) -> dict[str, tuple[np.ndarray, Labels]]:
    """Let `serve_child` of a module of this package read a file of `size` bytes in a process of its own."""
    budget = Budget(path, size)
    job |= {"path": str(path), "size": size, "most": budget.most}
    command = [sys.executable, "-P", "-c", _CHILD.format(module), *filter(None, sys.path)]
    # No plugins of the HDF5 library, and no threads, which take address space.
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "BLOSC_NTHREADS", "MALLOC_ARENA_MAX"), "1")
    with subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"HDF5_PLUGIN_PRELOAD": "::", **threads},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(job).encode())
            child.stdin.close()
            return dict(_received(path, cast("io.BufferedReader", child.stdout), budget))
        except (BrokenPipeError, EOFError) as error:
            raise CorruptFileError(
                f"cannot read {path}{' as HDF5' if module == 'hdf5' else ''}: the process that reads it crashed, "
                "or needed too much memory or time"
            ) from error
        finally:
            child.kill()


def _received(
    path: Path | str, stream: io.BufferedReader, budget: Budget
) -> Iterator[tuple[str, tuple[np.ndarray, Labels]]]:
    while True:
        line = stream.readline(_LONGEST_HEADER)
        if not line.endswith(b"\n"):
            raise EOFError
        header = parse_json(line, path)
        if "error" in header:
            raise _KINDS[header["error"]](header["message"])
        if "name" not in header:
            return
        yield header["name"], (_receive_array(header, stream, budget), header.get("labels", {}))


def _receive_array(header: dict[str, Any], stream: io.BufferedReader, budget: Budget) -> np.ndarray:
    if "words" in header:
        return np.asarray(header["words"], np.str_).reshape(header["shape"])
    if "dtype" not in header:
        return np.full((), None)
    dtype = np.dtype(header["dtype"])
    budget.take(header["name"], math.prod(header["shape"]) * dtype.itemsize)
    array = np.empty(header["shape"], dtype)
    content = array.reshape(-1).view(np.uint8).data
    if stream.readinto(content) != len(content):
        raise EOFError
    return array


def _needs(path: Path | str) -> str:
    return f"{path} is HDF5, which"


# -- the child process


def serve_child() -> None:
    """Read one file, named on standard input, and send its arrays to standard output."""
    serve(_serve_hdf5, "HDF5")


def serve(read: Callable[[dict[str, Any], Path], None], kind: str) -> None:
    """Call `read` with the job and the path that come on standard input, and send its error, if any."""
    job = json.loads(sys.stdin.buffer.read())
    path = Path(job["path"])
    try:
        read(job, path)
        send({})
    except CorruptFileError as error:
        send({"error": type(error).__name__, "message": str(error)})
    except Exception as error:  # whatever the library raises on damage
        send({"error": "CorruptFileError", "message": f"cannot read {path} as {kind}: {error}"})


def _serve_hdf5(job: dict[str, Any], path: Path) -> None:
    h5py = import_extra(_needs(path), "h5py", "hdf5")
    limit(0, job["size"])
    with path.open("rb") as raw, h5py.File(raw, "r") as file:
        found = {name: item for name, item in _datasets(path, file, "", h5py) if not _is_bare_dimension(item)}
        allow(path, {name: _claim(path, name, item) for name, item in found.items()}, job)
        for name, dataset in found.items():
            send_array(name, _array(dataset, h5py, is_matlab=job["is_matlab"]), _labels(dataset, name))


def allow(path: Path, claims: Mapping[str, int], job: Mapping[str, Any]) -> None:
    """Raise the limits to what the arrays need, unless that is more than a file of this size may hold."""
    budget = Budget(path, job["size"], job["most"])
    for name, claim in claims.items():
        budget.take(name, claim)
    claimed = sum(claims.values())
    limit(2 * claimed, claimed)


def _is_bare_dimension(dataset: Any) -> bool:
    name = dataset.attrs.get("NAME", b"") if dataset.is_scale else b""
    return (name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)).startswith(_NO_VARIABLE)


def _labels(dataset: Any, name: str) -> Labels:
    scales = [[scale.name for scale in dimension.values()] for dimension in dataset.dims]
    axes = [name] if dataset.is_scale else [names[0].rpartition("/")[2] for names in scales if names]
    return {"axes": axes if len(axes) == dataset.ndim else None, **attributes_of(dataset.attrs)}


def attributes_of(attributes: Mapping[str, Any]) -> Labels:
    """Those attributes that matter here, as text and numbers."""
    found: Labels = {}
    for name in ATTRIBUTES:
        value = np.ravel(attributes.get(name, ()))
        if value.size == 1:
            item = value[0]
            item = item.item() if isinstance(item, np.generic) else item
            found[name] = item.decode("utf-8", "replace") if isinstance(item, bytes) else item
    return found


def limit(memory: int, work: int) -> None:
    """Cap address space at `memory` more bytes (on Linux), and CPU time at what `work` bytes may take."""
    seconds = math.ceil(time.process_time() + _SPARE_SECONDS) + work // _SLOWEST_RATE
    if sys.platform == "win32":  # time on the clock; this timer ends the process even inside the HDF5 library
        faulthandler.dump_traceback_later(seconds, exit=True)
        return
    import resource

    limits = {resource.RLIMIT_CPU: seconds}
    pages = Path("/proc/self/statm")
    if pages.exists():
        used = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = used + _SPARE_BYTES + memory
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _datasets(path: Path, group: Any, prefix: str, h5py: Any) -> Iterator[tuple[str, Any]]:
    """Yield all datasets below `group` by name, reached by hard links alone."""
    if len(group) > _MOST_DATASETS or prefix.count(".") > _DEEPEST_GROUP:
        raise CorruptFileError(f"{path}: the group {prefix or '/'} has too many entries, or is nested too deeply")
    for key in group:
        name = f"{prefix}{key}"
        if key.startswith("#"):  # MATLAB's store for cells and objects
            continue
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise UnsafeFileError(
                f"{path}: {name} is a link to another place or file, which is refused; copy the data"
            )
        item = group[key]
        if isinstance(item, h5py.Group):
            yield from _datasets(path, item, f"{name}.", h5py)
        elif isinstance(item, h5py.Dataset):
            yield name, item


def _claim(path: Path, name: str, dataset: Any) -> int:
    """Return the bytes that a dataset takes in memory; it must be in this file, and complete."""
    if dataset.is_virtual or dataset.external:
        raise UnsafeFileError(f"{path}: {name} has its values in other files, which is refused; copy the data")
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
    if dataset.dtype.hasobject:  # references, as in a MATLAB cell
        return np.full((), None)
    array = np.asarray(dataset[()])
    if is_matlab and dataset.attrs.get("MATLAB_class") == b"char":
        return np.array(["".join(map(chr, row)).rstrip() for row in np.atleast_2d(array.T)])
    return array.T if is_matlab else array


def send_array(name: str, array: np.ndarray, labels: Labels) -> None:
    """Send a line of JSON, then the bytes of numbers."""
    if array.dtype.kind == "U":
        send({"name": name, "words": array.tolist(), "shape": array.shape, "labels": labels})
    elif array.dtype.kind in "biufc":
        send({"name": name, "dtype": array.dtype.str, "shape": array.shape, "labels": labels})
        sys.stdout.buffer.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    else:
        send({"name": name})


def send(header: dict[str, Any]) -> None:
    """Send a line of JSON."""
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\n")
    sys.stdout.buffer.flush()
