"""What can stand as a branch: anything that learns targets from encoded inputs."""

import abc
import dataclasses as dc
import time
from typing import ClassVar

from jaxtyping import Array, Float, PRNGKeyArray

from ..minimisers import OnStep, Status, Step
from ..networks import Branch
from ._stored_rows import StoredRows


@dc.dataclass(frozen=True)
class Task:
    """Encoded inputs and the targets to learn from them; losses in the history are multiplied by `loss_unit`."""

    inputs: Float[Array, "samples features"]
    targets: Float[Array, "samples coefficients"]
    weights: Float[Array, " samples"] | None
    key: PRNGKeyArray
    # the log
    loss_unit: float
    on_step: OnStep | None
    begin: float = dc.field(default_factory=time.perf_counter)


@dc.dataclass(frozen=True)
class Regression:
    """A fitted branch, its loss (mean square over samples and coefficients), and how it went."""

    branch: Branch
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[Step, ...] = ()


@dc.dataclass(frozen=True)
class AbstractRegressor(abc.ABC):
    """`fit` finds a branch for encoded inputs (samples, features) and targets (samples, coefficients)."""

    kind: ClassVar[str] = "network"

    def fit(
        self,
        inputs: Float[Array, "samples features"],
        targets: Float[Array, "samples coefficients"],
        weights: Float[Array, " samples"] | None = None,
        *,
        key: PRNGKeyArray,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        """Fit a branch; losses in the history are multiplied by `loss_unit`."""
        return self.learn(Task(inputs, targets, weights, key, loss_unit, on_step))

    @abc.abstractmethod
    def learn(self, task: Task) -> Regression:
        """What `fit` does, written by each regressor."""

    def fit_stored(
        self, rows: StoredRows, *, key: PRNGKeyArray, loss_unit: float = 1.0, on_step: OnStep | None = None
    ) -> Regression:
        """`fit` on as many of the stored samples as fit into memory, at random; the loss is that of all."""
        begin = time.perf_counter()
        fitted = self.fit(*rows.some(key), key=key, loss_unit=loss_unit, on_step=on_step)
        branch = self.completed(fitted.branch, rows)
        return dc.replace(fitted, branch=branch, loss=rows.loss(branch), seconds=time.perf_counter() - begin)

    def completed(self, branch: Branch, rows: StoredRows) -> Branch:
        """What all samples can still do for a branch that was fitted to some of them."""
        del rows
        return branch

    def with_groups(self, groups: tuple[int, ...]) -> "AbstractRegressor":
        """The same, told how many features each input function has; only product branches care."""
        del groups
        return self

    def briefly(self) -> "AbstractRegressor":
        """The same with the least effort, for a fit that was interrupted before its branch."""
        return self
