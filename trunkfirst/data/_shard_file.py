"""From one file, which may be larger than memory, to a folder of shards."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..files import map_npz
from ._arrays import data_from_arrays
from ._keys import name_arrays
from ._operator_data import OperatorData
from ._sharded_data import ShardedData, is_of_samples, is_sharded, open_shards, write_shards
from ._sources import read_arrays

# Bytes of a shard where nobody says how many samples it has: many fit into memory, and opening one costs little.
_SHARD_BYTES = 2**25


def shard_data(
    source: Path | str,
    folder: Path | str,
    *,
    keys: Mapping[str, str] | None = None,
    samples_per_shard: int | None = None,
) -> ShardedData:
    """Write the samples of a file, in the formats of `read_data`, as a folder of shards.

    An uncompressed npz file is mapped and may be larger than memory; others are read. By default a shard has about
    32 MiB.
    """
    if is_sharded(Path(source)):
        return write_shards(open_shards(source).blocks(), folder)
    is_npz = Path(source).suffix.lower() == ".npz" and Path(source).is_file()
    arrays = map_npz(source) if is_npz else read_arrays(source)
    try:
        named, _ = name_arrays(arrays, keys)
        return write_shards(_blocks(named, samples_per_shard), folder)
    except DataError as error:
        raise DataError(f"{source}: {error}") from error


def _blocks(named: Mapping[str, np.ndarray], size: int | None) -> Iterator[OperatorData]:
    if named["points"].ndim == 3:
        raise DataError("points: shards need points that all samples share, (points, coordinates)")
    own = {name: array for name, array in named.items() if is_of_samples(name)}
    samples = len(named["outputs"])
    if any(array.ndim == 0 or len(array) != samples for array in own.values()):
        yield _aligned(named)  # which knows what is wrong, or a row for a column
        return
    size = size or max(1, int(_SHARD_BYTES * samples / sum(array.nbytes for array in own.values())))
    for begin in range(0, samples, size):
        part = {name: np.array(array[begin : begin + size]) for name, array in own.items()}
        try:
            yield _aligned({**named, **part})
        except DataError as error:
            raise DataError(f"samples from {begin} on: {error}") from error


def _aligned(named: Mapping[str, np.ndarray]) -> OperatorData:
    data = data_from_arrays(named)
    assert isinstance(data, OperatorData)
    return data
