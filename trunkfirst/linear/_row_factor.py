"""The thin factor of more rows than memory holds: they come in blocks, once, and only a factor of them stays."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from ..distributed.processes import allgather, gather_in_order, is_distributed, sum_over_processes
from ._blocks import row_blocks
from ._compression import Factor, principal_rows, sufficient_rank
from ._tall_qr import wide_triangle
from ._threads import one_blas_thread

# Up to so many columns the triangle of all rows is kept: exact. Beyond, rows of so many numbers (half a GiB), but
# not fewer and not more of them than this.
_MOST_COLUMNS = 8192
_MOST_NUMBERS, _FEWEST_ROWS, _MOST_ROWS = 2**26, 64, 1024
# Rows that wait for the next factorisation, so that it is worth its while.
_WAITING = 4096

Rows = Float[np.ndarray, "rows columns"]


def row_factor_bytes(columns: int) -> int:
    """The most memory that a `RowFactor` takes: rows kept and waiting, and for a triangle a copy of them."""
    most, wait = _sizes(columns)
    return 8 * columns * (most + wait) * (2 if columns <= _MOST_COLUMNS else 1)


def _sizes(columns: int) -> tuple[int, int]:
    """How many rows are kept, and how many wait."""
    if columns <= _MOST_COLUMNS:
        return columns, max(columns, _WAITING)
    most = min(max(_MOST_NUMBERS // columns, _FEWEST_ROWS), _MOST_ROWS)
    return most, max(most // 2, 1)


class RowFactor:
    """Takes in rows and keeps a factor of them.

    With at most 8,192 columns by a QR of the factor and the rows that wait (TSQR), exactly; with more by a
    randomised SVD: random directions Y = A G, their orthonormal basis Q, and A becomes Q^T A. Since A - Q Q^T A is
    orthogonal to what is kept, the squares that are lost are |A|^2 - |Q^T A|^2, for any G: they are added up.
    """

    def __init__(self, columns: int):
        self._is_exact = columns <= _MOST_COLUMNS
        self._most, wait = _sizes(columns)
        # Rows kept, and behind them those that wait; memory that is not used yet is not taken.
        self._rows = np.empty((self._most + wait, columns))
        self._count = 0
        self._lost, self._times = 0.0, 0

    def add(self, rows: Rows) -> None:
        """Take in a block of rows, which may be written over afterwards."""
        begin = 0
        while begin < len(rows):
            taken = min(len(rows) - begin, len(self._rows) - self._count)
            self._rows[self._count : self._count + taken] = rows[begin : begin + taken]
            self._count, begin = self._count + taken, begin + taken
            if self._count == len(self._rows):
                self._reduce()

    def state(self) -> dict[str, np.ndarray]:
        """All that is known of the rows so far, to be taken up by `restore`, to the same bits."""
        return {"rows": self._rows[: self._count].copy(), "numbers": np.array([self._lost, self._times])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self._count = len(state["rows"])
        self._rows[: self._count] = state["rows"]
        self._lost, self._times = float(state["numbers"][0]), int(state["numbers"][1])

    def combine(self) -> None:
        """Take in what the other processes have kept of their rows; then all hold the same."""
        if not is_distributed():
            return
        self._reduce()
        own, self._count = self._rows[: self._count].copy(), 0
        self._lost = float(sum_over_processes(np.asarray(self._lost)))
        self._times = int(np.max(allgather(np.asarray(self._times))))
        for rows in gather_in_order(own):
            self.add(rows)

    def finish(self, *, tolerance: float = 1e-14) -> Factor:
        """The factor of all rows so far, without what lies below `tolerance` times the norm of everything.

        It takes the place of the rows: nothing can be added any more.
        """
        self._reduce()
        A = self._rows[: self._count]
        if self._is_exact:
            s, W, left_out = principal_rows(A, tolerance)
            return Factor(s[:, None] * W, self._lost + left_out)
        with one_blas_thread():
            _, s, turn = np.linalg.svd(wide_triangle(A), full_matrices=False)
            rank, left_out = sufficient_rank(s, tolerance)
            self._turn(turn[:rank])
        self._rows.resize((rank, self._rows.shape[1]), refcheck=False)  # gives back the rest of the memory
        return Factor(self._rows, self._lost + left_out)

    def _reduce(self) -> None:
        if self._count <= self._most:
            return
        A = self._rows[: self._count]
        with one_blas_thread():
            if self._is_exact:
                self._count = min(A.shape)
                self._rows[: self._count] = np.linalg.qr(A, mode="r")
                return
            rng, all_squares = np.random.default_rng(self._times), float(np.vdot(A, A))
            Y = np.zeros((len(A), self._most))
            for block in row_blocks(A.shape[1]):
                Y += A[:, block] @ rng.normal(size=(block.stop - block.start, self._most))
            self._turn(np.linalg.qr(Y)[0].T)
        self._times += 1
        kept = self._rows[: self._count]
        # Below rounding the difference of two large sums says nothing.
        self._lost += max(all_squares - float(np.vdot(kept, kept)), 0.0) + 8 * np.finfo(float).eps * all_squares

    def _turn(self, matrix: Float[np.ndarray, "fewer rows"]) -> None:
        """Replace the rows by the matrix times them."""
        for block in row_blocks(self._rows.shape[1]):
            self._rows[: len(matrix), block] = matrix @ self._rows[: self._count, block]
        self._count = len(matrix)
