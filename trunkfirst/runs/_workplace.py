"""A run folder while it is worked in: one process, what was asked for on paper, checkpoints on the way."""

import contextlib
import hashlib
import shutil
import signal
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import is_keeping_checkpoints, keep_checkpoints, lock_folder, remember
from ..data import AnyData, ShardedData
from ..errors import DataError, OutputNotWritableError, Terminated, TrunkfirstError, UsageError
from ..files import CHECKPOINTS, MANIFEST, prepare_directory, read_json, remove_leftovers, to_json, write_text

_REQUEST = "request.json"


@contextlib.contextmanager
def workplace(
    folder: Path | str, request: Mapping[str, Any], *, interval: float, resumes: bool
) -> Generator[Path]:
    """Work in `folder`, with checkpoints that are removed when the block ends well.

    `request` says what to do there, for `resume`. Inside of another workplace this is part of that one's work.
    Ctrl-C and SIGTERM leave the checkpoints, and so does every error but one that comes before the first of them.
    """
    folder = Path(folder)
    if is_keeping_checkpoints():
        _make(folder)
        yield folder
        return
    if not resumes:
        prepare_directory(folder)
    text, place = to_json(request), folder / CHECKPOINTS
    with lock_folder(folder), _sigterm_raises():
        _make(place)
        remove_leftovers(folder, older_than=0)
        write_text(place / _REQUEST, text)
        try:
            with keep_checkpoints(place, identity=hashlib.sha256(text.encode()).hexdigest(), interval=interval):
                yield folder
        except KeyboardInterrupt as error:
            error.add_note(f"what was done is kept; go on with: trunkfirst resume {folder}")
            raise
        except TrunkfirstError:
            if [path.name for path in place.iterdir()] == [_REQUEST]:
                shutil.rmtree(place)
            raise
        shutil.rmtree(place)


def read_request(folder: Path) -> dict[str, Any] | None:
    """What was asked for in a folder that was left unfinished; None where the work is done."""
    path = folder / CHECKPOINTS / _REQUEST
    if (folder / MANIFEST).is_file():
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return None
    if not path.is_file():
        raise UsageError(f"{folder} holds nothing to resume: {path} is not there")
    request = read_json(path)
    if not isinstance(request, dict):
        raise UsageError(f"{path} does not say what to do")
    return request


def check_same_data(data: AnyData | ShardedData) -> None:
    """A resumed run must see the data that it began with; for shards their SHA-256 in the index will do."""
    digest = hashlib.sha256()
    if isinstance(data, ShardedData):
        digest.update(data.digest.encode())
    else:
        for array in (data.flat_inputs, data.points, data.outputs):
            digest.update(np.ascontiguousarray(array).data)
    found = np.frombuffer(digest.digest(), np.uint8)
    if not np.array_equal(found, remember("data", lambda: {"sha256": found})["sha256"]):
        raise DataError("the data are not those that this run began with; bring them back, or start a new run")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {folder}: {error.strerror}") from error


@contextlib.contextmanager
def _sigterm_raises() -> Generator[None]:
    """SIGTERM raises `Terminated`, as Ctrl-C raises KeyboardInterrupt; Python allows that in the main thread."""

    def stop(*_: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
