"""SHA-256 of every file in a folder, because no common array format notices a flipped byte by itself.

`MANIFEST.sha256` can be checked by `sha256sum -c`, too. Its first line, a comment there, is the SHA-256 of the
others, so that a manifest that was cut short is noticed as well.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import CorruptFileError
from ._formats import write_text
from ._limits import inside, open_file, read_bytes

MANIFEST = "MANIFEST.sha256"
# Not in the manifest: they are sealed one by one, and go when the work is done.
CHECKPOINTS = "checkpoints"
_LARGEST = 2**24
_LINE = re.compile(r"([0-9a-f]{64})  ([^\0\n\r]+)")


def sha256_of(path: Path | str) -> str:
    """Hexadecimal SHA-256 of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path | str, names: Iterable[str] | None = None) -> Path:
    """Write `MANIFEST.sha256` over the files `names` of `folder`, or over all that lie below it."""
    folder = Path(folder)
    names = _files_of(folder) if names is None else names
    return _write(folder, {name: sha256_of(folder / name) for name in names})


def update_manifest(folder: Path | str, *patterns: str) -> Path:
    """Sign the files whose names match one of the patterns anew; in them a star stands for anything.

    The others keep the SHA-256 that they had: who writes a report does not vouch for the model beside it.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).exists():
        return write_manifest(folder)
    digests = {name: digest for name, digest in _read(folder).items() if not _matches(name, patterns)}
    changed = (name for name in _files_of(folder) if _matches(name, patterns))
    return _write(folder, digests | {name: sha256_of(folder / name) for name in changed})


def verify_manifest(folder: Path | str, *, but: Sequence[str] = ()) -> None:
    """Compare every file that the manifest names; the first that differs is a `CorruptFileError`.

    Names that match one of the patterns `but`, in which a star stands for anything, are passed over.
    """
    folder = Path(folder)
    for name, digest in _read(folder).items():
        if _matches(name, but):
            continue
        path = inside(folder, name)
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing; the manifest of {folder} names it")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def verify_run(folder: Path | str) -> None:
    """`verify_manifest` for a run folder that is to be used.

    What is only made from the rest does not count: a report or a diagnosis that was broken off, or thrown away,
    leaves the run as it was.
    """
    verify_manifest(folder, but=("*report.html", "*figures/*", "*diagnosis.json", "*diagnosis.npz"))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _read(folder: Path) -> dict[str, str]:
    """SHA-256 by name."""
    if not folder.is_dir():
        raise CorruptFileError(f"{folder}: no such run")
    path = inside(folder, MANIFEST)
    if not path.exists() and (folder / CHECKPOINTS).is_dir():
        raise CorruptFileError(f"{folder} is not finished; go on with: trunkfirst resume {folder}")
    try:
        first, _, rest = read_bytes(path, most=_LARGEST).decode().partition("\n")
    except (CorruptFileError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} cannot be read, so that nothing in {folder} is sure: {error}") from error
    if first != _first_line(rest):
        raise CorruptFileError(f"{path} is damaged: its first line is not the SHA-256 of the others")
    digests: dict[str, str] = {}
    for line in rest.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or found[2] in digests:
            raise CorruptFileError(f"{path} has a line that is not 'SHA-256  name', or twice: {line[:80]!r}")
        digests[found[2]] = found[1]
    return digests


def _write(folder: Path, digests: dict[str, str]) -> Path:
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    write_text(folder / MANIFEST, f"{_first_line(lines)}\n{lines}")
    return folder / MANIFEST


def _first_line(lines: str) -> str:
    return f"# {hashlib.sha256(lines.encode()).hexdigest()}  of the lines below"


def _files_of(folder: Path) -> list[str]:
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [name.as_posix() for name in names if name.name != MANIFEST and not _is_passing(name)]


def _is_passing(name: Path) -> bool:
    """Locks, files half-written, checkpoints."""
    return name.name.startswith(".") or CHECKPOINTS in name.parts
