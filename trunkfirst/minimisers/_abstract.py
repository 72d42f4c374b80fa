"""What a minimiser is and what it minimises."""

import abc
from typing import Any, TypeAlias

import equinox as eqx
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..settings import record

Parameters: TypeAlias = Any  # any pytree whose inexact arrays are to be trained


class AbstractObjective(eqx.Module):
    """A scalar function of parameters, the smaller the better.

    `is_stochastic` says whether `value_and_grad` looks at a random batch; `value` always looks at everything.
    """

    @property
    def is_stochastic(self) -> bool:
        """Whether `value_and_grad` depends on its key."""
        return False

    @abc.abstractmethod
    def value(self, parameters: Parameters) -> Float[Array, ""]:
        """The value on all data."""

    def misfit(self, parameters: Parameters) -> Float[Array, ""]:
        """What of the value is error, not regularisation."""
        return self.value(parameters)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        """Value and gradient, on all data or on a batch drawn with `key`."""
        del key
        return eqx.filter_value_and_grad(self.value)(parameters)


class State(eqx.Module):
    """Where a minimiser stands. A pytree: it can be stored and taken up again to the bit."""

    # the iterate
    parameters: Parameters
    value: Float[Array, ""]
    iteration: Int[Array, ""]
    # the best so far
    best_parameters: Parameters
    best_value: Float[Array, ""]
    # the method's own
    memory: Any
    key: PRNGKeyArray


@record
class AbstractMinimiser(abc.ABC):
    """Makes a state and moves it on, one iteration at a time; the loop stands in `minimise`."""

    @abc.abstractmethod
    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        """The state before the first iteration."""

    @abc.abstractmethod
    def step(self, objective: AbstractObjective, state: State) -> State:
        """One iteration."""

    @abc.abstractmethod
    def rate(self, state: State) -> Float[Array, ""]:
        """The step length in use, for the log."""
