"""The truncation of thm:main: an output known to stay within bounds is kept within them."""

import numpy as np
from jaxtyping import Float

from ..errors import ValueRangeError


def truncate(values: Float[np.ndarray, "..."], bound: float) -> Float[np.ndarray, "..."]:
    """T_M(z) = sign(z) min(M, |z|) with M = `bound` (the paper prints max).

    Where the truth lies within [-M, M], no error grows: T_M is the projection onto that interval.
    """
    if not bound > 0:
        raise ValueRangeError(f"bound is {bound:g}; expected a positive number, such as the largest |output|")
    return np.clip(values, -bound, bound)
