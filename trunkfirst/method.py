"""What all training methods have in common, and what they return."""

import abc
import dataclasses as dc
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never

import jax.random as jr
from jaxtyping import Array, PRNGKeyArray

from .data.data_display import html_table
from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .encode import EncodedData, Encodings
from .encoders import to_jax
from .fields import TrunkResult
from .minimisers.loop import OnStep, Status
from .networks.branches import Branch
from .networks.layers import AbstractFunctions
from .networks.operator import Operator
from .records import LogEntry
from .settings import record

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dc.dataclass(frozen=True)
class Trained:
    """An operator and how it was trained.

    `status` is "finished", "interrupted" or "diverged"; `history` the log of all stages; `diagnostics` the parts
    `trunk`, `branch` and `parameters` of `metrics.json`.
    """

    operator: Operator
    status: Status
    history: tuple[LogEntry, ...]
    diagnostics: dict[str, Any]
    trunk_result: TrunkResult | None = None
    """Step 1 of a two-step fit: pass it to `fit` again to try another step 2 on the same trunk."""

    def summary(self) -> dict[str, str]:
        """The numbers to look at first, in words."""
        trunk, branch = self.diagnostics["trunk"], self.diagnostics["branch"]
        seconds = trunk["seconds"] + (branch["seconds"] if branch else 0.0)
        return {
            "status": self.status,
            "trunk loss": f"{trunk['loss']:.2e}",
            "rank": str(trunk["rank"]),
            "branch": f"{branch['kind']}, loss {branch['loss']:.2e}" if branch else "trained with the trunk",
            "seconds": f"{seconds:.1f}",
        }

    if not TYPE_CHECKING:  # checkers would accept any attribute

        def __getattr__(self, name: str) -> Never:
            """Say where the methods of the operator are."""
            is_there = not name.startswith("_") and hasattr(Operator, name)
            near = next((each for each in dir(self) if name in each and not each.startswith("_")), None)
            near = near and f"; did you mean {near!r}?"
            where = f"; write result.operator.{name}" if is_there else near or ""
            raise AttributeError(f"a {type(self).__name__} has no {name!r}{where}", name=name)

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {value}" for name, value in self.summary().items())
        return f"{type(self).__name__}({rows})"

    def _repr_html_(self) -> str:
        """The same as a table; notebooks ask for it."""
        rows = [f"{name}: {value}" for name, value in self.summary().items()]
        return html_table(type(self).__name__, [self.status, *rows])

    def plot(self) -> list["Axes"]:
        """Draw the losses against iterations with matplotlib, one panel a step; returns the panels."""
        return plot_losses(self.history)


@record
class AbstractMethod(Encodings, abc.ABC):
    """A training method: a record with how data are encoded, whose `fit` trains an operator."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the method in reports."""

    @abc.abstractmethod
    def fit(
        self,
        data: AnyData | ShardedData,
        *,
        key: PRNGKeyArray,
        on_step: OnStep | None = None,
        trunk_result: TrunkResult | None = None,
    ) -> Trained:
        """Train an operator on `data`, in double precision of JAX, with nothing left to choose."""


def make_operator(
    encoded: EncodedData, branch: Branch, trunk: AbstractFunctions, transform: Array | None
) -> Operator:
    """The operator of a trunk and a branch that were trained on encoded data."""
    return Operator(
        to_jax(encoded.encoder),
        to_jax(branch),
        trunk.after(to_jax(encoded.coordinates)),
        transform,
        encoded.input_names,
        None if encoded.output is None else to_jax(encoded.output),
        encoded.fields.channels,
    )


def named_key(key: PRNGKeyArray, name: str) -> PRNGKeyArray:
    """The key for one purpose, by name, so that a new purpose does not change the others."""
    return jr.fold_in(key, zlib.crc32(name.encode()))


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


_TITLES = {"trunk": "Step 1: trunk", "branch": "Step 2: branch", "monolithic": "Trunk and branch at once"}


def plot_losses(history: Sequence[LogEntry], errors: Mapping[str, float] | None = None) -> list["Axes"]:
    """The smallest loss so far (thick) and the loss (faint) against iterations, one panel a step.

    With `errors`, by the name of what was compared, these come first, and steps in closed form are left out.
    """
    import matplotlib.pyplot as plt

    steps = {name: lines for name, lines in _by_step(history).items() if not errors or len(lines) > 1}
    count = len(steps) + bool(errors)
    _, grid = plt.subplots(1, count, figsize=(4.5 * count, 3.2), squeeze=False, layout="constrained")
    panels: list[Axes] = list(grid[0])
    if errors:
        panels[0].barh(list(errors), list(errors.values()), color="C0")
        panels[0].set(title="Errors on samples left out", xlabel="mean relative l2 error", xscale="log")
        panels[0].invert_yaxis()
    for axes, (name, lines) in zip(panels[count - len(steps) :], steps.items(), strict=True):
        iterations = [line.iteration for line in lines]
        marker = "o" if len(lines) == 1 else None  # a branch in closed form has one line in the log
        axes.semilogy(iterations, [line.loss for line in lines], color="C0", alpha=0.35)
        axes.semilogy(iterations, [line.best_loss for line in lines], color="C0", linewidth=2, marker=marker)
        axes.set(title=_TITLES.get(name, name), xlabel="iteration", ylabel="loss")
    return panels


def _by_step(history: Sequence[LogEntry]) -> dict[str, list[LogEntry]]:
    """The log of each step; "trunk, ridge 1e-05" belongs to "trunk"."""
    steps: dict[str, list[LogEntry]] = {}
    for line in history:
        steps.setdefault(line.stage.partition(",")[0], []).append(line)
    return steps
