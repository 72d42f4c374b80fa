"""The probability measure omega on a grid, one weight a point, together 1."""

import numpy as np
from jaxtyping import Float

from ..errors import DataError


def measure(
    weights: Float[np.ndarray, " given"] | None, points: int, *, name: str = "weights"
) -> Float[np.ndarray, " points"]:
    """`weights` divided by their sum; equal ones where there are none."""
    if weights is None:
        return np.full(points, 1 / points)
    check_length(name, "points", len(weights), points)
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise DataError(f"{name}: must be finite, not negative and not all zero; the smallest is {weights.min()}")
    return weights / weights.sum()


def check_length(name: str, axis: str, length: int, expected: int) -> None:
    """Refuse an array whose axis is not as long as that of the array it goes with."""
    if length != expected:
        raise DataError(f"{name}: axis '{axis}' has {length} entries, expected {expected}")
