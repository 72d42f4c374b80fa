"""Fewer rows for a least-squares problem: drawn where they matter, weighted so that sums keep their mean."""

import numpy as np
from jaxtyping import Float, Int

from ._blocks import row_blocks
from ._tall_qr import wide_triangle
from ._threads import one_blas_thread

# Directions below this share of the largest are noise, and would draw points for nothing.
_NOISE = 1e-8


def leverage_sample(
    factor: Float[np.ndarray, "rank points"],
    weights: Float[np.ndarray, " points"],
    count: int,
    *,
    seed: int = 0,
) -> tuple[Int[np.ndarray, " drawn"], Float[np.ndarray, " drawn"]]:
    """Points by index, and by how much the weight of each is to be multiplied: sums keep their mean.

    `count` draws with the probabilities p_i = (l_i + w_i) / 2, where l_i is the leverage of a point in the row
    space of the `factor`, which has the weights in it, divided by the rank, and w_i its share of the `weights`.
    A point that is drawn n_i times counts n_i / (count p_i) times as much: in the mean over all draws,
    sum_i w_i f_i is that over all points, for any f. Points that were not drawn are left out.
    """
    shares = weights / weights.sum()
    with one_blas_thread():
        _, s, W = np.linalg.svd(wide_triangle(factor), full_matrices=False)
        used = s > _NOISE * s[0]
        to_basis = W[used] / s[used, None]  # times the factor: an orthonormal basis of its rows
        squares = [np.mean((to_basis @ factor[:, block]) ** 2, axis=0) for block in row_blocks(factor.shape[1])]
    leverage = np.concatenate(squares) if s[0] > 0 else shares
    chances = (leverage + shares) / np.sum(leverage + shares)
    times = np.random.default_rng(seed).multinomial(count, chances)
    drawn = np.flatnonzero(times)
    return drawn, times[drawn] / (count * chances[drawn])
