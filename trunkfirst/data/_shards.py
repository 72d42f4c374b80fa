"""Large data in pieces: npz shards with a checksum each, so that damage is noticed and only the piece redone.

A folder holds `shard-00000.npz`, `shard-00001.npz`, ... and `index.json` with the SHA-256 of each. Files take
their names only when complete, so two makers of the same data in the same folder do not spoil each other's
work: at worst a shard is made twice, and whatever does not agree with the index is made again.
"""

import dataclasses as dc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, OutputNotWritableError
from ..files import read_json, read_npz, sha256_of, write_json, write_npz

INDEX = "index.json"


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
        write_npz(self.shard_path(number), arrays)
        return sha256_of(self.shard_path(number))

    def read(self, number: int, digest: str) -> dict[str, np.ndarray]:
        """The arrays of a shard; a file that is missing or has another SHA-256 is a `CorruptFileError`."""
        path = self.shard_path(number)
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {INDEX}")
        return read_npz(path)

    def write_index(self, digests: Mapping[int, str], *, about: Mapping[str, Any]) -> None:
        """Write the SHA-256 of the shards by number; `about` describes the data for a reader."""
        named = {self.shard_path(number).name: digests[number] for number in sorted(digests)}
        write_json(self.path / INDEX, {"about": about, "sha256": named})

    def read_index(self) -> dict[int, str]:
        """SHA-256 by number; empty without an index, a `CorruptFileError` if it cannot be read."""
        path = self.path / INDEX
        if not path.exists():
            return {}
        try:
            named: dict[str, str] = read_json(path)["sha256"]
            return {int(name[len("shard-") : -len(".npz")]): str(digest) for name, digest in named.items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptFileError(f"{path} does not list the shards: {error}") from error
