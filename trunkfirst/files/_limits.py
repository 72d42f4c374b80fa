"""What a file from a stranger may ask for: it is a plain file, and memory is in proportion to its size."""

import io
import os
from pathlib import Path
from typing import BinaryIO

from ..errors import CorruptFileError, UnsafeFileError

# Below the first nothing is asked. Simulation data shrink by a few times when compressed, a bomb by about 1,000.
_HARMLESS_BYTES = 2**27
_LARGEST_RATIO = 20


class Budget:
    """The bytes of memory that a file of a given size on disk may ask for, taken before they are allocated."""

    def __init__(self, path: Path | str, stored: int, most: int | None = None) -> None:
        self._path, self._stored, self._taken = path, stored, 0
        self.most = max(_HARMLESS_BYTES, _LARGEST_RATIO * stored) if most is None else most

    def take(self, name: str, size: int) -> None:
        """Ask for `size` bytes for what is called `name`."""
        self._taken += size
        if self._taken > self.most:
            raise CorruptFileError(
                f"{self._path}: {name} claims {self._taken / 2**30:.1f} GiB but takes {self._stored:,} bytes on "
                "disk, with all before it; refused. If the data are real, save them without compression"
            )


def open_file(path: Path | str) -> io.BufferedReader:
    """Open a plain file to be read; a pipe or a device, which might never end, is refused."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CorruptFileError(f"cannot read {path}: it is not a file")
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        raise CorruptFileError(f"cannot read {path}: {error}") from error


def read_bytes(path: Path | str, *, most: int) -> bytes:
    """The whole file, unless it has more than `most` bytes."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise CorruptFileError(f"{path} has more than {most:,} bytes, too many for what it should be; refused")
    return content


def inside(folder: Path | str, name: str) -> Path:
    """The file `name` of a folder; one that leads out of it, by its name or by a link, is refused."""
    folder = Path(folder)
    try:
        path = folder / name
        is_inside = bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts
        is_inside = is_inside and path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:  # a null character, a link to itself
        raise UnsafeFileError(f"{folder}: {name[:80]!r} is no name of a file: {error}") from error
    if not is_inside:
        raise UnsafeFileError(f"{folder}: {name[:80]!r} leads out of the folder; refused")
    return path


def size_of(file: BinaryIO) -> int:
    """How many bytes an open file has."""
    return os.fstat(file.fileno()).st_size
