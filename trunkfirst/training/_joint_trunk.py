"""Step 1 to the letter: trunk parameters and the free matrix A trained together."""

import dataclasses as dc

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..errors import UsageError
from ..minimisers import AbstractMinimiser, Adam, OnStep, minimise
from ._fields import AnyFields, ScatteredFields
from ._losses import Batches, FreeCoefficients, make_loss, plain_loss
from ._trunks import AbstractTrunkFit, TrunkResult


@dc.dataclass(frozen=True)
class JointTrunk(AbstractTrunkFit):
    """min over the trunk and A of the mean of |A Phi^T - U|^p: equation (train-trunk) of the paper."""

    minimiser: AbstractMinimiser = Adam()
    iterations: int = 10_000
    p: float = 2.0
    batches: Batches = Batches()

    def fit(
        self, fields: AnyFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        if isinstance(fields, ScatteredFields):
            raise UsageError("samples at points of their own need a projected trunk: set trunk.projected = true")
        self.network.check(*fields.points.shape)
        trunk_key, matrix_key, run_key = jr.split(key, 3)
        trunk = self.network.make(dtype=dtype, key=trunk_key)
        rows, functions = fields.samples, trunk.width + 1
        # The paper does not say how A starts; like a linear layer, so that Phi A is of the size of Phi.
        matrix = jr.normal(matrix_key, (rows, functions), dtype) / jnp.sqrt(jnp.asarray(functions, dtype))
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
