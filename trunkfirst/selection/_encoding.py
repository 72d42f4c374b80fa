"""Choosing how to encode the inputs, on validation samples alone."""

import dataclasses as dc
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import OperatorData
from ..linear import principal_directions, relative_errors
from ..regressors import AbstractRegressor
from ..training import parse_encoding, relative_weights

# Among candidates nearly as good as the best, the first in the list: the simplest.
_NEARLY = 1.2


@dc.dataclass(frozen=True)
class Choice:
    """What was chosen, and the mean relative validation error of every candidate."""

    name: str
    errors: dict[str, float]

    @property
    def error(self) -> float:
        """The validation error of the candidate chosen."""
        return self.errors[self.name]


def encoding_candidates(data: OperatorData) -> tuple[str, ...]:
    """What is worth trying, simple ones first.

    A few numbers: as they are, or logarithms and powers where they are positive. A function at many sensors:
    principal coordinates, more and more of them, and linear predictions from them.
    """
    inputs = data.flat_inputs
    if inputs.shape[1] > 8:
        most = min(len(inputs), inputs.shape[1])
        counts = [count for count in (1, 2, 4, 8, 16) if count < most]
        return ("standardise", *(f"principal:{n}" for n in counts), *(f"predictive:{n}" for n in counts[2:]))
    if (inputs > 0).all(axis=0).any():
        return ("standardise", "log", "inverse", "inverse-root")
    return ("standardise",)


def choose_encoding(
    train: OperatorData,
    validation: OperatorData,
    regressor: AbstractRegressor,
    *,
    candidates: Sequence[str] | None = None,
    most_samples: int = 4000,
    key: PRNGKeyArray | int = 0,
) -> Choice:
    """Fit `regressor` behind each candidate to the outputs' principal coefficients; compare on validation.

    No trunk is needed: the principal directions of the training outputs stand in for it.
    """
    candidates = candidates or encoding_candidates(train)
    if train.samples > most_samples:
        rows = np.random.default_rng(0).choice(train.samples, most_samples, replace=False)
        train = train.take(np.sort(rows))
    with jax.enable_x64(True):
        key = jr.key(key) if isinstance(key, int) else key
        errors = {name: _error(train, validation, name, regressor, key) for name in candidates}
    finite = {name: error for name, error in errors.items() if np.isfinite(error)}
    best = min(finite.values(), default=np.inf)
    chosen = next((name for name in candidates if errors[name] <= _NEARLY * best), candidates[0])
    return Choice(chosen, errors)


def _error(
    train: OperatorData, validation: OperatorData, name: str, regressor: AbstractRegressor, key: PRNGKeyArray
) -> float:
    encoder = parse_encoding(name).fit(train)
    weights = relative_weights(train)
    modes = principal_directions(train.outputs * np.sqrt(weights)[:, None], tolerance=1e-10)
    basis: Float[np.ndarray, "modes points"] = modes * np.sqrt(modes.shape[1])  # unit mean square
    targets = train.outputs @ basis.T / modes.shape[1]
    inputs = encoder(jnp.asarray(train.flat_inputs))
    regression = regressor.fit(inputs, jnp.asarray(targets), jnp.asarray(weights), key=key)
    coefficients = np.asarray(regression.branch(encoder(jnp.asarray(validation.flat_inputs))))
    return float(relative_errors(coefficients @ basis, validation.outputs).mean())
