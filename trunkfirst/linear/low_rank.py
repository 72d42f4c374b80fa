"""Low-rank factors of the outputs, samples drawn by leverage, and the smallest loss that any trunk can reach.

For p = 2 a training loss depends on the outputs U only through U^T U, so a thin factor of U can replace U.
"""

import dataclasses as dc
import functools as ft
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
from jaxtyping import Float, Int

from ..data.array_checks import sample_blocks
from ..distributed.mesh import current_mesh
from ..distributed.processes import allgather, gather_in_order, is_distributed, sum_over_processes
from .blocked_qr import (
    is_long,
    one_blas_thread,
    row_blocks,
    tall_qr,
    triangle,
    wide_triangle,
)

Outputs = Float[np.ndarray, "samples points"]
Rows = Float[np.ndarray, "rows columns"]

# RowFactor: up to this many columns the triangle of all rows is kept, which is exact. Beyond, the number of rows
# kept is bounded by numbers (half a GiB) and by these two counts.
_MOST_COLUMNS = 8192
_MOST_NUMBERS, _FEWEST_ROWS, _MOST_ROWS = 2**26, 64, 1024
# Rows collected before the next factorisation.
_BUFFERED = 4096
# Random combinations of columns that are tried before all of them.
_SKETCHES = (64, 256)
# Well below this tolerance what a sketch leaves does not show.
_TINY = 1e-13
# Leverage: directions below this share of the largest are noise.
_NOISE = 1e-8
# Shares of the mean square: rounding, and the size below which the number of functions limits nothing.
_ROUNDING = 1e-28
_NEGLIGIBLE = 1e-20


@dc.dataclass(frozen=True, eq=False)
class Factor:
    """Rows B (rank, points) that replace the outputs U: |B P|^2 = |U P|^2 for every matrix P.

    Their norms are the singular values, largest first. `discarded` bounds the truncation: for any projection P,
    |U P|^2 exceeds |B P|^2 by at most this sum of squares.
    """

    factor: Float[np.ndarray, "rank points"]
    discarded: float


@dc.dataclass(frozen=True, eq=False)
class Compressed(Factor):
    """outputs = directions @ factor, up to `discarded`; `directions` V (samples, rank) has orthonormal columns."""

    directions: Float[np.ndarray, "samples rank"]


def compress(outputs: Outputs, *, tolerance: float = 1e-14) -> Compressed:
    """Thin SVD of the outputs without what is below `tolerance` times their norm.

    >>> a, x = np.random.default_rng(0).normal(size=(1000, 2)), np.linspace(0, 1, 30)
    >>> compress(a @ np.stack([x, x**2])).factor.shape  # 1000 samples of rank 2
    (2, 30)
    """
    _, W, discarded = principal_rows(outputs, tolerance)
    with one_blas_thread():
        directions, R = tall_qr(outputs @ W.T)
    return Compressed(R @ W, discarded, directions)


def thin_factor(
    blocks: Callable[[], Iterable[Rows]], shape: tuple[int, ...], *, tolerance: float = 1e-14
) -> Float[np.ndarray, "rank points"]:
    """The factor of outputs of this shape, given in the blocks of `sample_blocks`, without what is below rounding.

    Where they are not of low rank they are put together.
    """
    with one_blas_thread():
        small = _sketch(blocks, shape) if current_mesh() is None else None
    s, W, _ = principal_rows(np.concatenate(list(blocks())) if small is None else small, tolerance)
    return s[:, None] * W


def principal_directions(matrix: Rows, *, tolerance: float) -> Float[np.ndarray, "rank columns"]:
    """Leading right singular vectors as rows; what they leave out is below `tolerance` times the norm."""
    return principal_rows(matrix, tolerance)[1]


def principal_rows(
    matrix: Rows, tolerance: float
) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, "rank columns"], float]:
    """Singular values, right singular vectors as rows, and the sum of squares left out."""
    with one_blas_thread():
        s, W = _right_singular_vectors(_sketched(matrix, tolerance))
    rank, discarded = _sufficient_rank(s, tolerance)
    return s[:rank], W[:rank], discarded


def _sufficient_rank(values: Float[np.ndarray, " values"], tolerance: float) -> tuple[int, float]:
    tails = np.cumsum(values[::-1] ** 2)[::-1]
    rank = max(1, int((tails > tolerance**2 * tails[0]).sum()))
    return rank, float(tails[rank]) if rank < len(values) else 0.0


def _sketched(matrix: np.ndarray, tolerance: float) -> np.ndarray:
    """A matrix of fewer rows with the same right singular vectors, where the rank is far below both sizes."""
    if current_mesh() is not None:
        return matrix
    small = _sketch(lambda: (matrix[block] for block in sample_blocks(matrix.shape)), matrix.shape, tolerance)
    return matrix if small is None else small


def _sketch(blocks: Callable[[], Iterable[Rows]], shape: tuple[int, ...], tolerance: float = 0.0) -> Rows | None:
    """Q^T A for a matrix A of this shape, given in blocks of rows; None where A is not of low rank.

    Q has the span of random combinations of the columns, and Q^T A replaces A only if what it leaves of A is at
    rounding level, or well below the tolerance, which is computed.
    """
    rng = np.random.default_rng(0)
    for count in _SKETCHES:
        if 4 * count > min(shape):
            break
        G = rng.normal(size=(shape[1], count))
        Q, _ = np.linalg.qr(np.concatenate([A @ G.astype(A.dtype, copy=False) for A in blocks()]))
        parts = [Q[block] for block in sample_blocks(shape)]
        small = ft.reduce(np.add, (part.T @ A for part, A in zip(parts, blocks(), strict=True)))
        left = sum(float(_squares(A - part @ small)) for part, A in zip(parts, blocks(), strict=True))
        size = sum(float(_squares(A)) for A in blocks())
        if left <= max(4 * np.finfo(Q.dtype).eps, min(tolerance, _TINY) / 4) ** 2 * size:
            return small
    return None


def _squares(matrix: np.ndarray) -> float:
    return float(np.sum(matrix.astype(float, copy=False) ** 2))


def _right_singular_vectors(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    samples, columns = matrix.shape
    if current_mesh() is not None and columns > 2 * samples:
        Q, R = tall_qr(matrix.T)
        _, s, W = np.linalg.svd(R.T, full_matrices=False)
        return s, W @ Q.T
    # Of many samples the small triangle has the same right singular vectors.
    small = triangle(matrix) if samples > 2 * columns else matrix
    _, s, W = np.linalg.svd(small, full_matrices=False)
    return s, W


# -- more rows than memory holds


def row_factor_bytes(columns: int) -> int:
    """The most memory that a `RowFactor` takes: rows kept and buffered, twice where a triangle is kept."""
    kept, buffered = _sizes(columns)
    return 8 * columns * (kept + buffered) * (2 if columns <= _MOST_COLUMNS else 1)


def _sizes(columns: int) -> tuple[int, int]:
    """Numbers of rows kept and buffered."""
    if columns <= _MOST_COLUMNS:
        return columns, max(columns, _BUFFERED)
    kept = min(max(_MOST_NUMBERS // columns, _FEWEST_ROWS), _MOST_ROWS)
    return kept, max(kept // 2, 1)


class RowFactor:
    """The factor of a matrix whose rows arrive in blocks, each seen once.

    Up to 8,192 columns by a QR of the factor and the buffered rows (TSQR), exactly. Beyond by a randomised SVD:
    Y = A G with a random G, Q its orthonormal basis, and A becomes Q^T A. A - Q Q^T A is orthogonal to what is
    kept, so the squares lost are |A|^2 - |Q^T A|^2 for any G; `finish` reports their sum.
    """

    def __init__(self, columns: int):
        self._is_exact = columns <= _MOST_COLUMNS
        self._most, buffered = _sizes(columns)
        # Rows kept, then rows buffered. The system provides pages only when they are first written.
        self._rows = np.empty((self._most + buffered, columns))
        self._count = 0
        self._lost, self._times = 0.0, 0

    def add(self, rows: Rows) -> None:
        """Add a block of rows; it is copied."""
        begin = 0
        while begin < len(rows):
            taken = min(len(rows) - begin, len(self._rows) - self._count)
            self._rows[self._count : self._count + taken] = rows[begin : begin + taken]
            self._count, begin = self._count + taken, begin + taken
            if self._count == len(self._rows):
                self._reduce()

    def state(self) -> dict[str, np.ndarray]:
        """Arrays from which `restore` continues to the same bits."""
        return {"rows": self._rows[: self._count].copy(), "numbers": np.array([self._lost, self._times])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a `state`."""
        self._count = len(state["rows"])
        self._rows[: self._count] = state["rows"]
        self._lost, self._times = float(state["numbers"][0]), int(state["numbers"][1])

    def combine(self) -> None:
        """Merge the factors of all processes; afterwards every process holds the same one."""
        if not is_distributed():
            return
        self._reduce()
        own, self._count = self._rows[: self._count].copy(), 0
        self._lost = float(sum_over_processes(np.asarray(self._lost)))
        self._times = int(np.max(allgather(np.asarray(self._times))))
        for rows in gather_in_order(own):
            self.add(rows)

    def finish(self, *, tolerance: float = 1e-14) -> Factor:
        """The factor of all rows, without what is below `tolerance` times their norm.

        It reuses the memory of the rows: nothing can be added afterwards.
        """
        self._reduce()
        A = self._rows[: self._count]
        if self._is_exact:
            s, W, left_out = principal_rows(A, tolerance)
            return Factor(s[:, None] * W, self._lost + left_out)
        with one_blas_thread():
            _, s, rotation = np.linalg.svd(wide_triangle(A), full_matrices=False)
            rank, left_out = _sufficient_rank(s, tolerance)
            self._multiply(rotation[:rank])
        self._rows.resize((rank, self._rows.shape[1]), refcheck=False)  # frees the rest of the memory
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
            self._multiply(np.linalg.qr(Y)[0].T)
        self._times += 1
        kept = self._rows[: self._count]
        # Below rounding the difference of two large sums has no meaning, so rounding is added as well.
        self._lost += max(all_squares - float(np.vdot(kept, kept)), 0.0) + 8 * np.finfo(float).eps * all_squares

    def _multiply(self, matrix: Float[np.ndarray, "fewer rows"]) -> None:
        for block in row_blocks(self._rows.shape[1]):
            self._rows[: len(matrix), block] = matrix @ self._rows[: self._count, block]
        self._count = len(matrix)


# -- fewer points


def leverage_sample(
    factor: Float[np.ndarray, "rank points"],
    weights: Float[np.ndarray, " points"],
    count: int,
    *,
    seed: int | np.random.Generator = 0,
) -> tuple[Int[np.ndarray, " drawn"], Float[np.ndarray, " drawn"]]:
    """Draw about `count` points by leverage; returns their indices and factors for their weights.

    Point i is drawn at most once, with probability p_i = min(1, c (l_i + w_i)): l_i is its leverage in the row
    space of the `factor`, which includes the weights, divided by the rank; w_i its share of the `weights`; c makes
    the p_i sum to `count`. Its weight is multiplied by 1 / p_i, so the expectation of sum_i w_i f_i over all draws
    is the sum over all points, for any f. Points with p_i = 1 are always drawn.
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
    """min(1, c sizes) with the sum `count`, or 1 everywhere if fewer sizes are positive."""
    falling = np.sort(sizes)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]  # of all but the largest k, for k = 0, 1, ...
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = (count - np.arange(len(sizes))) / rest
        is_enough = factors * falling <= 1  # with the largest k at 1, all others are below 1
    return np.minimum(factors[is_enough.argmax()] * sizes, 1.0) if is_enough.any() else np.sign(sizes)


def _systematic(chances: Float[np.ndarray, " points"], rng: np.random.Generator) -> Int[np.ndarray, " drawn"]:
    """Systematic sampling: a point is drawn where the cumulative sum, in random order, passes an integer."""
    order = rng.permutation(len(chances))
    whole = np.floor(np.cumsum(chances[order]) + rng.uniform())
    return np.sort(order[np.diff(whole, prepend=0.0) > 0])


# -- limits: Eckart-Young, with the constant function that every trunk has


def trunk_limit(outputs: Outputs, width: int) -> float:
    """The smallest mean squared error of any trunk of `width` functions besides the constant.

    F_inf = sum_{i > N} s_i(U_c)^2 / (K m), where U_c is U minus the mean over the points of every sample; attained
    by the constant and the first N left singular vectors of U_c. (The paper's bound, thm:trunk-interpolation,
    omits the constant and is larger.) Never below 1e-28 of the mean square, where rounding begins.
    """

    def centred() -> Iterator[Rows]:
        return (outputs[b] - outputs[b].mean(axis=1, keepdims=True) for b in sample_blocks(outputs.shape))

    if len(outputs) > 2 * outputs.shape[1]:
        factor = RowFactor(outputs.shape[1])
        for rows in centred():
            factor.add(rows)
        s = np.linalg.norm(factor.finish().factor, axis=1)
    else:
        s = _singular_values(np.concatenate(list(centred())))
    rounding = _ROUNDING * _mean_square(outputs)
    return max(float(np.sum(s[width:] ** 2)) / outputs.size, rounding)


def trunk_limit_bounds(outputs: Outputs, width: int) -> tuple[float, float]:
    """Lower and upper bound of the smallest mean absolute error (p = 1) of any such trunk.

    The best approximation of rank N + 1 in the entrywise 1-norm is NP-hard. Lower: the 1-norm is not smaller than
    the nuclear norm, so F_1 >= sum_{i > N + 1} s_i(U) / (K m) by Mirsky. Upper: by Cauchy and Schwarz the
    minimiser for p = 2 has F_1 <= sqrt(F_inf). Never below 1e-14 of the mean |u| and of the root mean square.
    """
    tail = float(np.sum(_singular_values(outputs)[width + 1 :])) / outputs.size
    rounding = math.sqrt(_ROUNDING) * float(np.mean(np.abs(outputs)))
    return max(tail, rounding), math.sqrt(trunk_limit(outputs, width))


def is_limited_by_network(outputs: Outputs, limit: float) -> bool:
    """Whether the limit for p = 2 is negligible: then no loss, for any p, is caused by too few functions."""
    return limit <= _NEGLIGIBLE * _mean_square(outputs)


def _mean_square(outputs: Outputs) -> float:
    return sum(_squares(outputs[block]) for block in sample_blocks(outputs.shape)) / outputs.size


def _singular_values(matrix: Rows) -> Float[np.ndarray, " values"]:
    rows, columns = matrix.shape
    with one_blas_thread():
        # A small triangle has the same singular values.
        if rows > 2 * columns:
            return np.linalg.svd(np.linalg.qr(matrix, mode="r"), compute_uv=False)
        is_wide = is_long(matrix.T) and columns > 2 * rows
        return np.linalg.svd(wide_triangle(matrix) if is_wide else matrix, compute_uv=False)
