"""Orthonormal bases of the span of trunk functions, without inverting a matrix that may be singular.

Trained trunks are usually rank deficient: ReLU neurons die, and an output layer wider than the layer before it
cannot have independent columns. The paper's T = R^-1 does not exist then. Here both factorisations reveal the
rank, and T maps the N + 1 trunk functions to `rank` orthonormal ones.
"""

import abc
import dataclasses as dc
import functools as ft
from collections.abc import Iterable
from typing import Literal

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from ..data.array_checks import sample_blocks, unit_of
from ..distributed.mesh import current_mesh
from ..errors import DataError
from ..settings import Field, kind_field, record
from .blocked_qr import (
    householder_signs,
    is_long,
    multiply_in_place,
    one_blas_thread,
    row_blocks,
    tall_qr_in_place,
)

# A field is zero below this share of the usual norm.
_ZERO = 1e-10

Matrix = Float[np.ndarray, "_ _"]
Vector = Float[np.ndarray, " _"]
Weights = Float[np.ndarray, " points"]


@dc.dataclass(frozen=True, eq=False)
class Orthonormal:
    """Phi T = Q with orthonormal columns, and Phi = Q R up to what was dropped.

    `values` is Q (points, rank), `transform` T (functions, rank), `coordinates` R (rank, functions). `condition`
    is that of Phi with unit columns, over the directions kept. `squared_length` is sum_i Q_ij^2 for equal point
    weights: the number of points, or 1 with `unit_columns`.
    """

    values: Float[np.ndarray, "points rank"]
    transform: Float[np.ndarray, "functions rank"]
    coordinates: Float[np.ndarray, "rank functions"]
    condition: float
    squared_length: float

    @property
    def rank(self) -> int:
        """The number of directions kept."""
        return self.values.shape[1]

    def coefficients(
        self, outputs: Float[np.ndarray, "samples points"], *, point_weights: Weights | None = None
    ) -> Float[np.ndarray, "samples rank"]:
        """Coefficients of the best approximation of each output: Q^T U in the inner product of Q."""
        dual = self.dual(point_weights)
        return np.concatenate([outputs[samples] @ dual for samples in sample_blocks(outputs.shape)])

    def dual(self, point_weights: Weights | None = None) -> Float[np.ndarray, "points rank"]:
        """The matrix from outputs to their coefficients: Q times the weights of the points."""
        return self.values * self._factors(point_weights)[:, None]

    def _factors(self, point_weights: Weights | None) -> Float[np.ndarray, " points"]:
        points = len(self.values)
        return _weights(point_weights, points) * points / self.squared_length


@record
class AbstractOrthonormaliser(abc.ABC):
    """A factorisation Phi = Q R with a rule for the rank.

    Columns of Q are orthonormal in the mean over the points, sum_i w_i Q_ij Q_ik = delta_jk with weights that sum
    to 1, so coefficients do not grow with the number of points. `unit_columns` gives the paper's Q^T Q = I.

    With a `tolerance`, directions below `tolerance` times the largest are dropped. Without one, and with
    `targets`, the rank is the smallest whose projection error on the targets is within one per cent of that of
    all directions above rounding; without targets, all of those are kept.
    """

    tolerance: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="drop directions below this; if left out, those that hardly matter for the outputs",
    )
    unit_columns: bool = Field(
        default=False, description="scale to Q^T Q = I as in the paper, not to unit mean square"
    )

    def __call__(
        self,
        features: Float[np.ndarray, "points functions"],
        *,
        point_weights: Weights | None = None,
        targets: Float[np.ndarray, "samples points"] | None = None,
    ) -> Orthonormal:
        """Factorise the `features` Phi (points, functions).

        Raises a `DataError` if the features are not finite or all zero.
        """
        if not np.isfinite(features).all():
            raise DataError("features: the trunk has values that are not finite; it cannot be orthonormalised")
        points = len(features)
        squared_length = 1.0 if self.unit_columns else float(points)
        roots = np.sqrt(_weights(point_weights, points) * points / squared_length).astype(features.dtype)
        weighted = features * roots[:, None]
        lengths = np.sqrt(_sum(np.sum(weighted[b] * weighted[b], axis=0) for b in row_blocks(points)))
        scales = np.where(lengths > 0, lengths, 1.0)
        weighted /= scales
        with one_blas_thread():
            Q, T, R, sizes = self.factorise(weighted)
            rank = self._rank(Q, sizes, targets, roots)
        transform = T[:, :rank] / scales[:, None]
        return Orthonormal(
            values=_values(Q[:, :rank], roots, features, transform),
            transform=transform,
            coordinates=R[:rank] * scales,
            condition=float(sizes[0] / sizes[rank - 1]),
            squared_length=squared_length,
        )

    @abc.abstractmethod
    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Vector]:
        """Q, T, R and the falling sizes of the directions, for unit columns, which may be overwritten."""

    def _rank(self, Q: Matrix, sizes: Vector, targets: Matrix | None, roots: Weights) -> int:
        if self.tolerance is not None or targets is None:
            return int((sizes > (self.tolerance or 0.0) * sizes[0]).sum())
        return smallest_sufficient_rank(Q, targets, roots=roots)


@record
class QR(AbstractOrthonormaliser):
    """Householder QR with column pivoting: as Gram-Schmidt, with the most independent function next.

    >>> x = np.linspace(0, 1, 50)
    >>> basis = QR()(np.stack([x**0, x, x**2, 1 + x], axis=1))  # the last function is dependent
    >>> basis.rank
    3
    >>> bool(np.allclose(basis.values.T @ basis.values / 50, np.eye(3)))
    True
    """

    kind: Literal["qr"] = kind_field("qr")

    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Vector]:
        columns = scaled.shape[1]
        # With equal lengths rounding would decide the pivots; slightly falling ones keep the columns in order.
        tilt = (1 - 1e-3 * np.arange(columns) / columns).astype(scaled.dtype)
        scaled *= tilt
        Q, R, order = _pivoted_qr(scaled)
        sizes = np.abs(np.diag(R))
        rank = _rank_above_rounding(sizes, scaled.shape)
        T = np.zeros((columns, rank), scaled.dtype)
        T[order[:rank]] = scipy.linalg.solve_triangular(R[:rank, :rank], np.eye(rank, dtype=scaled.dtype))
        coordinates = np.empty((rank, columns), scaled.dtype)
        coordinates[:, order] = R[:rank]
        return Q[:, :rank], T * tilt[:, None], coordinates / tilt, sizes[:rank]


@record
class SVD(AbstractOrthonormaliser):
    """Singular value decomposition: functions in order of importance (as in RiemannONets).

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(orthonormalise=SVD()).orthonormalise.kind
    'svd'
    """

    kind: Literal["svd"] = kind_field("svd")

    def factorise(self, scaled: Matrix) -> tuple[Matrix, Matrix, Matrix, Vector]:
        if is_long(scaled):
            Q, small = tall_qr_in_place(scaled)
            inner, s, W = np.linalg.svd(small)
            multiply_in_place(Q, inner)
        else:
            Q, s, W = np.linalg.svd(scaled, full_matrices=False)
        rank = _rank_above_rounding(s, scaled.shape)
        sizes, modes = s[:rank], W[:rank]
        return Q[:, :rank], modes.T / sizes, sizes[:, None] * modes, sizes


def orthonormal_already(values: Float[np.ndarray, "points rank"]) -> Orthonormal:
    """Functions whose weighted mean products are 1 and 0 at the points, as they are."""
    identity = np.eye(values.shape[1], dtype=values.dtype)
    return Orthonormal(values, identity, identity, 1.0, float(len(values)))


def smallest_sufficient_rank(
    Q: Matrix, targets: Matrix, *, roots: Weights | None = None, allowance: float = 0.01
) -> int:
    """The fewest leading columns of Q whose projection error is within `allowance` of that of all of them.

    The targets (samples, points) are first multiplied by the `roots` of the point weights.
    """
    factors = np.ones(len(Q)) if roots is None else roots
    squares, remainder = np.zeros(Q.shape[1]), 0.0
    for samples in sample_blocks(targets.shape):
        weighted = targets[samples] * factors
        coefficients = weighted @ Q
        squares += np.sum(coefficients**2, axis=0)
        remainder += float(np.sum((weighted - coefficients @ Q.T) ** 2))
    # Added up from the tail: the difference of two large sums would lose every digit.
    tails = np.cumsum(squares[::-1])[::-1]
    return max(1, int((tails > allowance * remainder).sum()))


def projection(
    outputs: Float[np.ndarray, "samples points"],
    basis: Float[np.ndarray, "points rank"],
    *,
    point_weights: Weights | None = None,
) -> Float[np.ndarray, "samples points"]:
    """The best approximation of each output in the span of a `basis` that is orthonormal in the weighted mean."""
    return (outputs * _weights(point_weights, len(basis))) @ basis @ basis.T


def relative_errors(
    predictions: Float[np.ndarray, "samples points"],
    outputs: Float[np.ndarray, "samples points"],
    *,
    point_weights: Weights | None = None,
) -> Float[np.ndarray, " samples"]:
    """|prediction - output|_2 / |output|_2 for every sample; for a field of zeros see `field_sizes`.

    >>> relative_errors(np.array([[3.0, 4.4]]), np.array([[3.0, 4.0]]))
    array([0.08])
    """
    roots = 1.0 if point_weights is None else np.sqrt(point_weights)
    unit = unit_of(outputs)
    errors = np.linalg.norm((predictions - outputs) / unit * roots, axis=1)
    return errors / field_sizes(outputs / unit, point_weights=point_weights)


def field_sizes(
    outputs: Float[np.ndarray, "samples points ..."], *, point_weights: Weights | None = None
) -> Float[np.ndarray, "samples ..."]:
    """The norm of every field, which errors are relative to.

    A field of zeros has no relative error; its error is relative to the root mean square of all norms.
    """
    weights = np.ones(outputs.shape[1]) if point_weights is None else point_weights
    unit = unit_of(outputs)
    norms = np.sqrt(np.einsum("kp...,p->k...", (outputs / unit).astype(float) ** 2, weights))
    usual = np.sqrt(np.sum(norms**2, axis=0) / max(len(norms), 1))
    return unit * np.where(norms > _ZERO * usual, norms, np.where(usual > 0, usual, 1.0))


def _weights(point_weights: Weights | None, points: int) -> Vector:
    return np.full(points, 1 / points) if point_weights is None else point_weights


def _sum(parts: Iterable[np.ndarray]) -> np.ndarray:
    return ft.reduce(np.add, parts)


def _rank_above_rounding(sizes: Vector, shape: tuple[int, int]) -> int:
    rank = int((sizes > max(shape) * np.finfo(sizes.dtype).eps * sizes[0]).sum())
    if rank == 0:
        raise DataError("features: all trunk functions are zero at the output points")
    return rank


def _values(Q: Matrix, roots: Weights, features: Matrix, transform: Matrix) -> Float[np.ndarray, "points rank"]:
    """Q divided by the roots, not Phi T, which has lost digits where Phi is nearly dependent.

    Points of weight zero have no row in Q and take Phi T. Long matrices without such points are overwritten.
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
