"""SHA-256 of every file in a folder, because no common array format notices a flipped byte by itself."""

import hashlib
from pathlib import Path

from ..errors import CorruptFileError
from ._formats import write_text

MANIFEST = "MANIFEST.sha256"


def sha256_of(path: Path | str) -> str:
    """Hexadecimal SHA-256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path | str) -> Path:
    """Write `MANIFEST.sha256` over all files below `folder`, in the format of `sha256sum`."""
    folder = Path(folder)
    lines = [f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}" for path in _files_of(folder)]
    write_text(folder / MANIFEST, "".join(f"{line}\n" for line in lines))
    return folder / MANIFEST


def verify_manifest(folder: Path | str) -> None:
    """Compare every file that the manifest names; the first that differs is a `CorruptFileError`."""
    folder = Path(folder)
    try:
        lines = (folder / MANIFEST).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{folder / MANIFEST} cannot be read: {error}") from error
    for line in lines:
        digest, separator, name = line.partition("  ")
        path = folder / name
        if not separator or not path.resolve().is_relative_to(folder.resolve()):
            raise CorruptFileError(f"{folder / MANIFEST} has a line that is not 'SHA-256  name': {line[:80]!r}")
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing; the manifest of {folder} names it")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def _files_of(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in files if path.name != MANIFEST and ".tmp-" not in path.name)
