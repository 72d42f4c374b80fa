"""The branch: coefficients of the trunk functions from an encoded input. Unstacked it is one `Perceptron`."""

from collections.abc import Sequence
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._features import FeatureBranch
from ._kernel import KernelBranch
from ._perceptron import Perceptron, make_perceptron
from ._predict_only import PredictOnlyBranch


class StackedBranch(eqx.Module):
    """One small network a coefficient, side by side (Lu et al.'s stacked DeepONet).

    `networks` is a `Perceptron` whose arrays carry a leading axis, one entry a coefficient.
    """

    networks: Perceptron

    @property
    def inputs(self) -> int:
        """How many numbers it takes."""
        return self.networks.inputs

    def __call__(self, x: Float[Array, "samples sensors"]) -> Float[Array, "samples coefficients"]:
        values = jax.vmap(lambda network: network(x))(self.networks)  # (coefficients, samples, 1)
        return values[..., 0].T


Branch: TypeAlias = Perceptron | StackedBranch | FeatureBranch | KernelBranch | PredictOnlyBranch


def make_branch(
    architecture: Sequence[int],
    *,
    stacked: bool = False,
    activation: str = "relu",
    initialisation: str = "he",
    dtype: jnp.dtype | type = jnp.float64,
    key: PRNGKeyArray,
) -> Branch:
    """A branch of the paper's form (sensors, n_1, ..., N + 1).

    Stacked, every one of the N + 1 coefficients has its own network (sensors, n_1, ..., 1).
    """

    def make(key: PRNGKeyArray, widths: Sequence[int]) -> Perceptron:
        return make_perceptron(widths, activation=activation, initialisation=initialisation, dtype=dtype, key=key)

    if not stacked:
        return make(key, architecture)
    *hidden, coefficients = architecture
    return StackedBranch(jax.vmap(lambda k: make(k, (*hidden, 1)))(jr.split(key, coefficients)))
