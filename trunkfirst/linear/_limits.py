"""How small the loss of step 1 can be: Eckart-Young with the constant function that every trunk has."""

import numpy as np
from jaxtyping import Float

from ._threads import one_blas_thread


def trunk_limit(outputs: Float[np.ndarray, "samples points"], width: int) -> float:
    """The smallest mean squared error of any trunk of `width` functions beside the constant one.

    F_inf = sum_{i > N} s_i(U_c)^2 / (K m), where U_c is U with the mean over the points taken from every
    sample; attained by the constant and the first N left singular vectors of U_c. (The paper's bound,
    thm:trunk-interpolation, leaves the constant out and is larger.) Never below 1e-28 of the mean square,
    where rounding begins.
    """
    centred = outputs - outputs.mean(axis=1, keepdims=True)
    with one_blas_thread():
        if centred.shape[0] > 2 * centred.shape[1]:  # the same singular values from a small triangle
            centred = np.linalg.qr(centred, mode="r")
        s = np.linalg.svd(centred, compute_uv=False)
    floor = 1e-28 * float(np.mean(outputs**2))
    return max(float(np.sum(s[width:] ** 2)) / outputs.size, floor)
