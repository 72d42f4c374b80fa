"""Step 1 where every sample has its own points: one small least-squares problem a sample."""

import dataclasses as dc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.spatial import KDTree

from .data.scattered_data import common_points
from .device_arrays import padded_count, to_device
from .fields import (
    AbstractFields,
    Basis,
    Fields,
    Mesh,
    Searched,
    TrunkResult,
    mean_one,
    rows_of_channel,
    trunk_values,
)
from .linear.low_rank import principal_directions
from .linear.orthonormalise import SVD, AbstractOrthonormaliser, Orthonormal
from .minimisers.loop import AbstractObjective, Parameters
from .networks.layers import AbstractFunctions, Trunk

# Values that a search looks at; more samples than that improve the trunk little.
_SEARCH_VALUES = 100_000
# A value at another point comes from this many neighbours for each unknown; those that are this share of the
# reach away count nearly alone, and slopes have this ridge.
_NEIGHBOURS, _NEAR, _SLOPE_RIDGE = 3, 0.01, 1e-3


@dc.dataclass(frozen=True, eq=False)
class ScatteredFields(AbstractFields):
    """Fields each given at its own choice among the pooled `points`.

    `places` (samples, most) says where, `weights` (samples, most) counts each value, zero where there is none;
    channels of a sample share its places.
    """

    points: Float[np.ndarray, "points features"]
    places: Int[np.ndarray, "samples most"]
    outputs: Float[np.ndarray, "rows most"]
    weights: Float[np.ndarray, "samples most"]
    sample_weights: Float[np.ndarray, " rows"] | None = None
    channels: int | None = None
    mesh: Mesh | None = None

    def problem(self, dtype: np.dtype, *, floats_per_point: int = 0) -> Callable[..., AbstractObjective]:
        del floats_per_point
        some = some_samples(self)
        return lambda ridge, rounding=0.0: scattered_problem(some, ridge, dtype, rounding=rounding)

    def solve(self, trunk: AbstractFunctions, ridge: float) -> Float[np.ndarray, "rows functions"]:
        assert isinstance(trunk, Trunk)
        solved = scattered_problem(self, ridge, trunk.dtype).coefficients(Searched(trunk.network, False))
        return np.asarray(solved).reshape(self.rows, -1)

    def loss(self, trunk: AbstractFunctions, A: Float[np.ndarray, "rows functions"], *, p: float) -> float:
        values = trunk_values(trunk, self.points_of(trunk), A.dtype)
        return float(np.mean(np.abs(residuals(values, A, self)) ** p))

    def basis(self, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None) -> Basis:
        """The least squares are done again in the orthonormal basis."""
        if orthonormalise is None:
            return Basis(step1.coefficients, None, 1.0, None)
        features = trunk_values(step1.trunk, self.points_of(step1.trunk), step1.coefficients.dtype)
        return scattered_basis(features, step1.coefficients, self)

    def limits(self, trunk: AbstractFunctions, p: float) -> dict[str, Any]:
        del trunk, p
        return {"limit": None, "limit_upper": None, "is_limited_by_network": None}

    def only(self, channel: int) -> "ScatteredFields":
        return dc.replace(self, **rows_of_channel(self, channel))

    def at_common_points(self) -> Fields:
        """Every sample is carried to points spread over those of all, linearly from its nearest values."""
        mesh = self.mesh or Mesh(self.points)
        counted = np.unique(self.places[self.weights > 0])
        wanted = common_points(mesh.points[counted], self.places.shape[1])
        extent = np.ptp(wanted, axis=0)
        size = np.where(extent > 0, extent, 1.0)
        values = self.outputs.reshape(len(self.places), -1, self.places.shape[1])
        parts = [
            _local_linear(mesh.points[own[w > 0]] / size, u[:, w > 0].T, w[w > 0], wanted / size).T
            for own, w, u in zip(self.places, self.weights, values, strict=True)
        ]
        placed = dc.replace(mesh, points=wanted)
        return Fields(wanted, np.concatenate(parts), None, self.sample_weights, self.channels, mesh=placed)


def _local_linear(
    points: Float[np.ndarray, "points coordinates"],
    values: Float[np.ndarray, "points channels"],
    weights: Float[np.ndarray, " points"],
    wanted: Float[np.ndarray, "wanted coordinates"],
) -> Float[np.ndarray, "wanted channels"]:
    """Values at other points: linear least squares over the nearest, those that are close with large weights."""
    count = min(len(points), _NEIGHBOURS * (points.shape[1] + 1))
    found = KDTree(points).query(wanted, count)
    distances, near = (np.reshape(each, (len(wanted), count)) for each in found)
    reach = 1.05 * distances[:, -1:] + np.finfo(float).tiny
    shares = weights[near] * (1 - distances / reach) ** 2 / ((distances / reach) ** 2 + _NEAR**2)
    offsets = (points[near] - wanted[:, None]) / reach[..., None]
    linear = np.concatenate([np.ones((*near.shape, 1)), offsets], axis=2)
    left = np.swapaxes(linear * shares[..., None], 1, 2)
    ridge = _SLOPE_RIDGE * shares.sum(axis=1)[:, None, None] * np.diag([0.0] + points.shape[1] * [1.0])
    return np.linalg.solve(left @ linear + ridge, left @ values[near])[:, 0]


class ScatteredProblem(AbstractObjective):
    """sum over samples of min over a of |Phi a - u|^2 + ridge^2 |a|^2, each at the sample's own points.

    The trunk is evaluated once at the pooled points; `places` says which rows belong to a sample. By the
    envelope theorem the gradient is that at the solved coefficients, held fixed.
    """

    points: Float[Array, "points features"]
    places: Int[Array, "samples most"]
    values: Float[Array, "samples channels most"]
    roots: Float[Array, "samples channels most"]
    ridge: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-3)
    rounding: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        A = jax.lax.stop_gradient(self._solve(Phi))
        errors = (jnp.einsum("smf,scf->scm", Phi, A) - self.values) * self.roots
        squares = jnp.sum(errors**2) + self.ridge**2 * jnp.sum(A**2)
        return squares / jnp.sum(self.roots**2)

    def misfit(self, parameters: Parameters) -> Float[Array, ""]:
        Phi = self.features(parameters)
        errors = (jnp.einsum("smf,scf->scm", Phi, self._solve(Phi)) - self.values) * self.roots
        return jnp.sum(errors**2) / jnp.sum(self.roots**2)

    def features(self, parameters: Parameters) -> Float[Array, "samples most functions"]:
        """Phi at the points of every sample."""
        functions = parameters(self.points, self.rounding)
        ones = jnp.ones((len(self.points), 1), functions.dtype)
        return jnp.concatenate([ones, functions], axis=1)[self.places]

    @eqx.filter_jit
    def coefficients(self, parameters: Parameters) -> Float[Array, "samples channels functions"]:
        """A for every sample and channel."""
        return self._solve(self.features(parameters))

    def _solve(self, Phi: Float[Array, "samples most functions"]) -> Float[Array, "samples channels functions"]:
        # Channels of a sample differ by one factor of their weights, which the unregularised solution ignores.
        weighted = Phi * self.roots[:, 0, :, None]
        targets = jnp.swapaxes(self.values * self.roots[:, :1], 1, 2)  # (samples, most, channels)
        return jax.vmap(_small_solve, (0, 0, None))(weighted, targets, self.ridge)


def _small_solve(Phi: Array, B: Array, ridge: Array) -> Array:
    gram = Phi.T @ Phi
    shift = ridge**2 + 8 * jnp.finfo(Phi.dtype).eps * jnp.max(jnp.diagonal(gram))
    factor = jsl.cho_factor(gram + shift * jnp.eye(len(gram), dtype=Phi.dtype), lower=True)
    A = jsl.cho_solve(factor, Phi.T @ B)
    A = A + jsl.cho_solve(factor, Phi.T @ (B - Phi @ A) - ridge**2 * A)
    return A.T


def scattered_problem(
    fields: ScatteredFields, ridge: float, dtype: np.dtype, *, rounding: float = 0.0
) -> ScatteredProblem:
    """The problem of all samples."""
    samples, most = fields.places.shape
    channels = fields.channels or 1
    rows = mean_one(fields.sample_weights, samples * channels).reshape(samples, channels)
    roots = np.sqrt(fields.weights[:, None] * rows[..., None])
    values = fields.outputs.reshape(samples, channels, most)
    # Similar numbers of points share compiled programs; what is added has no weight.
    count, more = len(fields.points), padded_count(most) - most
    points = np.pad(fields.points, ((0, padded_count(count) - count), (0, 0)), mode="edge")
    places = np.pad(fields.places, ((0, 0), (0, more)))
    values, roots = (np.pad(array, ((0, 0), (0, 0), (0, more))) for array in (values, roots))
    points, values, roots = (to_device(array, dtype) for array in (points, values, roots))
    return ScatteredProblem(points, to_device(places), values, roots, ridge, rounding)


def some_samples(fields: ScatteredFields) -> ScatteredFields:
    """Samples to search the trunk on, evenly spaced in the given order."""
    samples, most = fields.places.shape
    channels = fields.channels or 1
    count = min(samples, max(64, _SEARCH_VALUES // (most * channels)))
    chosen = np.unique(np.linspace(0, samples - 1, count).round().astype(int))
    rows = (chosen[:, None] * channels + np.arange(channels)).ravel()
    weights = None if fields.sample_weights is None else fields.sample_weights[rows]
    return dc.replace(
        fields,
        places=fields.places[chosen],
        outputs=fields.outputs[rows],
        weights=fields.weights[chosen],
        sample_weights=weights,
    )


def scattered_basis(
    features: Float[np.ndarray, "points functions"],
    A: Float[np.ndarray, "rows functions"],
    fields: ScatteredFields,
) -> Basis:
    """Orthonormal over the pooled points, reduced to the directions that the samples move in; then refitted.

    Few directions make the least squares of a sample with few points well posed; a sample with fewer points
    than directions is helped by the mean and covariance of the coefficients of all.
    """
    pooled = np.bincount(fields.places.ravel(), fields.weights.ravel(), minlength=len(features))
    basis = SVD(1e-10)(features, point_weights=pooled / pooled.sum())
    directions = _moved_directions(basis, A, fields)
    values = basis.values @ directions.T
    coefficients = _posterior(values, A @ basis.coordinates.T @ directions.T, fields)
    transform = basis.transform @ directions.T
    return Basis(coefficients, transform, float(len(features)), basis.condition)


def _moved_directions(
    basis: Orthonormal, A: Float[np.ndarray, "rows functions"], fields: ScatteredFields
) -> Float[np.ndarray, "rank kept"]:
    C = A @ basis.coordinates.T * np.sqrt(mean_one(fields.sample_weights, len(A)))[:, None]
    remainder = np.mean(residuals(basis.values, A @ basis.coordinates.T, fields) ** 2)
    return principal_directions(C, tolerance=0.1 * float(np.sqrt(remainder / np.mean(np.sum(C**2, axis=1)))))


def residuals(
    values: Float[np.ndarray, "points rank"], coefficients: Float[np.ndarray, "rows rank"], fields: ScatteredFields
) -> Float[np.ndarray, " present"]:
    """Errors at all present values, one after the other."""
    channels = fields.channels or 1
    parts: list[np.ndarray] = []
    for sample, (places, weights) in enumerate(zip(fields.places, fields.weights, strict=True)):
        rows = slice(sample * channels, (sample + 1) * channels)
        inside = weights > 0
        parts.append((coefficients[rows] @ values[places[inside]].T - fields.outputs[rows][:, inside]).ravel())
    return np.concatenate(parts)


def _posterior(
    values: Float[np.ndarray, "points rank"], first: Float[np.ndarray, "rows rank"], fields: ScatteredFields
) -> Float[np.ndarray, "rows rank"]:
    """Least squares a row, with the coefficients of all rows as prior knowledge.

    min |V c - u|^2 / s^2 + (c - m)^T S^-1 (c - m): m and S from the rows that have points to spare, s from what
    is left of them. For such rows the prior is far too weak to be seen.
    """
    rank, channels = values.shape[1], fields.channels or 1
    counts = np.repeat((fields.weights > 0).sum(axis=1), channels)
    trusted = first[counts > 2 * rank] if (counts > 2 * rank).sum() > rank else first
    mean, covariance = trusted.mean(axis=0), np.atleast_2d(np.cov(trusted.T))
    noise = max(float(np.mean(residuals(values, first, fields) ** 2)), 1e-28 * float(np.mean(fields.outputs**2)))
    floor = 1e-12 * np.trace(covariance) / rank
    precision = np.linalg.inv(covariance + floor * np.eye(rank))
    solved = np.empty_like(first)
    for row, u in enumerate(fields.outputs):
        sample = row // channels
        weights = fields.weights[sample]
        inside = weights > 0
        V, w = values[fields.places[sample][inside]], weights[inside] / noise
        gram = (V.T * w) @ V + precision
        solved[row] = np.linalg.solve(gram, (V.T * w) @ u[inside] + precision @ mean)
    return solved
