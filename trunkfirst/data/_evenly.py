"""Some of many, to look at."""

import numpy as np
from jaxtyping import Int


def evenly(count: int, most: int) -> Int[np.ndarray, " chosen"]:
    """Indices of at most so many of `count` things, evenly chosen, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
