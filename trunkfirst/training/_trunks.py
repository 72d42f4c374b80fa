"""What the ways of fitting a trunk (step 1) have in common."""

import abc
import dataclasses as dc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import DataError, WidthError
from ..linear import row_blocks
from ..minimisers import OnStep, Status, Step
from ..networks import Perceptron, Trunk, make_perceptron
from ._fields import AnyFields


@dc.dataclass(frozen=True)
class TrunkSettings:
    """A trunk network of the paper's form (coordinates, n_1, ..., N)."""

    architecture: tuple[int, ...]
    activation: str = "relu"
    initialisation: str = "he"

    def check(self, count: int, coordinates: int) -> None:
        """The trunk must fit so many points: right (encoded) coordinates, and fewer functions than points."""
        if self.architecture[0] != coordinates:
            raise DataError(
                f"trunk: the architecture {self.architecture} starts with {self.architecture[0]}, "
                f"but points have {coordinates} coordinates"
            )
        if self.architecture[-1] >= count:
            raise WidthError(
                f"trunk: width N = {self.architecture[-1]} needs more than N output points, got {count}; "
                "use a narrower trunk or more points"
            )

    def make(self, *, dtype: np.dtype, key: PRNGKeyArray) -> Trunk:
        """A new trunk with its constant first function."""
        network = make_perceptron(
            self.architecture,
            activation=self.activation,
            initialisation=self.initialisation,
            dtype=dtype,
            key=key,
        )
        return Trunk(network)


@dc.dataclass(frozen=True)
class TrunkResult:
    """A fitted trunk, the free coefficients A (rows of the fields, functions) with it, and how it went.

    `is_projected` says that A is the least-squares solution, not one that a minimiser was still moving.
    """

    trunk: Trunk
    coefficients: Float[np.ndarray, "rows functions"]
    is_projected: bool
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[Step, ...]
    p: float = 2.0
    """The power of the loss."""
    limits: dict[str, Any] | None = None
    """How small the loss could be, once somebody has found out: it takes a factorisation of all outputs."""


@dc.dataclass(frozen=True)
class AbstractTrunkFit(abc.ABC):
    """A way of carrying out step 1."""

    network: TrunkSettings

    @abc.abstractmethod
    def fit(
        self, fields: AnyFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        """Fit the trunk to the `fields`."""


def trunk_values(
    trunk: Trunk, points: Float[np.ndarray, "points features"], dtype: np.dtype
) -> Float[np.ndarray, "points functions"]:
    """Phi at all points; of many points a block at a time, so that only its last layer is as large as they are."""
    values = np.empty((len(points), trunk.width + 1), dtype)
    for block in row_blocks(len(points)):
        values[block] = trunk(jnp.asarray(points[block], dtype))
    return values


def passed_on(layers: Perceptron, like: Trunk) -> Trunk:
    """A trunk of the same architecture whose output layer passes the hidden functions on, zeros beyond them."""
    last = like.network.weights[-1]
    W = jnp.eye(*last.shape, dtype=last.dtype)
    b = jnp.zeros_like(like.network.biases[-1])
    return Trunk(Perceptron((*layers.weights, W), (*layers.biases, b), layers.activation))
