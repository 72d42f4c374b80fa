"""Every test runs without silent broadcasting of ranks. (Strict types would be next, but optax raises a float to
an integer power in Adam's bias correction.)
"""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests compile much and compute little.
jax.config.update("jax_disable_most_optimizations", True)
