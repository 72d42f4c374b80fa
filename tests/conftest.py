"""Every test runs with strict promotion of types and ranks, so that nothing is broadcast or cast in silence."""

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
