"""A network trained by a minimiser: the branch of the paper."""

import dataclasses as dc

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..minimisers import AbstractMinimiser, AbstractObjective, Adam, OnStep, Parameters, draw, minimise
from ..networks import Branch, make_branch
from ._abstract import AbstractRegressor, Regression, mean_square


@dc.dataclass(frozen=True)
class BranchSettings:
    """A branch network with `hidden` layers between the inputs and the coefficients."""

    hidden: tuple[int, ...] = (500,)
    activation: str = "relu"
    initialisation: str = "he"
    stacked: bool = False

    def make(self, features: int, coefficients: int, *, dtype: np.dtype, key: PRNGKeyArray) -> Branch:
        """A new network from so many features to so many coefficients."""
        return make_branch(
            (features, *self.hidden, coefficients),
            stacked=self.stacked,
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )


@dc.dataclass(frozen=True)
class NetworkRegressor(AbstractRegressor):
    """A network trained on the mean square error over samples and coefficients."""

    network: BranchSettings = BranchSettings()
    minimiser: AbstractMinimiser = Adam()
    iterations: int = 10_000
    batch: int | None = None

    def briefly(self) -> AbstractRegressor:
        return dc.replace(self, iterations=1)

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
        start, run = jr.split(key)
        branch = self.network.make(inputs.shape[1], targets.shape[1], dtype=targets.dtype, key=start)
        objective = RegressionLoss(inputs, targets, weights, self.batch)
        result = minimise(
            objective,
            branch,
            self.minimiser,
            iterations=self.iterations,
            key=run,
            stage="branch",
            loss_unit=loss_unit,
            on_step=on_step,
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
