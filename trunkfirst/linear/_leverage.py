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
    seed: int | np.random.Generator = 0,
) -> tuple[Int[np.ndarray, " drawn"], Float[np.ndarray, " drawn"]]:
    """Points by index, and by how much the weight of each is to be multiplied: sums keep their mean.

    Point i is drawn, at most once, with the probability p_i = min(1, c (l_i + w_i)), where l_i is the leverage of
    the point in the row space of the `factor`, which has the weights in it, divided by the rank, w_i its share of
    the `weights`, and c such that `count` are drawn. It counts 1 / p_i times as much: in the mean over all draws
    sum_i w_i f_i is that over all points, for any f. Points that matter most, p_i = 1, are never left out.
    """
    shares = weights.astype(float) / weights.sum(dtype=float)
    with one_blas_thread():
        _, s, W = np.linalg.svd(wide_triangle(factor), full_matrices=False)
        used = s > max(_NOISE, 10 * np.finfo(s.dtype).eps) * s[0]
        to_basis = W[used] / s[used, None]  # times the factor: an orthonormal basis of its rows
        squares = [np.sum((to_basis @ factor[:, block]) ** 2, axis=0) for block in row_blocks(factor.shape[1])]
    leverage = np.concatenate(squares).astype(float) / max(used.sum(), 1)
    chances = _capped(leverage + shares, count)
    drawn = _systematic(chances, np.random.default_rng(seed))
    return drawn, 1 / chances[drawn]


def _capped(sizes: Float[np.ndarray, " points"], count: int) -> Float[np.ndarray, " points"]:
    """min(1, c sizes) with the sum `count`, as long as there are so many of positive size."""
    falling = np.sort(sizes)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]  # of all but the largest k, for k = 0, 1, ...
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (count - np.arange(len(sizes))) / rest
        is_enough = factors * falling <= 1  # all others are below 1, once the largest k are at 1
    return np.minimum(factors[is_enough.argmax()] * sizes, 1.0) if is_enough.any() else np.sign(sizes)


def _systematic(chances: Float[np.ndarray, " points"], rng: np.random.Generator) -> Int[np.ndarray, " drawn"]:
    """Points by their chances, as many as these add up to: where their sum, in random order, passes a whole."""
    order = rng.permutation(len(chances))
    whole = np.floor(np.cumsum(chances[order]) + rng.uniform())
    return np.sort(order[np.diff(whole, prepend=0.0) > 0])
