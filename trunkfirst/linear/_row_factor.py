"""The thin factor of more rows than memory holds: they come in blocks, once, and only a factor of them stays."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from ..devices import allgather, in_turn, is_several, summed
from ._compression import Factor, principal_rows
from ._threads import one_blas_thread

# Up to so many columns the triangle of all rows is kept: exact. Beyond, rows of so many numbers (half a GiB), but
# not fewer and not more of them than this.
_MOST_COLUMNS = 8192
_MOST_NUMBERS, _FEWEST_ROWS, _MOST_ROWS = 2**26, 64, 1024
# Rows that wait for the next factorisation, so that it is worth its while.
_WAITING = 4096

Rows = Float[np.ndarray, "rows columns"]


def row_factor_bytes(columns: int) -> int:
    """The most memory that a `RowFactor` takes: rows kept and waiting, all of them together, a factorisation."""
    most, wait = _sizes(columns)
    return 8 * columns * 4 * (most + wait)


def _sizes(columns: int) -> tuple[int, int]:
    """How many rows are kept, and how many wait."""
    if columns <= _MOST_COLUMNS:
        return columns, max(columns, _WAITING)
    most = min(max(_MOST_NUMBERS // columns, _FEWEST_ROWS), _MOST_ROWS)
    return most, most


class RowFactor:
    """Takes in rows and keeps a factor of them.

    With at most 8,192 columns by a QR of the factor and the rows that wait (TSQR), exactly; with more by a
    randomised SVD: random directions Y = A G, their orthonormal basis Q, and A becomes Q^T A. Since A - Q Q^T A is
    orthogonal to what is kept, the squares that are lost are |A|^2 - |Q^T A|^2, for any G: they are added up.
    """

    def __init__(self, columns: int):
        self._is_exact = columns <= _MOST_COLUMNS
        self._most, self._wait = _sizes(columns)
        self._kept = np.zeros((0, columns))
        self._waiting: list[np.ndarray] = []
        self._lost, self._times = 0.0, 0

    def add(self, rows: Rows) -> None:
        """Take in a block of rows, which may be written over afterwards."""
        for begin in range(0, len(rows), self._wait):
            self._waiting.append(np.array(rows[begin : begin + self._wait], np.float64))
            if sum(map(len, self._waiting)) >= self._wait:
                self._reduce()

    def state(self) -> dict[str, np.ndarray]:
        """All that is known of the rows so far, to be taken up by `restore`, to the same bits."""
        waiting = np.concatenate([self._kept[:0], *self._waiting])
        return {"kept": self._kept, "waiting": waiting, "numbers": np.array([self._lost, self._times])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a `state`."""
        self._kept, self._waiting = state["kept"], [state["waiting"]]
        self._lost, self._times = float(state["numbers"][0]), int(state["numbers"][1])

    def combine(self) -> None:
        """Take in what the other processes have kept of their rows; then all hold the same."""
        if not is_several():
            return
        self._reduce()
        own, self._kept = self._kept, self._kept[:0]
        self._lost = float(summed(np.asarray(self._lost)))
        self._times = int(np.max(allgather(np.asarray(self._times))))
        for rows in in_turn(own):
            self.add(rows)

    def finish(self, *, tolerance: float = 1e-14) -> Factor:
        """The factor of all rows so far, without what lies below `tolerance` times the norm of everything."""
        self._reduce()
        s, W, left_out = principal_rows(self._kept, tolerance)
        return Factor(s[:, None] * W, self._lost + left_out)

    def _reduce(self) -> None:
        A = np.concatenate([self._kept, *self._waiting])
        self._waiting.clear()
        self._kept = A
        if len(A) <= self._most:
            return
        with one_blas_thread():
            if self._is_exact:
                self._kept = np.asarray(np.linalg.qr(A, mode="r"))
                return
            directions = np.random.default_rng(self._times).normal(size=(A.shape[1], self._most))
            Q, _ = np.linalg.qr(A @ directions)
            self._kept = Q.T @ A
        self._times += 1
        all_squares, kept_squares = (float(np.vdot(B, B)) for B in (A, self._kept))
        # Below rounding the difference of two large sums says nothing.
        self._lost += max(all_squares - kept_squares, 0.0) + 8 * np.finfo(float).eps * all_squares
