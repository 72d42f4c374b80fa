"""Outputs as a thin factor: for p = 2 a training loss sees the samples only through it."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..devices import current_mesh
from ._tall_qr import tall_qr, triangle
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
    """Thin SVD of the outputs; drops what lies below `tolerance` times the norm of everything."""
    W, discarded = _principal(outputs, tolerance)
    with one_blas_thread():
        directions, R = tall_qr(outputs @ W.T)
    return Compressed(directions, R @ W, discarded)


def principal_directions(
    matrix: Float[np.ndarray, "samples columns"], *, tolerance: float
) -> Float[np.ndarray, "rank columns"]:
    """The leading right singular vectors, as rows; the rest is below `tolerance` times the norm of everything."""
    return _principal(matrix, tolerance)[0]


def _principal(matrix: np.ndarray, tolerance: float) -> tuple[np.ndarray, float]:
    with one_blas_thread():
        s, W = _right_singular_vectors(matrix)
    tails = np.cumsum(s[::-1] ** 2)[::-1]
    rank = max(1, int((tails > tolerance**2 * tails[0]).sum()))
    return W[:rank], float(tails[rank]) if rank < len(s) else 0.0


def _right_singular_vectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    samples, columns = matrix.shape
    if current_mesh() is not None and columns > 2 * samples:
        Q, R = tall_qr(matrix.T)
        _, s, W = np.linalg.svd(R.T, full_matrices=False)
        return s, W @ Q.T
    # Many samples: the right singular vectors come from the small triangle of a QR.
    small = triangle(matrix) if samples > 2 * columns else matrix
    _, s, W = np.linalg.svd(small, full_matrices=False)
    return s, W
