"""Orthonormal bases of what a trunk spans, without ever inverting a matrix that may be singular.

Trained trunks are rank deficient as a rule: ReLU neurons die, and an output layer wider than the layer before
it cannot have independent columns. The paper's T = R^-1 does not exist then. Here both factorisations reveal
the rank, and T maps the N + 1 trunk functions to `rank` orthonormal ones.
"""

import abc
import dataclasses as dc
import functools as ft
from collections.abc import Iterable

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from ..distributed.mesh import current_mesh
from ..errors import DataError
from ._blocks import is_long, multiply_in_place, row_blocks
from ._tall_qr import householder_signs, tall_qr_in_place
from ._threads import one_blas_thread

Matrix = Float[np.ndarray, "_ _"]


@dc.dataclass(frozen=True, eq=False)
class Orthonormal:
    """Phi T = Q with orthonormal columns, and Phi = Q R up to what was dropped.

    `transform` is T (functions, rank), `coordinates` is R (rank, functions), `values` is Q (points, rank).
    `condition` is that of Phi with columns of unit length, over the directions kept; `squared_length` is
    sum_i Q_ij^2 for equal point weights: the number of points, or 1 where `unit_columns` was asked for.
    """

    values: Float[np.ndarray, "points rank"]
    transform: Float[np.ndarray, "functions rank"]
    coordinates: Float[np.ndarray, "rank functions"]
    condition: float
    squared_length: float

    @property
    def rank(self) -> int:
        """How many directions are kept."""
        return self.values.shape[1]

    def coefficients(
        self,
        outputs: Float[np.ndarray, "samples points"],
        *,
        point_weights: Float[np.ndarray, " points"] | None = None,
    ) -> Float[np.ndarray, "samples rank"]:
        """The coefficients of the best approximation of each output: Q^T U in the inner product of Q."""
        points = len(self.values)
        weights = np.full(points, 1 / points) if point_weights is None else point_weights
        factors = weights * points / self.squared_length
        return _sum((outputs[:, b] * factors[b]) @ self.values[b] for b in row_blocks(points))


@dc.dataclass(frozen=True)
class AbstractOrthonormaliser(abc.ABC):
    """A factorisation Phi = Q R with a rule for the rank.

    Columns of Q are orthonormal in the mean over the points, sum_i w_i Q_ij Q_ik = delta_jk with weights that
    sum to 1, so that coefficients do not grow with the number of points. `unit_columns` gives the paper's
    Q^T Q = I instead.

    With a `tolerance`, directions below `tolerance` times the largest are dropped. Without one, and with
    `targets` to look at, the rank is the smallest whose projection error on the targets is within one per
    cent of that of all directions above rounding; without targets, all of those are kept.
    """

    tolerance: float | None = None
    unit_columns: bool = False

    def __call__(
        self,
        features: Float[np.ndarray, "points functions"],
        *,
        point_weights: Float[np.ndarray, " points"] | None = None,
        targets: Float[np.ndarray, "samples points"] | None = None,
    ) -> Orthonormal:
        """Factorise the `features` Phi (points, functions)."""
        if not np.isfinite(features).all():
            raise DataError("features: the trunk has values that are not finite; it cannot be orthonormalised")
        points = len(features)
        squared_length = 1.0 if self.unit_columns else float(points)
        weights = np.full(points, 1 / points) if point_weights is None else point_weights
        roots = np.sqrt(weights * points / squared_length).astype(features.dtype)
        weighted = features * roots[:, None]
        lengths = np.sqrt(_sum(np.sum(weighted[b] * weighted[b], axis=0) for b in row_blocks(points)))
        scales = np.where(lengths > 0, lengths, 1.0)
        weighted /= scales
        with one_blas_thread():
            Q, T, R, sizes = self.factorise(weighted)
            rank = self._rank(Q, sizes, targets, roots)
        condition = float(sizes[0] / sizes[rank - 1])
        transform = T[:, :rank] / scales[:, None]
        return Orthonormal(
            _values(Q[:, :rank], roots, features, transform),
            transform,
            R[:rank] * scales,
            condition,
            squared_length,
        )

    @abc.abstractmethod
    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Float[np.ndarray, " kept"]]:
        """Q, T, R and the falling sizes of the directions, for columns of unit length, which are written over."""

    def _rank(
        self,
        Q: Matrix,
        sizes: Float[np.ndarray, " kept"],
        targets: Matrix | None,
        roots: Float[np.ndarray, " points"],
    ) -> int:
        if self.tolerance is not None or targets is None:
            return int((sizes > (self.tolerance or 0.0) * sizes[0]).sum())
        return smallest_sufficient_rank(Q, targets, roots=roots)


def smallest_sufficient_rank(
    Q: Matrix, targets: Matrix, *, roots: Float[np.ndarray, " points"] | None = None, allowance: float = 0.01
) -> int:
    """The fewest leading columns of Q whose projection error is within `allowance` of that of all of them.

    The targets are multiplied by the `roots` of weights first.
    """
    factors = np.ones(len(Q)) if roots is None else roots
    blocks = row_blocks(len(Q))
    coefficients = _sum((targets[:, b] * factors[b]) @ Q[b] for b in blocks)
    remainder = sum(float(np.sum((targets[:, b] * factors[b] - coefficients @ Q[b].T) ** 2)) for b in blocks)
    # Added up from the tail: the difference of two large sums would lose every digit.
    tails = np.cumsum(np.sum(coefficients**2, axis=0)[::-1])[::-1]
    return max(1, int((tails > allowance * remainder).sum()))


def _above_rounding(sizes: Float[np.ndarray, " all"], shape: tuple[int, int]) -> int:
    rank = int((sizes > max(shape) * np.finfo(sizes.dtype).eps * sizes[0]).sum())
    if rank == 0:
        raise DataError("features: all trunk functions are zero at the output points")
    return rank


def _sum(parts: Iterable[np.ndarray]) -> np.ndarray:
    return ft.reduce(np.add, parts)


def _values(
    Q: Matrix, roots: Float[np.ndarray, " points"], features: Matrix, transform: Matrix
) -> Float[np.ndarray, "points rank"]:
    """Q itself without the roots, not Phi T: for a nearly dependent Phi that product has lost digits.

    A point without weight has no row in Q. Where points are many and all have one, Q is written over.
    """
    is_over = is_long(Q) and bool((roots > 0).all())
    out = Q if is_over else features @ transform
    return np.divide(Q, roots[:, None], out=out, where=roots[:, None] > 0)


def _pivoted_qr(matrix: Matrix) -> tuple[Matrix, Matrix, Int[np.ndarray, " columns"]]:
    if is_long(matrix) or (current_mesh() is not None and len(matrix) > matrix.shape[1]):
        Q, small = tall_qr_in_place(matrix)
        inner, R, order = _pivoted(small)
        multiply_in_place(Q, inner)
        signs = householder_signs(Q[: len(R)])
        Q *= signs
        return Q, R * signs[:, None], order
    return _pivoted(matrix)


def _pivoted(matrix: Matrix) -> tuple[Matrix, Matrix, Int[np.ndarray, " columns"]]:
    return scipy.linalg.qr(matrix, mode="economic", pivoting=True)  # pyright: ignore[reportReturnType]


@dc.dataclass(frozen=True)
class QR(AbstractOrthonormaliser):
    """Householder QR with column pivoting: Gram-Schmidt that takes the most independent function next.

    >>> x = np.linspace(0, 1, 50)
    >>> basis = QR()(np.stack([x**0, x, x**2, 1 + x], axis=1))  # the last one brings nothing new
    >>> basis.rank
    3
    >>> bool(np.allclose(basis.values.T @ basis.values / 50, np.eye(3)))
    True
    """

    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Float[np.ndarray, " kept"]]:
        columns = scaled.shape[1]
        # Columns of equal length leave the pivoting to rounding; a slight tilt prefers them in their order.
        tilt = (1 - 1e-3 * np.arange(columns) / columns).astype(scaled.dtype)
        scaled *= tilt
        Q, R, order = _pivoted_qr(scaled)
        sizes = np.abs(np.diag(R))
        rank = _above_rounding(sizes, scaled.shape)
        T = np.zeros((columns, rank), scaled.dtype)
        T[order[:rank]] = scipy.linalg.solve_triangular(R[:rank, :rank], np.eye(rank, dtype=scaled.dtype))
        coordinates = np.empty((rank, columns), scaled.dtype)
        coordinates[:, order] = R[:rank]
        return Q[:, :rank], T * tilt[:, None], coordinates / tilt, sizes[:rank]


@dc.dataclass(frozen=True)
class SVD(AbstractOrthonormaliser):
    """Singular value decomposition: ordered modes, the largest first (RiemannONets' choice)."""

    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Float[np.ndarray, " kept"]]:
        if is_long(scaled):
            Q, small = tall_qr_in_place(scaled)
            inner, s, W = np.linalg.svd(small)
            multiply_in_place(Q, inner)
        else:
            Q, s, W = np.linalg.svd(scaled, full_matrices=False)
        rank = _above_rounding(s, scaled.shape)
        sizes, modes = s[:rank], W[:rank]
        return Q[:, :rank], modes.T / sizes, sizes[:, None] * modes, sizes
