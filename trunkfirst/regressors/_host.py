"""Between JAX and the host, for regressors that work in NumPy: arrays in, a log of one line out."""

import time

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..minimisers import Step
from ..networks import Branch
from ._abstract import Regression, Task
from ._numbers import mean_square


def to_host(
    task: Task,
) -> tuple[
    Float[np.ndarray, "samples features"],
    Float[np.ndarray, "samples coefficients"],
    Float[np.ndarray, " samples"],
]:
    """Inputs, targets and weights, in double precision; the weights with mean 1, all 1 if there are none."""
    samples = len(task.inputs)
    if samples < 2:
        raise DataError(f"samples: a regression needs 2 or more, got {samples}")
    w = np.ones(samples) if task.weights is None else np.asarray(task.weights, np.float64)
    if not (w >= 0).all() or not w.any():
        raise DataError("weights: expected numbers of 0 or more, not all of them 0")
    return np.asarray(task.inputs, np.float64), np.asarray(task.targets, np.float64), w / w.mean()


def closed_form(branch: Branch, task: Task) -> Regression:
    """The result of a regressor without iterations; its log has one line."""
    residual = branch(task.inputs) - task.targets
    weights = None if task.weights is None else task.weights / jnp.mean(task.weights)
    loss, seconds = float(mean_square(residual, weights)) * task.loss_unit, time.perf_counter() - task.begin
    step = Step("branch", 1, 1, loss, loss, 1.0, seconds)
    if task.on_step is not None:
        task.on_step(step)
    return Regression(branch, float(mean_square(residual)), "finished", 1, seconds, (step,))
