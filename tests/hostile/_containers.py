"""Mat files, HDF5 and tables."""

import importlib
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from trunkfirst.files.hdf5 import read_hdf5
from trunkfirst.files.mat import read_mat
from trunkfirst.files.text_files import read_csv, read_csv_folder

from ._cases import canary_of, case

HEAD = b"MATLAB 5.0".ljust(124) + struct.pack("<H2s", 0x100, b"IM")


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content.ljust(-(-len(content) // 8) * 8, b"\0")


def matrix(shape: bytes, *parts: bytes, kind: int = 6) -> bytes:
    """A matrix called a."""
    flags, name = element(6, struct.pack("<II", kind, 0)), element(1, b"a")
    return element(14, flags + element(5, shape) + name + b"".join(parts))


def mat(folder: Path, content: bytes) -> Path:
    (folder / "x.mat").write_bytes(HEAD + content)
    return folder / "x.mat"


@case(read_mat, "claims 0.2 GiB but takes")
def mat_bomb(folder: Path) -> Path:
    pack = zlib.compressobj(1)
    content = pack.compress(struct.pack("<II", 14, 200 * 2**20))
    content += b"".join(pack.compress(bytes(2**20)) for _ in range(200)) + pack.flush()
    return mat(folder, struct.pack("<II", 15, len(content)) + content)


@case(read_mat, "longer than the data around it")
def mat_element_longer_than_the_file(folder: Path) -> Path:
    return mat(folder, struct.pack("<II", 14, 2**31))


@case(read_mat, "claims")
def mat_shape_bomb(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<ii", 2**31 - 1, 2**31 - 1), element(9, bytes(8))))


@case(read_mat, "has the shape")
def mat_of_a_hundred_thousand_axes(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<i", 2**31 - 1) * 10**5, element(9, bytes(8))))


@case(read_mat, "has the shape")
def mat_of_negative_size(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<ii", -2, -1), element(9, bytes(16))))


@case(read_mat, "elements in a row")
def mat_of_a_million_elements(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<ii", 1, 1), element(9, b"") * 10**6))


@case(read_mat, "a text of")
def mat_of_endless_text(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<ii", 1, 2**24), element(16, bytes(2**24)), kind=4))


@case(read_mat, "cannot read")
def mat_text_that_is_none(folder: Path) -> Path:
    return mat(folder, matrix(struct.pack("<ii", 1, 2), element(16, b"\xff\xfe"), kind=4))


@case(read_mat, "cannot read")
def mat_of_broken_compression(folder: Path) -> Path:
    return mat(folder, struct.pack("<II", 15, 100) + b"\x78\x9c" + b"\xff" * 98)


# -- HDF5


def h5(words: str) -> Callable[[Callable[[Any, Any, Path], None]], None]:
    """A case whose function fills an HDF5 file."""

    def register(fill: Callable[[Any, Any, Path], None]) -> None:
        def make(folder: Path) -> Path:
            h5py = importlib.import_module("h5py")
            with h5py.File(folder / "x.h5", "w") as file:
                fill(file, h5py, canary_of(folder))
            return folder / "x.h5"

        make.__name__ = fill.__name__
        case(read_hdf5, words, extra="h5py")(make)

    return register


def good_h5(folder: Path) -> Path:
    """What an honest file looks like."""
    with importlib.import_module("h5py").File(folder / "good.h5", "w") as file:
        file["inputs"] = np.ones((3, 2))
    return folder / "good.h5"


@h5("is a link")
def hdf5_external_link(file: Any, h5py: Any, canary: Path) -> None:
    file["a"] = h5py.ExternalLink(str(canary), "/values")


@h5("is a link")
def hdf5_soft_link(file: Any, h5py: Any, canary: Path) -> None:
    file["there"] = h5py.ExternalLink(str(canary), "/")
    file["a"] = h5py.SoftLink("/there/values")


@h5("in other files")
def hdf5_external_storage(file: Any, h5py: Any, canary: Path) -> None:
    file.create_dataset("a", (4,), "u1", external=[(str(canary), 0, h5py.h5f.UNLIMITED)])


@h5("in other files")
def hdf5_virtual_dataset(file: Any, h5py: Any, canary: Path) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(canary), "values", (3,))
    file.create_virtual_dataset("a", layout)


@h5("never written completely")
def hdf5_shape_bomb(file: Any, h5py: Any, canary: Path) -> None:
    file.create_dataset("a", (2**20, 2**20), "f8", chunks=(1024, 1024))


@h5("claims 0.2 GiB but takes")
def hdf5_compression_bomb(file: Any, h5py: Any, canary: Path) -> None:
    data = file.create_dataset("a", (200, 2**17), "f8", chunks=(1, 2**17), compression="gzip", compression_opts=1)
    for row in range(200):
        data[row] = 0


@h5("as HDF5")
def hdf5_chunk_that_grows_when_unpacked(file: Any, h5py: Any, canary: Path) -> None:
    """The chunk holds eight bytes by its shape, and 200 MB by its compression."""
    data = file.create_dataset("a", (1,), "f8", chunks=(1,), compression="gzip")
    pack = zlib.compressobj(1)
    content = b"".join(pack.compress(bytes(2**20)) for _ in range(200)) + pack.flush()
    data.id.write_direct_chunk((0,), content)


@h5("claims")
def hdf5_chunk_larger_than_its_array(file: Any, h5py: Any, canary: Path) -> None:
    data = file.create_dataset("a", (3,), "f8", maxshape=(None,), chunks=(2**27,), compression="gzip")
    data.id.write_direct_chunk((0,), zlib.compress(bytes(24)))


@h5("claims")
def hdf5_many_names_for_one_array(file: Any, h5py: Any, canary: Path) -> None:
    file["0"] = np.zeros(2**17)
    for name in range(1, 200):
        file[str(name)] = file["0"]


@h5("as HDF5")
def hdf5_one_long_word_among_many(file: Any, h5py: Any, canary: Path) -> None:
    """NumPy allocates the length of the longest word for every word."""
    file.create_dataset("a", data=["x" * 200_000] + ["y"] * 9_000, dtype=h5py.string_dtype())


@h5("too deep")
def hdf5_groups_in_a_circle(file: Any, h5py: Any, canary: Path) -> None:
    group = file.create_group("inputs")
    group["inputs"] = group


@h5("too many entries")
def hdf5_ten_thousand_and_one_arrays(file: Any, h5py: Any, canary: Path) -> None:
    for name in range(10_001):
        file[str(name)] = h5py.SoftLink("/")


# -- tables


def table(folder: Path, content: bytes) -> Path:
    (folder / "x.csv").write_bytes(content)
    return folder / "x.csv"


@case(read_csv_folder, "lies outside the folder")
def table_that_is_a_link_to_another(folder: Path) -> Path:
    (folder / "inputs.csv").symlink_to(canary_of(folder))
    return folder


@case(read_csv, "has a line of more than")
def table_of_one_endless_line(folder: Path) -> Path:
    return table(folder, b"1," * 2**22)


@case(read_csv, "too many for CSV")
def table_of_too_many_numbers(folder: Path) -> Path:
    return table(folder, (b"1," * 999 + b"1\n") * 5001)


@case(read_csv, "has no numbers")
def table_of_a_million_words(folder: Path) -> Path:
    return table(folder, b"word\n" * 10**6)


@case(read_csv, "as CSV")
def table_of_bytes(folder: Path) -> Path:
    return table(folder, b"1,2\n\xff\xfe")


@case(read_csv, "as CSV")
def table_with_a_quote_left_open(folder: Path) -> Path:
    return table(folder, b'1,"' + b"2\n" * 200_000)


@case(read_csv, "row 2 has 1 cells")
def table_with_ragged_rows(folder: Path) -> Path:
    return table(folder, b"1,2\n3\n")
