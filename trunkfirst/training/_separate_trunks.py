"""Step 1 for every output channel by itself."""

import dataclasses as dc
import itertools
from collections.abc import Sequence

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import UsageError
from ..minimisers import OnStep, Status, Step, worst_status
from ..networks import Trunk, side_by_side
from ._fields import AnyFields
from ._projected_trunk import ProjectedTrunk, reuse_trunk
from ._trunks import AbstractTrunkFit, TrunkResult


@dc.dataclass(frozen=True)
class SeparateTrunks(AbstractTrunkFit):
    """A trunk for every output channel, trained on this channel alone; then all of them stand side by side.

    Every channel has coefficients for the functions of all trunks, its own and the others'.
    """

    each: ProjectedTrunk

    def fit(
        self, fields: AnyFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if fields.channels is None or self.each.p != 2:
            raise UsageError("separate trunks need several output channels and p = 2")
        keys = jr.split(key, fields.channels)
        parts = [
            self.each.fit(_only(fields, channel), dtype=dtype, key=own, on_step=on_step)
            for channel, own in enumerate(keys)
        ]
        statuses: list[Status] = [part.status for part in parts]
        together = reuse_trunk(Trunk(side_by_side([part.trunk.network for part in parts])), fields)
        return dc.replace(
            together,
            status=worst_status(*statuses),
            iterations=sum(part.iterations for part in parts),
            seconds=together.seconds + sum(part.seconds for part in parts),
            history=_one_after_another([part.history for part in parts]),
        )


def _only(fields: AnyFields, channel: int) -> AnyFields:
    """The rows of one channel."""
    rows = slice(channel, None, fields.channels)
    weights = None if fields.sample_weights is None else fields.sample_weights[rows]
    return dc.replace(fields, outputs=fields.outputs[rows], sample_weights=weights, channels=None)


def _one_after_another(histories: Sequence[tuple[Step, ...]]) -> tuple[Step, ...]:
    """Iterations and seconds counted on from one to the next."""
    ends = [(history[-1].iteration, history[-1].seconds) if history else (0, 0.0) for history in histories]
    begins = [(0, 0.0), *itertools.accumulate(ends, lambda a, b: (a[0] + b[0], a[1] + b[1]))]
    return tuple(
        dc.replace(step, iteration=before + step.iteration, iterations=begins[-1][0], seconds=start + step.seconds)
        for (before, start), history in zip(begins, histories, strict=False)
        for step in history
    )
