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
    fields: AnyFields,
    trunk: Trunk,
    *,
    loss: float,
    seconds: float,
    iterations: int,
    rank: int,
    condition: float | None = None,
    p: float = 2.0,
) -> dict[str, Any]:
    """The part `trunk` of `metrics.json`; `p` is the power of the loss."""
    return {
        "loss": loss,
        **_limits(fields, trunk.effective_width, p),
        "rank": rank,
        "condition": condition,
        "seconds": seconds,
        "iterations": iterations,
    }


def _limits(fields: AnyFields, width: int, p: float) -> dict[str, Any]:
    """How low the loss can be: for p = 1 two bounds, for p other than 1 and 2 or scattered points not known."""
    if isinstance(fields, ScatteredFields):
        return {"limit": None, "limit_upper": None, "is_limited_by_network": None}
    outputs = fields.outputs
    squared = trunk_limit(outputs, width)
    lower, upper = trunk_limit_bounds(outputs, width) if p == 1 else (squared if p == 2 else None, None)
    return {
        "limit": lower,
        "limit_upper": upper,
        "is_limited_by_network": is_limited_by_network(outputs, squared),
    }
