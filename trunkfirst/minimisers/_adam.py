"""Adam (Kingma and Ba), with a constant or stepwise-halved rate."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from ..settings import Field, kind_field, record
from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State


@record
class Adam(AbstractMinimiser):
    """Adam with its default moments; `first_rate` is halved after every `halve_every` iterations, if given.

    The best parameters are those of the smallest loss seen. With random batches a loss of one batch says
    little, so there the loop in `minimise` compares losses on all data instead.
    """

    first_rate: float = Field(default=1e-3, gt=0, description="learning rate")
    halve_every: int | None = Field(default=None, ge=1, description="halve the rate after this many iterations")
    kind: Literal["adam"] = kind_field("adam")

    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        moments = self._optimiser().init(eqx.filter(parameters, eqx.is_inexact_array))
        dtype = eqx.filter_eval_shape(objective.value, parameters).dtype
        infinite = jnp.full((), jnp.inf, dtype)
        return State(parameters, infinite, jnp.zeros((), jnp.int32), parameters, infinite, moments, key)

    def step(self, objective: AbstractObjective, state: State) -> State:
        key = jr.fold_in(state.key, state.iteration)
        value, gradient = objective.value_and_grad(state.parameters, key=key)
        updates, moments = self._optimiser().update(gradient, state.memory)
        best, best_value = state.best_parameters, state.best_value
        if not objective.is_stochastic:
            is_better = value < best_value  # false for a value that is not a number
            best = keep_better(is_better, state.parameters, best)
            best_value = jnp.where(is_better, value, best_value)
        parameters = eqx.apply_updates(state.parameters, updates)
        return State(parameters, value, state.iteration + 1, best, best_value, moments, state.key)

    def rate(self, state: State) -> Float[Array, ""]:
        return self._schedule(state.iteration)

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self._schedule if self.halve_every else self.first_rate)

    def _schedule(self, iteration: ArrayLike) -> Array:
        if not self.halve_every:
            return jnp.asarray(self.first_rate)
        return jnp.ldexp(jnp.asarray(self.first_rate), -(jnp.asarray(iteration) // self.halve_every))


def keep_better(is_better: Array, new: Parameters, old: Parameters) -> Parameters:
    """`new` where `is_better`, else `old`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(is_better, a, b) if eqx.is_array(a) else a, new, old)
