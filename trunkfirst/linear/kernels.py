"""Matern kernels, their products over input functions, and a linear factor, as matrices."""

import itertools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.spatial.distance
from jaxtyping import Float

# Of NumPy or JAX arrays; the exponential is passed as an argument.
Profile: TypeAlias = Callable[[Any, Callable[[Any], Any]], Any]
# Of NumPy or JAX arrays; numpy or jax.numpy is passed as an argument.
Slope: TypeAlias = Callable[[Any, Any], Any]

_ROOT3, _ROOT5 = math.sqrt(3), math.sqrt(5)

# Matern kernels k(r) of unit length by their smoothness; "inf" is the Gaussian.
MATERN: dict[str, Profile] = {
    "1/2": lambda r, exp: exp(-r),
    "3/2": lambda r, exp: (1 + _ROOT3 * r) * exp(-_ROOT3 * r),
    "5/2": lambda r, exp: (1 + _ROOT5 * r + 5 / 3 * r**2) * exp(-_ROOT5 * r),
    "inf": lambda r, exp: exp(-0.5 * r**2),
}

# dk / d(r^2): finite at r = 0, except for "1/2", which has a kink there.
SLOPES: dict[str, Slope] = {
    "1/2": lambda r, xp: xp.where(r > 0, -xp.exp(-r) / (2 * xp.where(r > 0, r, 1.0)), 0.0),
    "3/2": lambda r, xp: -1.5 * xp.exp(-_ROOT3 * r),
    "5/2": lambda r, xp: -5 / 6 * (1 + _ROOT5 * r) * xp.exp(-_ROOT5 * r),
    "inf": lambda r, xp: -0.5 * xp.exp(-0.5 * r**2),
}


def kernel_matrix(
    smoothness: str,
    X: Float[np.ndarray, "rows features"],
    Z: Float[np.ndarray, "columns features"],
    length: Float[np.ndarray, "..."],
    *,
    groups: tuple[int, ...] = (),
    linear: Float[np.ndarray, " weights"] | None = None,
) -> Float[np.ndarray, "rows columns"]:
    """K_ij = prod_g k(|x_i - z_j|_g / length) (w_0 + sum_k w_k x_ik z_jk), in double precision.

    `length` is one number or one for every feature. `groups` are the numbers of features of the factors, a single
    factor if left out; `linear` are the weights w, without which the linear factor is 1.
    """
    X, Z = np.asarray(X, np.float64), np.asarray(Z, np.float64)
    K = np.ones((len(X), len(Z)))
    for part in feature_groups(groups, X.shape[1]):
        K *= MATERN[smoothness](
            _distances(X[:, part], Z[:, part], length[part] if length.ndim else length), np.exp
        )
    return K if linear is None else K * (linear[0] + (X * linear[1:]) @ Z.T)


def _distances(X: np.ndarray, Z: np.ndarray, length: np.ndarray) -> np.ndarray:
    if length.ndim:
        return scipy.spatial.distance.cdist(X / length, Z / length)
    return scipy.spatial.distance.cdist(X, Z) / length


def feature_groups(groups: tuple[int, ...], features: int) -> list[slice]:
    """The columns of every group; all of them in one if there are no groups."""
    ends = itertools.accumulate(groups or (features,), initial=0)
    return [slice(begin, end) for begin, end in itertools.pairwise(ends)]
