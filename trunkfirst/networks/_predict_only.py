"""A branch that is not made of JAX: it predicts, and nothing else."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import PredictOnlyError


@runtime_checkable
class Estimator(Protocol):
    """What scikit-learn calls a regressor."""

    def fit(self, X: Any, y: Any) -> Any: ...

    def predict(self, X: Any) -> Any: ...


class PredictOnlyBranch(eqx.Module):
    """A fitted estimator as a branch, for `Operator.predict`; not for `jit`, `grad`, saving or export."""

    estimator: Estimator = eqx.field(static=True)

    @property
    def inputs(self) -> int | None:
        """How many numbers it takes, where the estimator tells."""
        return getattr(self.estimator, "n_features_in_", None)

    def __call__(self, x: Float[Array, "samples features"]) -> Float[Array, "samples coefficients"]:
        if isinstance(x, Tracer):
            raise PredictOnlyError(self.refusal("traced by jit, vmap or grad; call operator.predict instead"))
        values = np.asarray(self.estimator.predict(np.asarray(x)))
        return jnp.asarray(values.reshape(len(x), -1), x.dtype)

    def refusal(self, what: str) -> str:
        """Why something cannot be done, and what can."""
        return (
            f"the branch of this operator is a {type(self.estimator).__name__}, which predicts only: it cannot be "
            f"{what}, or fit the branch with a regressor of this library"
        )
