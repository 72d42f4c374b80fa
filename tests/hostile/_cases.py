"""The table of hostile files, filled by the modules beside this one."""

import dataclasses as dc
from collections.abc import Callable
from pathlib import Path

Make = Callable[[Path], Path]


@dc.dataclass(frozen=True)
class Case:
    """`make` writes into a folder and returns what `read` is to be called with; the refusal says `words`."""

    make: Make
    read: Callable[[Path], object]
    words: str
    extra: str | None = None


CASES: dict[str, Case] = {}


def case(read: Callable[[Path], object], words: str, *, extra: str | None = None) -> Callable[[Make], Make]:
    """Put a function into the table under its own name."""

    def register(make: Make) -> Make:
        assert make.__name__ not in CASES
        CASES[make.__name__] = Case(make, read, words, extra)
        return make

    return register


def canary_of(folder: Path) -> Path:
    """A file outside of the folder that nobody may read or write: its text must not turn up anywhere."""
    return folder.parent / "canary.csv"


def marker_of(folder: Path) -> Path:
    """A file that appears if a pickle is run."""
    return folder.parent / "marker"


class Bomb:
    """Leaves a marker behind when it is unpickled."""

    def __init__(self, folder: Path):
        self.path = marker_of(folder)

    def __reduce__(self):
        return (Path.touch, (self.path,))
