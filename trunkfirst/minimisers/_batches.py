"""Random batches without repetition."""

import jax.random as jr
from jaxtyping import Array, Int, PRNGKeyArray

from ..errors import ValueRangeError


def draw(key: PRNGKeyArray, size: int, batch: int) -> Int[Array, " batch"]:
    """`batch` different indices below `size`."""
    if not 1 <= batch <= size:
        raise ValueRangeError(f"a batch of {batch} cannot be drawn from {size}; choose a smaller batch")
    return jr.choice(key, size, (batch,), replace=False)
