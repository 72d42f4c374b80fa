"""What `fit` returns, whatever the method."""

import dataclasses as dc
from typing import Any

from ..data import OperatorData
from ..linear import trunk_limit
from ..minimisers import Status, Step
from ..networks import Operator, Trunk
from ._trunks import TrunkResult


@dc.dataclass(frozen=True)
class FitResult:
    """An operator and how it came about.

    `status` is "finished", "interrupted" or "diverged"; `history` the log of all stages; `diagnostics` the
    numbers of `metrics.json` that training knows (design: `trunk`, `branch`, counts of parameters).
    """

    operator: Operator
    status: Status
    history: tuple[Step, ...]
    diagnostics: dict[str, Any]
    trunk_result: TrunkResult | None = None
    """Step 1 of a two-step fit: give it to `fit` again to try another step 2 on the same trunk."""


def trunk_diagnostics(
    data: OperatorData,
    trunk: Trunk,
    *,
    loss: float,
    seconds: float,
    iterations: int,
    rank: int,
    condition: float | None = None,
) -> dict[str, Any]:
    """The part `trunk` of `metrics.json`."""
    return {
        "loss": loss,
        "limit": trunk_limit(data.outputs, trunk.effective_width),
        "rank": rank,
        "condition": condition,
        "seconds": seconds,
        "iterations": iterations,
    }
