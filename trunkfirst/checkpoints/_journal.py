"""A journal: what a computation has done so far, written down at intervals.

A computation is a fixed sequence of steps, numbered as they begin: minimisations, and other pieces whose results
are arrays. To resume it is to begin it again. Steps that the journal knows are not carried out but looked up, the
one that was broken off goes on from its last snapshot, and cheap things between the steps are simply done again.
Nothing else has to know where the computation stood.

On disk a journal is a file for every interval in which steps were finished, and, for the step under way, two
files that are written in turn: whatever is damaged is noticed, and what was written before it counts.
"""

import contextlib
import dataclasses as dc
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError
from ._bundle import Bundle, Step, read_bundle, write_bundle

_current: ContextVar["Journal | None"] = ContextVar("journal", default=None)


@dc.dataclass(frozen=True, eq=False)
class Snapshot:
    """Where a step stands: arrays, and a note of plain numbers and texts."""

    arrays: Mapping[str, np.ndarray]
    note: Mapping[str, Any] = dc.field(default_factory=dict)


@dc.dataclass(eq=False)
class Place:
    """One step of a computation, and what is known of it from before."""

    name: str
    number: int = 0
    journal: "Journal | None" = None
    saved: Snapshot | None = None
    is_done: bool = False

    def keep(self, take: Callable[[], Snapshot], *, at_once: bool = False) -> None:
        """Write down where the step stands, if it is time to."""
        if self.journal is not None and (at_once or self.journal.is_due()):
            self.journal.write(self, take())

    def finish(self, take: Callable[[], Snapshot]) -> None:
        """Note how the step ended."""
        if self.journal is not None:
            self.journal.note_finished(self, take())


class Journal:
    """The journal in a folder. Use it through `keep_checkpoints`."""

    def __init__(self, folder: Path, *, identity: str, interval: float):
        self._folder, self._identity, self._interval = folder, identity, interval
        finished = _read_all(sorted(folder.glob("*.finished")), identity)
        under_way = _read_all(sorted(folder.glob("*.under-way")), identity)
        self._finished = {step.number: step for bundle in finished for step in bundle.steps}
        latest = max(under_way, key=lambda bundle: bundle.order, default=None)
        self._broken_off = latest.steps[0] if latest is not None else None
        self._order = max((bundle.order for bundle in (*finished, *under_way)), default=0)
        self._pending: list[Step] = []
        self._next = 0
        self._written = time.monotonic()

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self._folder

    def begin(self, name: str) -> Place:
        """The next step."""
        number, self._next = self._next, self._next + 1
        known = self._finished.get(number)
        if known is not None:
            self._next = known.following
        elif self._broken_off is not None and self._broken_off.number == number:
            known = self._broken_off
        if known is None:
            return Place(name, number, self)
        if known.name != name:
            raise CorruptFileError(
                f"{self._folder}: step {number} is {known.name!r} there, but {name!r} here: the checkpoints are "
                "of another version of this computation; remove the folder to start anew"
            )
        return Place(name, number, self, Snapshot(known.arrays, known.note), number in self._finished)

    def is_due(self) -> bool:
        """Whether an interval has passed since the last writing."""
        return time.monotonic() - self._written >= self._interval

    def note_finished(self, place: Place, snapshot: Snapshot) -> None:
        """A step that need not be done again."""
        self._pending.append(self._step(place, snapshot))
        if self.is_due():
            self._write_finished()

    def write(self, place: Place, snapshot: Snapshot) -> None:
        """Write down all that is not yet on disk, and where this step stands."""
        self._write_finished()
        self._write(f"{self._order % 2}.under-way", (self._step(place, snapshot),))

    def _write_finished(self) -> None:
        if self._pending:
            self._write(f"{self._order + 1:06d}.finished", tuple(self._pending))
            self._pending.clear()

    def _write(self, name: str, steps: tuple[Step, ...]) -> None:
        self._order += 1
        write_bundle(self._folder / name, Bundle(self._identity, self._order, steps))
        self._written = time.monotonic()

    def _step(self, place: Place, snapshot: Snapshot) -> Step:
        return Step(place.name, place.number, self._next, snapshot.arrays, snapshot.note)


@contextlib.contextmanager
def keep_checkpoints(folder: Path | str, *, identity: str = "", interval: float = 30.0) -> Generator[Journal]:
    """Whatever is fitted inside this block is written down in `folder`, after each `interval` of seconds.

    The same block with the same folder takes up what was broken off, to the same bits, as long as program, data
    and versions are the same; a folder of another `identity` is not taken up. Remove the folder when the results
    are safe.
    """
    journal = Journal(Path(folder), identity=identity, interval=interval)
    token = _current.set(journal)
    try:
        yield journal
    finally:
        _current.reset(token)


def journal_files(folder: Path) -> list[Path]:
    """The files of a journal; beside them there may be larger ones, of `work_folder`."""
    return [path for pattern in ("*.finished", "*.under-way") for path in sorted(folder.glob(pattern))]


def begin_step(name: str) -> Place:
    """The next step of the computation; outside of `keep_checkpoints` one that nothing is known of."""
    journal = _current.get()
    return Place(name) if journal is None else journal.begin(name)


def remember(name: str, compute: Callable[[], dict[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """What `compute` returns, or returned before; the steps inside it are part of this one."""
    place = begin_step(name)
    if place.saved is not None and place.is_done:
        return place.saved.arrays
    arrays = compute()
    place.finish(lambda: Snapshot(arrays))
    return arrays


@contextlib.contextmanager
def work_folder() -> Generator[Path]:
    """A folder for large files on the way: that of the checkpoints, or else one that is removed at the end."""
    journal = _current.get()
    if journal is not None:
        yield journal.folder
        return
    with tempfile.TemporaryDirectory(prefix="trunkfirst-") as folder:
        yield Path(folder)


def is_keeping_checkpoints() -> bool:
    """Whether this is inside of `keep_checkpoints`."""
    return _current.get() is not None


def _read_all(paths: Sequence[Path], identity: str) -> list[Bundle]:
    """What is sound; the rest is removed, with a warning, for it will be made again."""
    bundles: list[Bundle] = []
    for path in paths:
        try:
            bundles.append(read_bundle(path, identity))
        except CorruptFileError as error:
            warnings.warn(f"{error}; going on from the checkpoints before it", RuntimeWarning, stacklevel=5)
            path.unlink()
    return bundles
