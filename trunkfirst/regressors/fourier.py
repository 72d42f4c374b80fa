"""Fourier layers as a branch: for input functions on a grid of one, two or three dimensions."""

import dataclasses as dc
import time
from collections.abc import Sequence
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data.array_checks import evenly
from ..device_arrays import to_device
from ..errors import DataError
from ..minimisers.adam import OneCycle, draw
from ..minimisers.loop import AbstractObjective, Minimised, Parameters, minimise
from ..networks.fourier_layers import FourierNetwork, GridBranch, GridSymmetries, make_fourier_network
from ..settings import Field, kind_field, record
from .base import AbstractRegressor, Regression, Task
from .input_grid import InputGrid, patched, patches, projection
from .symmetries import Symmetries, Symmetry, find_symmetries, periodic_axes

# The network computes in single precision.
_PRECISION = np.dtype(np.float32)
# Fields of each output channel where the last layer is trained, and samples that the log evaluates.
_FREE_FIELDS, _LOGGED = 4, 32
# Samples for the loss of the result.
_EVALUATED = 128
_TINY = 1e-12
# Grids of this many cells along every axis are seen in patches.
_LARGE = 24
# Predictions are means over this many symmetries.
_AVERAGED = 8


@record
class FourierBranch(AbstractRegressor):
    """Fourier layers on the grid of the input, as in a Fourier neural operator, and a projection onto the trunk.

    The layers compute a field on the grid of the input. It is interpolated to the output points and projected onto
    the functions of the trunk: a fixed last layer without weights. If inputs and outputs have different domains,
    the last layer is trained, with a penalty. Training is by AdamW on random batches in single precision, with a
    rate that rises and falls once. It minimises the mean relative error, or with weights "none" the mean error. If
    the samples show symmetries (reflections, exchanges of axes, shifts, signs), every batch is transformed by a
    random one, and predictions are means over them.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(branch=FourierBranch(iterations=300), inputs="raw").branch.channels
    32
    """

    channels: int = Field(default=32, ge=1, description="channels of the Fourier layers")
    layers: int = Field(default=4, ge=1, description="Fourier layers")
    modes: int = Field(default=12, ge=1, description="largest number of waves along an axis")
    patch: int | None = Field(
        default=None,
        ge=1,
        description="neighbours along an axis that are joined to one cell; by the size of the grid if left out",
    )
    padding: float = Field(
        default=0.25, ge=0, description="padding of an axis that is not periodic, as a share of its length"
    )
    rate: float = Field(default=8e-3, gt=0, description="highest learning rate")
    decay: float = Field(default=1e-4, ge=0, description="weight decay")
    batch: int = Field(default=32, ge=1, description="largest number of samples in a batch")
    iterations: int = Field(default=1_000, ge=1, description="iterations")
    penalty: float = Field(default=1e-3, ge=0, description="penalty on the last layer, if it is trained")
    symmetries: bool = Field(default=True, description="use symmetries of the operator that the samples show")
    kind: Literal["fourier"] = kind_field("fourier")

    def with_minimal_budget(self) -> AbstractRegressor:
        return dc.replace(self, iterations=1)

    def learn(self, task: Task) -> Regression:
        start, run = jr.split(task.key)
        grid, found = _grid_of(task), self._found(task)
        branch, is_free = self._start(task, grid, found, key=start)
        symmetries = None
        if found is not None and not is_free and len(found.maps) > 1:
            symmetries = self._symmetries(found.maps, grid, len(branch.projection))
        parameters, fixed = eqx.partition(branch, _trained_parts(branch, is_free))
        penalty = self.penalty if is_free else 0.0
        result = self._minimise(GridLoss.of(task, fixed, symmetries, penalty, self.batch), parameters, run, task)
        branch = eqx.combine(result.parameters, fixed)
        loss = _mean_square(branch, np.asarray(task.inputs), np.asarray(task.targets))
        if symmetries is not None:
            branch = dc.replace(branch, symmetries=symmetries.some(_AVERAGED))
        seconds = time.perf_counter() - task.begin
        return Regression(branch, loss, result.status, result.iterations, seconds, result.history)

    def _minimise(self, loss: "GridLoss", parameters: Parameters, key: PRNGKeyArray, task: Task) -> Minimised:
        return minimise(
            loss,
            parameters,
            OneCycle(self.rate, self.decay, self.iterations),
            iterations=self.iterations,
            key=key,
            stage="branch",
            loss_unit=task.loss_unit * float(loss.fixed.scale) ** 2 / task.targets.shape[1],
            on_step=task.on_step,
        )

    def _found(self, task: Task) -> Symmetries | None:
        """The symmetries that the samples show; None where they are not looked for."""
        if not self.symmetries or (basis := task.layout.basis) is None:
            return None
        return find_symmetries(np.asarray(task.inputs), np.asarray(task.targets), _grid_of(task), basis)

    def _symmetries(self, maps: Sequence[Symmetry], grid: InputGrid, values: int) -> GridSymmetries:
        """What the maps make of inputs, and of fields on the grid in patches."""
        inputs = int(grid.places.max()) + 1
        order = patches(grid.shape, self._patch(grid)).ravel()
        place = np.argsort(order)
        back = np.stack([place[np.argsort(g.cells)[order]] for g in maps])
        fields = np.arange(values // len(order))[:, None] * len(order)
        return GridSymmetries(
            to_device([g.input_places(grid, inputs) for g in maps], np.int32),
            to_device([g.input_sign for g in maps], _PRECISION),
            to_device((fields + back[:, None]).reshape(len(maps), -1), np.int32),
            to_device([g.output_signs for g in maps], _PRECISION),
        )

    def _patch(self, grid: InputGrid) -> int:
        """2 on large grids: four times as fast on a plane, and as accurate."""
        is_large = min(grid.shape) >= _LARGE and not any(n % 2 for n in grid.shape)
        return self.patch or (2 if is_large else 1)

    def _start(
        self, task: Task, grid: InputGrid, found: Symmetries | None, *, key: PRNGKeyArray
    ) -> tuple[GridBranch, bool]:
        """The branch before training, and whether its last layer is to be trained."""
        basis, coefficients = task.layout.basis, task.targets.shape[1]
        shifted = periodic_axes(found.maps if found else [], grid.shape)
        is_periodic = list(map(max, grid.is_periodic(basis.periods if basis else None), shifted))
        M = None if basis is None else projection(grid, basis)
        grid, M = patched(grid, M, self._patch(grid))
        first, last = jr.split(key)
        if is_free := M is None:
            values = _FREE_FIELDS * grid.places.shape[1]
            M = np.asarray(jr.normal(last, (values, coefficients), _PRECISION)) / values
        fields = coefficients // M.shape[1] * len(M) // grid.places.shape[1]
        network = make_fourier_network(
            grid.shape,
            len(grid.places),
            fields,
            channels=self.channels,
            layers=self.layers,
            modes=self.modes,
            is_periodic=is_periodic,
            padding=self.padding,
            dtype=_PRECISION,
            key=first,
        )
        offset = np.asarray(task.targets).mean(axis=0) if found is None else found.centre
        return _with_scales(network, M, grid, task, offset), is_free


def _with_scales(
    network: FourierNetwork, M: np.ndarray, grid: InputGrid, task: Task, offset: np.ndarray
) -> GridBranch:
    """The branch in which inputs and fields have mean 0 and deviation 1: one number for every function."""
    X, Y, dtype = np.asarray(task.inputs), np.asarray(task.targets), task.targets.dtype
    deviations = np.array([X[:, cells].std() for cells in grid.places])
    scale = np.sqrt(np.mean(np.sum((Y - offset).reshape(-1, M.shape[1]) ** 2, axis=1)))
    return GridBranch(
        network,
        to_device(M, _PRECISION),
        mean=to_device([X[:, cells].mean() for cells in grid.places], dtype),
        deviation=to_device(np.where(deviations > 0, deviations, 1.0), dtype),
        offset=to_device(offset, dtype),
        scale=to_device(scale or 1.0, dtype),
        places=to_device(grid.places, np.int32),
        shape=grid.shape,
        inputs=X.shape[1],
    )


class GridLoss(AbstractObjective):
    """The square of the mean of |C - Y| over samples, each with the root of its weight.

    In an orthonormal basis and with relative weights that mean is the mean relative error of the fields. The unit
    is `scale` of the branch: Adam ignores gradients near 1e-8.
    """

    fixed: GridBranch
    symmetries: GridSymmetries | None
    inputs: Float[Array, "samples inputs"]
    targets: Float[Array, "samples coefficients"]
    weights: Float[Array, " samples"]
    logged: Array
    """The samples that `value` looks at."""
    penalty: Float[Array, ""]
    batch: int = eqx.field(static=True)

    @classmethod
    def of(
        cls, task: Task, fixed: GridBranch, symmetries: GridSymmetries | None, penalty: float, batch: int
    ) -> "GridLoss":
        X, Y, weights = task.to_device()
        w = np.ones(len(X)) if weights is None else np.asarray(weights) / np.mean(weights)
        logged = to_device(evenly(len(X), _LOGGED))
        return cls(
            fixed, symmetries, X, Y, to_device(w, Y.dtype), logged, to_device(penalty, Y.dtype), min(batch, len(X))
        )

    @property
    def is_stochastic(self) -> bool:
        return True

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return self._on(self.logged, None, parameters)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        rows = draw(key, len(self.inputs), self.batch)
        maps = None if self.symmetries is None else self.symmetries.drawn(jr.fold_in(key, 1), self.batch)
        return eqx.filter_value_and_grad(lambda p: self._on(rows, maps, p))(parameters)

    def _on(self, rows: Array, maps: GridSymmetries | None, parameters: Parameters) -> Float[Array, ""]:
        branch: GridBranch = eqx.combine(parameters, self.fixed)
        missed = (branch.after(self.inputs[rows], maps) - self.targets[rows]) / branch.scale
        squares = self.weights[rows] * jnp.sum(missed**2, axis=1)
        penalty = self.penalty * jnp.mean(branch.projection**2).astype(squares.dtype) * len(branch.projection)
        return jnp.mean(jnp.sqrt(squares + _TINY)) ** 2 + penalty


def _grid_of(task: Task) -> InputGrid:
    grid = task.layout.grid
    if grid is None:
        raise DataError(
            "branch: fourier needs all input functions on one grid of at most three axes; give inputs of shape "
            "(samples, n, m), the coordinates of their sensors, or grid_shape"
        )
    if task.inputs.shape[1] != grid.places.max() + 1:
        raise DataError(
            f"branch: fourier needs the values at all {grid.places.max() + 1} sensors, but the encoder of the "
            f'inputs gives {task.inputs.shape[1]} features; set inputs = "raw"'
        )
    return grid


def _trained_parts(branch: GridBranch, is_free: bool) -> GridBranch:
    """Which leaves are trained: those of the network, and the last layer if it is free."""
    nothing = jax.tree.map(lambda _: False, branch)
    network = jax.tree.map(lambda _: True, branch.network)
    return eqx.tree_at(lambda b: (b.network, b.projection), nothing, (network, is_free))


def _mean_square(branch: GridBranch, inputs: np.ndarray, targets: np.ndarray) -> float:
    """Of some samples, before the mean over symmetries, in blocks: all at once would not fit into memory."""
    call = eqx.filter_jit(GridBranch.__call__)
    rows = np.array_split(some := evenly(len(inputs), _EVALUATED), max(len(some) // _LOGGED, 1))
    return float(np.mean([np.mean((np.asarray(call(branch, inputs[r])) - targets[r]) ** 2) for r in rows]))
