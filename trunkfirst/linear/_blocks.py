"""Many rows a block at a time, so that what is made of them on the way stays small."""

import itertools

import numpy as np
from jaxtyping import Float

_BLOCK = 2**16


def row_blocks(count: int) -> list[slice]:
    """All rows in blocks of about equal size, at most 65,536 each; few rows, or none, are one block."""
    parts = max(-(-count // _BLOCK), 1)
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(begin, end) for begin, end in itertools.pairwise(bounds)]


def is_long(matrix: Float[np.ndarray, "rows columns"]) -> bool:
    """Whether the rows are more than one block."""
    return len(matrix) > _BLOCK


def multiply_in_place(
    matrix: Float[np.ndarray, "rows columns"], right: Float[np.ndarray, "columns columns"]
) -> None:
    """matrix @ right, written over the matrix."""
    for block in row_blocks(len(matrix)):
        matrix[block] = matrix[block] @ right
