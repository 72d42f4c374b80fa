"""How small the loss of step 1 can be: Eckart-Young with the constant function that every trunk has."""

import math

import numpy as np
from jaxtyping import Float

from ._blocks import is_long
from ._tall_qr import wide_triangle
from ._threads import one_blas_thread

# Shares of the mean square: where rounding begins, and below which the number of functions limits nothing.
_ROUNDING = 1e-28
_NEGLIGIBLE = 1e-20

Outputs = Float[np.ndarray, "samples points"]


def trunk_limit(outputs: Outputs, width: int) -> float:
    """The smallest mean squared error of any trunk of `width` functions beside the constant one.

    F_inf = sum_{i > N} s_i(U_c)^2 / (K m), where U_c is U with the mean over the points taken from every
    sample; attained by the constant and the first N left singular vectors of U_c. (The paper's bound,
    thm:trunk-interpolation, leaves the constant out and is larger.) Never below 1e-28 of the mean square,
    where rounding begins.
    """
    s = _singular_values(outputs - outputs.mean(axis=1, keepdims=True))
    floor = _ROUNDING * float(np.mean(outputs**2))
    return max(float(np.sum(s[width:] ** 2)) / outputs.size, floor)


def trunk_limit_bounds(outputs: Outputs, width: int) -> tuple[float, float]:
    """Two numbers between which the smallest mean absolute error (p = 1) of any such trunk lies.

    The best approximation of rank N + 1 in the entrywise 1-norm is NP-hard. Below: the 1-norm is not smaller
    than the nuclear norm, so F_1 >= sum_{i > N + 1} s_i(U) / (K m) by Mirsky. Above: by Cauchy and Schwarz
    the minimiser for p = 2 has F_1 <= sqrt(F_inf). Never below 1e-14 of the mean |u| and of the root mean square.
    """
    tail = float(np.sum(_singular_values(outputs)[width + 1 :])) / outputs.size
    floor = math.sqrt(_ROUNDING) * float(np.mean(np.abs(outputs)))
    return max(tail, floor), math.sqrt(trunk_limit(outputs, width))


def is_limited_by_network(outputs: Outputs, limit: float) -> bool:
    """Whether the limit for p = 2 is next to nothing: then no loss, for any p, is there for want of functions."""
    return limit <= _NEGLIGIBLE * float(np.mean(outputs**2))


def _singular_values(matrix: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, " values"]:
    rows, columns = matrix.shape
    with one_blas_thread():
        # A small triangle has the same singular values.
        if rows > 2 * columns:
            return np.linalg.svd(np.linalg.qr(matrix, mode="r"), compute_uv=False)
        is_wide = is_long(matrix.T) and columns > 2 * rows
        return np.linalg.svd(wide_triangle(matrix) if is_wide else matrix, compute_uv=False)
