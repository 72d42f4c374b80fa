"""Named arrays in MATLAB's mat format: versions 5 to 7 read here, 7.3 (which is HDF5) through h5py.

SciPy writes, but does not read: its reader (1.17) crashes the process on some damaged files.
"""

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..errors import CorruptFileError, DataError
from .hdf5 import read_hdf5
from .integrity import Budget, atomic_write, open_file, reading, size_of

_LONGEST_NAME = 63
_LARGEST_BYTES = 2**31 - 1
_MOST_ELEMENTS = 10_000
_MOST_AXES = 32
_LONGEST_TEXT = 2**20
# The format's own numbers: types of stored values, kinds of elements, classes of matrices.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {2: "latin-1", 4: "utf-16-{}", 16: "utf-8", 17: "utf-16-{}", 18: "utf-32-{}"}
_MATRIX, _COMPRESSED = 14, 15
_STRUCT, _CHAR = 2, 4
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}

Element: TypeAlias = tuple[int, memoryview]


def write_mat(path: Path | str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a version 5 file; the name "inputs.f", which MATLAB cannot have, becomes inputs_f."""
    import scipy.io

    renamed = {name.replace(".", "_"): array for name, array in arrays.items()}
    for name, array in renamed.items():
        if not (name.isascii() and name.isidentifier()) or name.startswith("_") or len(name) > _LONGEST_NAME:
            raise DataError(f"{path}: {name!r} is not a valid name in MATLAB; rename this input or label")
        if array.nbytes > _LARGEST_BYTES:
            raise DataError(f"{path}: {name} has more than 2 GiB, the most a mat file can hold; use .npz or .h5")
    with atomic_write(path) as file:
        scipy.io.savemat(file, renamed, appendmat=False, oned_as="column", long_field_names=True)


def read_mat(path: Path | str) -> dict[str, np.ndarray]:
    """Read all matrices; the field f of a struct inputs is called "inputs.f".

    A matrix that is neither numbers nor text (a cell, a sparse matrix) becomes an array of objects, all None.
    """
    with open_file(path) as file:
        budget = Budget(path, size_of(file))
        content = file.read()
    if content.startswith(b"MATLAB 7.3") or b"\x89HDF" in (content[:4], content[512:516]):
        return read_hdf5(path, is_matlab=True)
    if content[126:128] not in (b"IM", b"MI"):
        raise CorruptFileError(f"{path} is not a mat file of version 5 to 7.3; save it again with -v7")
    order = "<" if content[126:128] == b"IM" else ">"
    with reading(path, "a mat file", OSError, ValueError, IndexError, MemoryError, OverflowError, zlib.error):
        matrices = [_unpacked(budget, e, order) for e in _elements(memoryview(content)[128:], order)]
        return {name: array for matrix in matrices for name, array in _named(matrix, order, budget) if name}


def _elements(data: memoryview, order: str) -> Iterator[Element]:
    """Yield consecutive elements of `data` as (type, content)."""
    at = 0
    for count in itertools.count():
        if at + 8 > len(data):
            return
        if count == _MOST_ELEMENTS:
            raise ValueError(f"more than {_MOST_ELEMENTS:,} elements in a row")
        kind, size = (int(number) for number in np.frombuffer(data, f"{order}u4", 2, at))
        start = at + 8
        if kind >> 16:  # a small element: type and length in four bytes, content in the next four
            kind, size, start = kind & 0xFFFF, kind >> 16, at + 4
        if start + size > len(data) or (start == at + 4 and size > 4):
            raise ValueError("an element is longer than the data around it")
        yield kind, data[start : start + size]
        at = start + size if kind == _COMPRESSED else at + 8 * math.ceil((start - at + size) / 8)


def _unpacked(budget: Budget, element: Element, order: str) -> memoryview:
    """Return the content of a matrix element, which may be compressed."""
    kind, data = element
    if kind == _COMPRESSED:
        unpack = zlib.decompressobj()
        head = unpack.decompress(data, 8)
        kind, size = (int(number) for number in np.frombuffer(head, f"{order}u4", 2))
        budget.take("a compressed matrix", size)
        data = memoryview(unpack.decompress(unpack.unconsumed_tail, max(size, 1)))
        rest = unpack.decompress(unpack.unconsumed_tail, 1)  # at the end the checksum is compared
        if len(data) != size or rest or not unpack.eof:
            raise ValueError("a compressed matrix is cut short")
    if kind != _MATRIX:
        raise ValueError(f"expected a matrix, got an element of type {kind}")
    return data


def _named(data: memoryview, order: str, budget: Budget, prefix: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield the matrix in `data` by name; of a struct, its fields."""
    (_, flags), (_, sizes), (_, text), *parts = _elements(data, order)
    kind = int(np.frombuffer(flags, f"{order}u4", 1)[0])
    shape = tuple(int(length) for length in np.frombuffer(sizes, f"{order}i4", min(len(sizes) // 4, _MOST_AXES)))
    name = prefix or bytes(text).decode("latin-1")
    if min(shape, default=-1) < 0 or len(sizes) != 4 * len(shape):
        raise ValueError(f"{name} has the shape {shape}")
    if kind & 0xFF in _CLASSES:
        budget.take(name, math.prod(shape) * (16 if kind & 0x800 else 8))
        yield name, _numbers(parts, shape, _CLASSES[kind & 0xFF], order, is_complex=bool(kind & 0x800))
    elif kind & 0xFF == _CHAR:
        yield name, _text(parts, shape, order)
    elif kind & 0xFF == _STRUCT and math.prod(shape) == 1 and not prefix:
        yield from _fields(parts, name, order, budget)
    else:
        yield name, np.full((), None)


def _numbers(
    parts: list[Element], shape: tuple[int, ...], dtype: str, order: str, *, is_complex: bool
) -> np.ndarray:
    """Return numbers; MATLAB stores them in the smallest type that holds them, `dtype` is their own."""
    arrays = [np.frombuffer(data, order + _known(_NUMBERS, kind)) for kind, data in parts[: 1 + is_complex]]
    if any(array.size != math.prod(shape) for array in arrays):
        raise ValueError(f"{arrays[0].size} values for the shape {shape}")
    array = arrays[0].astype(dtype)
    if is_complex:
        array = array + 1j * arrays[1]
    return array.reshape(shape, order="F")


def _text(parts: list[Element], shape: tuple[int, ...], order: str) -> np.ndarray:
    """Return rows of letters as words."""
    if math.prod(shape) == 0:
        return np.array([], dtype=np.str_)
    kind, data = parts[0]
    if len(data) > _LONGEST_TEXT:
        raise ValueError(f"a text of {len(data):,} bytes")
    letters = bytes(data).decode(_known(_TEXTS, kind).format("le" if order == "<" else "be"))
    rows = np.array(list(letters)).reshape(shape, order="F").reshape(shape[0], -1)
    return np.array(["".join(row).rstrip() for row in rows])


def _known(names: Mapping[int, str], kind: int) -> str:
    if kind not in names:
        raise ValueError(f"values of the unknown type {kind}")
    return names[kind]


def _fields(parts: list[Element], name: str, order: str, budget: Budget) -> Iterator[tuple[str, np.ndarray]]:
    length = int(np.frombuffer(parts[0][1], f"{order}i4", 1)[0])
    text = bytes(parts[1][1])
    if length < 1 or len(text) != length * (len(parts) - 2):
        raise ValueError(f"the numbers of fields and names of {name} differ")
    for index, (_, data) in enumerate(parts[2:]):
        field = text[index * length : (index + 1) * length].split(b"\0")[0].decode("latin-1")
        yield from _named(data, order, budget, f"{name}.{field}")
