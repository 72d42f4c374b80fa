"""What a search chooses: a method with nothing left open, and its error on samples that did not choose it."""

import dataclasses as dc
from collections.abc import Callable
from typing import Any

from .candidates import kind_of_branch
from .intervals import HeldOut
from .method import AbstractMethod
from .records import Choice
from .regressors.base import AbstractRegressor
from .regressors.network import AutoBranch, NetworkBranch
from .trunks import AutoTrunk
from .two_step import TwoStep


@dc.dataclass(frozen=True)
class Chosen:
    """The method with nothing left open, how it was chosen, and its error on samples that did not choose it."""

    method: AbstractMethod
    choice: Choice | None = None
    validation_error: float | None = None
    held_out: Callable[[], HeldOut] | None = None
    """Computes predictions for samples that were left out."""

    def applied_to(self, method: AbstractMethod) -> "Chosen":
        """The same choice for another method."""
        changes: dict[str, Any] = {"inputs": self.method.inputs, "weights": self.method.weights}
        if isinstance(method, TwoStep) and isinstance(self.method, TwoStep):
            changes |= {"branch": self.method.branch} if isinstance(method.branch, AutoBranch) else {}
            changes |= {"trunk": self.method.trunk} if isinstance(method.trunk, AutoTrunk) else {}
        return Chosen(dc.replace(method, **changes), self.choice)

    def summary(self) -> dict[str, Any] | None:
        """The part `chosen` of `metrics.json`."""
        if self.choice is None:
            return None
        return {
            "encoder": str(self.method.inputs),
            "branch": kind_of_branch(branch_of(self.method)),
            "trunk": getattr(getattr(self.method, "trunk", None), "kind", "network"),
            "weights": self.method.weights,
            "candidate": self.choice.name,
            "validation_errors": dict(self.choice.errors),
            "candidates": {name: dc.asdict(each) for name, each in self.choice.candidates.items()},
            "best_network": self.choice.best_network,
        }


def branch_of(method: AbstractMethod) -> AbstractRegressor:
    """The branch, or for methods that train both networks at once one of the same architecture."""
    if isinstance(method, TwoStep):
        return method.branch
    whole: Any = method
    network = whole.branch
    architecture = {f.name: getattr(network, f.name) for f in dc.fields(network) if f.name != "stacked"}
    return NetworkBranch(**architecture, iterations=whole.iterations, ridge=1e-5, decay=0.0)
