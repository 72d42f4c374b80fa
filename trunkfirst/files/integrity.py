"""Files that are complete or absent, bounded when read, and verified by SHA-256 before they are used."""

import contextlib
import hashlib
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import (
    CorruptFileError,
    OutputExistsError,
    OutputNotWritableError,
    TrunkfirstError,
    UnsafeFileError,
    did_you_mean,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MANIFEST = "MANIFEST.sha256"
CARD = "README.md"
# Not in the manifest: checkpoints have a checksum each, and are removed when the run is complete.
CHECKPOINTS = "checkpoints"
_LARGEST_MANIFEST = 2**24
_LINE = re.compile(r"([0-9a-f]{64})  ([^\0\n\r]+)")
# Below the first there is no limit. Simulation data shrink by a few times when compressed, a bomb by about 1,000.
_HARMLESS_BYTES = 2**27
_LARGEST_RATIO = 20
_WINDOWS_WAITS = (0.01, 0.1, 1.0)


# -- writing


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Generator[BinaryIO]:
    """Open a binary file that takes its final name `path` only when the block ends without an error.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder. After a crash no partial file has
    the final name; temporary files that remain are called `*.tmp-*`, see `remove_leftovers`. A disk that is full
    or fails is an `OutputNotWritableError` that names `path`; other errors of the block are raised unchanged.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise OutputNotWritableError(f"cannot write {path}: there is no folder {path.parent}; make it first")
    with _naming(path):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.tmp-", dir=path.parent)
    raw = _Raw(descriptor, path)
    try:
        with io.BufferedWriter(raw) as file:
            try:
                yield file
                file.flush()
                with _naming(path):
                    os.fsync(descriptor)
            except BaseException:
                raw.is_given_up = True
                raise
        with _naming(path):
            os.chmod(name, 0o644)  # noqa: PTH101 - so that tests can make each of these calls fail
            _replace(name, path)
            _sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


class _Raw(io.FileIO):
    """A file whose own errors, and no others, name the path that is being written."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "wb")
        self._path = path
        self.is_given_up = False

    def write(self, data: "ReadableBuffer", /) -> int:
        if self.is_given_up:  # drop the rest of the buffer
            return memoryview(data).nbytes
        with _naming(self._path):
            return os.write(self.fileno(), data)


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise OutputNotWritableError(f"cannot write {path}: {error.strerror or error}") from error


def _replace(name: str, path: Path) -> None:
    """Rename; Windows refuses it while another process, such as a virus scanner, reads the old file."""
    for seconds in _WINDOWS_WAITS if sys.platform == "win32" else ():
        with contextlib.suppress(PermissionError):
            os.replace(name, path)  # noqa: PTH105
            return
        time.sleep(seconds)
    os.replace(name, path)  # noqa: PTH105


def _sync_folder(folder: Path) -> None:
    if sys.platform == "win32":  # Windows cannot open a folder; its rename is durable enough
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path | str, *, older_than: float = 3600.0) -> None:
    """Remove temporary files of killed writers below `folder` that are older than `older_than` seconds.

    Pass 0 if you hold the lock of the folder.
    """
    before = time.time() - older_than
    for path in Path(folder).rglob(".*.tmp-*"):
        with contextlib.suppress(OSError):  # removed by another process, or not ours to remove
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime <= before:
                path.unlink()


def make_folder(path: Path | str) -> Path:
    """Make a folder and those above it, unless it exists."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {path}: {error.strerror}") from error
    return path


def prepare_directory(path: Path | str) -> Path:
    """Make the folder `path` and check that it can be written; refuse one that is not empty."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise OutputExistsError(f"{path} is a file; choose a folder for the results")
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        is_empty = not any(path.iterdir())
    except OSError as error:
        raise OutputNotWritableError(
            f"cannot write to {path}: {error.strerror}; choose another folder with --out"
        ) from error
    if not is_empty:
        raise OutputExistsError(f"{path} is not empty; choose another folder with --out, or remove it first")
    return path


# -- reading


class Budget:
    """The bytes of memory that a file of a given size on disk may need, counted before they are allocated."""

    def __init__(self, path: Path | str, stored: int, most: int | None = None) -> None:
        self._path, self._stored, self._taken = path, stored, 0
        self.most = max(_HARMLESS_BYTES, _LARGEST_RATIO * stored) if most is None else most

    def take(self, name: str, size: int) -> None:
        """Count `size` bytes for the array `name`; a `CorruptFileError` if they are too many."""
        self._taken += size
        if self._taken > self.most:
            raise CorruptFileError(
                f"{self._path}: {name} claims {self._taken / 2**30:.1f} GiB but takes {self._stored:,} bytes on "
                "disk, with all before it; refused. If the data are real, save them without compression"
            )


def absent(path: Path | str) -> CorruptFileError:
    """The error for a file or folder that does not exist, with the nearest name that does."""
    path = Path(path)
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    hint = f"there is no folder {path.parent}" if folder != path.parent.absolute() else ""
    if not hint:
        with contextlib.suppress(OSError):
            names = sorted(each.name for each in folder.iterdir())
            same = next((f"did you mean {each!r}?" for each in names if Path(each).stem == path.name), "")
            hint = same or did_you_mean(path.name, names).strip()
    return CorruptFileError(f"{path} does not exist{hint and '; '}{hint}")


def no_run(folder: Path | str) -> CorruptFileError:
    """The error for what is no folder of a run or a model, with the runs nearby."""
    folder = Path(folder)
    if folder.is_file():
        return CorruptFileError(f"{folder} is a file; give the folder of a run")
    near = folder if folder.is_dir() else next(parent for parent in folder.absolute().parents if parent.is_dir())
    manifests = (each for pattern in ("", "*/", "runs/*/") for each in near.glob(f"{pattern}{MANIFEST}"))
    runs = {each.parent for each in manifests if not (each.parent / "model.json").exists()}
    newest = sorted(runs, key=lambda run: run.stat().st_mtime)[::-1][:5]
    names = [str(run if folder.is_absolute() else os.path.relpath(run)) for run in newest]
    hint = did_you_mean(str(folder), names).strip() or (names and f"runs here: {', '.join(names)}")
    what = f"{folder} is not the folder of a run" if folder.is_dir() else f"{folder}: no such run"
    return CorruptFileError(f"{what}{f'; {hint}' if hint else ''}")


def open_file(path: Path | str) -> io.BufferedReader:
    """Open a regular file for reading; a pipe or a device, which might never end, is refused."""
    path = Path(path)
    if not path.exists() and not path.is_symlink():
        raise absent(path)
    if path.exists() and not path.is_file():
        raise CorruptFileError(f"cannot read {path}: it is not a file")
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error


@contextlib.contextmanager
def reading(path: object, kind: str, *errors: type[Exception]) -> Generator[None]:
    """Errors of these types in the block become a `CorruptFileError` with the name of the file; ours are kept."""
    try:
        yield
    except TrunkfirstError:
        raise
    except errors as error:
        raise CorruptFileError(f"cannot read {path} as {kind}: {str(error)[:300]}") from error


def read_bytes(path: Path | str, *, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CorruptFileError(f"{path} has more than {most:,} bytes, too many for what it should be; refused")
    return content


def inside(folder: Path | str, name: str) -> Path:
    """Return the path of the file `name` of a folder; one that leads out of it, by name or link, is refused."""
    folder = Path(folder)
    try:
        path = folder / name
        is_inside = bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts
        is_inside = is_inside and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a null character, a link to itself
        raise UnsafeFileError(f"{folder}: {name[:80]!r} is not a file name: {error}") from error
    if not is_inside:
        raise UnsafeFileError(f"{folder}: {name[:80]!r} lies outside the folder; refused")
    return path


def size_of(file: BinaryIO) -> int:
    """Return the number of bytes of an open file."""
    return os.fstat(file.fileno()).st_size


# -- the manifest: SHA-256 of every file in a folder, because no common array format detects every flipped byte.
# `sha256sum -c` can check it, too. Its first line, a comment there, is the SHA-256 of the others, so that a
# manifest that was cut short is detected as well.


def sha256_of(path: Path | str) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path | str, names: Iterable[str] | None = None) -> Path:
    """Write `MANIFEST.sha256` over the files `names` of `folder`, or over all files below it."""
    folder = Path(folder)
    names = _files_of(folder) if names is None else names
    return _write_manifest(folder, {name: sha256_of(folder / name) for name in names})


def update_manifest(folder: Path | str, *patterns: str) -> None:
    """Replace the SHA-256 of the files whose names match one of the patterns, in which * matches anything.

    The others keep theirs: writing a report does not certify the model in the same folder. A folder without a
    manifest gets one of all its files.
    """
    folder = Path(folder)
    if not (folder / MANIFEST).exists():
        write_manifest(folder)
        return
    digests = {name: digest for name, digest in _read_manifest(folder).items() if not _matches(name, patterns)}
    changed = (name for name in _files_of(folder) if _matches(name, patterns))
    _write_manifest(folder, digests | {name: sha256_of(folder / name) for name in changed})


def verify_manifest(folder: Path | str, *, but: Sequence[str] = ()) -> None:
    """Compare every file in the manifest; the first that differs is a `CorruptFileError`.

    Names that match one of the patterns `but` are skipped.
    """
    folder = Path(folder)
    for name, digest in _read_manifest(folder).items():
        if _matches(name, but):
            continue
        path = inside(folder, name)
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing; the manifest of {folder} names it")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {MANIFEST}")


def verify_run(folder: Path | str) -> None:
    """Verify the manifest of a run folder that is to be used.

    Reports, figures, diagnoses and model cards are skipped: no number is read from them, and they may have been
    removed or edited.
    """
    verify_manifest(folder, but=("*report.html", "*figures/*", "*diagnosis.json", "*diagnosis.npz", f"*{CARD}"))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _read_manifest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 by name."""
    if not folder.is_dir():
        raise no_run(folder)
    path = inside(folder, MANIFEST)
    if not path.exists() and (folder / CHECKPOINTS).is_dir():
        raise CorruptFileError(f"{folder} is not finished; continue with: trunkfirst resume {folder}")
    if not any((folder / name).exists() for name in (MANIFEST, "metrics.json", "model.json")):
        raise no_run(folder)
    try:
        first, _, rest = read_bytes(path, most=_LARGEST_MANIFEST).decode().partition("\n")
    except (CorruptFileError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} cannot be read, so {folder} cannot be verified: {error}") from error
    if first != _first_line(rest):
        raise CorruptFileError(f"{path} is damaged: its first line is not the SHA-256 of the others")
    digests: dict[str, str] = {}
    for line in rest.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or found[2] in digests:
            raise CorruptFileError(f"{path} has a line that is not 'SHA-256  name', or twice: {line[:80]!r}")
        digests[found[2]] = found[1]
    return digests


def _write_manifest(folder: Path, digests: dict[str, str]) -> Path:
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    with atomic_write(folder / MANIFEST) as file:
        file.write(f"{_first_line(lines)}\n{lines}".encode())
    return folder / MANIFEST


def _first_line(lines: str) -> str:
    return f"# {hashlib.sha256(lines.encode()).hexdigest()}  of the lines below"


def _files_of(folder: Path) -> list[str]:
    """Return all files below a folder but the manifest, locks, temporary files and checkpoints."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    listed = (name for name in names if name.name != MANIFEST and not name.name.startswith("."))
    return [name.as_posix() for name in listed if CHECKPOINTS not in name.parts]
