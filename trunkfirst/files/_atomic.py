"""Writing a file so that it is either whole or not there."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from ..errors import OutputExistsError, OutputNotWritableError


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Generator[BinaryIO]:
    """Open a binary file that takes its final name `path` only when the block ends well.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder. After a crash nothing
    half-written stands under the final name; leftovers are called `*.tmp-*`.
    """
    path = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.tmp-", dir=path.parent)
    except OSError as error:
        raise OutputNotWritableError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and not isinstance(error, OutputNotWritableError):
            raise OutputNotWritableError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder; its rename is durable enough
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
