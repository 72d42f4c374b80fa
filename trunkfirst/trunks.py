"""Step 1: records that fit a trunk, and what they have in common; principal modes (POD), in closed form."""

import abc
import dataclasses as dc
import time
from typing import ClassVar, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray
from pydantic import PositiveInt

from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .encoders import Identity
from .errors import DataError, SettingError, UsageError, WidthError
from .fields import AbstractFields, Fields, Mesh, TrunkResult, mean_one, plain_loss
from .linear.low_rank import principal_rows
from .linear.orthonormalise import orthonormal_already
from .losses import Batches, FreeCoefficients, make_loss
from .minimisers import Minimiser
from .minimisers.adam import Adam
from .minimisers.loop import OnStep, minimise
from .networks.interpolate import can_interpolate, interpolate
from .networks.layers import AbstractFunctions, ActivationName, InitialisationName, Modes, Trunk, make_perceptron
from .records import LogEntry
from .settings import Field, kind_field, record


@record
class AbstractTrunk(abc.ABC):
    """A record whose `fit` carries out step 1."""

    sees_inputs: ClassVar[bool] = False
    """Whether step 1 depends on the inputs and on how they are encoded."""

    @abc.abstractmethod
    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        """Fit the trunk to the `fields`."""


@record
class AutoTrunk(AbstractTrunk):
    """The trunk is chosen: principal modes, or a network if modes limit the error or are not possible.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep().trunk.kind
    'auto'
    """

    kind: Literal["auto"] = kind_field("auto")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        raise SettingError("trunk: it is still to be chosen; call trunkfirst.fit, which chooses it")


@record
class AbstractTrunkNetwork:
    """The architecture of a trunk network; sizes left out follow from the data."""

    hidden: tuple[PositiveInt, ...] | None = Field(
        default=None, description="hidden widths; from the data if left out"
    )
    width: int | None = Field(
        default=None, ge=1, description="N, the number of functions; from the data if left out"
    )
    activation: ActivationName = Field(
        default="tanh", description="relu, tanh, gelu, silu, sine, softplus, elu or sigmoid"
    )
    initialisation: InitialisationName = Field(default="xavier", description="he or xavier")

    def make(self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray) -> Trunk:
        """A new trunk for the points of `fields`, with its constant first function."""
        points, coordinates = fields.points.shape
        if self.hidden is None or self.width is None:
            raise SettingError("trunk: hidden and width are still to be chosen; call trunkfirst.fit, or set them")
        if self.width >= points:
            raise WidthError(
                f"trunk: width N = {self.width} needs more than N output points, got {points}; "
                "use a narrower trunk or more points"
            )
        network = make_perceptron(
            (coordinates, *self.hidden, self.width),
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            rows=points,
            key=key,
        )
        return Trunk(network)


@record
class TrunkNetwork(AbstractTrunkNetwork):
    """The trunk network of `Monolithic` and `MonolithicProjected`.

    >>> TrunkNetwork(hidden=(50, 50), width=20).width
    20
    """


@record
class JointTrunk(AbstractTrunkNetwork, AbstractTrunk):
    """Step 1 as in the paper: trunk and A trained together on the mean of |A Phi^T - U|^p (train-trunk).

    The paper does not say how A starts. With `start="normal"`, A starts like a linear layer, so that A Phi^T has
    the size of Phi; with "zeros", no part of A is independent of the outputs.

    >>> JointTrunk(hidden=(50, 50, 50), width=50, start="zeros").width
    50
    """

    minimiser: Minimiser = Adam()
    iterations: int = Field(default=10_000, ge=1, description="largest number of iterations")
    p: float = Field(default=2.0, ge=1, allow_inf_nan=False, description="power of the entrywise norm of the loss")
    batches: Batches = Batches()
    start: Literal["normal", "zeros"] = Field(
        default="normal", description="start of A: normal random numbers of variance 1 / (N + 1), or zeros"
    )
    kind: Literal["joint"] = kind_field("joint")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if not isinstance(fields, Fields):
            raise UsageError(
                "samples at points of their own need a trunk of kind modes or network: set trunk.kind = modes"
            )
        trunk_key, matrix_key, run_key = jr.split(key, 3)
        trunk = self.make(fields, dtype=dtype, key=trunk_key)
        rows, functions = fields.rows, trunk.width + 1
        matrix = jnp.zeros((rows, functions), dtype)
        if self.start == "normal":
            matrix = jr.normal(matrix_key, matrix.shape, dtype) / jnp.sqrt(jnp.asarray(functions, dtype))
        no_inputs = jnp.zeros((rows, 0), dtype)
        result = minimise(
            make_loss(fields, no_inputs, p=self.p, batches=self.batches, dtype=dtype),
            FreeCoefficients(trunk, matrix),
            self.minimiser,
            iterations=self.iterations,
            key=run_key,
            stage="trunk",
            on_step=on_step,
        )
        best: FreeCoefficients = result.parameters
        A, Phi = np.asarray(best.matrix), np.asarray(best.trunk(jnp.asarray(fields.points, dtype)))
        return TrunkResult(
            best.trunk,
            A,
            is_projected=False,
            loss=plain_loss(A, Phi, fields.outputs, p=self.p),
            status=result.status,
            iterations=result.iterations,
            seconds=result.seconds,
            history=result.history,
            p=self.p,
        )


def reuse_trunk(trunk: AbstractFunctions, fields: AbstractFields, *, ridge: float = 1e-6) -> TrunkResult:
    """Step 1 with a given trunk: only the coefficients of these fields are solved for."""
    begin = time.perf_counter()
    bare = trunk.after(Identity())
    A = fields.solve(bare, ridge)
    return TrunkResult(
        bare,
        A,
        is_projected=True,
        loss=fields.loss(bare, A, p=2.0),
        status="finished",
        iterations=0,
        seconds=time.perf_counter() - begin,
        history=(),
    )


# Modes below this share of the largest are rounding.
_ROUNDING = 1e-14
# The most values of all modes at all points: 256 MiB.
_MOST_VALUES = 2**25
# Modes of samples at points of their own; those that hold noise are left out between the steps.
_SCATTERED_MODES = 40


@record
class ModesTrunk(AbstractTrunk):
    """Principal modes of the outputs at the training points (POD), orthonormal with the point weights.

    No trunk of the same width has a lower loss on the training outputs, with the same weights. The modes are exact
    at the points. Between them they are interpolated, by splines on a grid, otherwise over triangles or
    tetrahedra; linearly if the outputs jump, and with higher order if they are smooth. Samples at points of their
    own are first interpolated to common points, linearly from their nearest values.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(ModesTrunk(width=10)).trunk.width
    10
    """

    width: int | None = Field(
        default=None, ge=1, description="number of modes; chosen by the error of the operator if left out"
    )
    between: Literal["auto", "linear", "smooth"] = Field(
        default="auto",
        description="interpolation between the points; auto: chosen by leaving points out",
    )
    kind: Literal["modes"] = kind_field("modes")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        del key
        begin = time.perf_counter()
        common = fields.at_common_points()
        is_aligned = common is fields
        found = principal_modes(common, self.width if is_aligned else self.width or _SCATTERED_MODES)
        found = dc.replace(found, values=found.values.astype(dtype))
        A = orthonormal_already(found.values).coefficients(common.outputs, point_weights=common.point_weights)
        found = _with_unweighted_points(found, common, A)
        functions = self._functions(found, common.mesh or Mesh(common.points))
        loss = (
            plain_loss(A, found.values, common.outputs, p=2.0) if is_aligned else fields.loss(functions, A, p=2.0)
        )
        seconds = time.perf_counter() - begin
        step = LogEntry("trunk", 1, 1, loss, loss, 1.0, seconds)
        if on_step is not None:
            on_step(step)
        return TrunkResult(
            functions,
            A,
            is_projected=True,
            loss=loss,
            status="finished",
            iterations=1,
            seconds=seconds,
            history=(step,),
            limits={
                "limit": _limit(common, A.shape[1], loss) if is_aligned else None,
                "limit_upper": None,
                "is_limited_by_network": False,
            },
            values=found.values if is_aligned else None,
        )

    def _functions(self, found: "PrincipalModes", mesh: Mesh) -> Modes:
        smooth = {"auto": None, "linear": False, "smooth": True}[self.between]
        return Modes(
            interpolate(
                mesh.points,
                found.values,
                triangles=mesh.triangles,
                periods=mesh.periods,
                importance=found.sizes,
                smooth=smooth,
            )
        )


def _with_unweighted_points(found: "PrincipalModes", fields: Fields, A: np.ndarray) -> "PrincipalModes":
    """The modes at points of weight zero, which decide on nothing, by least squares with the coefficients A."""
    if fields.point_weights is None or (fields.point_weights > 0).all():
        return found
    values, free = found.values.copy(), fields.point_weights == 0
    values[free] = np.linalg.lstsq(A, fields.outputs[:, free], rcond=None)[0].T
    return dc.replace(found, values=values)


def _limit(fields: Fields, count: int, loss: float) -> float:
    """The least unweighted loss of `count` functions (Eckart-Young): that of modes without weights."""
    if fields.sample_weights is None and fields.point_weights is None:
        return loss
    sizes, _, discarded = principal_rows(fields.outputs, _ROUNDING)
    return min(float(np.sum(sizes[count:] ** 2) + discarded) / fields.outputs.size, loss)


def has_modes(data: AnyData) -> bool:
    """Whether modes can be interpolated between the points of the data."""
    return not isinstance(data, OperatorData) or can_interpolate(data.points)


@dc.dataclass(frozen=True, eq=False)
class PrincipalModes:
    """Modes at the points, orthonormal in the weighted mean, and their singular values, largest first."""

    values: Float[np.ndarray, "points modes"]
    sizes: Float[np.ndarray, " modes"]


def principal_modes(fields: Fields, width: int | None = None) -> PrincipalModes:
    """The modes of the outputs above rounding, at most `width`.

    The sign of a mode is such that its largest value is positive.
    """
    roots = np.sqrt(mean_one(fields.point_weights, len(fields.points)))
    sizes, rows, _ = principal_rows(fields.weighted_outputs(), _ROUNDING)
    if not sizes.any():
        raise DataError("outputs: all values are zero, or have weight zero; there is nothing to learn")
    count = min(len(sizes), width or len(sizes), max(_MOST_VALUES // len(roots), 1))
    modes = rows[:count].T * np.sqrt(len(roots))
    modes *= np.sign(modes[np.abs(modes).argmax(axis=0), np.arange(count)])
    return PrincipalModes(modes / np.where(roots > 0, roots, 1.0)[:, None], sizes[:count])
