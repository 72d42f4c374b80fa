"""Named arrays in NumPy's npz format, read without ever running code."""

import math
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..errors import CorruptFileError, TrunkfirstError, UnsafeFileError
from ._atomic import atomic_write
from ._limits import check_expansion

_MOST_ARRAYS = 10_000
# What the zip and npy readers raise on damage.
_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    AttributeError,
    TypeError,
    MemoryError,
    OverflowError,
    RuntimeError,  # an encrypted or unknown kind of zip
    zipfile.BadZipFile,
    zlib.error,
)


def write_npz(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays, uncompressed; the zip container carries a checksum of each."""
    with atomic_write(path) as file:
        np.savez(file, **{name: np.asarray(array) for name, array in arrays.items()})  # pyright: ignore[reportArgumentType]


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """Read named arrays; pickled objects are refused, and a file that claims more than it holds."""
    try:
        with Path(path).open("rb") as file:
            if file.read(1) == b"\x80":
                raise UnsafeFileError(f"{path} is a pickle, which can run any code when read; it is refused")
            with zipfile.ZipFile(file) as archive:
                return {_name(entry): _array(path, archive, entry) for entry in _entries(path, archive)}
    except TrunkfirstError:
        raise
    except _DAMAGE as error:
        raise CorruptFileError(f"cannot read {path} as npz: {error}") from error


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _entries(path: Path | str, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if any(entry.filename.endswith(".pkl") for entry in entries):
        raise UnsafeFileError(
            f"{path} holds a pickle, as torch.save writes it, which can run any code; it is refused"
        )
    if len(entries) > _MOST_ARRAYS or len(set(map(_name, entries))) != len(entries):
        raise CorruptFileError(f"{path}: {len(entries)} arrays, too many or two of one name")
    check_expansion(path, "the archive", sum(e.file_size for e in entries), sum(e.compress_size for e in entries))
    return entries


def _array(path: Path | str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """One array; its header is believed only if it agrees with the size of the entry."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise CorruptFileError(f"{path}: {_name(entry)} has the unknown npy version {version}")
        read_header = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise UnsafeFileError(_objects(path, _name(entry)))
        if math.prod(shape) * dtype.itemsize != entry.file_size - file.tell():
            raise CorruptFileError(f"{path}: {_name(entry)} says shape {shape}, which is not what the file holds")
    with archive.open(entry) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _objects(path: Path | str, name: str) -> str:
    return (
        f"{path}: {name} holds Python objects, which can run any code when read; it is refused. If you trust the "
        f"file, convert it in Python: import numpy as np; old = np.load({str(path)!r}, allow_pickle=True); "
        f"np.savez({str(Path(path).with_suffix('')) + '-plain.npz'!r}, **{{k: np.array(old[k].tolist(), float) "
        "for k in old.files})"
    )
