"""Losses on the output fields: |Phi C^T - U| in an entrywise p-norm, for whatever gives Phi and C.

The paper's loss for both the monolithic method (C from the branch) and step 1 (C = A, free). Rows are
samples here, so A is the paper's transposed.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .distributed.mesh import shard_rows
from .encoders import AnyArray
from .errors import ValueRangeError
from .fields import Fields, mean_one
from .linear.low_rank import compress
from .minimisers.adam import draw
from .minimisers.loop import AbstractObjective, Parameters
from .minimisers.separable import factorise
from .networks.branches import Branch
from .networks.layers import ACTIVATIONS, Perceptron, Trunk
from .settings import Field, record


@record
class Batches:
    """Numbers of samples and of points in a batch, all if None; a batch has all its samples at all its points.

    >>> Batches(samples=32).points is None
    True
    """

    samples: int | None = Field(default=None, ge=1, description="samples in a step of Adam; all if left out")
    points: int | None = Field(default=None, ge=1, description="points in a step of Adam; all if left out")

    @property
    def is_everything(self) -> bool:
        """Whether an iteration looks at all data."""
        return self.samples is None and self.points is None


class AbstractFactors(eqx.Module):
    """Trainable parts that give trunk functions Phi at the points and a coefficient row for each sample."""

    trunk: eqx.AbstractVar[Trunk]

    @abc.abstractmethod
    def coefficients(
        self, inputs: Float[Array, "samples features"], rows: Int[Array, " batch"] | None = None
    ) -> Float[Array, "batch functions"]:
        """C for the samples `rows`, or for all."""


class FreeCoefficients(AbstractFactors):
    """Step 1: the trunk and the free matrix A (samples, functions)."""

    trunk: Trunk
    matrix: Float[Array, "samples functions"]

    def coefficients(
        self, inputs: Float[Array, "samples features"], rows: Int[Array, " batch"] | None = None
    ) -> Float[Array, "batch functions"]:
        del inputs
        return self.matrix if rows is None else self.matrix[rows]


class BranchCoefficients(AbstractFactors):
    """The monolithic method: trunk and branch at once, with the trainable transform T if there is one."""

    trunk: Trunk
    branch: Branch
    transform: Float[Array, "functions functions"] | None = None

    def coefficients(
        self, inputs: Float[Array, "samples features"], rows: Int[Array, " batch"] | None = None
    ) -> Float[Array, "batch functions"]:
        values = self.branch(inputs if rows is None else inputs[rows])
        return values if self.transform is None else values @ self.transform.T


class OutputLoss(AbstractObjective):
    """Mean over samples and points of w |error|^p, for any p >= 1, on everything or on random batches.

    Weights of points and of samples each have the mean 1.
    """

    points: Float[Array, "points coordinates"]
    inputs: Float[Array, "samples features"]
    outputs: Float[Array, "samples points"]
    point_weights: Float[Array, " points"]
    sample_weights: Float[Array, " samples"]
    p: float = eqx.field(static=True, default=2.0)
    batches: Batches = eqx.field(static=True, default=Batches())

    @property
    def is_stochastic(self) -> bool:
        return not self.batches.is_everything

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return self._mean(parameters, None, None)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        sample_key, point_key = jr.split(key)
        samples, points = self.batches.samples, self.batches.points
        rows = None if samples is None else draw(sample_key, len(self.inputs), samples)
        columns = None if points is None else draw(point_key, len(self.points), points)
        return eqx.filter_value_and_grad(lambda q: self._mean(q, rows, columns))(parameters)

    def _mean(self, parameters: AbstractFactors, rows: Array | None, columns: Array | None) -> Float[Array, ""]:
        points, outputs = self.points, self.outputs
        point_weights, sample_weights = self.point_weights, self.sample_weights
        if rows is not None:
            outputs, sample_weights = outputs[rows], sample_weights[rows]
        if columns is not None:
            points, outputs, point_weights = points[columns], outputs[:, columns], point_weights[columns]
        errors = parameters.coefficients(self.inputs, rows) @ parameters.trunk(points).T - outputs
        powers = errors**2 if self.p == 2 else jnp.abs(errors) ** self.p
        return sample_weights @ powers @ point_weights / powers.size


class CompressedLoss(AbstractObjective):
    """The loss for p = 2 on everything, at a cost that hardly depends on the number of samples.

    Weights enter as roots on both sides. With U = V B, V orthonormal (samples, rank), and C split into
    V V^T C and the rest E,

        |C Phi^T - U|^2 = |V^T C Phi^T - B|^2 + tr(E Phi^T Phi E^T),

    so no array of samples x points is ever formed. Equal to `OutputLoss` up to rounding.
    """

    points: Float[Array, "points coordinates"]
    inputs: Float[Array, "samples features"]
    directions: Float[Array, "samples rank"]
    factor: Float[Array, "rank points"]
    point_roots: Float[Array, " points"]
    sample_roots: Float[Array, " samples"]

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        C = parameters.coefficients(self.inputs) * self.sample_roots[:, None]
        Phi = parameters.trunk(self.points) * self.point_roots[:, None]
        return self.squares(C, Phi) / (len(C) * len(Phi))

    def squares(
        self, C: Float[Array, "samples functions"], Phi: Float[Array, "points functions"]
    ) -> Float[Array, ""]:
        """|C Phi^T - U|^2, weights included in all three."""
        inside = self.directions.T @ C
        outside = C - self.directions @ inside
        return jnp.sum((inside @ Phi.T - self.factor) ** 2) + jnp.sum((outside @ (Phi.T @ Phi)) * outside)


def make_loss(
    fields: Fields,
    inputs: Float[AnyArray, "samples features"],
    *,
    p: float,
    batches: Batches = Batches(),
    dtype: np.dtype,
) -> OutputLoss | CompressedLoss:
    """The cheapest loss that computes what is asked."""
    if not 1 <= p < np.inf:
        raise ValueRangeError(f"p is {p}; the loss |error|^p needs p >= 1")
    inputs = jnp.asarray(inputs)
    # Batches are drawn from points that are not spread.
    spread = shard_rows if batches.is_everything else lambda array, dtype, **_: jnp.asarray(array, dtype)
    points = spread(fields.points, dtype, repeats_last=True)
    # Points that were added have no weight; the mean over all is to be that over the given ones.
    point_weights = mean_one(fields.point_weights, len(fields.points)) * (len(points) / len(fields.points))
    sample_weights = mean_one(fields.sample_weights, fields.rows)
    if p == 2 and batches.is_everything:
        point_roots, sample_roots = np.sqrt(point_weights), np.sqrt(sample_weights)
        compressed = compress(fields.outputs * point_roots * sample_roots[:, None])
        directions, roots = jnp.asarray(compressed.directions, dtype), jnp.asarray(sample_roots, dtype)
        factor, point_roots = spread(compressed.factor, dtype, axis=1), spread(point_roots, dtype)
        return CompressedLoss(points, inputs, directions, factor, point_roots, roots)
    outputs, weights = spread(fields.outputs, dtype, axis=1), spread(point_weights, dtype)
    return OutputLoss(points, inputs, outputs, weights, jnp.asarray(sample_weights, dtype), p, batches)


class HiddenPair(eqx.Module):
    """The hidden layers of trunk and branch; their output layers are one matrix between them."""

    trunk: Perceptron
    branch: Perceptron


class BilinearProblem(AbstractObjective):
    """min over M of |B M T^T - U|^2 with trunk features T = (1, hidden) and branch features B = (1, hidden).

    Regularised on both sides, |B M T^T - U|^2 + t |B M|^2 + b |M T^T|^2 + t b |M|^2 with t = b = ridge^2, so
    that the solution is (B^T B + b)^-1 B^T U T (T^T T + t)^-1: two small Cholesky factorisations and never a
    Kronecker product. The gradient is the envelope's: M is held fixed.
    """

    loss: CompressedLoss
    ridge: float = eqx.field(static=True, default=1e-3)

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        B, T = self.features(parameters)
        M = jax.lax.stop_gradient(self._solve(B, T))
        BM, TM = B @ M, T @ M.T
        shift = self.ridge**2
        squares = self.loss.squares(BM, T) + shift * (jnp.sum(BM**2) + jnp.sum(TM**2)) + shift**2 * jnp.sum(M**2)
        return squares / (len(B) * len(T))

    @eqx.filter_jit
    def matrix(self, parameters: HiddenPair) -> Float[Array, "branch_features trunk_features"]:
        """The matrix M at these parameters."""
        return self._solve(*self.features(parameters))

    def features(
        self, parameters: HiddenPair
    ) -> tuple[Float[Array, "samples branch_features"], Float[Array, "points trunk_features"]]:
        """Weighted features B of the samples and T of the points."""
        B = _with_constant(parameters.branch, self.loss.inputs) * self.loss.sample_roots[:, None]
        T = _with_constant(parameters.trunk, self.loss.points) * self.loss.point_roots[:, None]
        return B, T

    def _solve(self, B: Array, T: Array) -> Array:
        middle = (B.T @ self.loss.directions) @ (self.loss.factor @ T)  # B^T U T
        left, right = (factorise(features.T @ features, self.ridge) for features in (B, T))
        return jsl.cho_solve(left, jsl.cho_solve(right, middle.T).T)


def _with_constant(layers: Perceptron, x: Array) -> Array:
    hidden = ACTIVATIONS[layers.activation](layers(x))
    return jnp.concatenate([jnp.ones((len(x), 1), hidden.dtype), hidden], axis=1)
