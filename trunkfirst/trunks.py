"""Step 1: records that fit a trunk, and what they have in common."""

import abc
import time
from typing import ClassVar, Literal

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from pydantic import PositiveInt

from .encoders import Identity
from .errors import SettingError, UsageError, WidthError
from .fields import AbstractFields, Fields, TrunkResult, plain_loss
from .losses import Batches, FreeCoefficients, make_loss
from .minimisers import Minimiser
from .minimisers.adam import Adam
from .minimisers.loop import OnStep, minimise
from .networks.layers import AbstractFunctions, ActivationName, InitialisationName, Trunk, make_perceptron
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
    """The trunk is chosen: principal modes, or a network where modes do not serve."""

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
    """The trunk network of a method that trains trunk and branch at once."""


@record
class JointTrunk(AbstractTrunkNetwork, AbstractTrunk):
    """Step 1 as in the paper: trunk and A trained together on the mean of |A Phi^T - U|^p (train-trunk).

    The paper does not say how A starts: `start` is "normal", like a linear layer, so that A Phi^T is of the size
    of Phi, or "zeros", with which A has no part that does not depend on the outputs.
    """

    minimiser: Minimiser = Adam()
    iterations: int = Field(default=10_000, ge=1, description="iterations of the minimiser, at most")
    p: float = Field(default=2.0, ge=1, allow_inf_nan=False, description="power of the entrywise norm of the loss")
    batches: Batches = Batches()
    start: Literal["normal", "zeros"] = Field(
        default="normal", description="A at the start: normal numbers of variance 1 / (N + 1), or zeros"
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
