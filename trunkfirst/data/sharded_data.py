"""Samples larger than memory: a folder of shards, each with a block of samples, read one after the other.

`shared.npz` holds what all samples share (points, weights of points, sensors, names) and the first sample as an
example; `shard-00000.npz`, ... hold the inputs, outputs, weights and labels of a block each; `index.json`, written
last, has the number of samples of each of them, and the SHA-256 of every file.
"""

import dataclasses as dc
import functools as ft
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import CorruptFileError, DataError, MemoryNeedError, OutputExistsError
from ..files.integrity import inside, make_folder, remove_leftovers, sha256_of
from ..files.npz import map_npz, read_npz, write_npz
from ..files.text_files import read_json, write_json
from .array_checks import Indices, sample_indices, some_indices, source_named
from .data_display import html_table
from .named_arrays import Arrays, arrays_from_data, data_from_arrays, is_per_sample
from .operator_data import InputFunction, OperatorData

_INDEX, _SHARED = "index.json", "shared.npz"
_FORMAT = "trunkfirst samples 1"
_SHARD = re.compile(r"shard-[0-9]{5,9}\.npz")
# Shards that this process has compared with their SHA-256, and their size and time of change then.
_verified: dict[tuple[Path, str], tuple[int, int]] = {}


@dc.dataclass(frozen=True)
class ShardFolder:
    """Numbered npz files of named arrays in one folder, and `index.json` with the SHA-256 of each.

    Files take their names only when complete. Two processes that make the same data in the same folder do not
    disturb each other: at worst a shard is made twice, and one that does not match the index is made again.
    """

    path: Path

    def shard_path(self, number: int) -> Path:
        """Return the file of a shard."""
        return self.path / f"shard-{number:05d}.npz"

    def write(self, number: int, arrays: Arrays) -> str:
        """Write one shard and return its SHA-256, for the index."""
        remove_leftovers(make_folder(self.path))
        write_npz(self.shard_path(number), arrays)
        return sha256_of(self.shard_path(number))

    def read(
        self,
        number: int,
        digest: str,
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        is_mapped: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return the arrays of a shard; each file is verified once in a process, and again when it has changed.

        A file that is missing, has another SHA-256 or arrays of other `shapes` is a `CorruptFileError`. With
        `is_mapped` the arrays stay in the file, and only the rows that are used are read.
        """
        path = self.shard_path(number)
        known = (path.absolute(), digest)
        if not path.is_file() or _verified.get(known) != _size_and_time(path):
            self.verified(path.name, digest)
            _verified[known] = _size_and_time(path)
        arrays = map_npz(path, is_verified=True) if is_mapped else read_npz(path)
        for name, shape in (shapes or {}).items():
            found = arrays[name].shape if name in arrays else None
            if found != shape:
                raise CorruptFileError(f"{path}: {name} has shape {found}; expected {shape}")
        return arrays

    def verified(self, name: str, digest: str) -> Path:
        """Return the path of the file `name`, if it exists and has this SHA-256."""
        path = inside(self.path, name)
        if not path.is_file():
            raise CorruptFileError(f"{path} is missing")
        if sha256_of(path) != digest:
            raise CorruptFileError(f"{path} is damaged: its SHA-256 is not the one in {_INDEX}")
        return path

    def write_index(self, digests: Mapping[int, str], *, about: Mapping[str, Any]) -> None:
        """Write the SHA-256 of the shards by number; `about` describes the data for a reader."""
        named = {self.shard_path(number).name: digests[number] for number in sorted(digests)}
        write_json(self.path / _INDEX, {"about": about, "sha256": named})

    def read_index(self) -> dict[int, str]:
        """Return the SHA-256 by number; empty without an index, a `CorruptFileError` if it cannot be read."""
        return self.read_description()[0]

    def read_description(self) -> tuple[dict[int, str], Any]:
        """Return the SHA-256 by number and the description `about` the data; None without an index."""
        if not (self.path / _INDEX).exists():
            return {}, None
        path = inside(self.path, _INDEX)
        index = read_json(path)
        named = index.get("sha256") if isinstance(index, dict) else None
        if not isinstance(named, dict) or not all(
            _SHARD.fullmatch(name) and isinstance(digest, str) for name, digest in named.items()
        ):
            raise CorruptFileError(f"{path} does not list the shards")
        return {int(name[len("shard-") : -len(".npz")]): digest for name, digest in named.items()}, index.get(
            "about"
        )


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@dc.dataclass(frozen=True, eq=False, repr=False)
class ShardedData:
    """Samples in a folder of shards, all at the same points; written by `write_shards`, opened by `read_data`.

    It has the attributes of `OperatorData`. Points and names are in memory. `inputs`, `outputs` and `flat_inputs`
    read all samples from disk on every access; prefer `take`, or `blocks`, which needs the memory of one shard. To
    read a missing or damaged shard raises a `CorruptFileError`.
    """

    folder: ShardFolder
    example: OperatorData
    """The first sample, with everything that the samples share."""
    digests: tuple[str, ...]
    counts: Int[np.ndarray, " shards"]
    left_out: Int[np.ndarray, " left_out"] = dc.field(default_factory=lambda: np.zeros(0, np.int64))
    """Samples that are left out, in rising order and counted with them; indices elsewhere do not count them."""
    # copied from the example
    points: Float[np.ndarray, "points coordinates"] = dc.field(init=False)
    point_weights: Float[np.ndarray, " points"] | None = dc.field(init=False)
    channels: int = dc.field(init=False)
    is_multichannel: bool = dc.field(init=False)
    output_name: str = dc.field(init=False)
    coordinate_names: tuple[str, ...] = dc.field(init=False)
    channel_names: tuple[str, ...] = dc.field(init=False)
    units: dict[str, str] = dc.field(init=False)

    def __post_init__(self) -> None:
        for field in dc.fields(self):
            if not field.init:
                object.__setattr__(self, field.name, getattr(self.example, field.name))

    @property
    def samples(self) -> int:
        """Number of samples, without those that are left out."""
        return int(self.counts.sum()) - len(self.left_out)

    @property
    def inputs(self) -> dict[str, InputFunction]:
        """The input functions of all samples, read from disk."""
        return self.take(slice(None)).inputs

    @property
    def outputs(self) -> Float[np.ndarray, "samples points *channels"]:
        """The outputs of all samples, read from disk."""
        return self.take_arrays(slice(None))["outputs"]

    @property
    def flat_inputs(self) -> Float[np.ndarray, "samples sensors"]:
        """The input values of all samples side by side, read from disk."""
        return self.take(slice(None)).flat_inputs

    @property
    def numbers(self) -> int:
        """Number of input and output values of a sample."""
        return self.example.flat_inputs.size + self.example.outputs.size

    @property
    def digest(self) -> str:
        """SHA-256 of the digests of all shards and of what they share."""
        text = "".join((*self.digests, *map(str, self.left_out)))
        shared = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays_from_data(self.example).values())
        return hashlib.sha256(text.encode() + shared).hexdigest()

    def describe(self) -> list[str]:
        """Return sentences on samples, inputs, points and outputs; no shard is read."""
        first = f"{self.samples:,} samples in {len(self.counts):,} shards, {self.example.points_in_words()}"
        return [first, *self.example.describe(has_ranges=False)[1:]]

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__} in {self.folder.path}:", *self.describe()])

    def _repr_html_(self) -> str:
        return html_table(f"{type(self).__name__} in {self.folder.path}", self.describe())

    def without(self, indices: Indices) -> "ShardedData":
        """Return all samples but those at `indices`."""
        return dc.replace(self, left_out=np.union1d(self.left_out, self._places(indices)))

    @ft.cached_property
    def shards(self) -> Int[np.ndarray, " used"]:
        """The numbers of the shards that have samples which are not left out."""
        bounds = np.searchsorted(self.left_out, np.append(0, self._ends))
        return np.flatnonzero(np.diff(bounds) < self.counts)

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[OperatorData]:
        """Yield the samples of the `shards` number part, part + parts, ..., one shard at a time."""
        for number in map(int, self.shards[part::parts]):
            begin, end = self._ends[number] - self.counts[number], self._ends[number]
            first, last = np.searchsorted(self.left_out, (begin, end))
            block = self._data(self.folder.shard_path(number), self._arrays(number))
            kept = np.delete(np.arange(end - begin), self.left_out[first:last] - begin)
            yield block if len(kept) == end - begin else block.take(kept)

    def block_numbers(self, indices: Indices) -> Int[np.ndarray, " chosen"]:
        """Return the block, counted from 0 in `blocks`, of each of the samples at `indices`."""
        return np.searchsorted(self.shards, self._shard_numbers(self._places(indices)))

    def take(self, indices: Indices) -> OperatorData:
        """Return the samples at `indices`, in memory; only their rows are read."""
        return self.assemble(self.take_arrays(indices))

    def take_arrays(self, indices: Indices) -> dict[str, np.ndarray]:
        """Return the arrays with an entry for each of the samples at `indices`."""
        places = self._places(indices)
        self._check_memory(len(places))
        shards = self._shard_numbers(places)
        own = _parts(self.example)[1]
        chosen = {name: np.empty((len(places), *array.shape[1:]), array.dtype) for name, array in own.items()}
        for number in np.unique(shards):
            rows = np.flatnonzero(shards == number)
            inside_shard = places[rows] - (self._ends[number] - self.counts[number])
            for name, array in self._arrays(int(number), is_mapped=True).items():
                chosen[name][rows] = array[inside_shard]
        return chosen

    def assemble(self, arrays: Arrays) -> OperatorData:
        """Return samples from their arrays, with everything that the samples share."""
        return self._data(self.folder.path, arrays)

    def some(self, most: int, *, seed: int = 0) -> OperatorData:
        """Return at most `most` random samples in memory, or all in their order if there are no more."""
        return self.take(some_indices(self.samples, most, seed=seed))

    @ft.cached_property
    def _ends(self) -> Int[np.ndarray, " shards"]:
        return np.cumsum(self.counts)

    @ft.cached_property
    def _shared(self) -> dict[str, np.ndarray]:
        return _parts(self.example)[0]

    def _places(self, indices: Indices) -> Int[np.ndarray, " chosen"]:
        """Return the positions of samples in the folder, where those that are left out count."""
        chosen = sample_indices(indices, self.samples)
        before = np.searchsorted(self.left_out - np.arange(len(self.left_out)), chosen, side="right")
        return chosen + before

    def _shard_numbers(self, places: Int[np.ndarray, " chosen"]) -> Int[np.ndarray, " chosen"]:
        return np.searchsorted(self._ends, places, side="right")

    def _arrays(self, number: int, *, is_mapped: bool = False) -> dict[str, np.ndarray]:
        own = _parts(self.example)[1]
        shapes = {name: (int(self.counts[number]), *array.shape[1:]) for name, array in own.items()}
        arrays = self.folder.read(number, self.digests[number], shapes=shapes, is_mapped=is_mapped)
        return {name: arrays[name] for name in own}

    def _data(self, source: Path, arrays: Arrays) -> OperatorData:
        with source_named(source):
            data = data_from_arrays({**self._shared, **arrays})
        assert isinstance(data, OperatorData)
        return data

    def _check_memory(self, samples: int) -> None:
        """Refuse more than the machine's memory: the system would end the process."""
        if not hasattr(os, "sysconf"):  # Windows
            return
        need = samples * self.numbers * self.example.outputs.itemsize
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if need > memory:
            raise MemoryNeedError(
                f"{self.folder.path}: {samples:,} samples take {need / 2**30:.1f} GiB, more than the "
                f"{memory / 2**30:.1f} GiB of this machine; take fewer, or use blocks()"
            )


def is_sharded(path: Path | str) -> bool:
    """Whether this is a folder of shards, finished or not."""
    return Path(path).is_dir() and any((Path(path) / name).exists() for name in (_INDEX, _SHARED))


def open_shards(path: Path | str) -> ShardedData:
    """Open a folder that `write_shards` made; the samples stay on disk."""
    folder = ShardFolder(Path(path))
    digests, about = folder.read_description()
    if about is None:
        raise CorruptFileError(f"{path} has no {_INDEX}, because it was not written to the end; write it again")
    match about:
        case {"format": str(name), "samples": list(counts), "shared": str(shared)} if name == _FORMAT:
            pass
        case _:
            raise CorruptFileError(f"{path}: {_INDEX} does not describe samples for training")
    is_counted = all(type(count) is int and count > 0 for count in counts)
    if sorted(digests) != list(range(len(counts))) or not counts or not is_counted:
        raise CorruptFileError(f"{path}: {_INDEX} does not have the number of samples of every shard")
    example = data_from_arrays(read_npz(folder.verified(_SHARED, shared)))
    if not isinstance(example, OperatorData):
        raise CorruptFileError(
            f"{path}: {_SHARED} has points for each sample; in shards all samples need the same points"
        )
    return ShardedData(folder, example, tuple(digests[n] for n in sorted(digests)), np.array(counts))


def write_shards(blocks: Iterable[OperatorData], path: Path | str) -> ShardedData:
    """Write blocks of samples, one shard for each, and open them as `ShardedData`.

    Only one block is in memory at a time. The index is written last, so that an unfinished folder is not read as
    data.

    Args:
        blocks: `OperatorData` with the same points, sensors and names.
        path: the folder to write.

    Returns:
        `ShardedData` of all samples.

    Raises:
        DataError: a block differs from the first in points, sensors or names.

    >>> x, rng = np.linspace(0, 1, 5), np.random.default_rng(0)
    >>> blocks = (OperatorData(a := rng.normal(size=(10, 1)), x, np.sin(a * x)) for _ in range(3))
    >>> data = write_shards(blocks, "many")
    >>> data.samples, data.take([0, 29]).samples
    (30, 2)
    """
    folder = ShardFolder(Path(path))
    if folder.path.exists() and (not folder.path.is_dir() or (folder.path / _INDEX).exists()):
        raise OutputExistsError(f"{path} exists already; remove it first or choose another name")
    first: tuple[Arrays, Arrays] | None = None
    digests, counts = dict[int, str](), list[int]()
    for number, block in enumerate(blocks):
        parts = _parts(block)
        first = first or (parts[0], {name: array[:1].copy() for name, array in parts[1].items()})
        _check_alike(number, first, parts)
        digests[number] = folder.write(number, parts[1])
        counts.append(block.samples)
    if first is None:
        raise DataError("outputs: no samples to write")
    write_npz(folder.path / _SHARED, {**first[0], **first[1]})
    about = {"format": _FORMAT, "samples": counts, "shared": sha256_of(folder.path / _SHARED)}
    folder.write_index(digests, about=about)
    return open_shards(path)


def _parts(data: OperatorData) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the arrays that all samples share, and the arrays with an entry for each."""
    arrays = arrays_from_data(data)
    own = {name: array for name, array in arrays.items() if is_per_sample(name)}
    return {name: array for name, array in arrays.items() if name not in own}, own


def _check_alike(number: int, first: tuple[Arrays, Arrays], parts: tuple[Arrays, Arrays]) -> None:
    (shared, own), (other_shared, other_own) = first, parts
    if set(shared) != set(other_shared) or set(own) != set(other_own):
        names = sorted({*shared, *own} ^ {*other_shared, *other_own})
        raise DataError(f"{names[0]}: given in only one of the blocks 0 and {number}; give it in all or in none")
    for name, array in shared.items():
        if not np.array_equal(array, other_shared[name]):
            raise DataError(f"{name}: block {number} differs from block 0; all samples must share it")
    for name, array in own.items():
        other = other_own[name]
        if (array.shape[1:], array.dtype) != (other.shape[1:], other.dtype):
            raise DataError(
                f"{name}: a sample has shape {other.shape[1:]} and type {other.dtype} in block {number}, but "
                f"{array.shape[1:]} and {array.dtype} in block 0"
            )
