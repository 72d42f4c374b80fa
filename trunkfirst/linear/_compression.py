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
    """Thin SVD of the outputs; drops what lies below `tolerance` times the norm of everything."""
    samples, points = outputs.shape
    with one_blas_thread():
        # Many samples: the right singular vectors come from the small triangle of a QR.
        small = np.linalg.qr(outputs, mode="r") if samples > 2 * points else outputs
        _, s, W = np.linalg.svd(small, full_matrices=False)
        tails = np.cumsum(s[::-1] ** 2)[::-1]
        rank = max(1, int((tails > tolerance**2 * tails[0]).sum()))
        directions, triangle = np.linalg.qr(outputs @ W[:rank].T)
    discarded = float(tails[rank]) if rank < len(s) else 0.0
    return Compressed(directions, triangle @ W[:rank], discarded)
