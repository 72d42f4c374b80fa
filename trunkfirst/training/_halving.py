"""Several starts, the worse half given up again and again, and a ridge that fades out."""

import dataclasses as dc
import functools as ft
import math
from collections.abc import Callable, Sequence

import equinox as eqx
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
            go_on(run.parameters, iterations=reached, state=run.state, stage=f"start {number + 1}")
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
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Go on from `first` with smaller and smaller ridges, `iterations` each; the history is that of all.

    A ridge keeps the search well behaved, and in the end it is what is left of the loss: from a good place a
    smaller one can be afforded. (Started with, it stalls.)
    """
    result, history = first, first.history
    for ridge in ridges:
        if result.status != "finished":
            break
        objective = problem(ridge)
        state = minimiser.init(objective, result.parameters, key=key)
        result = minimise(
            objective,
            result.parameters,
            minimiser,
            iterations=result.iterations + iterations,
            state=dc.replace(state, iteration=result.state.iteration),
            key=key,
            stage=f"trunk, ridge {ridge:.0e}",
            stopping=stopping,
            on_step=on_step,
        )
        history += result.history
    return dc.replace(result, history=history)


def _error(problem: AbstractObjective, run: Minimised) -> float:
    error = float(_misfit(problem, run.parameters))
    return error if math.isfinite(error) else math.inf


@eqx.filter_jit
def _misfit(problem: AbstractObjective, parameters: Parameters) -> Float[Array, ""]:
    return problem.misfit(parameters)
