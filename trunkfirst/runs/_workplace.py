"""A run folder while it is worked in: one process, what was asked for on paper, checkpoints on the way."""

import base64
import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import is_keeping_checkpoints, journal_files, keep_checkpoints, lock_folder, remember
from ..data import AnyData, ShardedData
from ..devices import is_first, is_several, share
from ..errors import DataError, OutputNotWritableError, Terminated, TrunkfirstError, UsageError
from ..files import CHECKPOINTS, MANIFEST, prepare_directory, read_json, remove_leftovers, to_json, write_text

NOTE = "TRUNKFIRST_NOTE"
"""Names the file in which a launched process notes the folder that it works in."""
_REQUEST = "request.json"


@contextlib.contextmanager
def workplace(
    folder: Path | str, request: Mapping[str, Any], *, interval: float, resumes: bool
) -> Generator[Path]:
    """Work in `folder`, with checkpoints that are removed when the block ends well.

    `request` says what to do there, for `resume`. Inside of another workplace this is part of that one's work.
    Ctrl-C and SIGTERM leave the checkpoints, and so does every error but one that comes before the first of them.
    Of several processes the first alone works there; see `_beside`.
    """
    folder = Path(folder)
    if is_keeping_checkpoints():
        _make(folder)
        yield folder
        return
    if not is_first():
        with _beside() as place:
            yield place
        return
    if not resumes:
        prepare_directory(folder)
    text, place = to_json(request), folder / CHECKPOINTS
    with lock_folder(folder), _sigterm_raises():
        _make(place)
        remove_leftovers(folder, older_than=0)
        write_text(place / _REQUEST, text)
        try:
            with keep_checkpoints(place, identity=_identity(text), interval=interval):
                _tell(folder, text)
                yield folder
        except KeyboardInterrupt as error:
            error.add_note(f"what was done is kept; go on with: trunkfirst resume {folder}")
            raise
        except TrunkfirstError:
            if [path.name for path in place.iterdir()] == [_REQUEST]:
                shutil.rmtree(place)
            raise
        shutil.rmtree(place)


@contextlib.contextmanager
def _beside() -> Generator[Path]:
    """A process that is not the first goes on from the first one's checkpoints; what it writes is thrown away."""
    told = json.loads(share(b""))
    note_folder(told["folder"])
    with tempfile.TemporaryDirectory(prefix="trunkfirst-") as own:
        place = Path(own) / CHECKPOINTS
        place.mkdir()
        for name, content in told["files"].items():
            (place / name).write_bytes(base64.b64decode(content))
        with keep_checkpoints(place, identity=told["identity"], interval=math.inf):
            yield Path(own)


def _tell(folder: Path, request: str) -> None:
    """Say where the first process works, to its launcher and to the others, and what is there to go on from."""
    note_folder(str(folder.resolve()))
    if is_several():
        places = journal_files(folder / CHECKPOINTS)
        files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in places}
        told = {"folder": str(folder.resolve()), "identity": _identity(request), "files": files}
        share(json.dumps(told).encode())


def _identity(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()


def note_folder(folder: str) -> None:
    """Tell the launcher, if there is one, what to resume should this process die."""
    path = os.environ.get(NOTE)
    if path is not None:
        write_text(Path(path), folder)


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
