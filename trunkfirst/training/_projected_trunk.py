"""Step 1 as separable least squares: the coefficients are solved for, only the trunk is searched."""

import dataclasses as dc
import time
from collections.abc import Callable, Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..distributed.mesh import shard_rows
from ..distributed.processes import process_shard
from ..errors import UsageError
from ..linear import compress, leverage_sample, row_blocks
from ..minimisers import (
    LBFGS,
    AbstractFeatures,
    AbstractMinimiser,
    AbstractObjective,
    Minimised,
    OnStep,
    SeparableProblem,
    Stopping,
    minimise,
    solve_ridge,
    solve_ridge_in_blocks,
)
from ..networks import Perceptron, Trunk, rounded
from ._bilinear import hidden_layers
from ._fields import AnyFields, Fields, ScatteredFields
from ._halving import go_on, successive_halving
from ._losses import FreeCoefficients, make_loss, mean_one, plain_loss
from ._scattered import residuals, scattered_problem, some_samples
from ._trunks import AbstractTrunkFit, TrunkResult, passed_on, trunk_values

# The way from a problem that is easy to search to the one that is asked for: the ridge, relative to its setting,
# and the radius to which kinks of ReLU are rounded. All but the first have this share of the iterations each;
# where there were kinks more of them, because the problem with rounded ones is another one.
_WAY = ((1.0, 0.03), (0.1, 0.006), (0.01, 0.0))
_SHARE, _SHARE_RELU = 0.125, 0.3
# Numbers of all layers at all points beyond which a search looks at some of the points: 64 MiB.
_MOST_NUMBERS = 2**23


@dc.dataclass(frozen=True)
class ProjectedTrunk(AbstractTrunkFit):
    """min over the trunk of min over A of |A Phi^T - U|^2 + ridge^2 |A|^2, from several starts.

    The outputs enter through their thin factor, so that an iteration costs the same for any number of
    samples. ReLU trunks depend on where they start: `starts` of them run side by side, and again and again the
    worse half is given up. A ridge keeps the search well behaved, and in the end it is what is left of the loss:
    from a good place a smaller one can be afforded (started with, it stalls), so it fades to a hundredth. With it
    go the rounded kinks of a ReLU trunk, at which a search would get stuck. For p other than 2, which allows no
    compression, the result is where the trunk and A are then trained together on the loss asked for.
    """

    minimiser: AbstractMinimiser = LBFGS()
    iterations: int = 6000
    starts: int = 8
    ridge: float = 1e-3
    p: float = 2.0
    stopping: Stopping = Stopping(stuck=100)

    def fit(
        self, fields: AnyFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        self.network.check(*fields.points.shape)
        if isinstance(fields, ScatteredFields) and self.p != 2:
            raise UsageError("samples at points of their own need p = 2")
        start = time.perf_counter()
        begin, run = jr.split(key)
        trunks = [self.network.make(dtype=dtype, key=k) for k in jr.split(begin, self.starts)]
        result = self._search(fields, trunks, dtype, run, on_step)
        searched: Searched = result.parameters
        trunk = passed_on(searched.network, trunks[0]) if searched.is_hidden else Trunk(searched.network)
        A = _least_squares(trunk, fields, self.ridge * _WAY[-1][0])
        if self.p != 2 and isinstance(fields, Fields):
            result = self._polish(fields, FreeCoefficients(trunk, jnp.asarray(A)), run, on_step)
            trunk, A = result.parameters.trunk, np.asarray(result.parameters.matrix)
        return TrunkResult(
            trunk,
            A,
            is_projected=self.p == 2,
            loss=trunk_loss(trunk, A, fields, p=self.p),
            status=result.status,
            iterations=result.iterations,
            seconds=time.perf_counter() - start,
            history=result.history,
            p=self.p,
        )

    def start(self, *, dtype: np.dtype, key: PRNGKeyArray) -> "Searched":
        """A new trunk as the search sees it."""
        return _searched(self.network.make(dtype=dtype, key=key).network)

    def _search(
        self,
        fields: AnyFields,
        trunks: Sequence[Trunk],
        dtype: np.dtype,
        key: PRNGKeyArray,
        on_step: OnStep | None,
    ) -> Minimised:
        problem = trunk_problems(fields, dtype, numbers=sum(self.network.architecture))
        (ridge, rounding), *others = [(self.ridge * share, rounding) for share, rounding in _WAY]
        share = max(int((_SHARE_RELU if self.network.activation == "relu" else _SHARE) * self.iterations), 1)
        first = successive_halving(
            problem(ridge, rounding),
            [_searched(trunk.network) for trunk in trunks],
            self.minimiser,
            iterations=max(self.iterations - len(others) * share, 1),
            stopping=self.stopping,
            key=key,
            on_step=on_step,
        )
        return go_on(
            first,
            [(f"trunk, ridge {ridge:.0e}", problem(ridge, rounding)) for ridge, rounding in others],
            self.minimiser,
            iterations=self.iterations,
            share=share,
            # With little ridge left a ReLU trunk may only be stuck at its kinks, in long line searches.
            stopping=dc.replace(
                self.stopping, patience=min(self.stopping.patience, max(share // 10, 10)), stuck=30
            ),
            key=key,
            on_step=on_step,
        )

    def _polish(
        self, fields: Fields, start: FreeCoefficients, key: PRNGKeyArray, on_step: OnStep | None
    ) -> Minimised:
        dtype = start.matrix.dtype
        loss = make_loss(fields, jnp.zeros((fields.samples, 0), dtype), p=self.p, dtype=dtype)
        return minimise(
            loss, start, self.minimiser, iterations=self.iterations, key=key, stage="trunk", on_step=on_step
        )


def trunk_problems(fields: AnyFields, dtype: np.dtype, *, numbers: int = 0) -> Callable[..., AbstractObjective]:
    """The problem for any ridge and `rounding` of kinks: with the thin factor of the outputs, or samples enough.

    Where `numbers` a point, those of all layers, are more than 2^23 at all points, points are drawn by leverage.
    """
    if isinstance(fields, ScatteredFields):
        some = some_samples(fields)
        return lambda ridge, rounding=0.0: scattered_problem(some, ridge, dtype, rounding=rounding)
    roots = np.sqrt(mean_one(fields.point_weights, len(fields.points)))
    factor, points = fields.factor, fields.points
    if factor is None:
        outputs = fields.outputs * roots * np.sqrt(mean_one(fields.sample_weights, fields.samples))[:, None]
        factor = compress(outputs).factor
    if len(points) * numbers > _MOST_NUMBERS:
        drawn, times = leverage_sample(factor, roots**2, _MOST_NUMBERS // numbers)
        points, roots, factor = points[drawn], roots[drawn] * np.sqrt(times), factor[:, drawn] * np.sqrt(times)
    places, weights = shard_rows(points, dtype, repeats_last=True), shard_rows(roots, dtype)
    targets = shard_rows(factor.T, dtype)  # (points, rank)
    return lambda ridge, rounding=0.0: SeparableProblem(
        TrunkFeatures(places, weights, rounding), targets, ridge, float(fields.outputs.size)
    )


class TrunkFeatures(AbstractFeatures):
    """Phi at the points, each row times the root of its weight.

    What is searched is either a whole network, or, where the output layer would only mix the functions of the
    last hidden layer (N not below its width), the layers before it: their span is the same.
    """

    points: Float[Array, "points coordinates"]
    root_weights: Float[Array, " points"]
    rounding: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)

    def __call__(self, parameters: "Searched") -> Float[Array, "rows columns"]:
        functions = parameters(self.points, self.rounding)
        ones = jnp.ones((len(self.points), 1), functions.dtype)
        return jnp.concatenate([ones, functions], axis=1) * self.root_weights[:, None]


class Searched(eqx.Module):
    """The part of a trunk network that matters for its span."""

    network: Perceptron
    is_hidden: bool = eqx.field(static=True)

    def __call__(
        self, points: Float[Array, "points coordinates"], rounding: Float[Array, ""]
    ) -> Float[Array, "points functions"]:
        sigma = rounded(self.network.activation, rounding)
        values = self.network(points, sigma)
        return sigma(values) if self.is_hidden else values


def _searched(network: Perceptron) -> Searched:
    *_, hidden, width = network.architecture
    if len(network.weights) == 1 or width < hidden:
        return Searched(network, False)
    return Searched(hidden_layers(network), True)


def reuse_trunk(trunk: Trunk, fields: AnyFields, *, ridge: float = 1e-6) -> TrunkResult:
    """Step 1 with a trunk that is kept as it is: only the coefficients of these fields are solved for."""
    begin = time.perf_counter()
    bare = Trunk(trunk.network)
    A = _least_squares(bare, fields, ridge)
    return TrunkResult(
        bare,
        A,
        is_projected=True,
        loss=trunk_loss(bare, A, fields, p=2.0),
        status="finished",
        iterations=0,
        seconds=time.perf_counter() - begin,
        history=(),
    )


def _least_squares(trunk: Trunk, fields: AnyFields, ridge: float) -> Float[np.ndarray, "rows functions"]:
    dtype = trunk.network.weights[0].dtype
    if isinstance(fields, ScatteredFields):
        solved = scattered_problem(fields, ridge, dtype).coefficients(Searched(trunk.network, False))
        return np.asarray(solved).reshape(fields.samples, -1)
    roots = np.sqrt(mean_one(fields.point_weights, len(fields.points)))

    def rows(block: slice) -> tuple[Array, Array]:
        root = jnp.asarray(roots[block], dtype)[:, None]
        Phi = jnp.asarray(trunk_values(trunk, fields.points[block], dtype))
        return Phi * root, jnp.asarray(fields.outputs[:, block], dtype).T * root

    blocks = row_blocks(len(fields.points))
    if len(blocks) == 1:
        return np.asarray(_solve(*rows(blocks[0]), ridge)).T
    part, parts = process_shard()
    return np.asarray(solve_ridge_in_blocks(lambda: map(rows, blocks[part::parts] or [slice(0, 0)]), ridge)).T


def trunk_loss(trunk: Trunk, A: Float[np.ndarray, "rows functions"], fields: AnyFields, *, p: float) -> float:
    """Mean of |error|^p over all values, without weights."""
    Phi = trunk_values(trunk, fields.points, A.dtype)
    if isinstance(fields, ScatteredFields):
        return float(np.mean(np.abs(residuals(Phi, A, fields)) ** p))
    return plain_loss(A, Phi, fields.outputs, p=p)


_solve = eqx.filter_jit(solve_ridge)
