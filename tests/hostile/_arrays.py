"""npz archives and the npy arrays inside them; pipes and devices."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trunkfirst.data.read_write import read_data
from trunkfirst.files.npz import read_npz

from ._cases import Bomb, canary_of, case


def npy(shape: str = "(2,)", descr: str = "'<f8'", content: bytes = bytes(16), version: bytes = b"\1\0") -> bytes:
    """An array in NumPy's format with the header that is wanted."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(header))
    return b"\x93NUMPY" + version + size + header + content


def archive(folder: Path, *entries: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(folder / "x.npz", "w", method, compresslevel=1) as file:
        for name, content in entries:
            file.writestr(name, content)
    return folder / "x.npz"


def patched(path: Path, signature: bytes, offset: int, value: bytes) -> Path:
    """Change the last record of a kind in a zip file."""
    content = bytearray(path.read_bytes())
    at = content.rindex(signature) + offset
    content[at : at + len(value)] = value
    path.write_bytes(content)
    return path


@case(read_npz, "Python objects")
def pickle_in_an_array(folder: Path) -> Path:
    np.savez(folder / "x.npz", a=np.array([Bomb(folder)], dtype=object))
    return folder / "x.npz"


@case(read_npz, "Python objects")
def pickle_in_a_field_of_records(folder: Path) -> Path:
    content = pickle.dumps(Bomb(folder))
    return archive(folder, ("a.npy", npy("(1,)", "[('x', '<f8'), ('y', '|O')]", content)))


@case(read_npz, "but the file has other contents")
def pickle_instead_of_numbers(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(9,)", content=pickle.dumps(Bomb(folder)))))


@case(read_npz, "is a pickle")
def bare_pickle(folder: Path) -> Path:
    (folder / "x.npz").write_bytes(pickle.dumps(Bomb(folder)))
    return folder / "x.npz"


@case(read_npz, "holds a pickle")
def pickle_as_torch_writes_it(folder: Path) -> Path:
    return archive(folder, ("archive/data.pkl", pickle.dumps(Bomb(folder))))


@case(read_data, "can run any code")
def pickle_with_its_own_ending(folder: Path) -> Path:
    (folder / "x.pkl").write_bytes(pickle.dumps(Bomb(folder)))
    return folder / "x.pkl"


@case(read_data, "x.npz")
def zip_slip(folder: Path) -> Path:
    return archive(folder, ("../../canary.csv", npy()), ("/canary.npy", npy()))


def zeros(count: int) -> Iterator[bytes]:
    yield from [bytes(2**20)] * count


@case(read_npz, "claims 0.2 GiB but takes")
def bomb_of_1_to_1000(folder: Path) -> Path:
    with (
        zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("a.npy", "w") as entry,
    ):
        entry.write(npy(f"({200 * 2**17},)", content=b""))
        for part in zeros(200):
            entry.write(part)
    assert (folder / "x.npz").stat().st_size < 1_000_000
    return folder / "x.npz"


@case(read_npz, "claims")
def bomb_of_many_small_arrays(folder: Path) -> Path:
    content = npy(f"({2**17},)", content=bytes(2**20))
    return archive(folder, *((f"{n}.npy", content) for n in range(150)), method=zipfile.ZIP_DEFLATED)


@case(read_npz, "overlap")
def entries_that_share_their_bytes(folder: Path) -> Path:
    path = archive(folder, *((f"{n:02d}.npy", npy(content=bytes(10**5), shape="(12500,)")) for n in range(2)))
    content = path.read_bytes()
    start = content.index(b"PK\1\2")
    end = content.index(b"PK\5\6")
    entry = content[start : start + 46 + 6]
    copies = b"".join(entry[:46] + f"{n:02d}.npy".encode() for n in range(90))
    tail = bytearray(content[end:])
    tail[8:16] = struct.pack("<HHI", 90, 90, len(copies))
    path.write_bytes(content[:start] + copies + tail)
    return path


@case(read_npz, "too many")
def twenty_thousand_entries(folder: Path) -> Path:
    return archive(folder, *((f"{n}.npy", npy()) for n in range(20_000)))


@case(read_npz, "too many arrays")
def directory_of_four_gigabytes(folder: Path) -> Path:
    return patched(archive(folder, ("a.npy", npy())), b"PK\5\6", 12, struct.pack("<I", 2**32 - 2))


@case(read_npz, "too many arrays")
def directory_of_2_to_the_62(folder: Path) -> Path:
    path = archive(folder, ("a.npy", npy()))
    content = path.read_bytes()
    end = content.index(b"PK\5\6")
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 2**60, 2**60, 2**62, 0)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    path.write_bytes(content[:end] + wide + locator + content[end:])
    return path


@case(read_npz, "two with the same name")
def two_arrays_of_one_name(folder: Path) -> Path:
    return archive(folder, ("a", npy()), ("a.npy", npy()))


@case(read_npz, "encrypted")
def encrypted(folder: Path) -> Path:
    return patched(archive(folder, ("a.npy", npy())), b"PK\1\2", 8, b"\1")


@case(read_npz, "has a compression that NumPy does not use")
def lzma_with_a_dictionary_of_its_own(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy()), method=zipfile.ZIP_LZMA)


@case(read_npz, "but the file has other contents")
def shape_bomb(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy(f"({2**31}, {2**31})")))


@case(read_npz, "but the file has other contents")
def shape_of_2_to_the_62(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy(f"({2**62},)")))


@case(read_npz, "cannot read")
def negative_shape_that_multiplies_well(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(-2, -4)", content=bytes(64))))


@case(read_npz, "cannot read")
def shape_of_words(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("('2',)")))


@case(read_npz, "cannot read")
def header_that_is_an_expression(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(__import__('os').system('true'),)")))


@case(read_npz, "cannot read")
def header_nested_deeply(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(" * 4000 + ")" * 4000)))


@case(read_npz, "cannot read")
def header_with_brackets_open(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(2,", "'<f8'")[:-20]))


@case(read_npz, "cannot read")
def header_of_four_gigabytes(folder: Path) -> Path:
    return archive(folder, ("a.npy", b"\x93NUMPY\2\0" + b"\xff\xff\xff\xff{}"))


@case(read_npz, "unknown npy version")
def version_of_the_future(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy(version=b"\x09\0")))


@case(read_data, "x.npz")
def no_samples_of_endless_length(folder: Path) -> Path:
    empty = npy(f"(0, {2**59})", content=b"")
    return archive(folder, ("inputs.npy", empty), ("points.npy", empty), ("outputs.npy", empty))


@case(read_npz, "cannot read")
def letters_that_do_not_exist(folder: Path) -> Path:
    return archive(folder, ("a.npy", npy("(1,)", "'<U1'", b"\xff\xff\xff\x7f")))


@case(read_data, "not finite")
def numbers_that_are_none(folder: Path) -> Path:
    inputs = np.ones((3, 2))
    inputs[1, 1] = np.nan
    np.savez(folder / "x.npz", inputs=inputs, points=np.ones((4, 1)), outputs=np.ones((3, 4)))
    return folder / "x.npz"


@case(read_data, "it is not a file")
def pipe_that_nobody_writes_to(folder: Path) -> Path:
    os.mkfifo(folder / "x.npz")
    return folder / "x.npz"


@case(read_data, "it is not a file")
def device_that_never_ends(folder: Path) -> Path:
    (folder / "x.mat").symlink_to("/dev/zero")
    return folder / "x.mat"


@case(read_npz, "cannot read")
def link_to_itself(folder: Path) -> Path:
    (folder / "x.npz").symlink_to(folder / "x.npz")
    return folder / "x.npz"


@case(read_npz, "cannot read")
def other_file_by_another_name(folder: Path) -> Path:
    (folder / "x.npz").write_bytes(canary_of(folder).read_bytes())
    return folder / "x.npz"


def npz_bytes(**arrays: np.ndarray) -> bytes:
    memory = io.BytesIO()
    np.savez(memory, **arrays)
    return memory.getvalue()
