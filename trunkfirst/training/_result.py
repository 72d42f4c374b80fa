"""What `fit` returns, whatever the method."""

import dataclasses as dc
from typing import TYPE_CHECKING, Any

from ..linear import is_limited_by_network, trunk_limit, trunk_limit_bounds
from ..minimisers import Status, Step
from ..networks import Operator, Trunk
from ._display import html_table, plot_losses, summary_rows
from ._fields import AnyFields, ScatteredFields
from ._trunks import TrunkResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    def __repr__(self) -> str:
        rows = summary_rows(self.status, self.diagnostics)
        return f"FitResult({', '.join(f'{name}: {value}' for name, value in rows.items())})"

    def _repr_html_(self) -> str:
        """The same as a table; notebooks ask for it."""
        return html_table(summary_rows(self.status, self.diagnostics))

    def plot(self) -> list["Axes"]:
        """Draw the losses against iterations with matplotlib, one panel a step; returns the panels."""
        return plot_losses(self.history)


def trunk_diagnostics(
    *,
    loss: float,
    seconds: float,
    iterations: int,
    rank: int,
    condition: float | None = None,
    limits: dict[str, Any],
) -> dict[str, Any]:
    """The part `trunk` of `metrics.json`."""
    return {
        "loss": loss,
        **limits,
        "rank": rank,
        "condition": condition,
        "seconds": seconds,
        "iterations": iterations,
    }


def find_limits(fields: AnyFields, trunk: Trunk, p: float) -> dict[str, Any]:
    """How low the loss with power p can be: two bounds for p = 1; not known for scattered points, or other p."""
    if isinstance(fields, ScatteredFields):
        return {"limit": None, "limit_upper": None, "is_limited_by_network": None}
    outputs, width = fields.outputs, trunk.effective_width
    squared = trunk_limit(outputs, width)
    lower, upper = trunk_limit_bounds(outputs, width) if p == 1 else (squared if p == 2 else None, None)
    return {
        "limit": lower,
        "limit_upper": upper,
        "is_limited_by_network": is_limited_by_network(outputs, squared),
    }
