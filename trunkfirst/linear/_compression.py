"""Outputs as a thin factor: for p = 2 a training loss sees the samples only through it."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ._threads import one_blas_thread


@dc.dataclass(frozen=True, eq=False)
class Compressed:
    """outputs = directions @ factor, up to `discarded` (a sum of squares).

    `directions` V (samples, rank) has orthonormal columns, `factor` B (rank, points) holds the singular
    values. `discarded` certifies the truncation: every projection error changes by at most that much.
    """

    directions: Float[np.ndarray, "samples rank"]
    factor: Float[np.ndarray, "rank points"]
    discarded: float


def compress(outputs: Float[np.ndarray, "samples points"], *, tolerance: float = 1e-14) -> Compressed:
    """Thin SVD of the outputs; drops what lies below `tolerance` times the norm of everything.

    >>> a, x = np.random.default_rng(0).normal(size=(1000, 2)), np.linspace(0, 1, 30)
    >>> compress(a @ np.stack([x, x**2])).factor.shape  # 1000 samples of rank 2
    (2, 30)
    """
    W, discarded = _principal(outputs, tolerance)
    with one_blas_thread():
        directions, triangle = np.linalg.qr(outputs @ W.T)
    return Compressed(directions, triangle @ W, discarded)


def principal_directions(
    matrix: Float[np.ndarray, "samples columns"], *, tolerance: float
) -> Float[np.ndarray, "rank columns"]:
    """The leading right singular vectors, as rows; the rest is below `tolerance` times the norm of everything."""
    return _principal(matrix, tolerance)[0]


def _principal(matrix: np.ndarray, tolerance: float) -> tuple[np.ndarray, float]:
    samples, columns = matrix.shape
    with one_blas_thread():
        # Many samples: the right singular vectors come from the small triangle of a QR.
        small = np.linalg.qr(matrix, mode="r") if samples > 2 * columns else matrix
        _, s, W = np.linalg.svd(small, full_matrices=False)
    tails = np.cumsum(s[::-1] ** 2)[::-1]
    rank = max(1, int((tails > tolerance**2 * tails[0]).sum()))
    return W[:rank], float(tails[rank]) if rank < len(s) else 0.0
