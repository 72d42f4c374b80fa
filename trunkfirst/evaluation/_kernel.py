"""The kernel baseline: what a good regression without any trunk reaches on the same split."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data import OperatorData
from ..linear import principal_directions
from ..networks import AbstractEncoder
from ..regressors import KernelRidge
from ..training import relative_weights
from ._evaluate import field_errors


def kernel_baseline(train: OperatorData, test: OperatorData, encoder: AbstractEncoder) -> float:
    """Mean relative test error of a Matern ridge from the encoded inputs to the outputs.

    The outputs go through their exact SVD; length and ridge are chosen by leave-one-out on training samples,
    of which at most 4,000 are used.
    """
    weights = relative_weights(train)
    scale = np.sqrt(np.mean(train.outputs**2, axis=(0, 1)))  # one a channel
    outputs = (train.outputs / scale).reshape(train.samples, -1)
    modes = principal_directions(outputs * np.sqrt(weights)[:, None], tolerance=1e-12)
    with jax.enable_x64(True):
        inputs, test_inputs = (encoder(jnp.asarray(part.flat_inputs, jnp.float64)) for part in (train, test))
        targets = jnp.asarray(outputs @ modes.T)
        regression = KernelRidge().fit(inputs, targets, jnp.asarray(weights), key=jr.key(0))
        coefficients = np.asarray(regression.branch(test_inputs))
    predictions = (coefficients @ modes).reshape(test.outputs.shape) * scale
    return float(field_errors(predictions, test.outputs, test).mean())
