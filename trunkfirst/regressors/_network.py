"""A network trained by a minimiser: the branch of the paper."""

import dataclasses as dc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..distributed.mesh import current_mesh, shard_rows
from ..errors import SettingError
from ..minimisers import AbstractMinimiser, AbstractObjective, Adam, Parameters, draw, minimise
from ..networks import (
    AbstractBranchFeatures,
    Branch,
    FeatureBranch,
    LayerFeatures,
    Perceptron,
    SkipFeatures,
    make_branch,
    make_convolution,
    make_perceptron,
    make_product,
)
from ._abstract import AbstractRegressor, Regression, Task
from ._numbers import mean_square


@dc.dataclass(frozen=True)
class BranchSettings:
    """A branch network with `hidden` layers between the inputs and the coefficients."""

    hidden: tuple[int, ...] = (500,)
    activation: str = "relu"
    initialisation: str = "he"
    stacked: bool = False
    """One network for each coefficient."""
    skip: bool = False
    """The inputs themselves stand beside the last hidden layer, so that what is linear costs nothing."""
    groups: tuple[int, ...] | None = None
    """One network for each group of inputs, multiplied with each other; None: one for all."""
    grid_shape: tuple[int, ...] | None = None
    """Convolutions on this grid, with all but the last of `hidden` as channels; None: dense layers."""

    def with_groups(self, groups: tuple[int, ...]) -> "BranchSettings":
        """The same with the groups of inputs filled in, if it is a product."""
        if self.groups is None:
            return self
        if len(groups) < 2:
            raise SettingError(
                "branch.product needs several input functions, each with an encoder of its own, "
                "such as f=standardise,g=standardise"
            )
        return dc.replace(self, groups=groups)

    def make(self, features: int, coefficients: int, *, dtype: np.dtype, key: PRNGKeyArray) -> Branch:
        """A new network from so many features to so many coefficients."""
        if self.skip or self.groups is not None or self.grid_shape is not None:
            first, last = jr.split(key)
            module = self.make_features(features, dtype=dtype, key=first)
            width = self.hidden[-1] + (features if self.skip else 0)
            W = jr.normal(last, (coefficients, width), dtype) / np.sqrt(width)
            return FeatureBranch(module, W.astype(dtype), jnp.zeros(coefficients, dtype))
        return make_branch(
            (features, *self.hidden, coefficients),
            stacked=self.stacked,
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )

    def make_features(self, features: int, *, dtype: np.dtype, key: PRNGKeyArray) -> AbstractBranchFeatures:
        """The network without its last layer."""
        module = self._make_hidden(features, dtype=dtype, key=key)
        return SkipFeatures(module) if self.skip else module

    def _make_hidden(self, features: int, *, dtype: np.dtype, key: PRNGKeyArray) -> AbstractBranchFeatures:
        if self.grid_shape is not None:
            *channels, width = self.hidden
            return make_convolution(
                self.grid_shape, channels, width, activation=self.activation, dtype=dtype, key=key
            )
        if self.groups is not None:
            return make_product(
                self.groups,
                self.hidden,
                activation=self.activation,
                initialisation=self.initialisation,
                dtype=dtype,
                key=key,
            )
        whole = make_perceptron(
            (features, *self.hidden, 1),
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )
        return LayerFeatures(Perceptron(whole.weights[:-1], whole.biases[:-1], whole.activation))


@dc.dataclass(frozen=True)
class NetworkRegressor(AbstractRegressor):
    """A network trained on the mean square error over samples and coefficients."""

    network: BranchSettings = BranchSettings()
    minimiser: AbstractMinimiser = Adam()
    iterations: int = 10_000
    batch: int | None = None

    def briefly(self) -> AbstractRegressor:
        return dc.replace(self, iterations=1)

    def with_groups(self, groups: tuple[int, ...]) -> AbstractRegressor:
        return dc.replace(self, network=self.network.with_groups(groups))

    def learn(self, task: Task) -> Regression:
        inputs, targets = task.inputs, task.targets
        start, run = jr.split(task.key)
        branch = self.network.make(inputs.shape[1], targets.shape[1], dtype=targets.dtype, key=start)
        objective = spread_loss(RegressionLoss(inputs, targets, task.weights, self.batch))
        result = minimise(
            objective,
            branch,
            self.minimiser,
            iterations=self.iterations,
            key=run,
            stage="branch",
            loss_unit=task.loss_unit,
            on_step=task.on_step,
        )
        loss = float(mean_square(result.parameters(inputs) - targets))
        return Regression(
            result.parameters, loss, result.status, result.iterations, result.seconds, result.history
        )


class RegressionLoss(AbstractObjective):
    """Mean square of branch(inputs) - targets; a `batch` of so many samples is drawn a step, if given."""

    inputs: Float[Array, "samples features"]
    targets: Float[Array, "samples coefficients"]
    weights: Float[Array, " samples"] | None = None
    batch: int | None = eqx.field(static=True, default=None)

    @property
    def is_stochastic(self) -> bool:
        return self.batch is not None

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return mean_square(parameters(self.inputs) - self.targets, self.weights)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        loss = self if self.batch is None else self._batch(self.batch, key)
        return eqx.filter_value_and_grad(loss.value)(parameters)

    def _batch(self, size: int, key: PRNGKeyArray) -> "RegressionLoss":
        rows = draw(key, len(self.inputs), size)
        weights = None if self.weights is None else self.weights[rows]
        return RegressionLoss(self.inputs[rows], self.targets[rows], weights)


def spread_loss(loss: RegressionLoss) -> RegressionLoss:
    """The same with its samples spread over the mesh, if there is one and no batch is drawn from them."""
    if current_mesh() is None or loss.is_stochastic:
        return loss
    weights = np.ones(len(loss.inputs)) if loss.weights is None else np.asarray(loss.weights)
    spread = shard_rows(weights, loss.targets.dtype)
    # Rows that were added have no weight; the mean over all is to be that over the samples.
    spread = spread * (len(spread) / len(weights))
    return RegressionLoss(shard_rows(loss.inputs, repeats_last=True), shard_rows(loss.targets), spread)
