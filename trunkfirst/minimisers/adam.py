"""Adam (Kingma and Ba), with a constant, stepwise halved or one-cycle rate, and random batches for it."""

import abc
import dataclasses as dc
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..errors import ValueRangeError
from ..settings import Field, kind_field, record
from .loop import AbstractMinimiser, AbstractObjective, Parameters, State, with_better


@record
class AbstractAdam(AbstractMinimiser):
    """Adam's steps with any rate and decay.

    The best parameters are those of the smallest loss. With random batches, where the loss of one batch means
    little, `minimise` compares losses on all data instead.
    """

    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        dtype = eqx.filter_eval_shape(objective.value, parameters).dtype
        return State.monotone(
            parameters=parameters,
            value=jnp.full((), jnp.inf, dtype),
            iteration=jnp.zeros((), jnp.int32),
            memory=self._optimiser().init(eqx.filter(parameters, eqx.is_inexact_array)),
            key=key,
        )

    def step(self, objective: AbstractObjective, state: State) -> State:
        key = jr.fold_in(state.key, state.iteration)
        value, gradient = objective.value_and_grad(state.parameters, key=key)
        trained = eqx.filter(state.parameters, eqx.is_inexact_array)
        updates, moments = self._optimiser().update(gradient, state.memory, trained)
        evaluated = dc.replace(state, value=value)
        return dc.replace(
            evaluated if objective.is_stochastic else with_better(evaluated),
            parameters=eqx.apply_updates(state.parameters, updates),
            iteration=state.iteration + 1,
            memory=moments,
        )

    def rate(self, state: State) -> Float[Array, ""]:
        return self._schedule(state.iteration)

    @abc.abstractmethod
    def _optimiser(self) -> optax.GradientTransformation: ...

    @abc.abstractmethod
    def _schedule(self, iteration: ArrayLike) -> Array: ...


@record
class Adam(AbstractAdam):
    """Adam with its default moments; `first_rate` is halved after every `halve_every` iterations, if given.

    >>> Adam(first_rate=1e-2, halve_every=2000).first_rate
    0.01
    """

    first_rate: float = Field(default=1e-3, gt=0, description="learning rate")
    halve_every: int | None = Field(default=None, ge=1, description="halve the rate after this many iterations")
    kind: Literal["adam"] = kind_field("adam")

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self._schedule if self.halve_every else self.first_rate)

    def _schedule(self, iteration: ArrayLike) -> Array:
        if not self.halve_every:
            return jnp.asarray(self.first_rate)
        return jnp.ldexp(jnp.asarray(self.first_rate), -(jnp.asarray(iteration) // self.halve_every))


@record
class OneCycle(AbstractAdam):
    """AdamW (Loshchilov and Hutter) with a rate that rises to `peak_rate` and falls to zero along cosines."""

    peak_rate: float = Field(gt=0, description="highest learning rate")
    decay: float = Field(ge=0, description="weight decay")
    iterations: int = Field(ge=1, description="iterations of the whole cycle")

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adamw(self._schedule, weight_decay=self.decay)

    def _schedule(self, iteration: ArrayLike) -> Array:
        # With fewer than four iterations there is nothing to rise or fall.
        return jnp.asarray(optax.cosine_onecycle_schedule(max(self.iterations, 4), self.peak_rate)(iteration))


def draw(key: PRNGKeyArray, size: int, batch: int) -> Int[Array, " batch"]:
    """Draw `batch` different indices below `size`; raises a `ValueRangeError` if there are not enough."""
    if not 1 <= batch <= size:
        raise ValueRangeError(f"a batch of {batch} cannot be drawn from {size}; choose a smaller batch")
    return jr.choice(key, size, (batch,), replace=False)
