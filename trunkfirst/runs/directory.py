"""The directory of a run while it is written: one process, the request, checkpoints."""

import base64
import contextlib
import hashlib
import importlib.metadata
import math
import os
import platform
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints import (
    LOCK,
    is_keeping_checkpoints,
    journal_files,
    keep_checkpoints,
    lock_folder,
    raise_interrupt,
    remember,
)
from ..data.scattered_data import AnyData
from ..data.sharded_data import ShardedData
from ..distributed.launch import note_folder
from ..distributed.processes import broadcast_value, is_distributed, is_leader
from ..errors import DataError, Terminated, TrunkfirstError, UsageError
from ..files.integrity import CHECKPOINTS, MANIFEST, make_folder, prepare_directory, remove_leftovers
from ..files.text_files import read_json, to_json, write_text
from ..records import mapping_at

_REQUEST = "request.json"
_PACKAGES = ("trunkfirst", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "scikit-fem", "safetensors")

# How many threads XLA and the BLAS divide sums among; empty: as many as there are cores.
_THREADS = ("NPROC", "OPENBLAS_NUM_THREADS")


@contextlib.contextmanager
def run_directory(
    folder: Path | str, request: Mapping[str, Any], *, interval: float, resumes: bool
) -> Generator[Path]:
    """Lock `folder` and keep checkpoints in it; they are removed when the block ends well.

    Ctrl-C and SIGTERM leave the checkpoints, and so does every error after the first of them. Inside of another
    run directory this is a part of that run, without checkpoints of its own. Of several processes only the leader
    works in the folder; the others get a temporary one.

    Args:
        folder: The directory; it must be empty or absent unless `resumes`.
        request: What to do there, for `resume`; "last" names the last file, if it is not the manifest.
        interval: Seconds between two checkpoints.
        resumes: Whether to continue an interrupted run.
    """
    folder = Path(folder)
    if is_keeping_checkpoints():
        make_folder(folder)
        yield folder
        return
    if not is_leader():
        with _follower_directory() as own:
            yield own
        return
    is_new = not folder.exists()
    if not resumes:
        _remove_unbegun(folder)
        prepare_directory(folder)
    text, checkpoints = to_json(request), folder / CHECKPOINTS
    with lock_folder(folder), sigterm_raises():
        make_folder(checkpoints)
        remove_leftovers(folder, older_than=0)
        write_text(checkpoints / _REQUEST, text)
        try:
            with keep_checkpoints(checkpoints, identity=_identity(text), interval=interval):
                _announce(folder, text)
                yield folder
        except KeyboardInterrupt as error:
            error.add_note(f"finished work is kept; continue with: trunkfirst resume {folder}")
            raise
        except TrunkfirstError:
            if [path.name for path in checkpoints.iterdir()] == [_REQUEST] and not (folder / MANIFEST).exists():
                shutil.rmtree(checkpoints, ignore_errors=True)
                if not resumes:  # the folder is free for the corrected command
                    _remove_files(folder, is_new=is_new)
            raise
        shutil.rmtree(checkpoints)


def _remove_unbegun(folder: Path) -> None:
    """Remove what a process leaves that is killed before it has written its request: a lock, empty checkpoints.

    The request of a sweep says nothing without the list of its configurations, which is written after it.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
    checkpoints = folder / CHECKPOINTS
    path = checkpoints / _REQUEST
    says_nothing = not path.exists() or mapping_at(read_json(path)).get("command") == "sweep"
    if not names or names - {CHECKPOINTS, LOCK} or not says_nothing or journal_files(checkpoints):
        return
    with lock_folder(folder):
        shutil.rmtree(checkpoints, ignore_errors=True)


def _remove_files(folder: Path, *, is_new: bool) -> None:
    """Remove the files of a folder, and the folder if it was made for them."""
    for path in folder.iterdir():
        if path.is_file():
            with contextlib.suppress(OSError):
                path.unlink()
    if is_new:
        with contextlib.suppress(OSError):  # it holds more than files, or Windows has the lock open
            folder.rmdir()


@contextlib.contextmanager
def _follower_directory() -> Generator[Path]:
    """A temporary directory with the checkpoints of the leader; what is written to it is thrown away."""
    leader: Any = broadcast_value(None)
    note_folder(leader["folder"])
    with tempfile.TemporaryDirectory(prefix="trunkfirst-") as own:
        checkpoints = Path(own) / CHECKPOINTS
        checkpoints.mkdir()
        for name, content in leader["files"].items():
            (checkpoints / name).write_bytes(base64.b64decode(content))
        with keep_checkpoints(checkpoints, identity=leader["identity"], interval=math.inf):
            yield Path(own)


def _announce(folder: Path, request: str) -> None:
    """Report the folder to the launcher, and the folder and its checkpoints to the other processes."""
    name = str(folder.resolve())
    note_folder(name)
    if is_distributed():
        paths = journal_files(folder / CHECKPOINTS)
        files = {path.name: base64.b64encode(path.read_bytes()).decode() for path in paths}
        broadcast_value({"folder": name, "identity": _identity(request), "files": files})


def _identity(request: str) -> str:
    return hashlib.sha256(request.encode()).hexdigest()


def read_request(folder: Path) -> dict[str, Any] | None:
    """The request of an interrupted run; None if the run is finished.

    Raises:
        UsageError: There is no run in `folder`.
    """
    path = folder / CHECKPOINTS / _REQUEST
    request = dict(mapping_at(read_json(path))) if path.is_file() else {}
    if is_finished(folder) and (folder / str(request.get("last", MANIFEST))).is_file():
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        return None
    if not path.is_file():
        raise UsageError(f"{folder} has nothing to resume: {path} is missing; start it with its command")
    return request


def is_finished(folder: Path) -> bool:
    """Whether a run wrote its manifest, and not for an operator that is saved while a better one is looked for."""
    if not (folder / MANIFEST).is_file():
        return False
    metrics = folder / "metrics.json"
    is_interim = metrics.is_file() and mapping_at(read_json(metrics)).get("status") == "interrupted"
    return not (is_interim and (folder / CHECKPOINTS / _REQUEST).is_file())


def check_same_data(data: AnyData | ShardedData) -> None:
    """Check that a resumed run sees the data it began with; shards are compared by the SHA-256 in their index.

    Raises:
        DataError: The data are others.
    """
    digest = hashlib.sha256()
    if isinstance(data, ShardedData):
        digest.update(data.digest.encode())
    else:
        for array in (data.flat_inputs, data.points, data.outputs):
            digest.update(np.ascontiguousarray(array).data)
    found = np.frombuffer(digest.digest(), np.uint8)
    if not np.array_equal(found, remember("data", lambda: {"sha256": found})["sha256"]):
        raise DataError("the data have changed since this run began; restore them, or start a new run")


@contextlib.contextmanager
def sigterm_raises() -> Generator[None]:
    """SIGTERM raises `Terminated`, as Ctrl-C raises KeyboardInterrupt; only the main thread can have handlers.

    A second one ends the process at once: an exception in the middle of the clean-up of the first could reach the
    shutdown of the interpreter, which crashes while XLA computes.
    """

    def stop(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise_interrupt(Terminated())

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def environment() -> dict[str, Any]:
    """Versions and devices; equal numbers can be expected only where these are equal."""
    import jax

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": {name: os.environ.get(name, "") for name in _THREADS},
        "packages": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "devices": [f"{device.platform}:{device.id}" for device in jax.devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
    }


def missing_extras() -> list[str]:
    """Extras of the package of which a requirement is not installed; not that for benchmarks."""
    extras: dict[str, list[str]] = {}
    for requirement in importlib.metadata.requires("trunkfirst") or ():
        name, _, marker = requirement.partition(";")
        if (found := re.search(r"extra == ['\"](\w+)['\"]", marker)) and found[1] != "bench":
            extras.setdefault(found[1], []).append(re.split(r"[^\w.-]", name)[0])
    installed = {each.name.lower() for each in importlib.metadata.distributions()}
    return [extra for extra, names in extras.items() if not installed.issuperset(names)]
