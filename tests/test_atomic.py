"""A file is whole or absent, whatever fails while it is written."""

import errno
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trunkfirst.errors import OutputNotWritableError
from trunkfirst.files.integrity import atomic_write, remove_leftovers
from trunkfirst.files.mat import write_mat
from trunkfirst.files.npz import write_npz
from trunkfirst.files.text_files import write_text


def write_half(path: Path, error: BaseException) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        raise error


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("old", [None, "old"])
def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path, error: BaseException, old: str | None):
    if old:
        write_text(tmp_path / "x", old)
    with pytest.raises(type(error)):
        write_half(tmp_path / "x", error)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([old] if old else [])


def test_the_final_name_appears_only_at_the_end(tmp_path: Path):
    path = tmp_path / "x"
    with atomic_write(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]
    assert sys.platform == "win32" or path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["absent/x", "file/x", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputNotWritableError, match="cannot write"):
        write_text(tmp_path / place, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_an_error_of_something_else_in_the_block_comes_through(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="absent"), atomic_write(tmp_path / "x"):
        (tmp_path / "absent").read_bytes()
    assert list(tmp_path.iterdir()) == []


# -- a disk that fails


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    """The call of this number of a function of the system says that the disk is full."""
    real, calls = getattr(os, name), itertools.count()

    def fake(*arguments: Any) -> Any:
        if next(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # A disk takes what it likes of a long text.
        return real(arguments[0], bytes(arguments[1])[:5000]) if name == "write" else real(*arguments)

    monkeypatch.setattr(os, name, fake)


WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: write_text(path, "new" * 10_000),
    "npz": lambda path: write_npz(path, {"a": np.arange(3000.0), "b": np.ones(2)}),
    "mat": lambda path: write_mat(path, {"a": np.arange(3000.0)}),
}
PLACES = [("write", number) for number in range(5)] + [("fsync", 0), ("replace", 0), ("chmod", 0)]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("name", "number"), PLACES)
@pytest.mark.parametrize("old", [None, b"old"])
def test_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str, name: str, number: int, old: bytes | None
):
    path = tmp_path / "kept"
    if old is not None:
        path.write_bytes(old)
    fail_at(monkeypatch, name, number)
    with pytest.raises(OutputNotWritableError, match=r"cannot write .*kept: No space left on device"):
        WRITERS[writer](path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_folder_that_cannot_be_synced_is_told_but_the_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fail_at(monkeypatch, "fsync", 1)
    with pytest.raises(OutputNotWritableError, match="kept"):
        write_text(tmp_path / "kept", "new")
    assert (tmp_path / "kept").read_text() == "new"


def test_order_of_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write, sync the file, rename, sync the folder."""
    calls: list[str] = []

    def watch(name: str) -> None:
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a: (calls.append(name), real(*a))[1])

    for name in ("write", "fsync", "replace"):
        watch(name)
    write_text(tmp_path / "x", "text")
    assert calls == ["write", "fsync", "replace", "fsync"]


def test_a_real_limit_of_size(tmp_path: Path):
    """The system itself refuses, at every place in turn."""
    resource = pytest.importorskip("resource", reason="Windows has no limits")
    write_text(tmp_path / "x", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 1, 4096, 9999):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            with pytest.raises(OutputNotWritableError, match="x: File too large"):
                write_text(tmp_path / "x", "new " * 2500)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_leftovers_are_removed_when_they_are_old(tmp_path: Path):
    for name, age in ((".a.tmp-old", 7200), (".a.tmp-new", 0), ("mine.tmp-x", 7200), ("model/.b.tmp-old", 7200)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {".a.tmp-new", "mine.tmp-x"}
    remove_leftovers(tmp_path, older_than=0)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"mine.tmp-x"}
