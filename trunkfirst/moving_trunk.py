"""Step 1 where the functions see the input: shocks, fronts and waves that move with it.

    u(y; f) = sum_k c_k(f) phi_k(y, z(f)).

Coefficients that are free for every sample hide errors of a front's place, which no branch can reproduce. Here
they are c = B psi(f) from the start, with a few features psi that are searched together with phi, and with B
solved for: variable projection, as in the paper's step 1 with A in the place of B. Step 2 learns the coefficients.

Where a search ends depends on its start. The functions of several searches are used together, and the field is the
mean of theirs, weighted by the inverse of their losses: their errors differ.
"""

import dataclasses as dc
import functools as ft
import itertools
import time
from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pydantic import PositiveInt
from scipy.spatial import KDTree

from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .device_arrays import to_device
from .errors import UsageError
from .fields import AbstractFields, Fields, TrunkResult, mean_one
from .inputs import AbstractInputs, PowerInputs, PrincipalInputs, StandardisedInputs
from .linear.low_rank import principal_directions
from .minimisers import Minimiser
from .minimisers.lbfgs import LBFGS
from .minimisers.loop import AbstractObjective, Minimised, OnStep, Stopping, minimise
from .networks.branches import LayerFeatures, SkipFeatures
from .networks.layers import (
    Latent,
    MovingFunctions,
    Perceptron,
    make_perceptron,
    moving_side_by_side,
)
from .regressors.base import generator
from .settings import Field, kind_field, record
from .trunks import AbstractTrunk

T = TypeVar("T")

# More features than this are summarised: z are then a few numbers of them.
_FEW_FEATURES = 4
_PRINCIPAL = 16
_LATENT_HIDDEN, _BRANCH_HIDDEN = 32, 16
# Values that a stage of the search looks at; of more, every sample has its own random points.
_MOST_VALUES = 100_000
_STAGES, _FEWEST_POINTS, _AT_FRONTS = 4, 64, 0.5
# Layers are evaluated in single precision, several times as fast, for about as many samples times points.
_LAYERS, _BLOCK = np.dtype(np.float32), 2000
# A search needs about these; beyond them another start pays.
USUAL_ITERATIONS = 1500
_STOPPING = Stopping(patience=300, stuck=30)


@record
class MovingTrunk(AbstractTrunk):
    """Functions of the point and of the input, for outputs whose shocks, fronts or waves move with the input.

    A few of these replace hundreds of fixed functions. For smooth outputs `ModesTrunk` is faster and more
    accurate.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(MovingTrunk(), trunkfirst.Kernel()).trunk.kind
    'moving'
    """

    sees_inputs: ClassVar[bool] = True

    width: int = Field(default=4, ge=1, description="functions of a member besides the constant")
    fronts: int = Field(default=4, ge=1, description="surfaces across which functions of a member may jump")
    hidden: tuple[PositiveInt, ...] = Field(
        default=(32, 32), description="hidden widths of the network that places the fronts"
    )
    numbers: int = Field(default=4, ge=1, description="numbers of an input with many features that functions see")
    minimiser: Minimiser = LBFGS(pairs=100)
    iterations: int | None = Field(
        default=None,
        ge=1,
        description="largest number of iterations of each member; follows from the time limit if left out",
    )
    members: int = Field(
        default=3,
        ge=1,
        description="searches from different starts, whose functions are used together; fewer if time is short",
    )
    ridge: float = Field(default=1e-4, gt=0, description="ridge of B, from which the coefficients come")
    kind: Literal["moving"] = kind_field("moving")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if not isinstance(fields, Fields) or fields.inputs is None:
            raise UsageError(
                "trunk: one that moves needs all samples at the same points; for samples at points of their own "
                "set trunk.kind = network"
            )
        begin, found = time.perf_counter(), list[Minimised]()
        for number, member_key in enumerate(jr.split(key, self.members), start=1):
            start_key, run_key = jr.split(member_key)
            start = self.start(fields, dtype=dtype, key=start_key)
            found.append(self._search(fields, start, dtype, run_key, on_step, number))
            if found[-1].status != "finished":
                break
        functions = moving_side_by_side([each.parameters.functions for each in found])
        A = self._coefficients(found, fields, dtype)
        return TrunkResult(
            functions,
            A,
            is_projected=False,
            loss=fields.loss(functions, A, p=2.0),
            status=found[-1].status,
            iterations=sum(each.iterations for each in found),
            seconds=time.perf_counter() - begin,
            history=tuple(itertools.chain.from_iterable(each.history for each in found)),
            limits={"limit": None, "limit_upper": None, "is_limited_by_network": None},
        )

    def _coefficients(
        self, found: Sequence[Minimised], fields: Fields, dtype: np.dtype
    ) -> Float[np.ndarray, "rows functions"]:
        """A = B psi of every member, with B solved for as in the search, times the member's share."""
        assert fields.inputs is not None
        problem = moving_problem(fields, self.ridge, dtype, layers=dtype, key=jr.key(0))
        inputs = jnp.asarray(fields.inputs, dtype)
        losses = np.array([each.value for each in found])
        each = [
            share * np.einsum("sm,kmc->sck", member.parameters.psi(inputs), problem.solve(member.parameters))
            for member, share in zip(found, losses**-1 / np.sum(losses**-1), strict=True)
        ]
        constant = np.sum([own[..., :1] for own in each], axis=0)
        return np.concatenate([constant, *(own[..., 1:] for own in each)], axis=2).reshape(fields.rows, -1)

    def start(self, fields: Fields, *, dtype: np.dtype, key: PRNGKeyArray) -> "Coupled":
        """New functions and features of the coefficients."""
        assert fields.inputs is not None
        features, coordinates = fields.inputs.shape[1], fields.points.shape[1]
        keys = jr.split(key, 4)
        latent = self._latent(fields.inputs, dtype, keys[0]) if features > _FEW_FEATURES else None
        numbers = self.numbers if latent else features
        seen = coordinates + numbers
        functions = MovingFunctions(
            _network((seen, *self.hidden, self.fronts), dtype, keys[1]),
            jnp.ones(self.fronts, dtype),
            _network((seen + 2 * self.fronts, self.hidden[-1], self.width), dtype, keys[2]),
            numbers,
            latent,
        )
        hidden = LayerFeatures(_network((features, _BRANCH_HIDDEN), dtype, keys[3]))
        return Coupled(functions, SkipFeatures(hidden))

    def _latent(self, inputs: Float[np.ndarray, "samples features"], dtype: np.dtype, key: PRNGKeyArray) -> Latent:
        """Principal coordinates of deviation 1 and a small network, which begins near zero."""
        directions = principal_directions(inputs - inputs.mean(axis=0), tolerance=0.0)[: self.numbers]
        matrix = directions.T / (inputs @ directions.T).std(axis=0)
        network = _network((inputs.shape[1], _LATENT_HIDDEN, self.numbers), dtype, key)
        *weights, last = network.weights
        return Latent(jnp.asarray(matrix, dtype), dc.replace(network, weights=(*weights, 0.1 * last)))

    def _search(
        self,
        fields: Fields,
        start: "Coupled",
        dtype: np.dtype,
        key: PRNGKeyArray,
        on_step: OnStep | None,
        member: int = 1,
    ) -> Minimised:
        """Stages with fresh points where there are more than a search looks at; one stage otherwise.

        Where rounding of the layers ends a stage early, as it does when fronts are sharp, it goes on in double.
        """
        stages = 1 if fields.outputs.size <= _MOST_VALUES else _STAGES
        iterations, parameters = self.iterations or USUAL_ITERATIONS, start
        result, entries = None, ()
        for stage, stage_key in enumerate(jr.split(key, stages), start=1):
            last = max(iterations * stage // stages, stage)
            name = "trunk" + f", member {member}" * (member > 1) + f", points {stage}" * (stage > 1)
            for layers in dict.fromkeys((_LAYERS, dtype)):
                done = 0 if result is None else result.iterations
                if done == last or (result is not None and result.status != "finished"):
                    break
                problem = moving_problem(fields, self.ridge, dtype, layers=layers, key=stage_key)
                state = self.minimiser.init(problem, parameters, key=stage_key)
                result = minimise(
                    problem,
                    parameters,
                    self.minimiser,
                    iterations=last,
                    key=stage_key,
                    state=dc.replace(state, iteration=to_device(done, np.int32)),
                    stage=name if layers == _LAYERS else f"{name}, double precision",
                    stopping=_STOPPING,
                    on_step=on_step,
                )
                parameters, entries = result.parameters, entries + result.history
        assert result is not None
        return dc.replace(result, history=entries)


def _network(architecture: tuple[int, ...], dtype: np.dtype, key: PRNGKeyArray) -> Perceptron:
    return make_perceptron(architecture, activation="tanh", initialisation="xavier", dtype=dtype, key=key)


def moving_inputs(data: AnyData) -> AbstractInputs:
    """The encoder for a trunk that moves: few numbers; powers of them where one varies threefold."""
    if data.flat_inputs.shape[1] > 8:
        return PrincipalInputs(min(_PRINCIPAL, data.samples, data.flat_inputs.shape[1]))
    low, high = data.flat_inputs.min(axis=0), data.flat_inputs.max(axis=0)
    is_wide = isinstance(data, OperatorData) and ((low > 0) & (high > 3 * low)).any()
    return PowerInputs() if is_wide else StandardisedInputs()


class Coupled(eqx.Module):
    """Functions phi, and features psi of the coefficients c = B (1, psi)."""

    functions: MovingFunctions
    features: SkipFeatures

    def psi(self, inputs: Float[Array, "samples features"]) -> Float[Array, "samples columns"]:
        """(1, psi) of the encoded inputs."""
        values = self.features(inputs)
        return jnp.concatenate([jnp.ones_like(values[:, :1]), values], axis=1)


def moving_problem(
    fields: Fields,
    ridge: float,
    dtype: np.dtype,
    *,
    layers: np.dtype = _LAYERS,
    key: PRNGKeyArray | None = None,
) -> "MovingProblem":
    """The problem of all samples; with a key, and where there are many points, at random ones of every sample.

    `layers` is the precision of the networks. Products, solutions and sums are in `dtype`.
    """
    assert fields.inputs is not None
    samples, channels, count = len(fields.inputs), fields.channels or 1, len(fields.points)
    values = fields.outputs.reshape(samples, channels, count).swapaxes(1, 2)
    points, weights = fields.points, np.tile(mean_one(fields.point_weights, count), (samples, 1))
    few = max(_MOST_VALUES // (samples * channels), _FEWEST_POINTS)
    if key is not None and few < count:
        places, times = draw_points(points, values, few, key)
        points, weights = points[places], np.take_along_axis(weights, places, axis=1) * times
        values = np.take_along_axis(values, places[..., None], axis=1)
    rows = mean_one(fields.sample_weights, samples * channels).reshape(samples, channels)
    on_device = ft.partial(jnp.asarray, dtype=dtype)
    return MovingProblem(
        jnp.asarray(points, layers),
        on_device(fields.inputs),
        on_device(values),
        on_device(weights),
        on_device(rows),
        on_device(ridge),
    )


def draw_points(
    points: Float[np.ndarray, "points coordinates"],
    values: Float[np.ndarray, "samples points channels"],
    few: int,
    key: PRNGKeyArray,
) -> tuple[Int[np.ndarray, "samples few"], Float[np.ndarray, "samples few"]]:
    """Random places of every sample, and how many times each counts, for the mean over all points.

    Half of them are drawn by how much the sample's values change to neighbouring points: of its fronts, uniform
    places would show little.
    """
    rng, count = generator(key), len(points)
    near = KDTree(points).query(points, 2 * points.shape[1] + 1)[1]
    places = np.empty((len(values), few), int)
    times = np.empty(places.shape)
    for sample, u in enumerate(values):
        changes = np.ptp(u[near], axis=1)
        shares = (changes / np.maximum(changes.sum(axis=0), np.finfo(float).tiny)).mean(axis=1)
        chances = (1 - _AT_FRONTS) / count + _AT_FRONTS * shares
        ends = np.cumsum(chances)
        places[sample] = np.searchsorted(ends, ends[-1] * (np.arange(few) + rng.uniform(size=few)) / few, "right")
        times[sample] = ends[-1] / (count * chances[places[sample]])
    return places, times


class MovingProblem(AbstractObjective):
    """min over B of the weighted mean of |Phi B psi - u|^2 + ridge^2 |B|^2.

    Every sample has its own Phi. By the envelope theorem B is held fixed in the gradient. The normal equations are
    sums over the samples of Kronecker products.
    """

    points: Float[Array, "*samples points coordinates"]
    inputs: Float[Array, "samples features"]
    values: Float[Array, "samples points channels"]
    point_weights: Float[Array, "samples points"]
    sample_weights: Float[Array, "samples channels"]
    ridge: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-3)

    def value(self, parameters: Coupled) -> Float[Array, ""]:
        Phi, psi = self.features(parameters)
        B = jax.lax.stop_gradient(self._solve(Phi, psi))
        errors = jnp.einsum("spk,skc->spc", Phi, jnp.einsum("sm,kmc->skc", psi, B)) - self.values
        squares = jnp.einsum("spc,sp,sc->", errors**2, self.point_weights, self.sample_weights)
        return squares / errors.size + self.ridge**2 * jnp.mean(B**2)

    def features(self, parameters: Coupled) -> tuple[Array, Array]:
        """Phi (samples, points, functions) and psi (samples, columns).

        Phi is computed in the precision of the points. Blocks of samples fit into the cache; for the gradient they
        are computed again, which is faster than reading their layers from memory.
        """
        functions, inputs = cast((parameters.functions, self.inputs), self.points.dtype)
        samples, count = len(inputs), self.points.shape[-2]
        size = min(max(_BLOCK // count, 1), samples)

        def in_blocks(values: Array) -> Array:
            blocks = -(-samples // size)
            return jnp.resize(values, (blocks * size, *values.shape[1:])).reshape(blocks, size, *values.shape[1:])

        @jax.checkpoint
        def of_block(block: tuple[Array, ...]) -> Array:
            features, *own = block
            return functions.functions(own[0] if own else self.points, features)

        parts = (inputs,) if self.points.ndim == 2 else (inputs, self.points)
        Phi = jax.lax.map(of_block, tuple(map(in_blocks, parts)))
        return Phi.reshape(-1, *Phi.shape[2:])[:samples].astype(self.values.dtype), parameters.psi(self.inputs)

    @eqx.filter_jit
    def solve(self, parameters: Coupled) -> Float[Array, "functions columns channels"]:
        """B at these parameters."""
        return self._solve(*self.features(parameters))

    def _solve(self, Phi: Array, psi: Array) -> Float[Array, "functions columns channels"]:
        weighted = Phi * self.point_weights[..., None]
        grams = jnp.einsum("spk,spl->skl", weighted, Phi)
        right = jnp.einsum("spk,spc->skc", weighted, self.values)
        functions, columns = Phi.shape[2], psi.shape[1]
        products = jnp.einsum("sm,sn->smn", psi, psi)

        def one(weights: Array, right: Array) -> Array:
            gram = jnp.einsum("skl,smn->kmln", grams, products * weights[:, None, None])
            gram = gram.reshape(functions * columns, -1)
            shift = self.ridge**2 * Phi.shape[0] * Phi.shape[1] / len(gram)
            shift = shift + 8 * jnp.finfo(Phi.dtype).eps * jnp.max(jnp.diagonal(gram))
            factor = jsl.cho_factor(gram + shift * jnp.eye(len(gram), dtype=Phi.dtype), lower=True)
            solved = jsl.cho_solve(factor, jnp.einsum("sk,sm,s->km", right, psi, weights).ravel())
            return solved.reshape(functions, columns)

        return jax.vmap(one, (1, 2), 2)(self.sample_weights, right)


def cast(tree: T, dtype: np.dtype) -> T:
    """The same with its inexact arrays in another precision."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, tree)
