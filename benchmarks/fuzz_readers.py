"""Every reader of files meets damaged ones: it refuses them in words, or reads them, and does nothing else.

    python benchmarks/fuzz_readers.py

Good files of every kind are changed at random (bytes flipped, cut off, put in, copied, swapped, numbers made
absurd); checksums and manifests are made to fit again, so that the parsers are reached. A file is refused if the
reader raises an error of this library, accepted if it reads it. Everything else, and everything slower than two
seconds of processor time, is a fault: it is printed, and the script ends with 1. A damaged HDF5 file takes a
process of its own, so that there are fewer of them.
"""

import argparse
import dataclasses as dc
import os
import random
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import Table, options_for, publish
from _kinds_of_files import Kind, make_kinds

from trunkfirst.errors import TrunkfirstError

SLOW = 2.0
EXTREMES = (b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\0\0\0\0\x40", b"\x80")
WORDS = (
    b"-1",
    b"1e999",
    b"NaN",
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"true",
    b"9" * 30,
    b"[[[[",
    b"\\ud800",
    b"../",
    b"\n",
)


def mutate(rng: random.Random, content: bytes, other: bytes) -> bytes:
    """One to four changes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, size = rng.randrange(len(data) + 1), rng.choice((1, 4, 8, 32))
        from_ = rng.randrange(len(data) + 1)
        match rng.randrange(8):
            case 0:
                data[at : at + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in data[at : at + 1])
            case 1:
                data[at : at + size] = rng.randbytes(len(data[at : at + size]))
            case 2:
                data[at:at] = rng.choice((rng.randbytes(size), rng.choice(WORDS)))
            case 3:
                del data[at : at + size]
            case 4:
                data[at : at + size] = data[from_ : from_ + size]
            case 5:
                start = rng.randrange(len(other) + 1)
                data[at : at + size] = other[start : start + size]
            case 6:
                extreme = rng.choice(EXTREMES + WORDS)
                data[at : at + len(extreme)] = extreme
            case _:
                data = data[: at if rng.random() < 0.3 else None]
    return bytes(data)


# -- the work


@dc.dataclass
class Count:
    """What became of the files of a kind."""

    files: int = 0
    refused: int = 0
    accepted: int = 0
    faults: list[str] = dc.field(default_factory=list[str])
    slowest: float = 0.0


def fuzz(kind: Kind, count: int, folder: Path, *, seed: int = 0) -> Count:
    """Change the pieces `count` times and read each result."""
    rng = random.Random(seed)
    found = Count()
    names = list(kind.pieces)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        kind.read(kind.assemble(Path(place), kind.pieces))  # what is not changed is good
    for number in range(count):
        name = rng.choice(names)
        other = kind.pieces[rng.choice(names)]
        pieces = kind.pieces | {name: mutate(rng, kind.pieces[name], other)}
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = kind.assemble(Path(place), pieces)
            _try(kind.read, path, found, f"{name}, number {number}, seed {seed}")
    return found


def _try(read: Callable[[Path], object], path: Path, found: Count, what: str) -> None:
    begin = _seconds()
    found.files += 1
    try:
        read(path)
        found.accepted += 1
    except TrunkfirstError:
        found.refused += 1
    except Exception as error:
        found.faults.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
    seconds = _seconds() - begin
    found.slowest = max(found.slowest, seconds)
    if seconds > SLOW:
        found.faults.append(f"{what}: {seconds:.1f} s")


def main(argv: Sequence[str] | None = None) -> None:
    """Fuzz all kinds and count."""
    options = options_for(__doc__, _add_options, argv)
    total = 300 if options.quick else options.files
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        kinds = make_kinds(Path(name))
        kinds = {kind: kinds[kind] for kind in options.kinds or kinds}
        shares = sum(kind.share for kind in kinds.values())
        before = _peak()
        found: dict[str, Count] = {}
        for label, kind in kinds.items():
            found[label] = fuzz(kind, round(total * kind.share / shares), Path(name), seed=options.seed)
            print(label, *found[label].faults[:20], sep="\n  ", file=sys.stderr, flush=True)
        grown = _peak() - before
    counts = list(found.items())
    counts.append(("all", _sum(found)))
    rows = [(label, c.files, c.refused, c.accepted, len(c.faults), c.slowest) for label, c in counts]
    head = ("kind", "files", "refused", "accepted", "other", "slowest, s")
    note = f"Peak memory grew by {grown:.0f} MB."
    details = {label: dc.asdict(count) for label, count in found.items()}
    publish("fuzz-readers", options, Table("Damaged files", head, rows, [note]), details, _drawing(found))
    if any(count.faults for count in found.values()):
        raise SystemExit(1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--files", type=int, default=100_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    parser.add_argument("--kinds", nargs="+", help="these alone")


def _sum(found: Mapping[str, Count]) -> Count:
    counts = found.values()
    return Count(
        sum(c.files for c in counts),
        sum(c.refused for c in counts),
        sum(c.accepted for c in counts),
        [fault for c in counts for fault in c.faults],
        max(c.slowest for c in counts),
    )


def _seconds() -> float:
    """Of processor time, with that of processes that were started and ended."""
    return sum(os.times()[:4])


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _drawing(found: Mapping[str, Count]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        labels, refused = list(found), [count.refused for count in found.values()]
        axes.barh(labels, refused, label="refused")
        axes.barh(labels, [count.accepted for count in found.values()], left=refused, label="accepted")
        axes.set(xlabel="damaged files")

    return draw


if __name__ == "__main__":
    main()
