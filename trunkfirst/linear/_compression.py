"""Outputs as a thin factor: for p = 2 a training loss sees the samples only through it."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float

from ..distributed.mesh import current_mesh
from ._tall_qr import tall_qr, triangle
from ._threads import one_blas_thread


@dc.dataclass(frozen=True, eq=False)
class Factor:
    """Rows B (rank, points) that stand for all rows U of the outputs: |B P|^2 is |U P|^2 for every matrix P.

    They hold the singular values, the largest first. `discarded` (a sum of squares) certifies the truncation: for
    no projection P is |U P|^2 larger by more than that.
    """

    factor: Float[np.ndarray, "rank points"]
    discarded: float


@dc.dataclass(frozen=True, eq=False)
class Compressed(Factor):
    """outputs = directions @ factor, up to `discarded`; `directions` V (samples, rank) has orthonormal columns."""

    directions: Float[np.ndarray, "samples rank"]


def compress(outputs: Float[np.ndarray, "samples points"], *, tolerance: float = 1e-14) -> Compressed:
    """Thin SVD of the outputs; drops what lies below `tolerance` times the norm of everything.

    >>> a, x = np.random.default_rng(0).normal(size=(1000, 2)), np.linspace(0, 1, 30)
    >>> compress(a @ np.stack([x, x**2])).factor.shape  # 1000 samples of rank 2
    (2, 30)
    """
    _, W, discarded = principal_rows(outputs, tolerance)
    with one_blas_thread():
        directions, R = tall_qr(outputs @ W.T)
    return Compressed(R @ W, discarded, directions)


def principal_directions(
    matrix: Float[np.ndarray, "samples columns"], *, tolerance: float
) -> Float[np.ndarray, "rank columns"]:
    """The leading right singular vectors, as rows; the rest is below `tolerance` times the norm of everything."""
    return principal_rows(matrix, tolerance)[1]


def principal_rows(
    matrix: Float[np.ndarray, "samples columns"], tolerance: float
) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, "rank columns"], float]:
    """Singular values, right singular vectors as rows, and the sum of squares that `tolerance` leaves out."""
    with one_blas_thread():
        s, W = _right_singular_vectors(matrix)
    rank, discarded = sufficient_rank(s, tolerance)
    return s[:rank], W[:rank], discarded


def sufficient_rank(values: Float[np.ndarray, " values"], tolerance: float) -> tuple[int, float]:
    """How many singular values to keep, and the sum of squares of the others, which `tolerance` leaves out."""
    tails = np.cumsum(values[::-1] ** 2)[::-1]
    rank = max(1, int((tails > tolerance**2 * tails[0]).sum()))
    return rank, float(tails[rank]) if rank < len(values) else 0.0


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
