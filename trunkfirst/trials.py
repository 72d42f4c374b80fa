"""What candidates are compared on: coefficients learned from training samples, predicted on validation ones."""

import dataclasses as dc
import functools as ft
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .checkpoints import remember
from .data.operator_data import OperatorData
from .data.sample_weights import relative_weights
from .data.scattered_data import AnyData
from .encode import encoded, input_layout
from .encoders import AbstractInputs
from .fields import Fields
from .linear.low_rank import principal_directions
from .regressors.base import AbstractRegressor

# With fewer samples than this one split says little: cross-validation.
CROSS_VALIDATED = 500
FOLDS = 5
_MAX_SAMPLES = 4000


@dc.dataclass(frozen=True)
class Candidate:
    """A branch with the encoder of its inputs, and whether samples count by their relative errors."""

    inputs: AbstractInputs
    branch: AbstractRegressor
    weights: str = "relative"


@dc.dataclass(frozen=True, eq=False)
class Trial:
    """Targets of the training samples, wanted coefficients of the validation samples.

    Coefficients are orthonormal: an error in them is as long as the error of the field. `rest` is the length of
    what no coefficient can reach, `sizes` that of the whole output.
    """

    train: AnyData
    validation: AnyData
    targets: Float[np.ndarray, "samples coefficients"]
    wanted: Float[np.ndarray, "others coefficients"]
    rest: Float[np.ndarray, " others"]
    sizes: Float[np.ndarray, " others"]

    def error(self, candidate: Candidate, *, key: PRNGKeyArray) -> float:
        """Mean relative validation error of a candidate."""
        encoder = candidate.inputs.fit(self.train)
        inputs, others = (encoded(encoder, data.flat_inputs) for data in (self.train, self.validation))
        weights = jnp.asarray(relative_weights(self.train)) if candidate.weights == "relative" else None
        layout = input_layout(self.train, encoder)
        regression = candidate.branch.fit(inputs, jnp.asarray(self.targets), weights, key=key, layout=layout)
        missed = np.asarray(regression.branch(others)) - self.wanted
        lengths = np.sqrt(np.sum(missed**2, axis=1) + self.rest**2)
        return float(np.mean(lengths / np.maximum(self.sizes, np.finfo(float).tiny)))


def aligned_trial(train: OperatorData, validation: OperatorData, fields: Fields, other_fields: Fields) -> Trial:
    """A trial in the principal directions of the training outputs, which replace a trunk."""
    if train.samples > _MAX_SAMPLES:
        rows = np.sort(np.random.default_rng(0).choice(train.samples, _MAX_SAMPLES, replace=False))
        channels = fields.channels or 1
        chosen = (rows[:, None] * channels + np.arange(channels)).ravel()
        train, fields = train.take(rows), dc.replace(fields, outputs=fields.outputs[chosen])
    outputs, others = (_flat(part, data.samples) for part, data in ((fields, train), (other_fields, validation)))
    weights = np.sqrt(relative_weights(train))[:, None]
    modes = principal_directions(outputs * weights, tolerance=1e-10)
    wanted = others @ modes.T
    rest = np.linalg.norm(others - wanted @ modes, axis=1)
    return Trial(train, validation, outputs @ modes.T, wanted, rest, np.linalg.norm(others, axis=1))


def _flat(fields: Fields, samples: int) -> Float[np.ndarray, "samples values"]:
    """One row a sample, every value times the root of its point's weight, mean square as length."""
    points = fields.outputs.shape[1]
    weights = np.full(points, 1 / points) if fields.point_weights is None else fields.point_weights
    return (fields.outputs * np.sqrt(weights)).reshape(samples, -1)


def measure(
    trials: Sequence[Trial],
    candidates: Mapping[str, Candidate],
    *,
    key: PRNGKeyArray | int,
    on_error: Callable[[str, float], None] | None = None,
) -> dict[str, float]:
    """The validation error of every candidate, the mean over the `trials` (the folds of a cross-validation).

    `on_error` is called with each candidate's error as it becomes known. Checkpoints keep them.
    """
    errors: dict[str, float] = {}
    with jax.enable_x64(True):
        key = jr.key(key) if isinstance(key, int) else key
        for name, candidate in candidates.items():
            found = remember(f"candidate {name}", ft.partial(_mean_error, trials, candidate, key))
            errors[name] = float(found["error"][0])
            if on_error is not None:
                on_error(name, errors[name])
    return errors


def _mean_error(trials: Sequence[Trial], candidate: Candidate, key: PRNGKeyArray) -> dict[str, np.ndarray]:
    return {"error": np.array([np.mean([trial.error(candidate, key=key) for trial in trials])])}


def best_of(errors: Mapping[str, float], names: Sequence[str], tolerance: float = 1.0) -> str:
    """The first name whose error is within a factor `tolerance` of the best; the first if none is finite."""
    best = min((errors[name] for name in names if np.isfinite(errors[name])), default=np.inf)
    return next((name for name in names if errors[name] <= tolerance * best), names[0])
