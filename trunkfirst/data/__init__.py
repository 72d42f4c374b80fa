"""Data of an operator: containers, checks, splits, shards, reading and writing. NumPy only."""

from .array_checks import evenly, some_indices
from .data_check import DataCheck, Spectrum, check_data, spectrum
from .named_arrays import AnyData, parse_keys
from .operator_data import InputFunction, OperatorData, Split
from .read_write import read_data, read_inputs, read_points, shard_data, write_data
from .scattered_data import ScatteredData, scattered_from_lists
from .sharded_data import ShardedData, ShardFolder, is_sharded, open_shards, write_shards

__all__ = [
    "AnyData",
    "DataCheck",
    "InputFunction",
    "OperatorData",
    "ScatteredData",
    "ShardFolder",
    "ShardedData",
    "Spectrum",
    "Split",
    "check_data",
    "evenly",
    "is_sharded",
    "open_shards",
    "parse_keys",
    "read_data",
    "read_inputs",
    "read_points",
    "scattered_from_lists",
    "shard_data",
    "some_indices",
    "spectrum",
    "write_data",
    "write_shards",
]
