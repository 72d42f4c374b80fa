"""Writing a file so that it is either whole or not there."""

import contextlib
import io
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import OutputExistsError, OutputNotWritableError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Generator[BinaryIO]:
    """Open a binary file that takes its final name `path` only when the block ends well.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder. After a crash nothing
    half-written stands under the final name; leftovers are called `*.tmp-*`, see `remove_leftovers`. A disk that
    is full or fails is an `OutputNotWritableError` that names `path`; what else the block raises comes through.
    """
    path = Path(path)
    with _naming(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.tmp-", dir=path.parent)
    raw = _Raw(descriptor, path)
    try:
        with io.BufferedWriter(raw) as file:
            try:
                yield file
                file.flush()
                with _naming(path):
                    os.fsync(descriptor)
            except BaseException:
                raw.is_given_up = True
                raise
        with _naming(path):
            os.chmod(name, 0o644)  # noqa: PTH101 - so that tests can make each of these calls fail
            os.replace(name, path)  # noqa: PTH105
            _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


class _Raw(io.FileIO):
    """A file whose own errors, and no others, name the path that is being written."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "wb")
        self._path = path
        self.is_given_up = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.is_given_up:  # what the buffer still holds is dropped
            return memoryview(data).nbytes
        with _naming(self._path):
            return os.write(self.fileno(), data)


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise OutputNotWritableError(f"cannot write {path}: {error.strerror or error}") from error


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder; its rename is durable enough
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path | str, *, older_than: float = 3600.0) -> None:
    """Remove what writers that were killed left below `folder`: temporary files older than so many seconds.

    Who alone may write there, because he holds its lock, takes 0.
    """
    before = time.time() - older_than
    for path in Path(folder).rglob(".*.tmp-*"):
        with contextlib.suppress(OSError):  # somebody else was quicker, or it is not ours to remove
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime <= before:
                path.unlink()


def prepare_directory(path: Path | str) -> Path:
    """Make the folder `path` and prove that it can be written; refuse one that holds something."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise OutputExistsError(f"{path} is a file; name a folder for the results")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        is_empty = not any(path.iterdir())
    except OSError as error:
        raise OutputNotWritableError(
            f"cannot write to {path}: {error.strerror}; choose another folder with --out"
        ) from error
    if not is_empty:
        raise OutputExistsError(f"{path} is not empty; choose another folder with --out, or remove it first")
    return path
