"""The loop: compiled in chunks, logged after each, stopped cleanly."""

import dataclasses as dc
import math
import time
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from ..errors import ValueRangeError
from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State
from ._adam import keep_better

Status: TypeAlias = Literal["finished", "interrupted", "diverged"]


def worst_status(*statuses: Status) -> Status:
    """How several stages ended together."""
    order: tuple[Status, ...] = ("finished", "interrupted", "diverged")
    return max(statuses, key=order.index)


@dc.dataclass(frozen=True)
class Step:
    """One line of the log: where a stage of training stands."""

    stage: str
    iteration: int
    iterations: int
    loss: float
    best_loss: float
    rate: float
    seconds: float

    @property
    def remaining_seconds(self) -> float:
        """What is left at the present pace."""
        return self.seconds / self.iteration * (self.iterations - self.iteration) if self.iteration else math.nan


OnStep: TypeAlias = Callable[[Step], None]


@dc.dataclass(frozen=True)
class Stopping:
    """When to stop early: below `target`, or after `patience` iterations that gained less than a share `gain`."""

    target: float = 0.0
    patience: int = 1000
    gain: float = 0.01

    def is_reached(self, history: Sequence[Step]) -> bool:
        """Whether the log so far is reason to stop."""
        last = history[-1]
        before = [step.best_loss for step in history if step.iteration <= last.iteration - self.patience]
        return last.best_loss <= self.target or bool(before and last.best_loss > (1 - self.gain) * before[-1])


@dc.dataclass(frozen=True)
class Minimised:
    """What a minimisation ended with: the best parameters, their value, and how it went."""

    parameters: Parameters
    value: float
    status: Status
    state: State
    history: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Wall time of the iterations, compilation included."""
        return self.history[-1].seconds if self.history else 0.0

    @property
    def iterations(self) -> int:
        """Iterations done."""
        return int(self.state.iteration)


def minimise(
    objective: AbstractObjective,
    parameters: Parameters,
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    key: PRNGKeyArray,
    stage: str = "fit",
    loss_unit: float = 1.0,
    state: State | None = None,
    stopping: Stopping | None = None,
    on_step: OnStep | None = None,
) -> Minimised:
    """Minimise `objective` and return the parameters of the smallest value seen.

    At most some 200 log entries are made, each after a compiled chunk of iterations; `on_step` is called with each.
    Short runs have fewer, for leaving the compiled loop costs as much as an iteration.
    Logged losses are multiplied by `loss_unit`. A `state` from an earlier call is taken up where it stood, and
    `iterations` counts from its beginning. Ctrl-C ends the loop with what there is; so does a value that is
    not finite, and `stopping` if given.
    """
    if iterations < 1:
        raise ValueRangeError(f"{stage}: iterations is {iterations}; expected at least 1")
    chunk = min(max(iterations // 200, min(iterations // 20, 10), 1), 200)
    start = time.perf_counter()
    if state is None:
        state = minimiser.init(objective, parameters, key=key)
    history: list[Step] = []
    status: Status = "finished"
    done = int(state.iteration)
    try:
        while done < iterations and status == "finished":
            count = min(chunk, iterations - done)
            state = advance(minimiser, objective, state, jnp.asarray(count, jnp.int32))
            value, best_value = float(state.value), float(state.best_value)  # waits for the chunk
            done += count
            if not math.isfinite(value):
                status = "diverged"
            seconds = time.perf_counter() - start
            rate = float(minimiser.rate(state))
            history.append(Step(stage, done, iterations, value * loss_unit, best_value * loss_unit, rate, seconds))
            if on_step is not None:
                on_step(history[-1])
            if stopping is not None and stopping.is_reached(history):
                break
    except KeyboardInterrupt:
        status = "interrupted"
    return Minimised(state.best_parameters, float(state.best_value), status, state, tuple(history))


@eqx.filter_jit
def advance(
    minimiser: AbstractMinimiser, objective: AbstractObjective, state: State, count: Int[Array, ""]
) -> State:
    """`count` iterations in one compiled loop; the count is data, so that another one compiles nothing."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def one(_: Array, dynamic: State) -> State:
        return eqx.filter(minimiser.step(objective, eqx.combine(dynamic, static)), eqx.is_array)

    state = eqx.combine(jax.lax.fori_loop(0, count, one, dynamic), static)
    if not objective.is_stochastic:
        return state
    value = objective.value(state.parameters)
    is_better = value < state.best_value
    return dc.replace(
        state,
        value=value,
        best_parameters=keep_better(is_better, state.parameters, state.best_parameters),
        best_value=jnp.where(is_better, value, state.best_value),
    )
