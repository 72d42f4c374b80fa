"""The two-step method: trunk, orthonormalisation, branch."""

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..data import OperatorData
from ..linear import AbstractOrthonormaliser
from ..minimisers import OnStep, Status
from ..networks import Operator, count_parameters
from ..regressors import Regression
from ._keys import named_key
from ._methods import TwoStep
from ._result import FitResult, trunk_diagnostics
from ._trunks import TrunkResult


@dc.dataclass(frozen=True)
class Targets:
    """What step 2 learns: `values` (samples, rank) in the basis Phi T, and what is known of that basis."""

    values: Float[np.ndarray, "samples rank"]
    transform: Float[np.ndarray, "functions rank"] | None
    squared_length: float
    condition: float | None


def fit_two_step(
    data: OperatorData,
    method: TwoStep,
    *,
    dtype: np.dtype,
    key: PRNGKeyArray,
    trunk_result: TrunkResult | None,
    on_step: OnStep | None,
) -> FitResult:
    """Step 1, unless it is given; orthonormalise; step 2."""
    method.trunk.network.check(data)
    encoder = method.inputs.fit_in(data, dtype)
    if trunk_result is None:
        trunk_result = method.trunk.fit(data, dtype=dtype, key=named_key(key, "trunk"), on_step=on_step)
    targets = make_targets(data, trunk_result, method.orthonormalise)
    # From the mean over the kept directions to the paper's |C - R A|^2 / (K (N + 1)) with Q^T Q = I.
    unit = targets.squared_length * targets.values.shape[1] / (trunk_result.trunk.width + 1)
    branch = method.branch if trunk_result.status == "finished" else method.branch.briefly()
    regression = branch.fit(
        encoder(jnp.asarray(data.flat_inputs, dtype)),
        jnp.asarray(targets.values, dtype),
        None if data.sample_weights is None else jnp.asarray(data.sample_weights, dtype),
        key=named_key(key, "branch"),
        loss_unit=unit,
        on_step=on_step,
    )
    transform = None if targets.transform is None else jnp.asarray(targets.transform, dtype)
    return FitResult(
        Operator(encoder, regression.branch, trunk_result.trunk, transform, tuple(data.inputs)),
        _worst(trunk_result.status, regression.status),
        trunk_result.history + regression.history,
        _diagnostics(data, trunk_result, regression, targets, unit),
        trunk_result,
    )


def make_targets(
    data: OperatorData, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None
) -> Targets:
    """T and the targets of step 2.

    They are (R A)^T, or where A is the least-squares solution the same thing as (Q^T U)^T; without
    orthonormalisation A^T.
    """
    if orthonormalise is None:
        return Targets(step1.coefficients, None, 1.0, None)
    features = np.asarray(step1.trunk(jnp.asarray(data.points, step1.coefficients.dtype)))
    basis = orthonormalise(features, point_weights=data.point_weights, targets=data.outputs)
    if step1.is_projected:
        values = basis.coefficients(data.outputs, point_weights=data.point_weights)
    else:
        values = step1.coefficients @ basis.coordinates.T
    return Targets(values, basis.transform, basis.squared_length, basis.condition)


def _diagnostics(
    data: OperatorData, step1: TrunkResult, regression: Regression, targets: Targets, unit: float
) -> dict[str, Any]:
    return {
        "trunk": trunk_diagnostics(
            data,
            step1.trunk,
            loss=step1.loss,
            seconds=step1.seconds,
            iterations=step1.iterations,
            rank=targets.values.shape[1],
            condition=targets.condition,
        ),
        "branch": {
            "kind": regression.kind,
            "loss": regression.loss * unit,
            "relative_loss": regression.loss / float(np.mean(targets.values**2)),
            "seconds": regression.seconds,
            "iterations": regression.iterations,
        },
        "parameters": {
            "trunk": count_parameters(step1.trunk),
            "coefficients": step1.coefficients.size,
            "branch": count_parameters(regression.branch),
        },
    }


def _worst(*statuses: Status) -> Status:
    order: tuple[Status, ...] = ("finished", "interrupted", "diverged")
    return max(statuses, key=order.index)
