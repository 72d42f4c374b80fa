"""What can stand as a branch: anything that learns targets from encoded inputs."""

import abc
import dataclasses as dc
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..minimisers import OnStep, Status, Step
from ..networks import Branch


@dc.dataclass(frozen=True)
class Regression:
    """A fitted branch, its loss (mean square over samples and coefficients), and how it went."""

    branch: Branch
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[Step, ...] = ()


@dc.dataclass(frozen=True)
class AbstractRegressor(abc.ABC):
    """`fit` maps encoded inputs (samples, features) to targets (samples, coefficients)."""

    kind: ClassVar[str] = "network"

    @abc.abstractmethod
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
        """Fit a branch; losses in the history are multiplied by `loss_unit`."""

    def with_groups(self, groups: tuple[int, ...]) -> "AbstractRegressor":
        """The same, told how many features each input function has; only product branches care."""
        del groups
        return self

    def briefly(self) -> "AbstractRegressor":
        """The same with the least effort, for a fit that was interrupted before its branch."""
        return self


def mean_square(
    values: Float[Array, "samples coefficients"], weights: Float[Array, " samples"] | None = None
) -> Float[Array, ""]:
    """Mean over samples, weighted if asked, and coefficients."""
    squares = jnp.mean(values**2, axis=1)
    return jnp.mean(squares) if weights is None else jnp.mean(squares * weights)
