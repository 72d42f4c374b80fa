"""Step 1 as separable least squares: the coefficients are solved for, only the trunk is searched."""

import dataclasses as dc
import functools as ft
import math
import time
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import OperatorData
from ..linear import compress
from ..minimisers import (
    LBFGS,
    AbstractFeatures,
    AbstractMinimiser,
    Minimised,
    OnStep,
    Parameters,
    SeparableProblem,
    Stopping,
    minimise,
    solve_ridge,
)
from ..networks import ACTIVATIONS, Perceptron, Trunk
from ._bilinear import hidden_layers
from ._losses import FreeCoefficients, make_loss, mean_one, plain_loss
from ._trunks import AbstractTrunkFit, TrunkResult, passed_on


@dc.dataclass(frozen=True)
class ProjectedTrunk(AbstractTrunkFit):
    """min over the trunk of min over A of |A Phi^T - U|^2 + ridge^2 |A|^2, from several starts.

    The outputs enter through their thin factor, so that an iteration costs the same for any number of
    samples. ReLU trunks depend on where they start: `starts` of them run side by side, and again and again the
    worse half is given up. For p other than 2, which allows no compression, the result is where the trunk and
    A are then trained together on the loss asked for.
    """

    minimiser: AbstractMinimiser = LBFGS()
    iterations: int = 6000
    starts: int = 8
    ridge: float = 1e-3
    p: float = 2.0
    stopping: Stopping = Stopping()

    def fit(
        self, data: OperatorData, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        self.network.check(data)
        start = time.perf_counter()
        begin, run = jr.split(key)
        trunks = [self.network.make(dtype=dtype, key=k) for k in jr.split(begin, self.starts)]
        result = successive_halving(
            self._problem(data, dtype),
            [_searched(trunk.network) for trunk in trunks],
            self.minimiser,
            iterations=self.iterations,
            stopping=self.stopping,
            key=run,
            on_step=on_step,
        )
        searched: Searched = result.parameters
        trunk = passed_on(searched.network, trunks[0]) if searched.is_hidden else Trunk(searched.network)
        factors = FreeCoefficients(trunk, jnp.asarray(_least_squares(trunk, data, self.ridge)))
        if self.p != 2:
            result = self._polish(data, factors, run, on_step)
            factors = result.parameters
        Phi = np.asarray(factors.trunk(jnp.asarray(data.points, dtype)))
        coefficients = np.asarray(factors.matrix)
        return TrunkResult(
            factors.trunk,
            coefficients,
            is_projected=self.p == 2,
            loss=plain_loss(coefficients, Phi, data.outputs, p=self.p),
            status=result.status,
            iterations=result.iterations,
            seconds=time.perf_counter() - start,
            history=result.history,
        )

    def _polish(
        self, data: OperatorData, start: FreeCoefficients, key: PRNGKeyArray, on_step: OnStep | None
    ) -> Minimised:
        dtype = start.matrix.dtype
        loss = make_loss(data, jnp.zeros((data.samples, 0), dtype), p=self.p, dtype=dtype)
        return minimise(
            loss, start, self.minimiser, iterations=self.iterations, key=key, stage="trunk", on_step=on_step
        )

    def _problem(self, data: OperatorData, dtype: np.dtype) -> SeparableProblem:
        roots = np.sqrt(mean_one(data.point_weights, len(data.points)))
        outputs = data.outputs * roots * np.sqrt(mean_one(data.sample_weights, data.samples))[:, None]
        factor = compress(outputs).factor.T  # (points, rank)
        features = TrunkFeatures(jnp.asarray(data.points, dtype), jnp.asarray(roots, dtype))
        return SeparableProblem(features, jnp.asarray(factor, dtype), self.ridge, float(outputs.size))


class TrunkFeatures(AbstractFeatures):
    """Phi at the points, each row times the root of its weight.

    What is searched is either a whole network, or, where the output layer would only mix the functions of the
    last hidden layer (N not below its width), the layers before it: their span is the same.
    """

    points: Float[Array, "points coordinates"]
    root_weights: Float[Array, " points"]

    def __call__(self, parameters: "Searched") -> Float[Array, "rows columns"]:
        functions = parameters(self.points)
        ones = jnp.ones((len(self.points), 1), functions.dtype)
        return jnp.concatenate([ones, functions], axis=1) * self.root_weights[:, None]


class Searched(eqx.Module):
    """The part of a trunk network that matters for its span."""

    network: Perceptron
    is_hidden: bool = eqx.field(static=True)

    def __call__(self, points: Float[Array, "points coordinates"]) -> Float[Array, "points functions"]:
        values = self.network(points)
        return ACTIVATIONS[self.network.activation](values) if self.is_hidden else values


def _searched(network: Perceptron) -> Searched:
    *_, hidden, width = network.architecture
    if len(network.weights) == 1 or width < hidden:
        return Searched(network, False)
    return Searched(hidden_layers(network), True)


def successive_halving(
    problem: SeparableProblem,
    starts: Sequence[Parameters],
    minimiser: AbstractMinimiser,
    *,
    iterations: int,
    stopping: Stopping,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Minimised:
    """Minimise from all starts for a while, keep the better half by training loss, and so on; finish the best.

    Each round takes about a quarter of the iterations in all, whatever the number of starts.
    """
    go_on = ft.partial(minimise, problem, minimiser=minimiser, key=key, on_step=on_step)
    runs = [minimise(problem, start, minimiser, iterations=1, key=key) for start in starts]
    share = max(iterations // (4 * len(starts)), 20)
    reached = 1
    while len(runs) > 1:
        reached += share
        share *= 2
        runs = [
            go_on(run.parameters, iterations=reached, state=run.state, stage=f"start {number + 1}")
            for number, run in enumerate(runs)
        ]
        if any(run.status == "interrupted" for run in runs):
            return dc.replace(min(runs, key=_value), status="interrupted")
        runs = sorted(runs, key=_value)[: (len(runs) + 1) // 2]
    best = runs[0]
    return go_on(best.parameters, iterations=iterations, state=best.state, stage="trunk", stopping=stopping)


def _value(run: Minimised) -> float:
    return run.value if math.isfinite(run.value) else math.inf


def _least_squares(trunk: Trunk, data: OperatorData, ridge: float) -> Float[np.ndarray, "samples functions"]:
    dtype = trunk.network.weights[0].dtype
    roots = jnp.asarray(np.sqrt(mean_one(data.point_weights, len(data.points))), dtype)
    Phi = trunk(jnp.asarray(data.points, dtype)) * roots[:, None]
    return np.asarray(_solve(Phi, jnp.asarray(data.outputs, dtype).T * roots[:, None], ridge)).T


_solve = eqx.filter_jit(solve_ridge)
