"""Arrays in NumPy's formats npz and npy, read without running code."""

import contextlib
import math
import tokenize
import zipfile
import zlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import numpy as np

from ..errors import CorruptFileError, UnsafeFileError
from .integrity import Budget, atomic_write, open_file, reading, size_of

_MOST_ARRAYS = 10_000
_LARGEST_DIRECTORY = 2**21
_SMALLEST_MAPPED = 2**16
# Bytes before the name of an entry.
_LOCAL_HEADER = 30
# Raised by the zip and npy readers on damage.
_DAMAGE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    AttributeError,
    TypeError,
    MemoryError,
    OverflowError,
    RuntimeError,  # an encrypted zip, or one of an unknown kind
    zipfile.BadZipFile,
    zlib.error,
    SyntaxError,  # NumPy reads the header of an array as the text of a Python literal
    tokenize.TokenError,
)


def write_npz(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays, uncompressed; the zip container has a checksum of each."""
    with atomic_write(path) as file:
        np.savez(file, **{name: np.asarray(array) for name, array in arrays.items()})  # pyright: ignore[reportArgumentType]


def read_npz(path: Path | str) -> dict[str, np.ndarray]:
    """Read named arrays; pickled objects are refused, and a file that claims more than it holds."""
    with _opened(path) as (archive, entries):
        return {_name(entry): _array(path, archive, entry) for entry in entries}


def read_npy(path: Path | str) -> np.ndarray:
    """Read one array; pickled objects are refused, and a file that claims more than it holds."""
    with reading(path, "npy", *_DAMAGE), open_file(path) as file:
        header = _header(path, Path(path).name, file, size_of(file))
        file.seek(0)
        return _read_array(file, header)


def map_npz(path: Path | str, *, is_verified: bool = False) -> dict[str, np.ndarray]:
    """Read a file larger than memory: uncompressed numbers are memory-mapped, the rest is read.

    The checksum of every mapped array is compared first, in one pass, unless the file `is_verified`.
    """
    with _opened(path) as (archive, entries):
        return {
            _name(entry): _mapped(path, archive, entry, is_verified=is_verified)
            if entry.compress_type == zipfile.ZIP_STORED and entry.file_size >= _SMALLEST_MAPPED
            else _array(path, archive, entry)
            for entry in entries
        }


@contextlib.contextmanager
def _opened(path: Path | str) -> Generator[tuple[zipfile.ZipFile, list[zipfile.ZipInfo]]]:
    with reading(path, "npz", *_DAMAGE), open_file(path) as file:
        if file.read(1) == b"\x80":
            raise UnsafeFileError(f"{path} is a pickle, which can run any code when read; it is refused")
        _check_directory(path, file)
        with zipfile.ZipFile(file) as archive:
            yield archive, _entries(path, archive, size_of(file))


def _name(entry: zipfile.ZipInfo) -> str:
    return entry.filename.removesuffix(".npy")


def _check_directory(path: Path | str, file: BinaryIO) -> None:
    """Limit the list of entries, which the zip reader loads completely; its size is given near the end."""
    size = size_of(file)
    file.seek(max(0, size - 2**16 - 100))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    wide = tail[max(0, end - 76) :][:4] == b"PK\6\6" and end >= 76
    found = tail[end - 36 : end - 28] if wide else tail[end + 12 : end + 16]
    if end >= 0 and int.from_bytes(found, "little") > _LARGEST_DIRECTORY:
        raise CorruptFileError(f"{path}: too many arrays, or their names are too long")


def _entries(path: Path | str, archive: zipfile.ZipFile, size: int) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if any(entry.filename.endswith(".pkl") for entry in entries):
        raise UnsafeFileError(
            f"{path} holds a pickle, as torch.save writes it, which can run any code; it is refused"
        )
    if len(entries) > _MOST_ARRAYS or len(set(map(_name, entries))) != len(entries):
        raise CorruptFileError(
            f"{path}: it has {len(entries)} arrays, which is too many, or two with the same name"
        )
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise CorruptFileError(f"{path} has a compression that NumPy does not use; save it again with np.savez")
    if sum(entry.compress_size for entry in entries) > size:
        raise CorruptFileError(f"{path}: entries of the archive overlap")
    budget = Budget(path, size)
    for entry in entries:
        budget.take(_name(entry), entry.file_size)
    return entries


def _array(path: Path | str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Read one array; its header must agree with the size of the entry."""
    header = _entry_header(path, archive, entry)
    with archive.open(entry) as file:
        return _read_array(file, header)


def _read_array(file: IO[bytes], header: "_Header") -> np.ndarray:
    array = np.lib.format.read_array(file, allow_pickle=False)
    if header.dtype.kind == "U":
        _check_letters(array)
    return array


class _Header(NamedTuple):
    """The header of an array, and its own size in bytes."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype
    size: int


def _entry_header(path: Path | str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Header:
    with archive.open(entry) as file:
        return _header(path, _name(entry), file, entry.file_size)


def _header(path: Path | str, name: str, file: IO[bytes], size: int) -> _Header:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise CorruptFileError(f"{path}: {name} has the unknown npy version {version}")
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    found = _Header(*read_header(file), file.tell())
    if found.dtype.hasobject:
        raise UnsafeFileError(
            f"{path}: {name} holds Python objects, which can run any code when read; it is refused. If "
            f"you trust the file, convert it in Python: import numpy as np; {_conversion(Path(path))}"
        )
    if math.prod(found.shape) * found.dtype.itemsize != size - found.size:
        raise CorruptFileError(f"{path}: {name} claims the shape {found.shape}, but the file has other contents")
    return found


def _conversion(path: Path) -> str:
    """What to do in Python with an array of objects in a trusted file."""
    old, new = f"np.load({str(path)!r}, allow_pickle=True)", str(path.with_suffix("")) + f"-plain{path.suffix}"
    if path.suffix.lower() == ".npy":
        return f"np.save({new!r}, np.array({old}.tolist(), float))"
    return f"old = {old}; np.savez({new!r}, **{{k: np.array(old[k].tolist(), float) for k in old.files}})"


def _mapped(
    path: Path | str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, *, is_verified: bool
) -> np.ndarray:
    header = _entry_header(path, archive, entry)
    if not is_verified:
        with archive.open(entry) as file:
            while file.read(2**22):  # compares the checksum at the end
                pass
    with open_file(path) as file:
        file.seek(entry.header_offset)
        local = file.read(_LOCAL_HEADER)
        lengths = int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
        begin = entry.header_offset + _LOCAL_HEADER + lengths
        if local[:4] != b"PK\3\4" or begin + entry.file_size > size_of(file):
            raise CorruptFileError(f"{path}: {_name(entry)} is not at the offset that the file gives")
    order = "F" if header.is_fortran else "C"
    return np.memmap(path, header.dtype, "r", begin + header.size, header.shape, order)


def _check_letters(array: np.ndarray) -> None:
    """Refuse letters that Unicode does not have: Python itself fails on them later."""
    codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise ValueError("a text has letters that Unicode does not have")
