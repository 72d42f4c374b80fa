"""Named arrays in HDF5, as far as they lie in the file itself. Needs h5py, which is imported on use.

A damaged file can crash or hang the HDF5 library itself (about one in a thousand with a few bytes changed, h5py
3.16): it is read by another process, `_hdf5_child.py`, that may end as it likes.
"""

import importlib
import importlib.util
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..errors import CorruptFileError, MissingExtraError, UnsafeFileError
from ._atomic import atomic_write
from ._formats import parse_json
from ._limits import Budget, open_file, size_of

# The child imports from where this process does, but never from the folder that it happens to be in.
_CHILD = """import sys; sys.path[:] = sys.argv[1:]; from trunkfirst.files import _hdf5_child; _hdf5_child.main()"""
_LONGEST_HEADER = 2**22
_KINDS = {kind.__name__: kind for kind in (CorruptFileError, UnsafeFileError)}


def write_hdf5(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays with checksums; the name "inputs.f" becomes the dataset f in the group inputs."""
    h5py = import_h5py(path)
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
    if importlib.util.find_spec("h5py") is None:
        raise _missing(path)
    with open_file(path) as file:
        size = size_of(file)
    budget = Budget(path, size)
    job = {"path": str(path), "is_matlab": is_matlab, "size": size, "most": budget.most}
    command = [sys.executable, "-P", "-c", _CHILD, *filter(None, sys.path)]
    # No plugins of the HDF5 library, and no threads, which take address space.
    environment = os.environ | {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(  # noqa: S603 - our own interpreter, our own words
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(job).encode())
            child.stdin.close()
            return _received(path, cast("io.BufferedReader", child.stdout), budget)
        except (BrokenPipeError, EOFError) as error:
            raise CorruptFileError(
                f"cannot read {path} as HDF5: it brings its reader down, by a crash or by asking for too much"
            ) from error
        finally:
            child.kill()


def _received(path: Path | str, stream: io.BufferedReader, budget: Budget) -> dict[str, np.ndarray]:
    """The arrays as the child sends them: each a line about it, then its bytes."""
    arrays: dict[str, np.ndarray] = {}
    while True:
        line = stream.readline(_LONGEST_HEADER)
        if not line.endswith(b"\n"):
            raise EOFError
        about = parse_json(line, path)
        if "error" in about:
            raise _KINDS[about["error"]](about["message"])
        if "name" not in about:
            return arrays
        arrays[about["name"]] = _array(about, stream, budget)


def _array(about: dict[str, Any], stream: io.BufferedReader, budget: Budget) -> np.ndarray:
    if "words" in about:
        return np.asarray(about["words"], np.str_).reshape(about["shape"])
    if "dtype" not in about:
        return np.full((), None)
    dtype = np.dtype(about["dtype"])
    budget.take(about["name"], math.prod(about["shape"]) * dtype.itemsize)
    array = np.empty(about["shape"], dtype)
    content = array.reshape(-1).view(np.uint8).data
    if stream.readinto(content) != len(content):
        raise EOFError
    return array


def import_h5py(path: Path | str) -> Any:
    """The package, untyped as it is."""
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise _missing(path) from error


def _missing(path: Path | str) -> MissingExtraError:
    return MissingExtraError(f"{path} is HDF5, which", "h5py", "hdf5")
