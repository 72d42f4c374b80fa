"""A network as separable least squares: its last layer is solved for, only the hidden layers are searched."""

import dataclasses as dc
import time
from collections.abc import Iterator

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..devices import home, spread_rows
from ..errors import UsageError
from ..linear import principal_directions
from ..minimisers import (
    LBFGS,
    AbstractFeatures,
    AbstractMinimiser,
    Minimised,
    OnStep,
    SeparableProblem,
    Stopping,
    minimise,
    solve_ridge_in_blocks,
)
from ..networks import AbstractBranchFeatures, Branch, FeatureBranch, LayerFeatures, Perceptron
from ._abstract import AbstractRegressor, Regression
from ._network import BranchSettings
from ._numbers import mean_square
from ._stored_rows import StoredRows


@dc.dataclass(frozen=True)
class ProjectedNetwork(AbstractRegressor):
    """The branch of the paper, trained by variable projection.

    Targets are rotated to their principal directions, of which there are few; the last layer is the ridge
    solution for them. With more than `most_samples` samples the hidden layers are searched on a random part of
    them, and the last layer is solved for on all. With 0 iterations the hidden layers stay as they were drawn: a
    first look at what the inputs are worth, which compiles next to nothing.
    """

    network: BranchSettings = BranchSettings()
    minimiser: AbstractMinimiser = LBFGS()
    iterations: int = 2000
    ridge: float = 1e-4
    decay: float = 0.0
    """Penalty on the searched layers, in units of the mean square of the targets."""
    most_samples: int = 6_000

    def briefly(self) -> AbstractRegressor:
        return dc.replace(self, iterations=0)

    def with_groups(self, groups: tuple[int, ...]) -> AbstractRegressor:
        return dc.replace(self, network=self.network.with_groups(groups))

    def fit(
        self,
        inputs: Float[Array, "samples features"],
        targets: Float[Array, "samples coefficients"],
        weights: Float[Array, " samples"] | None = None,
        *,
        key: PRNGKeyArray,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        if self.network.stacked:
            raise UsageError("a stacked branch has no common last layer to solve for; use an unstacked one")
        start = time.perf_counter()
        roots = jnp.ones(len(inputs), inputs.dtype) if weights is None else jnp.sqrt(weights / jnp.mean(weights))
        directions = jnp.asarray(principal_directions(np.asarray(targets * roots[:, None]), tolerance=1e-12))
        rotated = targets @ directions.T * roots[:, None]
        begin, choose, run = jr.split(key, 3)
        rows = _some_rows(len(inputs), self.most_samples, choose)
        problem = self._problem(inputs[rows], rotated[rows], roots[rows], targets.shape[1])
        features, status, iterations, history = self._features(inputs, begin), "finished", 0, ()
        if self.iterations:
            found = self._search(problem, features, run, loss_unit, on_step)
            features, status = found.parameters, found.status
            iterations, history = found.iterations, found.history
        whole = self._problem(inputs, rotated, roots, targets.shape[1])
        branch = _with_last_layer(features, home(whole.solve(features)), directions)
        loss = float(mean_square(branch(inputs) - targets))
        return Regression(branch, loss, status, iterations, time.perf_counter() - start, history)

    def _search(
        self,
        problem: SeparableProblem,
        features: AbstractBranchFeatures,
        key: PRNGKeyArray,
        loss_unit: float,
        on_step: OnStep | None,
    ) -> Minimised:
        return minimise(
            problem,
            features,
            self.minimiser,
            iterations=self.iterations,
            key=key,
            stage="branch",
            loss_unit=loss_unit,
            # Where a branch of many neurons already interpolates, only stuck line searches are left to do.
            stopping=Stopping(patience=max(5, self.iterations // 20)),
            on_step=on_step,
        )

    def completed(self, branch: Branch, rows: StoredRows) -> Branch:
        """The last layer solved for again, on all samples."""
        features = _without_last_layer(branch)

        def blocks() -> Iterator[tuple[Array, Array]]:
            for inputs, targets, weights in rows.blocks():
                roots = jnp.sqrt(weights)
                yield HiddenFeatures(inputs, roots)(features), targets * roots[:, None]

        A = solve_ridge_in_blocks(blocks, self.ridge)
        return _with_last_layer(features, A, jnp.eye(A.shape[1], dtype=A.dtype))

    def _problem(self, inputs: Array, rotated: Array, roots: Array, coefficients: int) -> SeparableProblem:
        scale = float(len(inputs) * coefficients)
        decay = self.decay * jnp.sum(rotated**2) / scale
        features = HiddenFeatures(spread_rows(inputs, repeats_last=True), spread_rows(roots))
        return SeparableProblem(features, spread_rows(rotated), self.ridge, scale, decay)

    def _features(self, inputs: Array, key: PRNGKeyArray) -> AbstractBranchFeatures:
        """The network without its last layer; kinks of dense layers spread over the data, not all at one place."""
        make, draw = jr.split(key)
        features = self.network.make_features(inputs.shape[1], dtype=inputs.dtype, key=make)
        if not isinstance(features, LayerFeatures):
            return features
        layers = features.layers
        W = layers.weights[0]
        at = inputs[jr.choice(draw, len(inputs), (len(W),))]
        biases = (-jnp.sum(W * at, axis=1), *layers.biases[1:])
        return LayerFeatures(Perceptron(layers.weights, biases, layers.activation))


class HiddenFeatures(AbstractFeatures):
    """Phi = (1, features of the branch) at the inputs, each row times the root of its weight."""

    inputs: Float[Array, "samples features"]
    roots: Float[Array, " samples"]

    def __call__(self, parameters: AbstractBranchFeatures) -> Float[Array, "rows columns"]:
        hidden = parameters(self.inputs)
        ones = jnp.ones((len(self.inputs), 1), hidden.dtype)
        return jnp.concatenate([ones, hidden], axis=1) * self.roots[:, None]


def _with_last_layer(
    features: AbstractBranchFeatures,
    A: Float[Array, "columns rank"],
    directions: Float[Array, "rank coefficients"],
) -> Branch:
    last = A @ directions  # (1 + hidden, coefficients)
    if not isinstance(features, LayerFeatures):
        return FeatureBranch(features, last[1:].T, last[0])
    layers = features.layers
    return Perceptron((*layers.weights, last[1:].T), (*layers.biases, last[0]), layers.activation)


def _without_last_layer(branch: Branch) -> AbstractBranchFeatures:
    if isinstance(branch, FeatureBranch):
        return branch.features
    assert isinstance(branch, Perceptron)
    return LayerFeatures(Perceptron(branch.weights[:-1], branch.biases[:-1], branch.activation))


def _some_rows(samples: int, most: int, key: PRNGKeyArray) -> Array:
    if samples <= most:
        return jnp.arange(samples)
    return jnp.sort(jr.choice(key, samples, (most,), replace=False))
