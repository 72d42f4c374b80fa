"""Operator data: containers, checks, splits, shards, reading and writing. NumPy only."""

from ._arrays import AnyData
from ._check import DataCheck, check_data
from ._evenly import evenly
from ._exchange import read_data, read_inputs, read_points, write_data
from ._input_functions import InputFunction
from ._operator_data import OperatorData
from ._scattered_data import ScatteredData, scattered_from_lists
from ._shard_file import shard_data
from ._sharded_data import ShardedData, is_sharded, some_indices, write_shards
from ._shards import ShardFolder
from ._spectrum import Spectrum, spectrum
from ._split import Split

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
