"""One process a folder."""

import contextlib
import json
import os
import platform
from collections.abc import Generator
from pathlib import Path

from ..errors import FolderInUseError, OutputNotWritableError

LOCK = ".lock"


@contextlib.contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Hold the lock of `folder` inside the block; a folder that another process works in is refused.

    The system lets go of the lock when its owner dies, whatever it dies of: what then still stands in the file
    is of no account. (On Windows, which has no such lock, nothing is refused.)
    """
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputNotWritableError(f"cannot write {path}: {error.strerror}") from error
    try:
        if not _take(descriptor, path):
            raise FolderInUseError(f"{folder} is in use by {_owner(path)}; wait for it, or end it first")
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps({"process": os.getpid(), "host": platform.node()}).encode())
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> bool:
    """Whether the lock is ours now; one on a file that its owner has just removed is worth nothing."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return f"process {int(owner['process'])} on {str(owner['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
