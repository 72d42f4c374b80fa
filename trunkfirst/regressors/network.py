"""Networks as branches: all layers trained by a minimiser, or the last layer solved for (variable projection)."""

import dataclasses as dc
import time
from collections.abc import Iterator
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pydantic import PositiveInt

from ..data.array_checks import sample_blocks
from ..device_arrays import normal, padded_count, split_key, to_device
from ..distributed.mesh import current_mesh, shard_rows
from ..errors import DataError, SettingError
from ..linear.low_rank import leverage_sample, principal_directions
from ..memory import check_network
from ..minimisers import Minimiser
from ..minimisers.adam import Adam, draw
from ..minimisers.lbfgs import LBFGS
from ..minimisers.loop import AbstractObjective, Minimised, Parameters, Stopping, minimise
from ..minimisers.separable import (
    AbstractFeatures,
    SeparableProblem,
    solve_ridge_in_blocks,
    solve_ridge_on_host,
)
from ..networks.branches import (
    AbstractBranchFeatures,
    Branch,
    FeatureBranch,
    LayerFeatures,
    SkipFeatures,
    make_branch,
    make_convolution,
    make_product,
)
from ..networks.layers import ActivationName, InitialisationName, Perceptron, make_perceptron
from ..settings import Field, kind_field, record
from .base import (
    AbstractRegressor,
    InputLayout,
    Regression,
    StoredRows,
    Task,
    generator,
    mean_square,
    values_in_blocks,
)


@record
class AbstractBranchNetwork:
    """The architecture of a branch network, with `hidden` layers between the inputs and the coefficients."""

    hidden: tuple[PositiveInt, ...] = Field(default=(500,), min_length=1, description="hidden widths")
    activation: ActivationName = Field(
        default="relu", description="relu, tanh, gelu, silu, sine, softplus, elu or sigmoid"
    )
    initialisation: InitialisationName = Field(default="he", description="he or xavier")
    skip: bool = Field(default=False, description="also pass the inputs to the last layer")
    product: bool = Field(
        default=False, description="one network for each input function, multiplied with each other (MIONet)"
    )
    convolution: bool = Field(
        default=False,
        description="convolutions on the grid of the input; all of hidden but the last are their channels",
    )

    def make(
        self,
        features: int,
        coefficients: int,
        layout: InputLayout,
        *,
        stacked: bool = False,
        dtype: np.dtype,
        key: PRNGKeyArray,
    ) -> Branch:
        """A new network from `features` to `coefficients`."""
        if self.skip or self.product or self.convolution:
            if stacked:
                raise SettingError("branch.stacked goes with neither skip nor product nor convolution; drop them")
            first, last = split_key(key, 2)
            module = self.make_features(features, layout, dtype=dtype, key=first)
            width = self.hidden[-1] + (features if self.skip else 0)
            W = normal(last, (coefficients, width), dtype) / np.sqrt(width).astype(dtype)
            return FeatureBranch(module, to_device(W), to_device(np.zeros(coefficients, dtype)))
        return make_branch(
            (features, *self.hidden, coefficients),
            stacked=stacked,
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )

    def make_features(
        self, features: int, layout: InputLayout, *, dtype: np.dtype, key: PRNGKeyArray
    ) -> AbstractBranchFeatures:
        """The network without its last layer."""
        module = self._make_hidden(features, layout, dtype=dtype, key=key)
        return SkipFeatures(module) if self.skip else module

    def _make_hidden(
        self, features: int, layout: InputLayout, *, dtype: np.dtype, key: PRNGKeyArray
    ) -> AbstractBranchFeatures:
        if self.convolution:
            if layout.grid is None or not layout.grid.is_plain:
                raise DataError("branch: a convolution needs one input function with a grid_shape")
            *channels, width = self.hidden
            if not channels:
                raise SettingError("branch.convolution needs channels before the last width: hidden=[16, 32, 128]")
            return make_convolution(
                layout.grid.shape, channels, width, activation=self.activation, dtype=dtype, key=key
            )
        if self.product:
            if len(layout.groups) < 2:
                raise SettingError(
                    "branch.product needs several input functions, each with an encoder of its own: "
                    'inputs = {kind = "per-input", encodings = {f = "standardise", g = "standardise"}}'
                )
            return make_product(
                layout.groups,
                self.hidden,
                activation=self.activation,
                initialisation=self.initialisation,
                dtype=dtype,
                key=key,
            )
        whole = make_perceptron(
            (features, *self.hidden, 1),
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )
        return LayerFeatures(Perceptron(whole.weights[:-1], whole.biases[:-1], whole.activation))


@record
class BranchNetwork(AbstractBranchNetwork):
    """The branch network of `Monolithic` and `MonolithicProjected`.

    >>> BranchNetwork(hidden=(100, 100), activation="relu").hidden
    (100, 100)
    """

    stacked: bool = Field(default=False, description="one network for each coefficient")


@record
class JointBranch(AbstractBranchNetwork, AbstractRegressor):
    """A network whose layers are all trained by a minimiser, on the mean square error: the paper's step 2.

    >>> JointBranch(hidden=(500,), activation="relu", iterations=10_000).hidden
    (500,)
    """

    stacked: bool = Field(default=False, description="one network for each coefficient")
    minimiser: Minimiser = Adam()
    iterations: int = Field(default=10_000, ge=1, description="largest number of iterations")
    batch: int | None = Field(default=None, ge=1, description="samples in a step of Adam; all if left out")
    kind: Literal["joint"] = kind_field("joint")

    def with_minimal_budget(self) -> AbstractRegressor:
        return dc.replace(self, iterations=1)

    def learn(self, task: Task) -> Regression:
        inputs, targets, weights = task.to_device()
        start, run = split_key(task.key, 2)
        branch = self.make(
            inputs.shape[1], targets.shape[1], task.layout, stacked=self.stacked, dtype=targets.dtype, key=start
        )
        objective = spread_loss(RegressionLoss(inputs, targets, weights, self.batch))
        result = minimise(
            objective,
            branch,
            self.minimiser,
            iterations=self.iterations,
            key=run,
            stage="branch",
            loss_unit=task.loss_unit,
            on_step=task.on_step,
        )
        loss = float(np.mean((values_in_blocks(result.parameters, task.inputs) - np.asarray(task.targets)) ** 2))
        return Regression(
            result.parameters, loss, result.status, result.iterations, result.seconds, result.history
        )


@record
class NetworkBranch(AbstractBranchNetwork, AbstractRegressor):
    """A network trained by variable projection: the last layer is solved for, only hidden layers are trained.

    Targets are reduced to their principal components, of which there are few; the last layer is the ridge solution
    for these. With 0 iterations the hidden layers stay as they were drawn.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(branch=NetworkBranch(hidden=(60,), iterations=200)).branch.hidden
    (60,)
    """

    hidden: tuple[PositiveInt, ...] = Field(default=(128,), min_length=1, description="hidden widths")
    activation: ActivationName = Field(
        default="gelu", description="relu, tanh, gelu, silu, sine, softplus, elu or sigmoid"
    )
    initialisation: InitialisationName = Field(default="xavier", description="he or xavier")
    skip: bool = Field(default=True, description="also pass the inputs to the last layer")
    minimiser: Minimiser = LBFGS()
    iterations: int = Field(default=400, ge=0, description="largest number of iterations")
    ridge: float = Field(default=1e-3, ge=0, description="ridge of the last layer")
    decay: float = Field(
        default=1e-6,
        ge=0,
        description="weight decay of the hidden layers, relative to the mean square of the targets",
    )
    max_samples: int = Field(
        default=6_000,
        ge=1,
        description="largest number of samples in the search, drawn by leverage; the last layer uses all",
    )
    kind: Literal["network"] = kind_field("network")

    def with_minimal_budget(self) -> AbstractRegressor:
        return dc.replace(self, iterations=0)

    def learn(self, task: Task) -> Regression:
        # On the host: as many small operations on the device would each be compiled.
        X, Y = np.asarray(task.inputs), np.asarray(task.targets)
        widths = (X.shape[1], *self.hidden, Y.shape[1])
        check_network(widths, len(X), bytes_per_number=X.itemsize, is_last_solved=True)
        roots = np.ones(len(X), X.dtype) if task.weights is None else _roots(np.asarray(task.weights))
        directions = principal_directions(Y * roots[:, None], tolerance=1e-12)
        rotated = Y @ directions.T * roots[:, None]
        begin, choose, run = split_key(task.key, 3)
        features, status, iterations, history = self._features(X, task.layout, begin), "finished", 0, ()
        if self.iterations:
            rows, more = _sample_rows(rotated, roots, self.max_samples, choose)
            problem = self._problem(X[rows], rotated[rows] * more[:, None], roots[rows] * more, Y.shape[1])
            found = self._search(problem, features, run, task)
            features, status = found.parameters, found.status
            iterations, history = found.iterations, found.history
        Phi = np.concatenate([np.ones((len(X), 1), X.dtype), values_in_blocks(features, X)], axis=1)
        last = solve_ridge_on_host(Phi * roots[:, None], rotated, self.ridge) @ directions
        squares = sum(float(np.sum((Phi[some] @ last - Y[some]) ** 2)) for some in sample_blocks(Y.shape))
        seconds = time.perf_counter() - task.begin
        return Regression(_with_last_layer(features, last), squares / Y.size, status, iterations, seconds, history)

    def _search(
        self, problem: SeparableProblem, features: AbstractBranchFeatures, key: PRNGKeyArray, task: Task
    ) -> Minimised:
        return minimise(
            problem,
            features,
            self.minimiser,
            iterations=self.iterations,
            key=key,
            stage="branch",
            loss_unit=task.loss_unit,
            # Where a branch of many neurons already interpolates, only stuck line searches are left to do.
            stopping=Stopping(patience=max(5, self.iterations // 20)),
            on_step=task.on_step,
        )

    def completed(self, branch: Branch, rows: StoredRows) -> Branch:
        """The last layer solved for again, on all samples."""
        features = _without_last_layer(branch)

        def blocks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for inputs, targets, weights in rows.blocks():
                roots = jnp.sqrt(weights)
                Phi, B = HiddenFeatures(inputs, roots)(features), targets * roots[:, None]
                yield np.asarray(Phi), np.asarray(B)

        return _with_last_layer(features, solve_ridge_in_blocks(blocks, self.ridge))

    def _problem(
        self, inputs: np.ndarray, rotated: np.ndarray, roots: np.ndarray, coefficients: int
    ) -> SeparableProblem:
        scale = float(len(inputs) * coefficients)
        decay = float(self.decay * np.sum(rotated**2) / scale)
        # Rows that are added have no weight; other numbers of samples then need no other program.
        added = padded_count(len(inputs)) - len(inputs)
        inputs, rotated = (np.pad(array, ((0, added), (0, 0))) for array in (inputs, rotated))
        features = HiddenFeatures(shard_rows(inputs), shard_rows(np.pad(roots, (0, added))))
        return SeparableProblem(features, shard_rows(rotated), self.ridge, scale, decay)

    def _features(self, inputs: np.ndarray, layout: InputLayout, key: PRNGKeyArray) -> AbstractBranchFeatures:
        """The network without its last layer; kinks of dense layers spread over the data, not all at one place."""
        make, draw = split_key(key, 2)
        features = self.make_features(inputs.shape[1], layout, dtype=inputs.dtype, key=make)
        if not isinstance(features, LayerFeatures):
            return features
        layers = features.layers
        W = np.asarray(layers.weights[0])
        at = inputs[np.asarray(jr.choice(draw, len(inputs), (len(W),)))]
        biases = (to_device(-np.sum(W * at, axis=1)), *layers.biases[1:])
        return LayerFeatures(Perceptron(layers.weights, biases, layers.activation))


class RegressionLoss(AbstractObjective):
    """Mean square of branch(inputs) - targets; with `batch`, on that many samples drawn each step."""

    inputs: Float[Array, "samples features"]
    targets: Float[Array, "samples coefficients"]
    weights: Float[Array, " samples"] | None = None
    batch: int | None = eqx.field(static=True, default=None)

    @property
    def is_stochastic(self) -> bool:
        return self.batch is not None

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return mean_square(parameters(self.inputs) - self.targets, self.weights)

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        loss = self if self.batch is None else self._batch(self.batch, key)
        return eqx.filter_value_and_grad(loss.value)(parameters)

    def _batch(self, size: int, key: PRNGKeyArray) -> "RegressionLoss":
        rows = draw(key, len(self.inputs), size)
        weights = None if self.weights is None else self.weights[rows]
        return RegressionLoss(self.inputs[rows], self.targets[rows], weights)


def spread_loss(loss: RegressionLoss) -> RegressionLoss:
    """The same with its samples spread over the mesh, if there is one and no batch is drawn from them."""
    if current_mesh() is None or loss.is_stochastic:
        return loss
    weights = np.ones(len(loss.inputs)) if loss.weights is None else np.asarray(loss.weights)
    spread = shard_rows(weights, loss.targets.dtype)
    # Rows that were added have no weight; the mean over all is to be that over the samples.
    spread = spread * (len(spread) / len(weights))
    return RegressionLoss(shard_rows(loss.inputs, repeats_last=True), shard_rows(loss.targets), spread)


class HiddenFeatures(AbstractFeatures):
    """Phi = (1, features of the branch) at the inputs, each row times the root of its weight."""

    inputs: Float[Array, "samples features"]
    roots: Float[Array, " samples"]

    def __call__(self, parameters: AbstractBranchFeatures) -> Float[Array, "rows columns"]:
        hidden = parameters(self.inputs)
        ones = jnp.ones((len(self.inputs), 1), hidden.dtype)
        return jnp.concatenate([ones, hidden], axis=1) * self.roots[:, None]


def _with_last_layer(features: AbstractBranchFeatures, last: Float[np.ndarray, "columns coefficients"]) -> Branch:
    """The branch whose last layer has its biases in the first row of `last`, its weights in the others."""
    W, b = to_device(last[1:].T), to_device(last[0])
    if not isinstance(features, LayerFeatures):
        return FeatureBranch(features, W, b)
    layers = features.layers
    return Perceptron((*layers.weights, W), (*layers.biases, b), layers.activation)


def _without_last_layer(branch: Branch) -> AbstractBranchFeatures:
    if isinstance(branch, FeatureBranch):
        return branch.features
    assert isinstance(branch, Perceptron)
    return LayerFeatures(Perceptron(branch.weights[:-1], branch.biases[:-1], branch.activation))


def _roots(weights: Float[np.ndarray, " samples"]) -> Float[np.ndarray, " samples"]:
    return np.sqrt(weights / np.mean(weights))


def _sample_rows(
    targets: Float[np.ndarray, "samples directions"],
    roots: Float[np.ndarray, " samples"],
    count: int,
    key: PRNGKeyArray,
) -> tuple[slice | Int[np.ndarray, " chosen"], Float[np.ndarray, " chosen"]]:
    """Samples by the leverage of their targets, so that rare ones are seen, and factors that keep mean squares."""
    if len(targets) <= count:
        return slice(None), np.ones_like(roots)
    rows, times = leverage_sample(targets.T, roots**2, count, seed=generator(key))
    return rows, np.sqrt(times * len(rows) / len(targets)).astype(targets.dtype)


@record
class AutoBranch(AbstractRegressor):
    """The branch is chosen on samples left out: linear, kernel, a network like `network`, active neurons.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep().branch.kind
    'auto'
    """

    network: NetworkBranch = NetworkBranch()
    trial_iterations: int = Field(
        default=80,
        ge=1,
        description="iterations of a network in a comparison; 2.5 times as many to choose its decay",
    )
    kind: Literal["auto"] = kind_field("auto")

    def learn(self, task: Task) -> Regression:
        raise SettingError("branch: it is still to be chosen; call trunkfirst.fit, which chooses it")
