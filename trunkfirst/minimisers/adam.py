"""Adam (Kingma and Ba), with a constant or stepwise halved rate, and random batches for it."""

import dataclasses as dc

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from ..errors import ValueRangeError
from .loop import AbstractMinimiser, AbstractObjective, Parameters, State, with_better


class Adam(AbstractMinimiser):
    """Adam with its default moments; `first_rate` is halved after every `halve_every` iterations, if given.

    The best parameters are those of the smallest loss. With random batches, where the loss of one batch means
    little, `minimise` compares losses on all data instead.
    """

    first_rate: float = 1e-3
    halve_every: int | None = None

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
        updates, moments = self._optimiser().update(gradient, state.memory)
        evaluated = dc.replace(state, value=value)
        return dc.replace(
            evaluated if objective.is_stochastic else with_better(evaluated),
            parameters=eqx.apply_updates(state.parameters, updates),
            iteration=state.iteration + 1,
            memory=moments,
        )

    def rate(self, state: State) -> Float[Array, ""]:
        return self._schedule(state.iteration)

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self._schedule if self.halve_every else self.first_rate)

    def _schedule(self, iteration: ArrayLike) -> Array:
        if not self.halve_every:
            return jnp.asarray(self.first_rate)
        return jnp.ldexp(jnp.asarray(self.first_rate), -(jnp.asarray(iteration) // self.halve_every))


def draw(key: PRNGKeyArray, size: int, batch: int) -> Int[Array, " batch"]:
    """Draw `batch` different indices below `size`; raises a `ValueRangeError` if there are not enough."""
    if not 1 <= batch <= size:
        raise ValueRangeError(f"a batch of {batch} cannot be drawn from {size}; choose a smaller batch")
    return jr.choice(key, size, (batch,), replace=False)
