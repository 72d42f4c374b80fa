"""Operator data: containers, checks, splits, shards. NumPy only."""

from ._operator_data import InputFunction, OperatorData
from ._shards import ShardFolder
from ._split import Split

__all__ = ["InputFunction", "OperatorData", "ShardFolder", "Split"]
