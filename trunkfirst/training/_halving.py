"""Several starts, the worse half given up again and again; and one objective after the other."""

import dataclasses as dc
import functools as ft
import math
from collections.abc import Sequence

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
    proceed = ft.partial(minimise, problem, minimiser=minimiser, key=key, on_step=on_step)
    runs = [minimise(problem, start, minimiser, iterations=1, key=key) for start in starts]
    share = max(iterations // (4 * len(starts)), 20)
    reached = 1
    while len(runs) > 1:
        reached += share
        share *= 2
        runs = [
            proceed(
                run.parameters, iterations=reached, state=run.state, stage=f"start {number + 1}", stopping=stopping
            )
            for number, run in enumerate(runs)
        ]
        if any(run.status == "interrupted" for run in runs):
            return dc.replace(min(runs, key=error), status="interrupted")
        runs = sorted(runs, key=error)[: (len(runs) + 1) // 2]
    best = runs[0]
    return proceed(best.parameters, iterations=iterations, state=best.state, stage="trunk", stopping=stopping)


def go_on(
    first: Minimised,
    legs: Sequence[tuple[str, AbstractObjective]],
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    share: int,
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Go on from `first` with one objective after the other, up to `iterations` in all.

    Each has a `share` of the iterations, and what those before it did not use. The history is that of all.
    """
    result = first
    for number, (stage, objective) in enumerate(legs, start=1):
        if result.status != "finished":
            break
        most = max(iterations - (len(legs) - number) * share, result.iterations + share)
        state = minimiser.init(objective, result.parameters, key=key)
        leg = minimise(
            objective,
            result.parameters,
            minimiser,
            iterations=most,
            state=dc.replace(state, iteration=result.state.iteration),
            key=key,
            stage=stage,
            stopping=stopping,
            on_step=on_step,
        )
        result = dc.replace(leg, history=result.history + leg.history)
    return result


def _error(problem: AbstractObjective, run: Minimised) -> float:
    error = float(_misfit(problem, run.parameters))
    return error if math.isfinite(error) else math.inf


@eqx.filter_jit
def _misfit(problem: AbstractObjective, parameters: Parameters) -> Float[Array, ""]:
    return problem.misfit(parameters)
