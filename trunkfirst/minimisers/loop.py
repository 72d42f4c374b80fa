"""What a minimiser and an objective are, and the loop: compiled chunks, a log, checkpoints, a clean stop."""

import abc
import dataclasses as dc
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..checkpoints import Snapshot, checkpointed_step
from ..device_arrays import AnyArray, to_device
from ..distributed.mesh import replicate_like, to_local
from ..distributed.processes import check_in_step, collective_timeout
from ..errors import CorruptFileError, ValueRangeError
from ..records import LogEntry
from ..settings import Field, record

Parameters: TypeAlias = Any  # any pytree; its inexact arrays are trained
Status: TypeAlias = Literal["finished", "interrupted", "diverged"]

# About how many seconds a compiled chunk may take, so that Ctrl-C is noticed soon.
_CHUNK_SECONDS = 1.0


class AbstractObjective(eqx.Module):
    """A scalar function of parameters, to be minimised."""

    @property
    def is_stochastic(self) -> bool:
        """Whether `value_and_grad` uses a random batch; `value` always uses all data."""
        return False

    @abc.abstractmethod
    def value(self, parameters: Parameters) -> Float[Array, ""]:
        """The value on all data."""

    def misfit(self, parameters: Parameters) -> Float[Array, ""]:
        """The value without regularisation."""
        return self.value(parameters)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        """Value and gradient, on all data or on a batch drawn with `key`."""
        del key
        return eqx.filter_value_and_grad(self.value)(parameters)


class State(eqx.Module):
    """The state of a minimiser. A pytree: stored and restored, it continues to the same bits."""

    parameters: Parameters
    value: Float[Array, ""]
    iteration: Int[Array, ""]
    best_parameters: Parameters
    best_value: Float[Array, ""]
    memory: Any
    """What the method itself needs: moments, pairs, damping."""
    key: PRNGKeyArray

    @classmethod
    def monotone(
        cls, parameters: Parameters, value: Array, iteration: Array, memory: Any, key: PRNGKeyArray
    ) -> "State":
        """The state of a method whose value never increases: the iterate is the best."""
        return cls(parameters, value, iteration, parameters, value, memory, key)


@record
class AbstractMinimiser(abc.ABC):
    """A method: makes a state and returns the next one. `minimise` is the loop around it.

    The first call of `step` may be needed for the first evaluation alone; it then leaves `iteration` as it is.
    """

    @abc.abstractmethod
    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        """The state before the first iteration."""

    @abc.abstractmethod
    def step(self, objective: AbstractObjective, state: State) -> State:
        """The state after one more iteration."""

    @abc.abstractmethod
    def rate(self, state: State) -> Float[Array, ""]:
        """The current step length, for the log."""


OnStep: TypeAlias = Callable[[LogEntry], None]


@record
class Stopping:
    """Stop below the loss `target`, or if `patience` iterations lowered it by less than the share `gain`.

    With `stuck`, also stop if that many iterations lowered it by less than a hundredth of `gain`, as happens at a
    kink of a ReLU network.

    >>> import trunkfirst
    >>> trunkfirst.NetworkTrunk(stopping=Stopping(target=1e-8)).stopping.target
    1e-08
    """

    target: float = Field(default=0.0, description="stop below this loss")
    patience: int = Field(default=1000, description="number of iterations over which progress is measured")
    gain: float = Field(default=0.01, description="stop if they lowered the loss by less than this share")
    stuck: int | None = Field(
        default=None, description="stop if this many iterations lowered it by less than a hundredth of `gain`"
    )

    def is_reached(self, history: Sequence[LogEntry]) -> bool:
        """Whether to stop after the last entry of `history`."""
        return (
            history[-1].best_loss <= self.target
            or _gained_less(history, self.gain, self.patience)
            or (self.stuck is not None and _gained_less(history, self.gain / 100, self.stuck))
        )


def _gained_less(history: Sequence[LogEntry], share: float, iterations: int) -> bool:
    last = history[-1]
    before = [entry.best_loss for entry in history if entry.iteration <= last.iteration - iterations]
    return bool(before) and last.best_loss > (1 - share) * before[-1]


@dc.dataclass(frozen=True)
class Minimised:
    """The result of `minimise`: the best parameters, their value, and how it ended."""

    parameters: Parameters
    value: float
    status: Status
    state: State
    history: tuple[LogEntry, ...]

    @property
    def seconds(self) -> float:
        """Wall time of the iterations, including compilation."""
        return self.history[-1].seconds if self.history else 0.0

    @property
    def iterations(self) -> int:
        """Number of iterations done."""
        return int(self.state.iteration)


def raise_if_interrupted(status: Status) -> None:
    """Ctrl-C ends more than a minimisation where what it returns early is of no use."""
    if status == "interrupted":
        raise KeyboardInterrupt


def worst_status(*statuses: Status) -> Status:
    """The status of several stages together."""
    order: tuple[Status, ...] = ("finished", "interrupted", "diverged")
    return max(statuses, key=order.index)


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
    """Minimise `objective` and return the parameters of the smallest value found.

    `on_step` is called with every log entry, at most about 200 times; logged losses are multiplied by `loss_unit`.
    `state`, from an earlier call, continues that call, and `iterations` includes its iterations. The loop ends
    early with `stopping`, with a value that is not finite (status "diverged"), or with Ctrl-C ("interrupted").
    Inside `keep_checkpoints` the state is saved at intervals and resumed to the same bits; there Ctrl-C saves it
    and is raised again.

    Raises a `ValueRangeError` if `iterations` is below 1.
    """
    if iterations < 1:
        raise ValueRangeError(f"{stage}: iterations is {iterations}; expected at least 1")

    def init() -> State:
        return minimiser.init(objective, parameters, key=key) if state is None else state

    step = checkpointed_step(f"{stage}, {iterations} iterations")
    saved = step.saved
    progress = Progress.begin(init(), iterations) if saved is None else Progress.restored(saved, init, iterations)
    progress = dc.replace(progress, state=replicate_like(progress.state, objective))
    status: Status = "finished"
    with step.interruptible(lambda: progress.snapshot(), lambda: progress.is_finite):
        while status == "finished" and not (step.is_done or progress.is_over(stopping)):
            progress = advance_chunk(minimiser, objective, progress)
            if progress.until_log == 0:
                progress = progress.logged(minimiser, stage, loss_unit)
                if on_step is not None:
                    on_step(progress.history[-1])
                status = "finished" if math.isfinite(progress.history[-1].loss) else "diverged"
            if progress.is_finite:
                step.save(progress.snapshot)
    if step.is_interrupted:
        status = "interrupted"
    if status == "finished":
        step.finish(progress.snapshot)
    end = to_local(progress.state)
    return Minimised(end.best_parameters, float(end.best_value), status, end, progress.history)


@dc.dataclass(frozen=True, eq=False)
class Progress:
    """The state of the loop between two chunks: that of the minimiser, and the log."""

    state: State
    iterations: int
    first: int
    """The iteration at which this call of `minimise` began."""
    started: float
    """When it would have begun if it had never been interrupted, on the clock of `perf_counter`."""
    history: tuple[LogEntry, ...] = ()
    chunk: int = 1
    """The most iterations in the next chunk."""
    until_log: int = 0
    """The iterations left until the next log entry; 0 if one is due."""

    @classmethod
    def begin(cls, state: State, iterations: int) -> "Progress":
        """The progress before the first iteration."""
        return cls(state, iterations, int(state.iteration), time.perf_counter())

    @classmethod
    def restored(cls, saved: Snapshot, init: Callable[[], State], iterations: int) -> "Progress":
        """The progress of a snapshot; `init` gives the shapes of the state."""
        return cls(
            state=_with_arrays(eqx.filter_eval_shape(init), saved),
            iterations=iterations,
            first=saved.note["first"],
            started=time.perf_counter() - saved.note["seconds"],
            history=tuple(LogEntry(*line) for line in saved.note["history"]),
        )

    def snapshot(self) -> Snapshot:
        """All that is needed to continue."""
        leaves = jax.tree.leaves(eqx.filter(self.state, eqx.is_array))
        note = {
            "first": self.first,
            "seconds": time.perf_counter() - self.started,
            "history": [dc.astuple(entry) for entry in self.history],
        }
        return Snapshot({str(place): _plain(leaf) for place, leaf in enumerate(leaves)}, note)

    @property
    def log_interval(self) -> int:
        """For about 200 entries; fewer in short runs, where leaving the compiled loop costs an iteration."""
        return min(max(self.iterations // 200, min(self.iterations // 20, 10), 1), 200)

    @property
    def is_finite(self) -> bool:
        """Whether the value is finite; only then is the state saved."""
        return math.isfinite(float(self.state.value))

    def is_over(self, stopping: Stopping | None) -> bool:
        """Whether all iterations are done, or `stopping` says so."""
        is_stopped = stopping is not None and bool(self.history) and stopping.is_reached(self.history)
        return is_stopped or int(self.state.iteration) >= self.iterations

    def logged(self, minimiser: AbstractMinimiser, stage: str, loss_unit: float) -> "Progress":
        """The progress with one more log entry."""
        entry = LogEntry(
            stage=stage,
            iteration=int(self.state.iteration),
            iterations=self.iterations,
            loss=float(self.state.value) * loss_unit,
            best_loss=float(self.state.best_value) * loss_unit,
            rate=float(minimiser.rate(self.state)),
            seconds=time.perf_counter() - self.started,
        )
        return dc.replace(self, history=(*self.history, entry))


def advance_chunk(minimiser: AbstractMinimiser, objective: AbstractObjective, progress: Progress) -> Progress:
    """The progress after one compiled chunk: at most up to the next log entry, and about a second.

    How the iterations are divided into chunks changes no bit.
    """
    done, interval = int(progress.state.iteration), progress.log_interval
    until_log = min(interval - (done - progress.first) % interval, progress.iterations - done)
    count = min(progress.chunk, until_log)
    begin = time.perf_counter()
    with collective_timeout():
        state = advance(minimiser, objective, progress.state, np.asarray(done + count, np.int32))
        if count == until_log and objective.is_stochastic:
            state = evaluate_full_batch(objective, state)
        jax.block_until_ready(state.value)
    # All processes use chunks of the same length: the clock of the first one decides.
    is_quick = check_in_step(time.perf_counter() - begin < _CHUNK_SECONDS / 2, float(state.value))
    chunk = min(2 * progress.chunk, interval) if is_quick else max(progress.chunk // 2, 1)
    return dc.replace(progress, state=state, chunk=chunk, until_log=until_log - count)


@eqx.filter_jit
def advance(
    minimiser: AbstractMinimiser, objective: AbstractObjective, state: State, until: Int[AnyArray, ""]
) -> State:
    """The state after iteration `until`, in one compiled loop; the number is data, so it compiles once."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def one(dynamic: State) -> State:
        return eqx.filter(minimiser.step(objective, eqx.combine(dynamic, static)), eqx.is_array)

    return eqx.combine(jax.lax.while_loop(lambda dynamic: dynamic.iteration < until, one, dynamic), static)


@eqx.filter_jit
def evaluate_full_batch(objective: AbstractObjective, state: State) -> State:
    """The state with its value on all data, and with the best by that value, where a step uses a batch."""
    return with_better(dc.replace(state, value=objective.value(state.parameters)))


def with_better(state: State) -> State:
    """The state whose best is its iterate if that has the smaller value; NaN is never smaller."""
    is_better = state.value < state.best_value
    return dc.replace(
        state,
        best_parameters=jax.tree.map(
            lambda new, old: jnp.where(is_better, new, old) if eqx.is_array(new) else new,
            state.parameters,
            state.best_parameters,
        ),
        best_value=jnp.where(is_better, state.value, state.best_value),
    )


def _with_arrays(like: State, saved: Snapshot) -> State:
    arrays, static = eqx.partition(like, lambda leaf: eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct))
    leaves = [_typed(saved.arrays[str(place)], leaf) for place, leaf in enumerate(jax.tree.leaves(arrays))]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), leaves), static)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: Array) -> np.ndarray:
    return np.asarray(jr.key_data(leaf) if _is_key(leaf) else leaf)


def _typed(array: np.ndarray, like: Any) -> Array:
    if _is_key(like):
        return jr.wrap_key_data(to_device(array))
    if (array.shape, array.dtype) != (like.shape, like.dtype):
        raise CorruptFileError(
            f"a checkpoint has an array of shape {array.shape} and type {array.dtype}; expected {like.shape} and "
            f"{like.dtype}: it belongs to another computation; remove the checkpoints to start again"
        )
    return to_device(array)
