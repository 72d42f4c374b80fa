"""What is in a folder of shards: all samples are passed over, the costly questions are put to some of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._sharded_data import ShardedData

# Numbers of the samples that rank and repetitions are looked for in.
_MOST_NUMBERS = 2**24


def few_enough(data: ShardedData) -> int:
    """How many samples are looked at closely."""
    return min(data.samples, max(100, _MOST_NUMBERS // data.numbers))


def ranges(data: ShardedData) -> dict[str, list[float]]:
    """Least and largest value of every input function, and of the outputs under the name "": one pass over all.

    Every shard is verified, and every number is known to be finite, when this returns.
    """
    found: dict[str, list[float]] = {}
    for block in data.blocks():
        arrays = {name: function.values for name, function in block.inputs.items()} | {"": block.outputs}
        for name, values in arrays.items():
            low, high = found.get(name, [np.inf, -np.inf])
            found[name] = [min(low, float(values.min())), max(high, float(values.max()))]
    return found


def all_numbers(data: ShardedData, some: Mapping[str, Any], looked_at: int) -> dict[str, Any]:
    """What is known of `some` of the samples, with counts and ranges of all."""
    found = ranges(data)
    inputs = {name: {**values, "range": found[name]} for name, values in some["inputs"].items()}
    whole = {"samples": data.samples, "inputs": inputs, "output_range": found[""]}
    return {**some, **whole, "shards": len(data.counts), "looked_at": looked_at}
