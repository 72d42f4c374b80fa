"""A finished run folder is damaged, a byte or a file at a time: the commands notice before they use a number.

    python benchmarks/corrupt.py

A small run is made; then one bit of a random byte of a random file is flipped, a file is cut off at a random
place, or removed, and `trunkfirst evaluate` is called (exit code 10, and the file is named). The report, its
drawings and the model card, from which no command reads a number, are left to `verify_manifest` (as to
`sha256sum -c`). Every file that is removed, except those, is then missed by all commands that read a run folder
(`report` does not look at the model). The model folder is damaged once more on its own, as if it had been copied
out of the run.
"""

import argparse
import collections
import contextlib
import dataclasses as dc
import io
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _common import Table, options_for, publish

from trunkfirst.cli import run_command as trunkfirst
from trunkfirst.errors import CorruptFileError
from trunkfirst.files.integrity import verify_manifest
from trunkfirst.networks.operator import load

Check = Callable[[Path], str | None]
"""What is said about a damaged folder; None if nothing is noticed."""


@dc.dataclass
class Count:
    """Damages of a kind: how many, noticed, and with the file named."""

    tried: int = 0
    noticed: int = 0
    named: int = 0


def main(argv: Sequence[str] | None = None) -> None:
    """Make a run, damage it, print what was noticed."""
    options = options_for(__doc__, _add_options, argv)
    flips, cuts = (20, 5) if options.quick else (options.flips, options.cuts)
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / "run"
        size = ["--samples", "60", "--iterations", "50"]
        assert trunkfirst(["run", "nonlinear-conductivity", *size, "--out", str(run), "--quiet"]) == 0
        found = damage_all(run, flips, cuts, seed=options.seed)
        found |= {f"model folder alone, {how}": c for how, c in damage_model(run / "model", flips, cuts).items()}
        found |= remove_for_all(run, Path(name))
        files = sum(path.is_file() for path in run.rglob("*"))
    rows = [(how, count.tried, count.noticed, count.named) for how, count in found.items()]
    head = ("damage", "tried", "noticed", "file named")
    table = Table("A damaged run folder", head, rows, [f"The folder has {files} files."])
    details = {how: dc.asdict(count) for how, count in found.items()}
    publish("corrupt", options, table, details, _drawing(found))
    if any(count.noticed < count.tried for count in found.values()):
        raise SystemExit(1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--flips", type=int, default=1000, help="bytes with one bit changed")
    parser.add_argument("--cuts", type=int, default=100, help="files cut off")
    parser.add_argument("--seed", type=int, default=0, help="of places")


# -- damage


def damages(folder: Path, flips: int, cuts: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Damage one file after the other, give its name, and put it right again."""
    rng = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    plan = [("flipped", rng.choice(files)) for _ in range(flips)]
    plan += [("cut", rng.choice(files)) for _ in range(cuts)]
    for how, path in [*plan, *(("removed", path) for path in files)]:
        content = path.read_bytes()
        at = rng.randrange(len(content))
        if how == "removed":
            path.unlink()
        else:
            changed = bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]
            path.write_bytes(content[:at] + (changed if how == "flipped" else b""))
        yield how, path
        path.write_bytes(content)


def damage_all(run: Path, flips: int, cuts: int, *, seed: int = 0) -> dict[str, Count]:
    """All kinds of damage to a run folder, as `evaluate` or, for what no command reads, the manifest sees it."""
    assert evaluate(run) is None
    assert by_manifest(run) is None
    found: dict[str, Count] = collections.defaultdict(Count)
    for how, path in damages(run, flips, cuts, seed):
        is_page = _is_page(path)
        _count(found[f"{how}, {'report and drawings' if is_page else 'what is read'}"], path, run, is_page)
    return dict(found)


def _is_page(path: Path) -> bool:
    """Whether this is for people only: a report, a drawing or a model card."""
    return path.name in ("report.html", "README.md") or path.parent.name == "figures"


def _count(count: Count, path: Path, run: Path, is_page: bool) -> None:
    said = (by_manifest if is_page else evaluate)(run)
    count.tried += 1
    count.noticed += said is not None
    # A manifest that is damaged names itself or one of its files.
    count.named += said is not None and (path.name in said or path.name == "MANIFEST.sha256")


def damage_model(model: Path, flips: int, cuts: int, *, seed: int = 1) -> dict[str, Count]:
    """The same for a model folder, as `load` sees it."""
    found: dict[str, Count] = collections.defaultdict(Count)
    for how, path in damages(model, flips, cuts, seed):
        said = (by_manifest if _is_page(path) else by_load)(model)
        found[how].tried += 1
        found[how].noticed += said is not None
        found[how].named += said is not None and (path.name in said or path.name == "MANIFEST.sha256")
    return dict(found)


def remove_for_all(run: Path, place: Path) -> dict[str, Count]:
    """Every file removed in turn, with all commands that read a run folder."""
    commands: dict[str, list[str]] = {
        "evaluate": [],
        "predict": ["--inputs", str(run / "none.npz"), "--out", str(place / "out.npz")],
        "report": [],
        "diagnose": [],
        "sensors": ["--count", "5", "--out", str(place / "out.npz")],
    }
    found: dict[str, Count] = collections.defaultdict(Count)
    for _, path in damages(run, 0, 0, 0):
        if _is_page(path):
            continue
        for command, options in commands.items():
            if command == "report" and path.parent.name == "model":
                continue
            said = _said([command, str(run), *options])
            found[f"removed, {command}"].tried += 1
            found[f"removed, {command}"].noticed += said is not None
            found[f"removed, {command}"].named += said is not None and path.name in said
    return dict(found)


# -- what is said


def evaluate(run: Path) -> str | None:
    """By the command."""
    return _said(["evaluate", str(run), "--json"])


def _said(arguments: list[str]) -> str | None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = trunkfirst(arguments)
    is_clean = not out.getvalue()  # no number was printed
    return err.getvalue().replace("\n", "") if code in (10, 15) and is_clean else None


def by_manifest(run: Path) -> str | None:
    """By a look at all checksums."""
    return _caught(verify_manifest, run)


def by_load(model: Path) -> str | None:
    """By the library."""
    return _caught(load, model)


def _caught(read: Callable[[Path], object], folder: Path) -> str | None:
    try:
        read(folder)
    except CorruptFileError as error:
        return str(error)
    return None


def _drawing(found: Mapping[str, Count]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        axes.barh(list(found), [count.tried for count in found.values()], color="0.85", label="tried")
        axes.barh(list(found), [count.noticed for count in found.values()], height=0.4, label="noticed")
        axes.set(xscale="log")

    return draw


if __name__ == "__main__":
    main()
