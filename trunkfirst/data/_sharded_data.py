"""Samples larger than memory: a folder of shards, each with a block of samples, read one after the other.

`shared.npz` holds what all samples share (points, weights of points, sensors, names) and the first sample as an
example; `shard-00000.npz`, ... hold the inputs, outputs, weights and labels of a block each; `index.json`, written
last, says how many samples each of them has, and the SHA-256 of every file.
"""

import dataclasses as dc
import functools as ft
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..errors import CorruptFileError, DataError, OutputExistsError
from ..files import read_npz, sha256_of, write_npz
from ._arrays import arrays_from_data, data_from_arrays
from ._operator_data import OperatorData
from ._shards import INDEX, ShardFolder

SHARED = "shared.npz"
_FORMAT = "trunkfirst samples 1"
# Keys, or families of keys, of arrays with an entry for every sample.
OF_SAMPLES = ("inputs", "outputs", "sample_weights", "reference_outputs", "labels")

Arrays = Mapping[str, np.ndarray]


@dc.dataclass(frozen=True, eq=False)
class ShardedData:
    """Aligned samples in a folder: what they share in memory, the samples themselves on disk.

    A shard that is missing or damaged is a `CorruptFileError` that names it, as soon as it is looked at.
    `read_data(FOLDER)` opens a folder, `write_shards` makes one.
    """

    folder: ShardFolder
    example: OperatorData
    """The first sample, with all that the samples share."""
    digests: tuple[str, ...]
    counts: Int[np.ndarray, " shards"]
    left_out: Int[np.ndarray, " left_out"] = dc.field(default_factory=lambda: np.zeros(0, np.int64))
    """Samples that are passed over, in rising order; the others are counted without them."""

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return int(self.counts.sum()) - len(self.left_out)

    @property
    def points(self) -> Float[np.ndarray, "points coordinates"]:
        """Where the outputs are given."""
        return self.example.points

    @property
    def numbers(self) -> int:
        """How many numbers of inputs and outputs a sample has."""
        return self.example.flat_inputs.size + self.example.outputs.size

    @property
    def digest(self) -> str:
        """SHA-256 of those of all shards and of what they share."""
        text = "".join((*self.digests, *map(str, self.left_out)))
        shared = b"".join(np.ascontiguousarray(a).tobytes() for a in arrays_from_data(self.example).values())
        return hashlib.sha256(text.encode() + shared).hexdigest()

    def without(self, indices: Int[np.ndarray, " left_out"]) -> "ShardedData":
        """All samples but those at `indices`."""
        return dc.replace(self, left_out=np.union1d(self.left_out, self._places(indices)))

    @ft.cached_property
    def shards(self) -> Int[np.ndarray, " used"]:
        """The numbers of the shards that have samples which are not left out."""
        bounds = np.searchsorted(self.left_out, np.append(0, self._ends))
        return np.flatnonzero(np.diff(bounds) < self.counts)

    def blocks(self, part: int = 0, parts: int = 1) -> Iterator[OperatorData]:
        """The samples of one of the `shards` after the other; with `parts` from the `part`-th on every so many-th.

        So several processes share the work, and one that was broken off goes on.
        """
        for number in map(int, self.shards[part::parts]):
            begin, end = self._ends[number] - self.counts[number], self._ends[number]
            first, last = np.searchsorted(self.left_out, (begin, end))
            block = self._data(number, self._arrays(number))
            kept = np.delete(np.arange(end - begin), self.left_out[first:last] - begin)
            yield block if len(kept) == end - begin else block.take(kept)

    def block_numbers(self, indices: Int[np.ndarray, " chosen"]) -> Int[np.ndarray, " chosen"]:
        """In which of the `blocks`, counted from 0, the samples at `indices` are."""
        return np.searchsorted(self.shards, self._shard_numbers(self._places(indices)))

    def take(self, indices: Int[np.ndarray, " chosen"]) -> OperatorData:
        """The samples at `indices`, in memory; of the shards only what belongs to them is read."""
        return self.assemble(self.take_arrays(indices))

    def take_arrays(self, indices: Int[np.ndarray, " chosen"]) -> dict[str, np.ndarray]:
        """The arrays with an entry for each of the samples at `indices`."""
        places = self._places(indices)
        shards = self._shard_numbers(places)
        own = _parted(self.example)[1]
        chosen = {name: np.empty((len(places), *array.shape[1:]), array.dtype) for name, array in own.items()}
        for number in np.unique(shards):
            rows = np.flatnonzero(shards == number)
            inside = places[rows] - (self._ends[number] - self.counts[number])
            for name, array in self._arrays(int(number), is_mapped=True).items():
                chosen[name][rows] = array[inside]
        return chosen

    def assemble(self, arrays: Arrays) -> OperatorData:
        """Samples from their arrays, with what all of them share."""
        return self._data(None, arrays)

    def some(self, most: int, *, seed: int = 0) -> OperatorData:
        """At most so many samples, drawn at random, in memory; all, in their order, if there are no more."""
        return self.take(some_indices(self.samples, most, seed=seed))

    @ft.cached_property
    def _ends(self) -> Int[np.ndarray, " shards"]:
        return np.cumsum(self.counts)

    @ft.cached_property
    def _shared(self) -> dict[str, np.ndarray]:
        return _parted(self.example)[0]

    def _places(self, indices: Int[np.ndarray, " chosen"]) -> Int[np.ndarray, " chosen"]:
        """Where samples are among all of the folder, left out or not."""
        indices = np.asarray(indices, np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.samples:
            raise DataError(f"indices: {indices.min()} to {indices.max()}, but there are {self.samples} samples")
        before = np.searchsorted(self.left_out - np.arange(len(self.left_out)), indices, side="right")
        return indices + before

    def _shard_numbers(self, places: Int[np.ndarray, " chosen"]) -> Int[np.ndarray, " chosen"]:
        return np.searchsorted(self._ends, places, side="right")

    def _arrays(self, number: int, *, is_mapped: bool = False) -> dict[str, np.ndarray]:
        count, (_, own) = int(self.counts[number]), _parted(self.example)
        shapes = {name: (count, *array.shape[1:]) for name, array in own.items()}
        digest = self.digests[number]
        arrays = self.folder.read_again(number, digest, shapes=shapes, is_mapped=is_mapped)
        return {name: arrays[name] for name in own}

    def _data(self, number: int | None, arrays: Arrays) -> OperatorData:
        try:
            data = data_from_arrays({**self._shared, **arrays})
        except DataError as error:
            where = self.folder.path if number is None else self.folder.shard_path(number)
            raise DataError(f"{where}: {error}") from error
        assert isinstance(data, OperatorData)
        return data


def some_indices(samples: int, most: int, *, seed: int) -> Int[np.ndarray, " chosen"]:
    """At most so many of the `samples`, at random, in rising order."""
    if samples <= most:
        return np.arange(samples)
    return np.sort(np.random.default_rng(seed).choice(samples, most, replace=False))


def is_sharded(path: Path) -> bool:
    """Whether this is a folder of shards, finished or not."""
    return path.is_dir() and any((path / name).exists() for name in (INDEX, SHARED))


def open_shards(path: Path | str) -> ShardedData:
    """The samples in a folder that `write_shards` made."""
    folder = ShardFolder(Path(path))
    digests, about = folder.read_description()
    if about is None:
        raise CorruptFileError(f"{path} has no {INDEX}: writing it was broken off; write it again")
    match about:
        case {"format": str(name), "samples": list(counts), "shared": str(shared)} if name == _FORMAT:
            pass
        case _:
            raise CorruptFileError(f"{path}: {INDEX} does not describe samples for training")
    if sorted(digests) != list(range(len(counts))) or not counts or not all(_is_count(n) for n in counts):
        raise CorruptFileError(f"{path}: {INDEX} does not count the samples of every shard")
    example = data_from_arrays(read_npz(folder.verified(SHARED, shared)))
    if not isinstance(example, OperatorData):
        raise CorruptFileError(f"{path}: {SHARED} holds points of every sample; shards need the same for all")
    return ShardedData(folder, example, tuple(digests[n] for n in sorted(digests)), np.array(counts))


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


def write_shards(blocks: Iterable[OperatorData], path: Path | str) -> ShardedData:
    """Write samples that come in blocks, one shard for each, and give them back as `ShardedData`.

    All blocks must agree in what they share. Only one of them is in memory at a time. What was written before a
    crash is not taken for data, because the index comes last; writing begins anew then.
    """
    folder = ShardFolder(Path(path))
    if folder.path.exists() and (not folder.path.is_dir() or (folder.path / INDEX).exists()):
        raise OutputExistsError(f"{path} is there already; remove it first or choose another name")
    first: tuple[Arrays, Arrays] | None = None
    digests, counts = dict[int, str](), list[int]()
    for number, block in enumerate(blocks):
        parts = _parted(block)
        first = first or (parts[0], {name: array[:1].copy() for name, array in parts[1].items()})
        _check_alike(number, first, parts)
        digests[number] = folder.write(number, parts[1])
        counts.append(block.samples)
    if first is None:
        raise DataError("outputs: no samples to write")
    write_npz(folder.path / SHARED, {**first[0], **first[1]})
    about = {"format": _FORMAT, "samples": counts, "shared": sha256_of(folder.path / SHARED)}
    folder.write_index(digests, about=about)
    return open_shards(path)


def _parted(data: OperatorData) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arrays that all samples share, and arrays with an entry for each."""
    arrays = arrays_from_data(data)
    own = {name: array for name, array in arrays.items() if is_of_samples(name)}
    return {name: array for name, array in arrays.items() if name not in own}, own


def is_of_samples(name: str) -> bool:
    """Whether the array of this key has an entry for every sample."""
    return name.split(".")[0] in OF_SAMPLES


def _check_alike(number: int, first: tuple[Arrays, Arrays], parts: tuple[Arrays, Arrays]) -> None:
    (shared, own), (other_shared, other_own) = first, parts
    if set(shared) != set(other_shared) or set(own) != set(other_own):
        names = sorted({*shared, *own} ^ {*other_shared, *other_own})
        raise DataError(f"{names[0]}: given in one of the blocks 0 and {number} alone; give it in all or in none")
    for name, array in shared.items():
        if not np.array_equal(array, other_shared[name]):
            raise DataError(f"{name}: block {number} has others than block 0; all samples must share them")
    for name, array in own.items():
        if (array.shape[1:], array.dtype) != (other_own[name].shape[1:], other_own[name].dtype):
            other = other_own[name]
            raise DataError(
                f"{name}: a sample has shape {other.shape[1:]} and type {other.dtype} in block {number}, but "
                f"{array.shape[1:]} and {array.dtype} in block 0"
            )
