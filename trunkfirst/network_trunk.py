"""Step 1 as separable least squares: the coefficients are solved for, only the trunk is searched."""

import dataclasses as dc
import functools as ft
import itertools
import math
import time
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .device_arrays import split_key
from .errors import UsageError
from .fields import AbstractFields, Fields, Searched, TrunkResult, searched, with_identity_output
from .losses import FreeCoefficients, make_loss
from .minimisers import Minimiser
from .minimisers.lbfgs import LBFGS
from .minimisers.loop import (
    AbstractMinimiser,
    AbstractObjective,
    Minimised,
    OnStep,
    Parameters,
    Status,
    Stopping,
    minimise,
    worst_status,
)
from .networks.layers import Trunk, side_by_side
from .records import LogEntry
from .settings import Field, kind_field, record
from .trunks import AbstractTrunk, AbstractTrunkNetwork, reuse_trunk


@dc.dataclass(frozen=True)
class _Stage:
    """A part of the search: the ridge relative to its setting, a share of the iterations, the radius of kinks."""

    ridge: float
    share: float
    rounding: float = 0.0


# From a problem that is easy to search to the one that is asked for; the first has the iterations that are left.
# With rounded kinks a problem is another one, and the stages without take longer.
_SMOOTH = (_Stage(1.0, 0.75), _Stage(0.1, 0.125), _Stage(0.01, 0.125))
_KINKED = (_Stage(1.0, 0.4, 0.03), _Stage(0.1, 0.3, 0.006), _Stage(0.01, 0.3))
# The share of the iterations with `first_ridge`.
_FIRST = 0.25
_USUAL_ITERATIONS = 6000


@record
class NetworkTrunk(AbstractTrunkNetwork, AbstractTrunk):
    """A network as trunk, by variable projection: min over trunk and A of |A Phi^T - U|^2 + ridge^2 |A|^2.

    A is solved for in every iteration. The outputs are compressed by an SVD, so that an iteration costs the same
    for any number of samples. ReLU trunks depend on their random start: of `starts` of them the worse half is
    dropped repeatedly. The ridge fades to a hundredth during the search; a search that starts with a small one
    stalls. The kinks of a ReLU trunk, at which a search would get stuck, are rounded at first. For p other than 2,
    which allows no compression, the trunk and A are then trained together on the loss with power p.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(NetworkTrunk(hidden=(50, 50), width=20)).trunk.width
    20
    """

    minimiser: Minimiser = LBFGS()
    iterations: int | None = Field(
        default=None, ge=1, description="largest number of iterations; follows from the time limit if left out"
    )
    starts: int = Field(default=2, ge=1, description="random starts; the worse half is dropped repeatedly")
    ridge: float = Field(default=1e-3, ge=0, description="ridge of the coefficients; it fades during the search")
    first_ridge: float | None = Field(
        default=None,
        ge=0,
        description="ridge of the first quarter of the search: a larger one helps with outputs that are steep at "
        "a boundary, and costs others time",
    )
    p: float = Field(default=2.0, ge=1, allow_inf_nan=False, description="power of the entrywise norm of the loss")
    stopping: Stopping = Field(default=Stopping(stuck=100), description="when to stop early")
    kind: Literal["network"] = kind_field("network")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if not isinstance(fields, Fields) and self.p != 2:
            raise UsageError("samples at points of their own need p = 2")
        start = time.perf_counter()
        begin, run = split_key(key, 2)
        trunks = [self.make(fields, dtype=dtype, key=k) for k in split_key(begin, self.starts)]
        result = self._search(fields, trunks, dtype, run, on_step)
        searched: Searched = result.parameters
        trunk = (
            with_identity_output(searched.network, trunks[0]) if searched.is_hidden else Trunk(searched.network)
        )
        A = fields.solve(trunk, self._stages()[-1].ridge)
        if self.p != 2 and isinstance(fields, Fields):
            result = self._polish(fields, FreeCoefficients(trunk, jnp.asarray(A)), run, on_step)
            trunk, A = result.parameters.trunk, np.asarray(result.parameters.matrix)
        return TrunkResult(
            trunk,
            A,
            is_projected=self.p == 2,
            loss=fields.loss(trunk, A, p=self.p),
            status=result.status,
            iterations=result.iterations,
            seconds=time.perf_counter() - start,
            history=result.history,
            p=self.p,
        )

    @property
    def max_iterations(self) -> int:
        """The iterations given, or as many as a search usually needs."""
        return self.iterations or _USUAL_ITERATIONS

    def _stages(self) -> list[_Stage]:
        """The stages with the ridges themselves."""
        stages = _KINKED if self.activation == "relu" else _SMOOTH
        first, *others = (dc.replace(stage, ridge=self.ridge * stage.ridge) for stage in stages)
        if self.first_ridge is None:
            return [first, *others]
        begin = _Stage(self.first_ridge, _FIRST, first.rounding)
        return [begin, dc.replace(first, share=first.share - _FIRST), *others]

    def start(self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray) -> Searched:
        """A new trunk as the search sees it."""
        return searched(self.make(fields, dtype=dtype, key=key).network)

    def _search(
        self,
        fields: AbstractFields,
        trunks: Sequence[Trunk],
        dtype: np.dtype,
        key: PRNGKeyArray,
        on_step: OnStep | None,
    ) -> Minimised:
        problem = fields.problem(dtype, floats_per_point=sum(trunks[0].network.architecture))
        begin, *others = self._stages()
        counts = [max(int(stage.share * self.max_iterations), 1) for stage in others]
        result = successive_halving(
            problem(begin.ridge, begin.rounding),
            [searched(trunk.network) for trunk in trunks],
            self.minimiser,
            iterations=max(self.max_iterations - sum(counts), 1),
            stopping=self.stopping,
            key=key,
            on_step=on_step,
        )
        for number, (stage, count) in enumerate(zip(others, counts, strict=True), start=1):
            result = continue_with(
                result,
                problem(stage.ridge, stage.rounding),
                self.minimiser,
                # its own, and those that others before it did not use
                iterations=max(self.max_iterations - sum(counts[number:]), result.iterations + count),
                stage=f"trunk, ridge {stage.ridge:.0e}",
                # With little ridge left a ReLU trunk may only be stuck at its kinks, in long line searches.
                stopping=dc.replace(
                    self.stopping, patience=min(self.stopping.patience, max(count // 10, 10)), stuck=30
                ),
                key=key,
                on_step=on_step,
            )
        return result

    def _polish(
        self, fields: Fields, start: FreeCoefficients, key: PRNGKeyArray, on_step: OnStep | None
    ) -> Minimised:
        dtype = start.matrix.dtype
        loss = make_loss(fields, jnp.zeros((fields.rows, 0), dtype), p=self.p, dtype=dtype)
        return minimise(
            loss, start, self.minimiser, iterations=self.max_iterations, key=key, stage="trunk", on_step=on_step
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
    """Minimise from all starts for a while, keep the better half by training error, repeat; finish the best.

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


def continue_with(
    before: Minimised,
    objective: AbstractObjective,
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    stage: str,
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Continue with another objective, up to `iterations` in all, unless `before` did not finish.

    The history is that of both.
    """
    if before.status != "finished":
        return before
    state = minimiser.init(objective, before.parameters, key=key)
    result = minimise(
        objective,
        before.parameters,
        minimiser,
        iterations=iterations,
        state=dc.replace(state, iteration=before.state.iteration),
        key=key,
        stage=stage,
        stopping=stopping,
        on_step=on_step,
    )
    return dc.replace(result, history=before.history + result.history)


def _error(problem: AbstractObjective, run: Minimised) -> float:
    error = float(_misfit(problem, run.parameters))
    return error if math.isfinite(error) else math.inf


@eqx.filter_jit
def _misfit(problem: AbstractObjective, parameters: Parameters) -> Float[Array, ""]:
    return problem.misfit(parameters)


@record
class SeparateTrunks(AbstractTrunk):
    """A network trunk for every output channel, trained on this channel alone.

    Every channel then has coefficients for the functions of all trunks.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(SeparateTrunks(trunkfirst.NetworkTrunk(width=10))).trunk.each.width
    10
    """

    each: NetworkTrunk
    kind: Literal["separate"] = kind_field("separate")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if fields.channels is None or self.each.p != 2:
            raise UsageError("separate trunks need several output channels and p = 2")
        keys = split_key(key, fields.channels)
        parts = [
            self.each.fit(fields.only(channel), dtype=dtype, key=own, on_step=on_step)
            for channel, own in enumerate(keys)
        ]
        statuses: list[Status] = [part.status for part in parts]
        networks = [part.trunk.network for part in parts if isinstance(part.trunk, Trunk)]
        together = reuse_trunk(Trunk(side_by_side(networks)), fields)
        return dc.replace(
            together,
            status=worst_status(*statuses),
            iterations=sum(part.iterations for part in parts),
            seconds=together.seconds + sum(part.seconds for part in parts),
            history=_concatenate([part.history for part in parts]),
        )


def _concatenate(histories: Sequence[tuple[LogEntry, ...]]) -> tuple[LogEntry, ...]:
    """One history, with iterations and seconds that continue from one to the next."""
    ends = [(history[-1].iteration, history[-1].seconds) if history else (0, 0.0) for history in histories]
    begins = [(0, 0.0), *itertools.accumulate(ends, lambda a, b: (a[0] + b[0], a[1] + b[1]))]
    return tuple(
        dc.replace(step, iteration=before + step.iteration, iterations=begins[-1][0], seconds=start + step.seconds)
        for (before, start), history in zip(begins, histories, strict=False)
        for step in history
    )
