"""The two-step method: trunk, orthonormalisation, branch."""

import dataclasses as dc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..linear import AbstractOrthonormaliser, Orthonormal
from ..minimisers import OnStep, worst_status
from ..networks import count_parameters
from ..regressors import AbstractRegressor, Regression
from ._fields import AnyFields, Fields, ScatteredFields
from ._keys import named_key
from ._methods import TwoStep
from ._prepared import Prepared
from ._result import FitResult, find_limits, trunk_diagnostics
from ._scattered import scattered_basis
from ._trunks import TrunkResult, trunk_values


@dc.dataclass(frozen=True)
class Targets:
    """What step 2 learns: `values` (samples, rank) in the basis Phi T, and what is known of that basis."""

    values: Float[np.ndarray, "samples rank"]
    transform: Float[np.ndarray, "functions rank"] | None
    squared_length: float
    condition: float | None
    basis: Orthonormal | None = None
    """Phi T at the points, where all samples share them."""


def fit_two_step(
    prepared: Prepared,
    method: TwoStep,
    *,
    key: PRNGKeyArray,
    trunk_result: TrunkResult | None,
    on_step: OnStep | None,
) -> FitResult:
    """Step 1, unless it is given; orthonormalise; step 2."""
    fields, dtype = prepared.fields, prepared.dtype
    method.trunk.network.check(*fields.points.shape)
    if trunk_result is None:
        trunk_result = method.trunk.fit(fields, dtype=dtype, key=named_key(key, "trunk"), on_step=on_step)
    prepared = prepared.after_step1()
    fields = prepared.fields
    targets = make_targets(fields, trunk_result, method.orthonormalise)
    # From the mean over the kept directions to the paper's |C - R A|^2 / (K (N + 1)) with Q^T Q = I.
    unit = targets.squared_length * targets.values.shape[1] / (trunk_result.trunk.width + 1)
    branch = method.branch if trunk_result.status == "finished" else method.branch.briefly()
    regression = _fit_branch(branch.with_groups(prepared.groups), prepared, targets, unit, key, on_step)
    transform = None if targets.transform is None else jnp.asarray(targets.transform, dtype)
    if trunk_result.limits is None:
        limits = find_limits(fields, trunk_result.trunk, trunk_result.p)
        trunk_result = dc.replace(trunk_result, limits=limits)
    return FitResult(
        prepared.operator(regression.branch, trunk_result.trunk, transform),
        worst_status(trunk_result.status, regression.status),
        trunk_result.history + regression.history,
        _diagnostics(prepared, trunk_result, regression, targets, unit, method.branch.kind),
        trunk_result,
    )


def _fit_branch(
    branch: AbstractRegressor,
    prepared: Prepared,
    targets: Targets,
    unit: float,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> Regression:
    """Step 2 on targets in memory, or on those of all samples in files."""
    own = named_key(key, "branch")
    if prepared.stream is None:
        # The coefficients of all channels of a sample, side by side.
        values = jnp.asarray(targets.values.reshape(len(prepared.inputs), -1), prepared.dtype)
        inputs, weights = prepared.inputs, prepared.sample_weights
        return branch.fit(inputs, values, weights, key=own, loss_unit=unit, on_step=on_step)
    assert targets.basis is not None
    assert isinstance(prepared.fields, Fields)
    with prepared.stream.stored(targets.basis, prepared.fields, prepared.mean_weight) as rows:
        return branch.fit_stored(rows, key=own, loss_unit=unit, on_step=on_step)


def make_targets(fields: AnyFields, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None) -> Targets:
    """T and the targets of step 2.

    They are (R A)^T, or where A is the least-squares solution the same thing as (Q^T U)^T; without
    orthonormalisation A^T. Where every sample has its own points the least squares are done again in the
    orthonormal basis.
    """
    if orthonormalise is None:
        return Targets(step1.coefficients, None, 1.0, None)
    features = trunk_values(step1.trunk, fields.points, step1.coefficients.dtype)
    if isinstance(fields, ScatteredFields):
        own = scattered_basis(features, step1.coefficients, fields)
        return Targets(own.coefficients, own.transform, float(len(features)), own.condition)
    basis = orthonormalise(features, point_weights=fields.point_weights, targets=fields.outputs)
    if step1.is_projected:
        values = basis.coefficients(fields.outputs, point_weights=fields.point_weights)
    else:
        values = step1.coefficients @ basis.coordinates.T
    return Targets(values, basis.transform, basis.squared_length, basis.condition, basis)


def _diagnostics(
    prepared: Prepared, step1: TrunkResult, regression: Regression, targets: Targets, unit: float, kind: str
) -> dict[str, Any]:
    stream = {} if prepared.stream is None else {"stream": prepared.stream.notes}
    return stream | {
        "trunk": trunk_diagnostics(
            loss=step1.loss,
            seconds=step1.seconds,
            iterations=step1.iterations,
            rank=targets.values.shape[1],
            condition=targets.condition,
            limits=step1.limits or {},
        ),
        "branch": {
            "kind": kind,
            "loss": regression.loss * unit,
            "relative_loss": regression.loss / float(np.mean(targets.values**2)),
            "seconds": regression.seconds,
            "iterations": regression.iterations,
        },
        "parameters": {
            "trunk": count_parameters(step1.trunk),
            "coefficients": prepared.rows * step1.coefficients.shape[1],
            "branch": count_parameters(regression.branch),
        },
    }
