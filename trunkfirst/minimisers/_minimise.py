"""The loop: compiled in chunks, logged after each, stopped cleanly."""

import dataclasses as dc
import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import equinox as eqx
from jaxtyping import PRNGKeyArray

from ..checkpoints import checkpointed_step
from ..distributed.mesh import replicate_like, to_local
from ..errors import ValueRangeError
from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State
from ._journey import Journey, Step, restore

Status: TypeAlias = Literal["finished", "interrupted", "diverged"]


def worst_status(*statuses: Status) -> Status:
    """How several stages ended together."""
    order: tuple[Status, ...] = ("finished", "interrupted", "diverged")
    return max(statuses, key=order.index)


OnStep: TypeAlias = Callable[[Step], None]


@dc.dataclass(frozen=True)
class Stopping:
    """When to stop early: below `target`, or after `patience` iterations that gained less than a share `gain`.

    With `stuck` also after so many iterations that gained less than a hundredth of that: at a kink of a ReLU
    network, say, where every line search is long and in vain.
    """

    target: float = 0.0
    patience: int = 1000
    gain: float = 0.01
    stuck: int | None = None

    def is_reached(self, history: Sequence[Step]) -> bool:
        """Whether the log so far is reason to stop."""
        return (
            history[-1].best_loss <= self.target
            or _gained_less(history, self.gain, self.patience)
            or (self.stuck is not None and _gained_less(history, self.gain / 100, self.stuck))
        )


def _gained_less(history: Sequence[Step], share: float, iterations: int) -> bool:
    last = history[-1]
    before = [step.best_loss for step in history if step.iteration <= last.iteration - iterations]
    return bool(before) and last.best_loss > (1 - share) * before[-1]


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

    At most some 200 log entries are made, each after a chunk of iterations; `on_step` is called with each. Short
    runs have fewer, for leaving the compiled loop costs as much as an iteration. Logged losses are multiplied by
    `loss_unit`. A `state` from an earlier call is taken up where it stood, and `iterations` counts from its
    beginning. Ctrl-C ends the loop with what there is; so does a value that is not finite, and `stopping`.

    Inside of `keep_checkpoints` the state is written down at intervals, and taken up from there; Ctrl-C then goes
    on to the caller.
    """
    if iterations < 1:
        raise ValueRangeError(f"{stage}: iterations is {iterations}; expected at least 1")
    place = checkpointed_step(f"{stage}, {iterations} iterations")
    if place.saved is not None:
        like = eqx.filter_eval_shape(minimiser.init, objective, parameters, key=key) if state is None else state
        journey = restore(place.saved, like)
    else:
        journey = Journey(minimiser.init(objective, parameters, key=key) if state is None else state)
    journey.state = replicate_like(journey.state, objective)
    status: Status = "finished"
    try:
        while not place.is_done and status == "finished" and journey.done < iterations:
            is_logged = journey.go_on(minimiser, objective, iterations)
            if is_logged:
                step = journey.log(minimiser, stage, iterations, loss_unit)
                if on_step is not None:
                    on_step(step)
                if not math.isfinite(step.loss):
                    status = "diverged"
                elif stopping is not None and stopping.is_reached(journey.history):
                    break
            if journey.is_finite:
                place.save(journey.snapshot)
    except KeyboardInterrupt:
        if place.journal is not None:
            if journey.is_finite:
                place.save(journey.snapshot, at_once=True)
            raise
        status = "interrupted"
    if status == "finished" and not place.is_done:
        place.finish(journey.snapshot)
    state = to_local(journey.state)
    return Minimised(state.best_parameters, float(state.best_value), status, state, tuple(journey.history))
