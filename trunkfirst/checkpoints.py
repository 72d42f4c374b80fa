"""Checkpoints of long computations, which resume to the same bits.

A computation is a fixed sequence of steps, numbered as they begin: minimisations, and other pieces whose results
are arrays. To resume it is to start it again: finished steps are looked up, the interrupted one continues from its
last snapshot, and the cheap code between the steps runs again. No other code has to know where the computation
stood.

On disk a journal is one file for every interval in which steps finished, and two files, written alternately, for
the step under way. Every file carries its SHA-256; a damaged one is discarded, and the one before it is used.
"""

import contextlib
import dataclasses as dc
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from .errors import CorruptFileError, FolderInUseError, OutputNotWritableError
from .files.integrity import atomic_write, make_folder

LOCK = ".lock"
"""The file by which a process holds a folder."""
_MAGIC = b"trunkfirst checkpoint 1\n"
_SEAL_BYTES = 64
_LOCKED_BYTE = 2**20
_current: ContextVar["Journal | None"] = ContextVar("journal", default=None)


# -- for those who compute


@dc.dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a step: arrays, and a note of plain numbers and texts."""

    arrays: Mapping[str, np.ndarray]
    note: Mapping[str, Any] = dc.field(default_factory=dict)


@dc.dataclass(eq=False)
class StepHandle:
    """One step of a computation, with the callbacks that its loop needs.

    Attributes:
        saved: What an earlier attempt saved, None if nothing.
        is_done: Whether that is the end of the step.
        is_interrupted: Whether `interruptible` ended a block early.

    Example:
        >>> step, count = checkpointed_step("count"), 0
        >>> if step.saved is not None:
        ...     count = step.saved.note["count"]
        >>> take = lambda: Snapshot({}, {"count": count})
        >>> with step.interruptible(take):
        ...     while count < 3:
        ...         count += 1
        ...         step.save(take)
        >>> step.finish(take)
    """

    name: str
    number: int = 0
    journal: "Journal | None" = None
    saved: Snapshot | None = None
    is_done: bool = False
    is_interrupted: bool = False

    def save(self, take: Callable[[], Snapshot], *, at_once: bool = False) -> None:
        """Write the state that `take` returns, if an interval has passed or `at_once`."""
        if self.journal is not None:
            if self.journal.interrupt is not None and not at_once:
                raise self.journal.interrupt  # it was ignored where it came in
            if at_once or self.journal.is_due():
                self.journal.write(self, take())

    def finish(self, take: Callable[[], Snapshot]) -> None:
        """Record the end of the step, unless it is known."""
        if self.journal is not None and not self.is_done:
            self.journal.add_finished(self, take())

    @contextlib.contextmanager
    def interruptible(
        self, take: Callable[[], Snapshot], is_sound: Callable[[], bool] = lambda: True
    ) -> Generator[None]:
        """End the block at Ctrl-C or SIGTERM.

        Where checkpoints are kept a sound state is written, and the interrupt is raised again. Elsewhere
        `is_interrupted` becomes true, and the caller returns what it has.
        """
        try:
            yield
        except KeyboardInterrupt:
            self.is_interrupted = True
            if self.journal is not None:
                if is_sound():
                    self.save(take, at_once=True)
                raise


def checkpointed_step(name: str) -> StepHandle:
    """Begin the next step of the computation; outside of `keep_checkpoints` nothing is saved."""
    journal = _current.get()
    return StepHandle(name) if journal is None else journal.begin(name)


def remember(name: str, compute: Callable[[], dict[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """Return what `compute` returns or, in an earlier attempt, returned; steps inside it belong to this one."""
    step = checkpointed_step(name)
    if step.saved is not None and step.is_done:
        return step.saved.arrays
    arrays = compute()
    step.finish(lambda: Snapshot(arrays))
    return arrays


def remember_number(name: str, compute: Callable[[], float]) -> float:
    """The same for a number."""
    return float(remember(name, lambda: {"value": np.array([compute()])})["value"][0])


@contextlib.contextmanager
def keep_checkpoints(folder: Path | str, *, identity: str = "", interval: float = 30.0) -> Generator["Journal"]:
    """Write checkpoints of everything that is fitted inside this block.

    The same block with the same folder resumes an interrupted computation to the same bits, as long as program,
    data and versions are the same. Remove the folder when the results are saved.

    Args:
        folder: The folder of the checkpoints.
        identity: A text that names the computation; files of another one are discarded.
        interval: Seconds between two checkpoints.
    """
    journal = Journal(Path(folder), identity=identity, interval=interval)
    token = _current.set(journal)
    try:
        yield journal
    finally:
        _current.reset(token)


def is_keeping_checkpoints() -> bool:
    """Whether this is inside of `keep_checkpoints`."""
    return _current.get() is not None


def raise_interrupt(error: KeyboardInterrupt) -> None:
    """Raise `error` in a signal handler.

    Python ignores exceptions inside destructors and callbacks of weak references; then the next `save` raises it.
    """
    journal = _current.get()
    if journal is not None:
        journal.interrupt = error
    raise error


@contextlib.contextmanager
def work_folder() -> Generator[Path]:
    """A folder for large intermediate files: that of the checkpoints, or else a temporary one."""
    journal = _current.get()
    if journal is not None:
        yield journal.folder
        return
    with tempfile.TemporaryDirectory(prefix="trunkfirst-") as folder:
        yield Path(folder)


# -- the journal


@dc.dataclass(frozen=True, eq=False)
class CheckpointRecord:
    """A step, finished or under way; `following` is the number of the step after it."""

    name: str
    number: int
    following: int
    state: Snapshot


class Journal:
    """The checkpoints in a folder. Use it through `keep_checkpoints`."""

    def __init__(self, folder: Path, *, identity: str, interval: float):
        self.folder, self._identity, self._interval = folder, identity, interval
        finished = _read_sound(sorted(folder.glob("*.finished")), identity)
        under_way = _read_sound(sorted(folder.glob("*.under-way")), identity)
        self._finished = {record.number: record for order in finished for record in finished[order]}
        self._interrupted = under_way[max(under_way)][0] if under_way else None
        self._order = max((*finished, *under_way), default=0)
        self._pending: list[CheckpointRecord] = []
        self.interrupt: KeyboardInterrupt | None = None
        self._next = 0
        self._written = time.monotonic()

    def begin(self, name: str) -> StepHandle:
        """Begin the next step."""
        number, self._next = self._next, self._next + 1
        known = self._finished.get(number)
        if known is not None:
            self._next = known.following
        elif self._interrupted is not None and self._interrupted.number == number:
            known = self._interrupted
        if known is None:
            return StepHandle(name, number, self)
        if known.name != name:
            raise CorruptFileError(
                f"{self.folder}: step {number} is {known.name!r} there, but {name!r} here: the checkpoints "
                "belong to another version of this computation; remove the folder to start again"
            )
        return StepHandle(name, number, self, known.state, number in self._finished)

    def is_due(self) -> bool:
        """Whether an interval has passed since the last writing."""
        return time.monotonic() - self._written >= self._interval

    def add_finished(self, step: StepHandle, snapshot: Snapshot) -> None:
        """Add a finished step; it is written with the others of its interval."""
        self._pending.append(CheckpointRecord(step.name, step.number, self._next, snapshot))
        if self.is_due():
            self._write_finished()

    def write(self, step: StepHandle, snapshot: Snapshot) -> None:
        """Write the finished steps that are not on disk yet, and the state of this one."""
        self._write_finished()
        record = CheckpointRecord(step.name, step.number, self._next, snapshot)
        self._write(f"{self._order % 2}.under-way", [record])

    def _write_finished(self) -> None:
        if self._pending:
            self._write(f"{self._order + 1:06d}.finished", self._pending)
            self._pending = []

    def _write(self, name: str, records: Sequence[CheckpointRecord]) -> None:
        self._order += 1
        _write_records(self.folder / name, self._identity, self._order, records)
        self._written = time.monotonic()


def journal_files(folder: Path) -> list[Path]:
    """The files of a journal, without the larger ones of `work_folder`."""
    return [path for pattern in ("*.finished", "*.under-way") for path in sorted(folder.glob(pattern))]


# -- its files


def _write_records(path: Path, identity: str, order: int, records: Sequence[CheckpointRecord]) -> None:
    """Write the `order`-th file of the computation called `identity`."""
    steps = [[each.name, each.number, each.following, dict(each.state.note)] for each in records]
    about = {"identity": identity, "order": order, "steps": steps}
    arrays = {
        f"{place} {name}": np.asarray(array, order="C")
        for place, record in enumerate(records)
        for name, array in record.state.arrays.items()
    }
    payload = safetensors.numpy.save(arrays, {"about": json.dumps(about)})
    make_folder(path.parent)
    with atomic_write(path) as file:
        file.write(_MAGIC + hashlib.sha256(payload).hexdigest().encode() + payload)


def _read_sound(paths: Sequence[Path], identity: str) -> dict[int, list[CheckpointRecord]]:
    """The records of each file, by its order; damaged files are removed with a warning."""
    found: dict[int, list[CheckpointRecord]] = {}
    for path in paths:
        try:
            order, records = _read_records(path, identity)
            found[order] = records
        except CorruptFileError as error:
            warnings.warn(f"{error}; using the checkpoints before it", RuntimeWarning, stacklevel=5)
            path.unlink()
    return found


def _read_records(path: Path, identity: str) -> tuple[int, list[CheckpointRecord]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error
    start = len(_MAGIC) + _SEAL_BYTES
    seal, payload = content[len(_MAGIC) : start], content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(payload).hexdigest().encode() != seal:
        raise CorruptFileError(f"{path} is damaged: its content does not match its SHA-256")
    try:
        found, order, records = _parse(payload)
    except (SafetensorError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not a checkpoint: {error}") from error
    if found != identity:
        raise CorruptFileError(f"{path} belongs to another run")
    return order, records


def _parse(payload: bytes) -> tuple[str, int, list[CheckpointRecord]]:
    header = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    about = json.loads(header["__metadata__"]["about"])
    arrays: dict[int, dict[str, np.ndarray]] = {}
    for key, array in safetensors.numpy.load(payload).items():
        place, _, name = key.partition(" ")
        arrays.setdefault(int(place), {})[name] = array
    records = [
        CheckpointRecord(str(name), int(number), int(following), Snapshot(arrays.get(place, {}), dict(note)))
        for place, (name, number, following, note) in enumerate(about["steps"])
    ]
    return str(about["identity"]), int(about["order"]), records


# -- one process a folder


@contextlib.contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Hold the lock of `folder` inside the block.

    The system releases the lock when its owner dies; what the file then says has no meaning.

    Raises:
        FolderInUseError: Another process holds the lock.
    """
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputNotWritableError(f"cannot write {path}: {error.strerror}") from error
    try:
        if not _try_lock(descriptor, path):
            raise FolderInUseError(f"{folder} is in use by {_owner(path)}; wait for it, or end it first")
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps({"process": os.getpid(), "host": platform.node()}).encode())
            yield
        finally:
            if sys.platform != "win32":
                with contextlib.suppress(OSError):  # the folder may have become read-only; the first error counts
                    path.unlink()
    finally:
        os.close(descriptor)
        if sys.platform == "win32":  # which cannot remove a file that a process has open
            with contextlib.suppress(OSError):
                path.unlink()


def _try_lock(descriptor: int, path: Path) -> bool:
    """Lock the file; a lock on a file that its owner has just removed does not count."""
    try:
        _lock(descriptor)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _lock(descriptor: int) -> None:
    """Lock an open file without waiting; raises an OSError if another process holds it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)  # behind the text, since a locked byte cannot be read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
        return f"process {int(owner['process'])} on {str(owner['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
