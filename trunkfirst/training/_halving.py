"""Several starts, the worse half given up again and again, and a ridge that fades out."""

import dataclasses as dc
import functools as ft
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..minimisers import (
    AbstractMinimiser,
    AbstractObjective,
    Minimised,
    OnStep,
    Parameters,
    Stopping,
    minimise,
)

# How far a stuck trunk is shaken, relative to the size of its numbers; and how often in vain.
_SHAKE, _MISSES = 1e-2, 3


def successive_halving(
    problem: AbstractObjective,
    starts: Sequence[Parameters],
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Minimise from all starts for a while, keep the better half by training error, and so on; finish the best.

    Each round takes about a quarter of the iterations in all, whatever the number of starts. The error without
    the ridge is what counts: a start may pay for a steep function with large coefficients, and be right.
    """
    error = ft.partial(_error, problem)
    go_on = ft.partial(minimise, problem, minimiser=minimiser, key=key, on_step=on_step)
    runs = [minimise(problem, start, minimiser, iterations=1, key=key) for start in starts]
    share = max(iterations // (4 * len(starts)), 20)
    reached = 1
    while len(runs) > 1:
        reached += share
        share *= 2
        runs = [
            go_on(
                run.parameters, iterations=reached, state=run.state, stage=f"start {number + 1}", stopping=stopping
            )
            for number, run in enumerate(runs)
        ]
        if any(run.status == "interrupted" for run in runs):
            return dc.replace(min(runs, key=error), status="interrupted")
        runs = sorted(runs, key=error)[: (len(runs) + 1) // 2]
    best = runs[0]
    return go_on(best.parameters, iterations=iterations, state=best.state, stage="trunk", stopping=stopping)


def fade_ridge(
    first: Minimised,
    problem: Callable[[float], AbstractObjective],
    ridges: Sequence[float],
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    share: int,
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Go on from `first` with smaller and smaller ridges up to `iterations` in all; the history is that of all.

    A ridge keeps the search well behaved, and in the end it is what is left of the loss: from a good place a
    smaller one can be afforded. (Started with, it stalls.) Each ridge has a `share` of the iterations, and what
    those before it did not use.
    """
    result = first
    for number, ridge in enumerate(ridges, start=1):
        if result.status != "finished":
            break
        most = max(iterations - (len(ridges) - number) * share, result.iterations + share)
        leg = _Leg(problem(ridge), minimiser, most, f"trunk, ridge {ridge:.0e}", stopping, on_step)
        reached = leg.go(result, result.parameters, key)
        result = leg.shake(dc.replace(reached, history=result.history + reached.history), max(share // 4, 1), key)
    return result


@dc.dataclass(frozen=True)
class _Leg:
    """A part of the way with one objective, up to so many iterations in all."""

    objective: AbstractObjective
    minimiser: AbstractMinimiser
    iterations: int
    stage: str
    stopping: Stopping
    on_step: OnStep | None

    def go(self, so_far: Minimised, start: Parameters, key: PRNGKeyArray, most: int | None = None) -> Minimised:
        """Minimise from `start`, with at most so many iterations; they count on from those so far."""
        state = self.minimiser.init(self.objective, start, key=key)
        done = so_far.iterations
        return minimise(
            self.objective,
            start,
            self.minimiser,
            iterations=self.iterations if most is None else min(done + most, self.iterations),
            state=dc.replace(state, iteration=so_far.state.iteration),
            key=key,
            stage=self.stage,
            stopping=self.stopping,
            on_step=self.on_step,
        )

    def shake(self, best: Minimised, most: int, key: PRNGKeyArray) -> Minimised:
        """Where the search is stuck, as ReLU networks are at kinks: change all numbers a little, and try again.

        Until the iterations are used up, or `_MISSES` attempts in a row were in vain.
        """
        misses, number = 0, 0
        while misses < _MISSES and best.status == "finished" and best.iterations < self.iterations:
            number += 1
            start = _shaken(best.parameters, jr.fold_in(key, number))
            trial = self.go(best, start, key, most)
            misses = 0 if trial.value < (1 - self.stopping.gain) * best.value else misses + 1
            if trial.value < best.value:
                best = dc.replace(trial, history=best.history + trial.history)
            else:
                state = dc.replace(best.state, iteration=trial.state.iteration)
                best = dc.replace(best, state=state, status=trial.status)
        return best


@eqx.filter_jit
def _shaken(parameters: Parameters, key: PRNGKeyArray) -> Parameters:
    arrays, rest = eqx.partition(parameters, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(arrays)
    keys = jr.split(key, len(leaves))
    shaken = [
        leaf + _SHAKE * jnp.sqrt(jnp.mean(leaf**2)) * jr.normal(k, leaf.shape, leaf.dtype)
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return eqx.combine(jax.tree.unflatten(structure, shaken), rest)


def _error(problem: AbstractObjective, run: Minimised) -> float:
    error = float(_misfit(problem, run.parameters))
    return error if math.isfinite(error) else math.inf


@eqx.filter_jit
def _misfit(problem: AbstractObjective, parameters: Parameters) -> Float[Array, ""]:
    return problem.misfit(parameters)
