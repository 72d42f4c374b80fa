"""What can serve as a branch: anything that learns targets from encoded inputs."""

import abc
import copy
import dataclasses as dc
import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..data.array_checks import evenly
from ..device_arrays import AnyArray, to_device
from ..distributed.processes import assemble_rows, sum_over_processes
from ..errors import DataError, SettingError, UsageError
from ..linear.blocked_qr import one_blas_thread
from ..minimisers.loop import OnStep, Status
from ..networks.branches import Branch, Estimator, PredictOnlyBranch
from ..records import LogEntry
from ..settings import kind_field, record
from .input_grid import InputGrid, OutputBasis

# Samples of a block; samples, and numbers of theirs, that a regressor gets at once.
_BLOCK = 2**14
_MAX_ROWS, _MAX_NUMBERS = 50_000, 2**24
_MAX_FOR_LOSS = 10_000
# Rows that a compiled branch takes at once.
_ROWS = 512

Block = tuple[Float[Array, "block features"], Float[Array, "block coefficients"], Float[Array, " block"]]


@dc.dataclass(frozen=True, eq=False)
class StoredRows:
    """Encoded inputs, targets and weights (mean 1) of more samples than memory holds, in three .npy files.

    The files have a row for each sample, of all or of this process.
    """

    inputs: Path
    targets: Path
    weights: Path
    samples: int
    """The number of samples in all."""
    places: Int[np.ndarray, " own"]
    """Which of them are in the files, in increasing order."""

    def blocks(self) -> Iterator[Block]:
        """The samples in the files; without samples one empty block.

        The files are opened anew for each block, so that only a block is in memory.
        """
        for begin in range(0, max(len(self.places), 1), _BLOCK):
            yield self._rows(slice(begin, begin + _BLOCK))

    def some(self, key: PRNGKeyArray) -> Block:
        """All samples in order if they fit into memory, else random ones, from all processes."""
        columns = sum(np.load(path, mmap_mode="r").shape[1] for path in (self.inputs, self.targets))
        most = min(_MAX_ROWS, max(_MAX_NUMBERS // columns, 1))
        chosen = np.arange(self.samples)
        if self.samples > most:
            chosen = np.sort(generator(key).choice(self.samples, most, replace=False))
        own = np.flatnonzero(np.isin(chosen, self.places, assume_unique=True))
        rows = self._arrays(np.searchsorted(self.places, chosen[own]))
        X, Y, w = (jnp.asarray(assemble_rows(array, own, len(chosen))) for array in rows)
        return X, Y, w

    def loss(self, branch: Branch) -> float:
        """The mean square of the errors over samples and coefficients, without weights."""
        sums = [float(mean_square(branch(X) - Y)) * len(X) for X, Y, _ in self.blocks()]
        return float(sum_over_processes(np.sum(sums))) / self.samples

    def _rows(self, rows: slice) -> Block:
        X, Y, w = map(jnp.asarray, self._arrays(rows))
        return X, Y, w

    def _arrays(self, rows: slice | Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        paths = (self.inputs, self.targets, self.weights)
        return [np.array(np.load(path, mmap_mode="r")[rows]) for path in paths]


@dc.dataclass(frozen=True)
class InputLayout:
    """The number of features of each input function after encoding; their grid and the basis of the outputs."""

    groups: tuple[int, ...]
    grid: InputGrid | None = None
    basis: OutputBasis | None = None


@dc.dataclass(frozen=True)
class Task:
    """Encoded inputs and the targets to learn from them; losses in the history are multiplied by `loss_unit`."""

    inputs: Float[AnyArray, "samples features"]
    targets: Float[AnyArray, "samples coefficients"]
    weights: Float[AnyArray, " samples"] | None
    layout: InputLayout
    key: PRNGKeyArray
    # the log
    loss_unit: float
    on_step: OnStep | None
    begin: float = dc.field(default_factory=time.perf_counter)

    def to_host(
        self,
    ) -> tuple[
        Float[np.ndarray, "samples features"],
        Float[np.ndarray, "samples coefficients"],
        Float[np.ndarray, " samples"],
    ]:
        """Inputs, targets and weights in double precision; the weights with mean 1, all 1 if there are none."""
        samples = len(self.inputs)
        if samples < 2:
            raise DataError(f"samples: a regression needs 2 or more, got {samples}")
        w = np.ones(samples) if self.weights is None else np.asarray(self.weights, np.float64)
        if not (w >= 0).all() or not w.any():
            raise DataError("weights: expected numbers of 0 or more, not all of them 0")
        return np.asarray(self.inputs, np.float64), np.asarray(self.targets, np.float64), w / w.mean()

    def to_device(
        self,
    ) -> tuple[
        Float[Array, "samples features"], Float[Array, "samples coefficients"], Float[Array, " samples"] | None
    ]:
        """Inputs, targets and weights, as they are, for JAX."""
        weights = None if self.weights is None else to_device(self.weights)
        return to_device(self.inputs), to_device(self.targets), weights

    def closed_form(
        self, branch: Branch, residual: Float[np.ndarray, "samples coefficients"] | None = None
    ) -> "Regression":
        """The result of a regressor without iterations; its log has one line. NumPy evaluates what it can.

        The loss is that of at most 10,000 samples.
        """
        rows = np.arange(len(self.inputs))
        if residual is None:
            rows = evenly(len(rows), _MAX_FOR_LOSS)
            with one_blas_thread():
                residual = np.asarray(branch(np.asarray(self.inputs)[rows])) - np.asarray(self.targets)[rows]
        squares = np.mean(residual**2, axis=1)
        weighted = squares if self.weights is None else squares * _mean_one(np.asarray(self.weights)[rows])
        loss, seconds = float(np.mean(weighted)) * self.loss_unit, time.perf_counter() - self.begin
        step = LogEntry("branch", 1, 1, loss, loss, 1.0, seconds)
        if self.on_step is not None:
            self.on_step(step)
        return Regression(branch, float(np.mean(squares)), "finished", 1, seconds, (step,))


@dc.dataclass(frozen=True)
class Regression:
    """A fitted branch, its loss (mean square over samples and coefficients), and how the fit went."""

    branch: Branch
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[LogEntry, ...] = ()


@record
class AbstractRegressor(abc.ABC):
    """A branch of step 2: a record whose `fit` learns targets (samples, coefficients) from encoded inputs."""

    def fit(
        self,
        inputs: Float[AnyArray, "samples features"],
        targets: Float[AnyArray, "samples coefficients"],
        weights: Float[AnyArray, " samples"] | None = None,
        *,
        key: PRNGKeyArray,
        layout: InputLayout | None = None,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        """Fit a branch to arrays of NumPy or JAX; losses in the history are multiplied by `loss_unit`.

        A closed form computes with NumPy, and its branch holds NumPy arrays.
        """
        layout = layout or InputLayout((inputs.shape[1],))
        return self.learn(Task(inputs, targets, weights, layout, key, loss_unit, on_step))

    @abc.abstractmethod
    def learn(self, task: Task) -> Regression:
        """The regression itself, written by each regressor."""

    def fit_stored(
        self,
        rows: StoredRows,
        *,
        key: PRNGKeyArray,
        layout: InputLayout | None = None,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        """`fit` on random stored samples, as many as fit into memory; the loss is that of all."""
        begin = time.perf_counter()
        fitted = self.fit(*rows.some(key), key=key, layout=layout, loss_unit=loss_unit, on_step=on_step)
        branch = self.completed(fitted.branch, rows)
        return dc.replace(fitted, branch=branch, loss=rows.loss(branch), seconds=time.perf_counter() - begin)

    def completed(self, branch: Branch, rows: StoredRows) -> Branch:
        """Improve a branch that was fitted to some samples by looking at all of them."""
        del rows
        return branch

    def with_minimal_budget(self) -> "AbstractRegressor":
        """The same with the least effort, for a fit that was interrupted before its branch."""
        return self


def values_in_blocks(module: Any, inputs: Float[AnyArray, "samples features"]) -> np.ndarray:
    """A module at the inputs, by one compiled program for any number of them."""
    if isinstance(module, PredictOnlyBranch):
        return np.asarray(module(inputs))
    blocks = [np.asarray(inputs[begin : begin + _ROWS]) for begin in range(0, max(len(inputs), 1), _ROWS)]
    padded = [np.pad(block, ((0, _ROWS - len(block)), (0, 0))) for block in blocks]
    return np.concatenate([np.asarray(_values(module, block)) for block in padded])[: len(inputs)]


@eqx.filter_jit
def _values(module: Any, inputs: Float[AnyArray, "samples features"]) -> Array:
    return module(inputs)


def mean_square(
    values: Float[Array, "samples coefficients"], weights: Float[Array, " samples"] | None = None
) -> Float[Array, ""]:
    """Mean over samples, weighted if asked, and coefficients."""
    squares = jnp.mean(values**2, axis=1)
    return jnp.mean(squares) if weights is None else jnp.mean(squares * weights)


def _mean_one(weights: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " samples"]:
    return weights / weights.mean()


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator decided by a JAX key."""
    return np.random.default_rng(np.asarray(jr.key_data(key)).ravel().tolist())


@record
class Sklearn(AbstractRegressor):
    """A scikit-learn regressor as branch, or any object with `fit` and `predict`; a copy of it is fitted.

    A `random_state` of None is set from the seed. The operator can only predict: gradients, compilation, saving
    and export raise `PredictOnlyError`.

    >>> import trunkfirst
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> trunkfirst.TwoStep(trunkfirst.ModesTrunk(), Sklearn(RandomForestRegressor())).branch.kind
    'scikit-learn'
    """

    estimator: Any
    kind: Literal["scikit-learn"] = kind_field("scikit-learn")

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Estimator):
            raise UsageError(f"{self.estimator!r} is not an estimator: it needs the methods fit and predict")

    def learn(self, task: Task) -> Regression:
        """Fit a copy of the estimator; weights are passed as `sample_weight`."""
        X, Y, w = task.to_host()
        fitted = copy.deepcopy(self.estimator)
        _set_random_state(fitted, int(generator(task.key).integers(2**31)))
        # One column as a vector: what estimators for a single output expect.
        fitted.fit(X, Y[:, 0] if Y.shape[1] == 1 else Y, **self._weight_argument(task.weights is not None, w))
        return task.closed_form(PredictOnlyBranch(fitted))

    def _weight_argument(self, is_weighted: bool, w: Float[np.ndarray, " samples"]) -> dict[str, Any]:
        if not is_weighted:
            return {}
        parameters = inspect.signature(self.estimator.fit).parameters.values()
        if not any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters):
            name = type(self.estimator).__name__
            raise SettingError(f"{name} takes no sample weights; use another estimator, or equal weights")
        return {"sample_weight": w}


def _set_random_state(estimator: Any, seed: int) -> None:
    """Give the estimator a seed if it asks for one and has none."""
    known = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    if "random_state" in known and known["random_state"] is None:
        estimator.set_params(random_state=seed)
