"""A network as separable least squares: its last layer is solved for, only the hidden layers are searched."""

import dataclasses as dc
import time
from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..distributed.mesh import shard_rows, to_local
from ..errors import UsageError
from ..linear import leverage_sample, principal_directions
from ..minimisers import (
    LBFGS,
    AbstractFeatures,
    AbstractMinimiser,
    Minimised,
    SeparableProblem,
    Stopping,
    minimise,
    solve_ridge_in_blocks,
)
from ..networks import AbstractBranchFeatures, Branch, FeatureBranch, LayerFeatures, Perceptron
from ._abstract import AbstractRegressor, Regression, Task
from ._network import BranchSettings
from ._numbers import generator, mean_square
from ._stored_rows import StoredRows


@dc.dataclass(frozen=True)
class ProjectedNetwork(AbstractRegressor):
    """The branch of the paper, trained by variable projection.

    Targets are rotated to their principal directions, of which there are few; the last layer is the ridge
    solution for them. With more than `most_samples` samples the hidden layers are searched on a part of them,
    drawn by the leverage of their targets, and the last layer is solved for on all. With 0 iterations the hidden
    layers stay as they were drawn: a first look at what the inputs are worth, which compiles next to nothing.
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

    def learn(self, task: Task) -> Regression:
        if self.network.stacked:
            raise UsageError("a stacked branch has no common last layer to solve for; use an unstacked one")
        # On the host: as many small operations on the device would each be compiled.
        X, Y = np.asarray(task.inputs), np.asarray(task.targets)
        roots = np.ones(len(X), X.dtype) if task.weights is None else _roots(np.asarray(task.weights))
        directions = principal_directions(Y * roots[:, None], tolerance=1e-12)
        rotated = Y @ directions.T * roots[:, None]
        begin, choose, run = jr.split(task.key, 3)
        features, status, iterations, history = self._features(X, begin), "finished", 0, ()
        if self.iterations:
            rows, more = _some_rows(rotated, roots, self.most_samples, choose)
            problem = self._problem(X[rows], rotated[rows] * more[:, None], roots[rows] * more, Y.shape[1])
            found = self._search(problem, features, run, task)
            features, status = found.parameters, found.status
            iterations, history = found.iterations, found.history
        whole = self._problem(X, rotated, roots, Y.shape[1])
        branch = _with_last_layer(features, np.asarray(to_local(whole.solve(features))) @ directions)
        loss = float(_misfit(branch, task.inputs, task.targets))
        return Regression(branch, loss, status, iterations, time.perf_counter() - task.begin, history)

    def _search(
        self, problem: SeparableProblem, features: AbstractBranchFeatures, key: PRNGKeyArray, task: Task
    ) -> Minimised:
        return minimise(
            problem,
            features,
            self.minimiser,
            iterations=self.iterations,
            key=key,
            stage="branch",
            loss_unit=task.loss_unit,
            # Where a branch of many neurons already interpolates, only stuck line searches are left to do.
            stopping=Stopping(patience=max(5, self.iterations // 20)),
            on_step=task.on_step,
        )

    def completed(self, branch: Branch, rows: StoredRows) -> Branch:
        """The last layer solved for again, on all samples."""
        features = _without_last_layer(branch)

        def blocks() -> Iterator[tuple[Array, Array]]:
            for inputs, targets, weights in rows.blocks():
                roots = jnp.sqrt(weights)
                yield HiddenFeatures(inputs, roots)(features), targets * roots[:, None]

        return _with_last_layer(features, np.asarray(solve_ridge_in_blocks(blocks, self.ridge)))

    def _problem(
        self, inputs: np.ndarray, rotated: np.ndarray, roots: np.ndarray, coefficients: int
    ) -> SeparableProblem:
        scale = float(len(inputs) * coefficients)
        decay = np.asarray(self.decay * np.sum(rotated**2) / scale, rotated.dtype)
        features = HiddenFeatures(shard_rows(inputs, repeats_last=True), shard_rows(roots))
        return SeparableProblem(features, shard_rows(rotated), self.ridge, scale, decay)

    def _features(self, inputs: np.ndarray, key: PRNGKeyArray) -> AbstractBranchFeatures:
        """The network without its last layer; kinks of dense layers spread over the data, not all at one place."""
        make, draw = jr.split(key)
        features = self.network.make_features(inputs.shape[1], dtype=inputs.dtype, key=make)
        if not isinstance(features, LayerFeatures):
            return features
        layers = features.layers
        W = np.asarray(layers.weights[0])
        at = inputs[np.asarray(jr.choice(draw, len(inputs), (len(W),)))]
        biases = (jnp.asarray(-np.sum(W * at, axis=1)), *layers.biases[1:])
        return LayerFeatures(Perceptron(layers.weights, biases, layers.activation))


class HiddenFeatures(AbstractFeatures):
    """Phi = (1, features of the branch) at the inputs, each row times the root of its weight."""

    inputs: Float[Array, "samples features"]
    roots: Float[Array, " samples"]

    def __call__(self, parameters: AbstractBranchFeatures) -> Float[Array, "rows columns"]:
        hidden = parameters(self.inputs)
        ones = jnp.ones((len(self.inputs), 1), hidden.dtype)
        return jnp.concatenate([ones, hidden], axis=1) * self.roots[:, None]


def _with_last_layer(features: AbstractBranchFeatures, last: Float[np.ndarray, "columns coefficients"]) -> Branch:
    """The branch whose last layer has its biases in the first row of `last`, its weights in the others."""
    W, b = jnp.asarray(last[1:].T), jnp.asarray(last[0])
    if not isinstance(features, LayerFeatures):
        return FeatureBranch(features, W, b)
    layers = features.layers
    return Perceptron((*layers.weights, W), (*layers.biases, b), layers.activation)


def _without_last_layer(branch: Branch) -> AbstractBranchFeatures:
    if isinstance(branch, FeatureBranch):
        return branch.features
    assert isinstance(branch, Perceptron)
    return LayerFeatures(Perceptron(branch.weights[:-1], branch.biases[:-1], branch.activation))


def _roots(weights: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " samples"]:
    return np.sqrt(weights / np.mean(weights))


def _some_rows(
    targets: Float[np.ndarray, "samples directions"],
    roots: Float[np.ndarray, " samples"],
    most: int,
    key: PRNGKeyArray,
) -> tuple[slice | Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
    """Samples by the leverage of their targets, so that rare ones are seen, and factors that keep mean squares."""
    if len(targets) <= most:
        return slice(None), np.ones_like(roots)
    rows, times = leverage_sample(targets.T, roots**2, most, seed=generator(key))
    return rows, np.sqrt(times * len(rows) / len(targets)).astype(targets.dtype)


@eqx.filter_jit
def _misfit(branch: Branch, inputs: Array, targets: Array) -> Float[Array, ""]:
    return mean_square(branch(inputs) - targets)
