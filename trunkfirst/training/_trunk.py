"""Step 1: the trunk, with free coefficients in place of the branch."""

import dataclasses as dc

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import OperatorData
from ..minimisers import OnStep, Status, Step, minimise
from ..networks import Trunk, make_perceptron
from ._losses import FreeCoefficients, make_loss
from ._methods import JointTrunk, TrunkSettings


@dc.dataclass(frozen=True)
class TrunkResult:
    """A fitted trunk, the free coefficients A (samples, functions) with it, and how it went."""

    trunk: Trunk
    coefficients: Float[np.ndarray, "samples functions"]
    loss: float
    status: Status
    iterations: int
    seconds: float
    history: tuple[Step, ...]


def make_trunk(settings: TrunkSettings, *, dtype: np.dtype, key: PRNGKeyArray) -> Trunk:
    """A new trunk with its constant first function."""
    network = make_perceptron(
        settings.architecture,
        activation=settings.activation,
        initialisation=settings.initialisation,
        dtype=dtype,
        key=key,
    )
    return Trunk(network)


def fit_trunk(
    data: OperatorData,
    method: JointTrunk,
    *,
    dtype: np.dtype,
    key: PRNGKeyArray,
    on_step: OnStep | None = None,
) -> TrunkResult:
    """min over the trunk and A of the mean of |A Phi^T - U|^p: equation (train-trunk) of the paper."""
    method.network.check(data)
    trunk_key, matrix_key, run_key = jr.split(key, 3)
    trunk = make_trunk(method.network, dtype=dtype, key=trunk_key)
    functions = trunk.width + 1
    # The paper does not say how A starts; like a linear layer, so that Phi A is of the size of Phi.
    matrix = jr.normal(matrix_key, (data.samples, functions), dtype) / jnp.sqrt(jnp.asarray(functions, dtype))
    no_inputs = jnp.zeros((data.samples, 0), dtype)
    loss = make_loss(data, no_inputs, p=method.p, batches=method.batches, dtype=dtype)
    result = minimise(
        loss,
        FreeCoefficients(trunk, matrix),
        method.minimiser,
        iterations=method.iterations,
        key=run_key,
        stage="trunk",
        on_step=on_step,
    )
    best: FreeCoefficients = result.parameters
    return TrunkResult(
        best.trunk,
        np.asarray(best.matrix),
        result.value,
        result.status,
        result.iterations,
        result.seconds,
        result.history,
    )
