"""Windows and macOS, simulated: what their system calls refuse, and what they do not have."""

import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from trunkfirst.checkpoints import LOCK, lock_folder
from trunkfirst.distributed.launch import Launch, launch
from trunkfirst.errors import FolderInUseError, OutputNotWritableError, UsageError
from trunkfirst.files.integrity import atomic_write
from trunkfirst.memory import free_memory


class Locks(types.ModuleType):
    """`msvcrt.locking`: a byte is locked by one descriptor at a time, until that is closed."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.locked: dict[int, int] = {}

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count) == (self.LK_NBLCK, 1)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) > 1000  # a locked byte cannot be read
        if self.locked:
            raise PermissionError(13, "Permission denied")
        self.locked[descriptor] = 1


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Locks as on Windows, where an open file cannot be removed."""
    locks, close, unlink = Locks(), os.close, Path.unlink

    def closing(descriptor: int) -> None:
        locks.locked.pop(descriptor, None)
        close(descriptor)

    def removing(path: Path, **options: Any) -> None:
        if locks.locked and path.name == LOCK:
            raise PermissionError(13, "the file is in use by another process")
        unlink(path, **options)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(os, "close", closing)
    monkeypatch.setattr(Path, "unlink", removing)
    return locks


def test_windows_locks_a_folder(windows: Locks, tmp_path: Path):
    with (
        lock_folder(tmp_path),
        pytest.raises(FolderInUseError, match=f"in use by process {os.getpid()} on "),
        lock_folder(tmp_path),
    ):
        pass
    assert not windows.locked
    assert not (tmp_path / LOCK).exists()
    with lock_folder(tmp_path):
        assert windows.locked


@pytest.mark.parametrize("refusals", [0, 2, 100])
def test_windows_cannot_replace_a_file_that_is_read(
    windows: Locks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: int
):
    del windows
    path, left, replace = tmp_path / "x", [refusals], os.replace
    path.write_text("old")

    def replacing(source: str, target: Path) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise PermissionError(13, "Access is denied")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr("time.sleep", lambda _: None)
    if refusals == 100:
        with pytest.raises(OutputNotWritableError, match="Access is denied"), atomic_write(path) as file:
            file.write(b"new")
        assert path.read_text() == "old"
    else:
        with atomic_write(path) as file:
            file.write(b"new")
        assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_elsewhere_a_rename_that_is_refused_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    def refuse(source: str, _: Path) -> None:
        calls.append(source)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputNotWritableError, match="Permission denied"), atomic_write(tmp_path / "x") as file:
        file.write(b"new")
    assert len(calls) == 1


def test_windows_has_no_launcher(windows: Locks):
    del windows
    with pytest.raises(UsageError, match="launch needs Linux or macOS"):
        launch(Launch(("resume", "x"), 2), say=lambda _: None)


def ended_reader(*lines: str) -> int:
    """The exit code of a child process that reads a file and never ends by itself."""
    script = ["import sys, time", "from trunkfirst.files import hdf5", *lines, "hdf5.limit(0, 0)"]
    command = [sys.executable, "-c", "\n".join([*script, "while True: pass"])]
    return subprocess.run(command, capture_output=True, timeout=120, check=False).returncode


def test_a_reader_that_does_not_end_is_ended_on_windows_too():
    assert ended_reader("sys.platform = 'win32'", "hdf5._SPARE_SECONDS = 0") == 1


def test_a_reader_under_a_limit_of_the_system_keeps_it():
    """A limit that a cluster sets cannot be raised, except by root, and must not be."""
    pytest.importorskip("resource", reason="Windows has no such limits")
    limits = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1000, 2000))"
    kept = "hard = resource.getrlimit(resource.RLIMIT_CPU)[1]; sys.exit(0 if hard == 2000 else 3)"
    script = f"import sys; {limits}; from trunkfirst.files import hdf5; hdf5.limit(0, 0); {kept}"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=120).returncode == 0


def test_memory_is_not_known_without_proc(monkeypatch: pytest.MonkeyPatch):
    def absent(path: Path, **_: Any) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", absent)
    assert free_memory() is None
