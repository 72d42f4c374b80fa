"""The kernel baseline: what a good regression without any trunk reaches on the same split."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data import OperatorData
from ..linear import principal_directions, relative_errors
from ..networks import AbstractEncoder
from ..regressors import KernelRidge
from ..training import relative_weights


def kernel_baseline(train: OperatorData, test: OperatorData, encoder: AbstractEncoder) -> float:
    """Mean relative test error of a Matern ridge from the encoded inputs to the outputs.

    The outputs go through their exact SVD; length and ridge are chosen by leave-one-out on training samples,
    of which at most 4,000 are used.
    """
    weights = relative_weights(train)
    modes = principal_directions(train.outputs * np.sqrt(weights)[:, None], tolerance=1e-12)
    with jax.enable_x64(True):
        inputs, test_inputs = (encoder(jnp.asarray(part.flat_inputs, jnp.float64)) for part in (train, test))
        targets = jnp.asarray(train.outputs @ modes.T)
        regression = KernelRidge().fit(inputs, targets, jnp.asarray(weights), key=jr.key(0))
        coefficients = np.asarray(regression.branch(test_inputs))
    return float(relative_errors(coefficients @ modes, test.outputs, point_weights=test.point_weights).mean())
