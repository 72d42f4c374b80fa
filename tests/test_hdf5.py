"""HDF5: only what lies in the file itself, completely written, is read."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trunkfirst.errors import CorruptFileError, MissingExtraError, TrunkfirstError, UnsafeFileError
from trunkfirst.files import integrity
from trunkfirst.files.hdf5 import read_hdf5, write_hdf5


def test_without_h5py_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for use in (lambda path: read_hdf5(path), lambda path: write_hdf5(path, {})):
        with pytest.raises(
            MissingExtraError, match=r"needs h5py; install it with: pip install 'trunkfirst\[hdf5\]'"
        ):
            use(tmp_path / "x.h5")


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason="HDF5 needs the extra hdf5")


def test_round_trip_keeps_bits_types_order_and_words(h5py: Any, tmp_path: Path):
    arrays = {
        "points": np.random.default_rng(0).normal(size=(3, 4)),
        "inputs.b": np.arange(3, dtype=np.int32),
        "inputs.a": np.float32(1) / np.arange(1, 4, dtype=np.float32),
        "names": np.array(["x", "φ"]),
        "name": np.array("pressure"),
    }
    write_hdf5(tmp_path / "x.h5", arrays)
    found = read_hdf5(tmp_path / "x.h5")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(found[name], array)
    with h5py.File(tmp_path / "x.h5") as file:
        assert set(file["inputs"]) == {"a", "b"}


def external_link(file: Any, h5py: Any, secret: Path) -> None:
    file["a"] = h5py.ExternalLink(str(secret), "/values")


def soft_link(file: Any, h5py: Any, secret: Path) -> None:
    file["there"] = h5py.ExternalLink(str(secret), "/")
    file["a"] = h5py.SoftLink("/there/values")


def dangling_link(file: Any, h5py: Any, secret: Path) -> None:
    file["a"] = h5py.SoftLink("/nothing")


def external_storage(file: Any, h5py: Any, secret: Path) -> None:
    file.create_dataset("a", (4,), "u1", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])


def virtual_dataset(file: Any, h5py: Any, secret: Path) -> None:
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(secret), "values", (3,))
    file.create_virtual_dataset("a", layout)


def link_in_a_group(file: Any, h5py: Any, secret: Path) -> None:
    file.create_group("inputs")["a"] = h5py.ExternalLink(str(secret), "/values")


def never_written(file: Any, h5py: Any, secret: Path) -> None:
    file.create_dataset("a", (10,), "f8")


def partly_written(file: Any, h5py: Any, secret: Path) -> None:
    file.create_dataset("a", (10,), "f8", chunks=(5,))[:5] = 1.0


def shape_bomb(file: Any, h5py: Any, secret: Path) -> None:
    file.create_dataset("a", (2**20,), "f8", chunks=(2**20,), compression="gzip")[:] = 0


def nothing_inside(file: Any, h5py: Any, secret: Path) -> None:
    file["a"] = h5py.Empty("f8")


def groups_in_a_circle(file: Any, h5py: Any, secret: Path) -> None:
    group = file.create_group("inputs")
    group["inputs"] = group


HOSTILE: list[tuple[Callable[..., None], type[TrunkfirstError], str]] = [
    (external_link, UnsafeFileError, "a is a link to another place or file"),
    (soft_link, UnsafeFileError, "is a link to another place or file"),
    (dangling_link, UnsafeFileError, "a is a link"),
    (external_storage, UnsafeFileError, "a has its values in other files"),
    (virtual_dataset, UnsafeFileError, "a has its values in other files"),
    (link_in_a_group, UnsafeFileError, "inputs.a is a link"),
    (never_written, CorruptFileError, "a was never written completely"),
    (partly_written, CorruptFileError, "a was never written completely"),
    (shape_bomb, CorruptFileError, "a claims"),
    (nothing_inside, CorruptFileError, "a has no values"),
    (groups_in_a_circle, CorruptFileError, "nested too deeply"),
]


@pytest.mark.parametrize(("make", "error", "words"), HOSTILE, ids=[make.__name__ for make, *_ in HOSTILE])
def test_hostile_files(
    h5py: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., None],
    error: type[TrunkfirstError],
    words: str,
):
    monkeypatch.setattr(integrity, "_HARMLESS_BYTES", 2**20)
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["values"] = np.ones(3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        make(file, h5py, tmp_path / "secret.h5")
    with pytest.raises(error) as caught:
        read_hdf5(tmp_path / "x.h5")
    assert type(caught.value) is error
    assert words in str(caught.value)


def test_references_are_no_numbers(h5py: Any, tmp_path: Path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = np.ones(3)
        file.create_dataset("cell", data=[file["a"].ref], dtype=h5py.ref_dtype)
    assert read_hdf5(tmp_path / "x.h5")["cell"].dtype == object


def test_damage_is_noticed(h5py: Any, tmp_path: Path):
    del h5py
    path = tmp_path / "x.h5"
    write_hdf5(path, {"a": np.full(200, 1.5)})
    whole = path.read_bytes()
    at = whole.index(np.full(10, 1.5).tobytes())
    for content in (whole[:at] + b"\x01" + whole[at + 1 :], whole[: len(whole) // 2], b"", b"hello"):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match=r"cannot read .*x\.h5 as HDF5"):
            read_hdf5(path)
