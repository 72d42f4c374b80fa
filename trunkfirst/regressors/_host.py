"""Between JAX and the host, for regressors that work in NumPy: arrays in, a log of one line out."""

import time

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError
from ..minimisers import OnStep, Step
from ..networks import Branch
from ._abstract import Regression
from ._numbers import mean_square


def to_host(
    inputs: Float[Array, "samples features"],
    targets: Float[Array, "samples coefficients"],
    weights: Float[Array, " samples"] | None,
) -> tuple[
    Float[np.ndarray, "samples features"],
    Float[np.ndarray, "samples coefficients"],
    Float[np.ndarray, " samples"],
]:
    """Inputs, targets and weights, in double precision; the weights with mean 1, all 1 if there are none."""
    if len(inputs) < 2:
        raise DataError(f"samples: a regression needs 2 or more, got {len(inputs)}")
    w = np.ones(len(inputs)) if weights is None else np.asarray(weights, np.float64)
    if not (w >= 0).all() or not w.any():
        raise DataError("weights: expected numbers of 0 or more, not all of them 0")
    return np.asarray(inputs, np.float64), np.asarray(targets, np.float64), w / w.mean()


def closed_form(
    branch: Branch,
    inputs: Float[Array, "samples features"],
    targets: Float[Array, "samples coefficients"],
    weights: Float[Array, " samples"] | None,
    *,
    begin: float,
    loss_unit: float,
    on_step: OnStep | None,
) -> Regression:
    """The result of a regressor without iterations, which began at time `begin`; its log has one line."""
    residual = branch(inputs) - targets
    weighted = mean_square(residual, None if weights is None else weights / jnp.mean(weights))
    loss, seconds = float(weighted) * loss_unit, time.perf_counter() - begin
    step = Step("branch", 1, 1, loss, loss, 1.0, seconds)
    if on_step is not None:
        on_step(step)
    return Regression(branch, float(mean_square(residual)), "finished", 1, seconds, (step,))
