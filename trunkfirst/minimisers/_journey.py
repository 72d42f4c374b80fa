"""A minimisation on its way: the state, the log, and both as a snapshot that can be taken up again."""

import dataclasses as dc
import math
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int

from ..checkpoints import Snapshot
from ..distributed.processes import check_in_step, collective_timeout
from ..errors import CorruptFileError
from ._abstract import AbstractMinimiser, AbstractObjective, State
from ._adam import keep_better

# Seconds that a part of the iterations may take about, so that an interrupt is soon heard.
_SOON = 1.0


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

    def remaining_seconds(self, since: "Step") -> float:
        """What is left at the pace since an earlier line; the time up to the first is that of compiling."""
        done = self.iteration - since.iteration
        pace = (self.seconds - since.seconds) / done if done else math.nan
        return pace * (self.iterations - self.iteration)


class Journey:
    """The state of a minimiser, moved on in chunks of iterations, with a line of the log after each.

    Chunks are cut into compiled parts that take about a second at most. How they are cut changes no bit.
    """

    def __init__(
        self, state: State, *, first: int | None = None, seconds: float = 0.0, history: tuple[Step, ...] = ()
    ):
        self.state = state
        self.done = int(state.iteration)
        self.history = list(history)
        self._first = self.done if first is None else first
        self._begin = time.perf_counter() - seconds
        self._part = 1

    @property
    def is_finite(self) -> bool:
        """Whether the present value is a number, so that it is worth going on from here."""
        return math.isfinite(float(self.state.value))

    def go_on(self, minimiser: AbstractMinimiser, objective: AbstractObjective, iterations: int) -> bool:
        """Some iterations more; whether they complete a chunk."""
        chunk = min(max(iterations // 200, min(iterations // 20, 10), 1), 200)
        end = min(self._first + ((self.done - self._first) // chunk + 1) * chunk, iterations)
        count = min(self._part, end - self.done)
        begin = time.perf_counter()
        with collective_timeout():
            state = advance(minimiser, objective, self.state, jnp.asarray(count, jnp.int32))
            if self.done + count == end and objective.is_stochastic:
                state = judge(objective, state)
            jax.block_until_ready(state.value)
        # All processes make parts of the same length; the clock of the first says which.
        is_quick = check_in_step(time.perf_counter() - begin < _SOON / 2, float(state.value))
        self._part = min(2 * self._part, chunk) if is_quick else max(self._part // 2, 1)
        self.state, self.done = state, self.done + count
        return self.done == end

    def log(self, minimiser: AbstractMinimiser, stage: str, iterations: int, loss_unit: float) -> Step:
        """Add a line to the log."""
        value, best = float(self.state.value) * loss_unit, float(self.state.best_value) * loss_unit
        rate, seconds = float(minimiser.rate(self.state)), time.perf_counter() - self._begin
        self.history.append(Step(stage, self.done, iterations, value, best, rate, seconds))
        return self.history[-1]

    def snapshot(self) -> Snapshot:
        """All that is needed to go on."""
        leaves = jax.tree.leaves(eqx.filter(self.state, eqx.is_array))
        note = {
            "first": self._first,
            "seconds": time.perf_counter() - self._begin,
            "history": [dc.astuple(step) for step in self.history],
        }
        return Snapshot({str(place): _plain(leaf) for place, leaf in enumerate(leaves)}, note)


def restore(saved: Snapshot, like: State) -> Journey:
    """A journey where its snapshot was taken; `like` has the shape of its state."""
    arrays, static = eqx.partition(like, _is_array)
    places = enumerate(jax.tree.leaves(arrays))
    leaves = [_typed(saved.arrays[str(place)], leaf) for place, leaf in places]
    state = eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static)
    note = saved.note
    history = tuple(Step(*line) for line in note["history"])
    return Journey(state, first=note["first"], seconds=note["seconds"], history=history)


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> np.ndarray:
    return np.asarray(jr.key_data(leaf) if _is_key(leaf) else leaf)


def _typed(array: np.ndarray, like: Any) -> Array:
    if _is_key(like):
        return jr.wrap_key_data(jnp.asarray(array))
    if (array.shape, array.dtype) != (like.shape, like.dtype):
        raise CorruptFileError(
            f"a checkpoint holds an array of shape {array.shape} and type {array.dtype} where {like.shape} and "
            f"{like.dtype} are expected: it is of another computation; remove the checkpoints to start anew"
        )
    return jnp.asarray(array)


@eqx.filter_jit
def advance(
    minimiser: AbstractMinimiser, objective: AbstractObjective, state: State, count: Int[Array, ""]
) -> State:
    """`count` iterations in one compiled loop; the count is data, so that another one compiles nothing."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def one(_: Array, dynamic: State) -> State:
        return eqx.filter(minimiser.step(objective, eqx.combine(dynamic, static)), eqx.is_array)

    return eqx.combine(jax.lax.fori_loop(0, count, one, dynamic), static)


@eqx.filter_jit
def judge(objective: AbstractObjective, state: State) -> State:
    """The state with its value on all data, where a step sees but a batch."""
    value = objective.value(state.parameters)
    is_better = value < state.best_value
    return dc.replace(
        state,
        value=value,
        best_parameters=keep_better(is_better, state.parameters, state.best_parameters),
        best_value=jnp.where(is_better, value, state.best_value),
    )
