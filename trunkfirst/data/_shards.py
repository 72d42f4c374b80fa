"""Large data in pieces: npz shards with a checksum each, so that damage is noticed and only the piece redone.

A folder holds `shard-00000.npz`, `shard-00001.npz`, ... and `index.json` with the SHA-256 of each. Files take
their names only when complete, so two makers of the same data in the same folder do not spoil each other's
work: at worst a shard is made twice, and whatever does not agree with the index is made again.
"""

import dataclasses as dc
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, OutputNotWritableError
from ..files import inside, map_npz, read_json, read_npz, remove_leftovers, sha256_of, write_json, write_npz

INDEX = "index.json"
_SHARD = re.compile(r"shard-[0-9]{5,9}\.npz")
# Shards that this process has compared with their SHA-256, and their size and time then.
_verified: dict[tuple[Path, str], tuple[int, int]] = {}


@dc.dataclass(frozen=True)
class ShardFolder:
    """Numbered shards of named arrays in one folder."""

    path: Path

    def shard_path(self, number: int) -> Path:
        """File of the shard with this number."""
        return self.path / f"shard-{number:05d}.npz"

    def write(self, number: int, arrays: Mapping[str, np.ndarray]) -> str:
        """Write one shard and return its SHA-256, which belongs into the index."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputNotWritableError(f"cannot make the data folder {self.path}: {error.strerror}") from error
        remove_leftovers(self.path)
        write_npz(self.shard_path(number), arrays)
        return sha256_of(self.shard_path(number))

    def read(
        self, number: int, digest: str, *, shapes: Mapping[str, tuple[int, ...]] | None = None
    ) -> dict[str, np.ndarray]:
        """The arrays of a shard; a file that is missing or has another SHA-256 is a `CorruptFileError`.

        So is one whose arrays have not the expected `shapes`.
        """
        path = self.verified(self.shard_path(number).name, digest)
        return _with_shapes(path, read_npz(path), shapes or {})

    def read_again(
        self, number: int, digest: str, *, shapes: Mapping[str, tuple[int, ...]], is_mapped: bool = False
    ) -> dict[str, np.ndarray]:
        """`read` for data that are passed over many times: each file is verified once in a process.

        With `is_mapped` the arrays stay in the file, and only what is looked at is read.
        """
        path = self.shard_path(number)
        known = (path.absolute(), digest)
        if not path.is_file() or _verified.get(known) != _state(path):
            self.verified(path.name, digest)
            _verified[known] = _state(path)
        arrays = map_npz(path, is_verified=True) if is_mapped else read_npz(path)
        return _with_shapes(path, arrays, shapes)

    def verified(self, name: str, digest: str) -> Path:
        """The file `name`, if it is there and has this SHA-256."""
        path = inside(self.path, name)
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {INDEX}")
        return path

    def write_index(self, digests: Mapping[int, str], *, about: Mapping[str, Any]) -> None:
        """Write the SHA-256 of the shards by number; `about` describes the data for a reader."""
        named = {self.shard_path(number).name: digests[number] for number in sorted(digests)}
        write_json(self.path / INDEX, {"about": about, "sha256": named})

    def read_index(self) -> dict[int, str]:
        """SHA-256 by number; empty without an index, a `CorruptFileError` if it cannot be read."""
        return self.read_description()[0]

    def read_description(self) -> tuple[dict[int, str], Any]:
        """The same, and what is said `about` the data; None without an index."""
        if not (self.path / INDEX).exists():
            return {}, None
        path = inside(self.path, INDEX)
        index = read_json(path)
        named = index.get("sha256") if isinstance(index, dict) else None
        if not isinstance(named, dict) or not all(
            _SHARD.fullmatch(name) and isinstance(digest, str) for name, digest in named.items()
        ):
            raise CorruptFileError(f"{path} does not list the shards")
        numbers = {name: int(name.removeprefix("shard-").removesuffix(".npz")) for name in named}
        return {numbers[name]: digest for name, digest in named.items()}, index.get("about")


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file is written again."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _with_shapes(
    path: Path, arrays: dict[str, np.ndarray], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    for name, shape in shapes.items():
        found = arrays[name].shape if name in arrays else None
        if found != shape:
            raise CorruptFileError(f"{path}: {name} has shape {found}; expected {shape}")
    return arrays
