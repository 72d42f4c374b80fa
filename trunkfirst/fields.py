"""What step 1 sees of the data: raw fields at encoded points, one row for each sample and channel.

`Fields` are all given at the same points. `ScatteredFields` (scattered.py) answer the same questions for samples
at points of their own.
"""

import abc
import dataclasses as dc
import functools as ft
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .data.array_checks import evenly, sample_blocks
from .device_arrays import padded_count, to_device
from .distributed.mesh import shard_rows
from .distributed.processes import process_shard
from .linear.blocked_qr import row_blocks
from .linear.low_rank import (
    is_limited_by_network,
    leverage_sample,
    thin_factor,
    trunk_limit,
    trunk_limit_bounds,
)
from .linear.orthonormalise import AbstractOrthonormaliser, Orthonormal, orthonormal_already
from .minimisers.loop import AbstractObjective, Status
from .minimisers.separable import (
    AbstractFeatures,
    SeparableProblem,
    solve_ridge_in_blocks,
    solve_ridge_on_host,
)
from .networks.fast_gradient import values_with_fast_gradient
from .networks.layers import AbstractFunctions, Modes, Perceptron, Trunk, rounded
from .records import LogEntry

# Numbers of all layers at all points beyond which a search looks at some of the points: 64 MiB.
_MAX_NUMBERS = 2**23
# The least weight, of mean 1, with which the factor of all outputs has the digits of a sample.
_LEAST_WEIGHT = 1e-6


@dc.dataclass(frozen=True)
class TrunkResult:
    """A fitted trunk, the free coefficients A (rows of the fields, functions) with it, and how the fit went.

    `is_projected` says that A is the least-squares solution, not one that a minimiser was still moving.
    """

    trunk: AbstractFunctions
    coefficients: Float[np.ndarray, "rows functions"]
    is_projected: bool
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[LogEntry, ...]
    p: float = 2.0
    """The power of the loss."""
    limits: dict[str, Any] | None = None
    """Bounds of the loss. None until computed; they need an SVD of all outputs."""
    values: Float[np.ndarray, "points functions"] | None = None
    """The functions at the points, where they are orthonormal already."""


@dc.dataclass(frozen=True)
class Basis:
    """The basis Phi T of step 2 and its `targets` (rows, rank), the coefficients of the outputs in it."""

    targets: Float[np.ndarray, "rows rank"]
    transform: Float[np.ndarray, "functions rank"] | None
    squared_length: float
    condition: float | None
    orthonormal: Orthonormal | None = None
    """Phi T at the points, where all samples share them."""

    @property
    def loss_unit(self) -> float:
        """From the mean over the kept directions to the paper's |C - R A|^2 / (K (N + 1)) with Q^T Q = I."""
        rank = self.targets.shape[1]
        return self.squared_length * rank / (rank if self.transform is None else len(self.transform))


@dc.dataclass(frozen=True, eq=False)
class Mesh:
    """Where fields are given, in physical coordinates; a period of 0 stands for a coordinate without one."""

    points: Float[np.ndarray, "points coordinates"]
    triangles: Int[np.ndarray, "triangles corners"] | None = None
    periods: tuple[float, ...] | None = None


class AbstractFields(abc.ABC):
    """Fields as step 1 asks for them, whatever the kind of data."""

    points: Float[np.ndarray, "points features"]
    outputs: np.ndarray
    sample_weights: Float[np.ndarray, " rows"] | None
    channels: int | None
    mesh: Mesh | None

    @property
    def rows(self) -> int:
        """Samples times channels."""
        return len(self.outputs)

    @abc.abstractmethod
    def problem(self, dtype: np.dtype, *, floats_per_point: int = 0) -> Callable[..., AbstractObjective]:
        """The least-squares problem of a trunk, as a function of `ridge` and the `rounding` of kinks."""

    @abc.abstractmethod
    def solve(self, trunk: AbstractFunctions, ridge: float) -> Float[np.ndarray, "rows functions"]:
        """The coefficients A for a given trunk."""

    @abc.abstractmethod
    def loss(self, trunk: AbstractFunctions, A: Float[np.ndarray, "rows functions"], *, p: float) -> float:
        """Mean of |error|^p over all values, without weights."""

    @abc.abstractmethod
    def basis(self, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None) -> Basis:
        """The basis and the targets of step 2, from a fitted trunk."""

    @abc.abstractmethod
    def limits(self, trunk: AbstractFunctions, p: float) -> dict[str, Any]:
        """Bounds of the loss with power p for trunks of this width; None where they are not known."""

    @abc.abstractmethod
    def only(self, channel: int) -> "AbstractFields":
        """The rows of one channel."""

    @abc.abstractmethod
    def at_common_points(self) -> "Fields":
        """The same fields, all at the same points."""

    def points_of(self, trunk: AbstractFunctions) -> Float[np.ndarray, "points _"]:
        """The points as the trunk takes them: modes are functions of the physical coordinates."""
        return self.mesh.points if isinstance(trunk, Modes) and self.mesh is not None else self.points


@dc.dataclass(frozen=True, eq=False)
class Fields(AbstractFields):
    """Fields that are all given at the same points.

    Rows are samples and their channels, channels running faster. Weights of None are all equal.
    """

    points: Float[np.ndarray, "points features"]
    outputs: Float[np.ndarray, "rows points"]
    point_weights: Float[np.ndarray, " points"] | None = None
    sample_weights: Float[np.ndarray, " rows"] | None = None
    channels: int | None = None
    factor: Float[np.ndarray, "rank points"] | None = None
    """The thin factor of the outputs with the roots of all weights in it, where it is known already."""
    mesh: Mesh | None = None
    inputs: Float[np.ndarray, "samples encoded"] | None = None
    """The encoded inputs, for trunks that depend on them."""

    def weighted_outputs(self) -> Float[np.ndarray, "rows points"]:
        """The outputs, or their factor, with the roots of all weights in them."""
        return np.concatenate(list(self._weighted_blocks())) if self.factor is None else self.factor

    def _weighted_blocks(self) -> Iterator[Float[np.ndarray, "some points"]]:
        roots = np.sqrt(mean_one(self.point_weights, len(self.points)))
        samples = np.sqrt(mean_one(self.sample_weights, self.rows))[:, None]
        return (self.outputs[block] * roots * samples[block] for block in sample_blocks(self.outputs.shape))

    @ft.cached_property
    def _thin_factor(self) -> Float[np.ndarray, "rank points"]:
        return thin_factor(self._weighted_blocks, self.outputs.shape) if self.factor is None else self.factor

    def problem(self, dtype: np.dtype, *, floats_per_point: int = 0) -> Callable[..., AbstractObjective]:
        """With the thin factor of the outputs, so that its cost does not depend on the number of samples.

        Where the numbers of all layers at all points are more than 2^23, points are drawn by leverage.
        """
        roots = np.sqrt(mean_one(self.point_weights, len(self.points)))
        points = self.points
        factor = self._thin_factor
        if len(points) * floats_per_point > _MAX_NUMBERS:
            drawn, times = leverage_sample(factor, roots**2, _MAX_NUMBERS // floats_per_point)
            points, roots, factor = points[drawn], roots[drawn] * np.sqrt(times), factor[:, drawn] * np.sqrt(times)
        places, weights = shard_rows(points, dtype, repeats_last=True), shard_rows(roots, dtype)
        targets = shard_rows(factor.T, dtype)  # (points, rank)
        return lambda ridge, rounding=0.0: SeparableProblem(
            TrunkFeatures(places, weights, rounding), targets, ridge, float(self.outputs.size)
        )

    def solve(self, trunk: AbstractFunctions, ridge: float) -> Float[np.ndarray, "rows functions"]:
        dtype, points = trunk.dtype, self.points_of(trunk)
        roots = np.sqrt(mean_one(self.point_weights, len(points))).astype(dtype)[:, None]
        blocks = row_blocks(len(points))

        def rows(block: slice) -> tuple[np.ndarray, np.ndarray]:
            outputs = self.outputs[:, block].T.astype(dtype)
            return trunk_values(trunk, points[block], dtype) * roots[block], outputs * roots[block]

        if len(blocks) > 1:
            part, parts = process_shard()
            own = blocks[part::parts] or [slice(0, 0)]
            return solve_ridge_in_blocks(lambda: map(rows, own), ridge).T
        Phi = trunk_values(trunk, points, dtype) * roots
        if self._is_of_low_rank:
            return self._solve_by_factor(Phi, roots[:, 0], ridge)
        weighted = (self.outputs[some].T.astype(dtype) * roots for some in sample_blocks(self.outputs.shape))
        return np.concatenate([solve_ridge_on_host(Phi, outputs, ridge).T for outputs in weighted])

    @property
    def _is_of_low_rank(self) -> bool:
        """Whether few rows of the factor stand for all outputs, none of which has hardly any weight."""
        is_seen = bool(mean_one(self.sample_weights, self.rows).min() > _LEAST_WEIGHT)
        return is_seen and self.factor is None and 4 * len(self._thin_factor) <= self.rows

    def _solve_by_factor(
        self, Phi: Float[np.ndarray, "points functions"], roots: Float[np.ndarray, " points"], ridge: float
    ) -> Float[np.ndarray, "rows functions"]:
        """Coefficients are linear in the outputs: solved for the rows of the factor, combined for all others."""
        sizes = np.linalg.norm(self._thin_factor, axis=1)
        A = solve_ridge_on_host(Phi, self._thin_factor.T.astype(Phi.dtype), ridge).T
        shares = (roots[:, None] * self._thin_factor.T / sizes**2).astype(Phi.dtype)
        solved = np.empty((self.rows, Phi.shape[1]), Phi.dtype)
        for some in sample_blocks(self.outputs.shape):
            solved[some] = (self.outputs[some].astype(Phi.dtype) @ shares) @ A
        return solved

    def functions_by_sample(
        self, trunk: AbstractFunctions, samples: Int[np.ndarray, " some"] | None = None
    ) -> Iterator[Float[np.ndarray, "points functions"]]:
        """Phi of one sample after the other, for a trunk that depends on the input."""
        assert self.inputs is not None
        points = jnp.asarray(self.points, trunk.dtype)
        for features in self.inputs if samples is None else self.inputs[samples]:
            yield np.asarray(functions_of(trunk, points, jnp.asarray(features[None], trunk.dtype))[0])

    def loss(self, trunk: AbstractFunctions, A: Float[np.ndarray, "rows functions"], *, p: float) -> float:
        if trunk.depends_on_input:
            shape = (-1, self.channels or 1)
            parts = zip(A.reshape(*shape, A.shape[1]), self.outputs.reshape(*shape, len(self.points)), strict=True)
            each = zip(parts, self.functions_by_sample(trunk), strict=True)
            return float(np.mean([np.mean(np.abs(a @ Phi.T - u) ** p) for (a, u), Phi in each]))
        return plain_loss(A, trunk_values(trunk, self.points_of(trunk), A.dtype), self.outputs, p=p)

    def basis(self, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None) -> Basis:
        """Targets (R A)^T, or where A is the least-squares solution the same as (Q^T U)^T; without QR A^T."""
        if step1.values is not None:
            found = orthonormal_already(step1.values)
            return Basis(step1.coefficients, None, found.squared_length, found.condition, found)
        if orthonormalise is None:
            return Basis(step1.coefficients, None, 1.0, None)
        if step1.trunk.depends_on_input:
            return self._basis_of_all(step1, orthonormalise)
        features = trunk_values(step1.trunk, self.points_of(step1.trunk), step1.coefficients.dtype)
        found = orthonormalise(features, point_weights=self.point_weights, targets=self.outputs)
        if step1.is_projected:
            targets = found.coefficients(self.outputs, point_weights=self.point_weights)
        else:
            targets = step1.coefficients @ found.coordinates.T
        return Basis(targets, found.transform, found.squared_length, found.condition, found)

    def _basis_of_all(self, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser) -> Basis:
        """One transform for all inputs: orthonormal in the mean over points and samples together."""
        assert self.inputs is not None
        some = evenly(len(self.inputs), max(_MAX_NUMBERS // (len(self.points) * step1.trunk.count), 1))
        features = np.concatenate(list(self.functions_by_sample(step1.trunk, some)))
        weights = np.tile(mean_one(self.point_weights, len(self.points)), len(some))
        found = orthonormalise(features, point_weights=weights / weights.sum())
        length = found.squared_length / (1 if orthonormalise.unit_columns else len(some))
        return Basis(step1.coefficients @ found.coordinates.T, found.transform, length, found.condition)

    def limits(self, trunk: AbstractFunctions, p: float) -> dict[str, Any]:
        """Two bounds for p = 1, one for p = 2 (Eckart-Young)."""
        width = trunk.effective_width
        squared = trunk_limit(self.outputs, width)
        lower, upper = trunk_limit_bounds(self.outputs, width) if p == 1 else (squared if p == 2 else None, None)
        return {
            "limit": lower,
            "limit_upper": upper,
            "is_limited_by_network": is_limited_by_network(self.outputs, squared),
        }

    def at_common_points(self) -> "Fields":
        return self

    def only(self, channel: int) -> "Fields":
        return dc.replace(self, **rows_of_channel(self, channel))

    def of_sample(self, sample: int) -> "Fields":
        """The rows of one sample, without weights of samples."""
        channels = self.channels or 1
        rows = slice(sample * channels, (sample + 1) * channels)
        return dc.replace(self, outputs=self.outputs[rows], sample_weights=None, factor=None, inputs=None)


def rows_of_channel(fields: AbstractFields, channel: int) -> dict[str, Any]:
    """What changes where only the rows of one channel are kept."""
    rows = slice(channel, None, fields.channels)
    weights = None if fields.sample_weights is None else fields.sample_weights[rows]
    return {"outputs": fields.outputs[rows], "sample_weights": weights, "channels": None}


def trunk_values(
    trunk: AbstractFunctions, points: Float[np.ndarray, "points features"], dtype: np.dtype
) -> Float[np.ndarray, "points functions"]:
    """Phi at all points, a block of points at a time, so that hidden layers never cover all of them."""
    values = np.empty((len(points), trunk.count), dtype)
    evaluate = ft.partial(_evaluate, trunk) if isinstance(trunk, Trunk) else trunk
    for block in row_blocks(len(points)):
        part = points[block]
        if isinstance(trunk, Modes):
            values[block] = trunk.values(part)
        else:  # similar numbers of points share a compiled program
            padded = np.pad(part, ((0, padded_count(len(part)) - len(part)), (0, 0)), mode="edge")
            values[block] = np.asarray(evaluate(to_device(padded, dtype)))[: len(part)]
    return values


class TrunkFeatures(AbstractFeatures):
    """Phi at the points, each row times the root of its weight.

    What is searched is either a whole network, or, where the output layer would only mix the functions of the
    last hidden layer (N not below its width), the layers before it: their span is the same.
    """

    points: Float[Array, "points coordinates"]
    root_weights: Float[Array, " points"]
    rounding: Float[Array, ""] = eqx.field(converter=to_device, default=0.0)

    def __call__(self, parameters: "Searched") -> Float[Array, "rows columns"]:
        functions = parameters(self.points, self.rounding.astype(self.points.dtype))
        ones = jnp.ones((len(self.points), 1), functions.dtype)
        return jnp.concatenate([ones, functions], axis=1) * self.root_weights[:, None]


class Searched(eqx.Module):
    """The part of a trunk network that matters for its span."""

    network: Perceptron
    is_hidden: bool = eqx.field(static=True)
    has_fast_gradient: bool = eqx.field(static=True, default=False)

    def __call__(
        self, points: Float[Array, "points coordinates"], rounding: Float[Array, ""]
    ) -> Float[Array, "points functions"]:
        if self.has_fast_gradient:
            return values_with_fast_gradient(self.network, points, rounding, is_hidden=self.is_hidden)
        sigma = rounded(self.network.activation, rounding)
        values = self.network(points, sigma)
        return sigma(values) if self.is_hidden else values


def searched(network: Perceptron) -> Searched:
    """The part of `network` that is searched."""
    *_, hidden, width = network.architecture
    if len(network.weights) == 1 or width < hidden:
        return Searched(network, False, has_fast_gradient=True)
    return Searched(hidden_layers(network), True, has_fast_gradient=True)


def mean_one(weights: Float[np.ndarray, " entries"] | None, count: int) -> Float[np.ndarray, " entries"]:
    """The weights scaled to the mean 1; ones where there are none."""
    return np.ones(count) if weights is None else weights / weights.mean()


def plain_loss(
    coefficients: Float[np.ndarray, "samples functions"],
    features: Float[np.ndarray, "points functions"],
    outputs: Float[np.ndarray, "samples points"],
    *,
    p: float,
) -> float:
    """Mean of |error|^p without weights: what is reported, whatever was minimised."""
    blocks = itertools.product(row_blocks(len(features)), sample_blocks(outputs.shape))
    sums = [np.sum(np.abs(coefficients[k] @ features[i].T - outputs[k, i]) ** p) for i, k in blocks]
    return float(np.sum(sums)) / outputs.size


def hidden_layers(network: Perceptron) -> Perceptron:
    """All layers but the last; the caller applies the activation of the last hidden layer."""
    return Perceptron(network.weights[:-1], network.biases[:-1], network.activation)


def with_identity_output(layers: Perceptron, like: Trunk) -> Trunk:
    """A trunk of the same architecture whose output layer is the identity on the hidden functions, then zeros."""
    last = like.network.weights[-1]
    W, b = to_device(np.eye(*last.shape, dtype=last.dtype)), to_device(np.zeros(len(last), last.dtype))
    return Trunk(Perceptron((*layers.weights, W), (*layers.biases, b), layers.activation))


_evaluate = eqx.filter_jit(Trunk.__call__)


@eqx.filter_jit
def functions_of(
    trunk: AbstractFunctions,
    points: Float[Array, "points coordinates"],
    features: Float[Array, "samples features"],
) -> Float[Array, "samples points functions"]:
    """The functions of a trunk that depends on the input, compiled."""
    return trunk.functions(points, features)
