"""What every regressor counts and draws with."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


def mean_square(
    values: Float[Array, "samples coefficients"], weights: Float[Array, " samples"] | None = None
) -> Float[Array, ""]:
    """Mean over samples, weighted if asked, and coefficients."""
    squares = jnp.mean(values**2, axis=1)
    return jnp.mean(squares) if weights is None else jnp.mean(squares * weights)


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """A NumPy generator decided by a JAX key."""
    return np.random.default_rng(np.asarray(jr.key_data(key)).ravel().tolist())
