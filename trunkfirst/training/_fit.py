"""`fit`: from data and a method to an operator."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..data import OperatorData
from ..errors import DivergedError
from ..linear import AbstractOrthonormaliser, trunk_limit
from ..minimisers import OnStep, Status, Step, minimise
from ..networks import Operator, count_parameters
from ..regressors import Regression
from ._keys import named_key
from ._losses import BranchCoefficients, make_loss
from ._methods import Method, Monolithic, TwoStep
from ._trunk import TrunkResult, fit_trunk, make_trunk


@dc.dataclass(frozen=True)
class FitResult:
    """An operator and how it came about.

    `status` is "finished", "interrupted" or "diverged"; `history` the log of all stages; `diagnostics` the
    numbers of `metrics.json` that training knows (design: `trunk`, `branch`, counts of parameters).
    """

    operator: Operator
    status: Status
    history: tuple[Step, ...]
    diagnostics: dict[str, Any]
    trunk_result: TrunkResult | None = None
    """Step 1 of a two-step fit: give it to `fit` again to try another step 2 on the same trunk."""


def fit(
    data: OperatorData,
    method: Method,
    *,
    key: PRNGKeyArray | int = 0,
    trunk_result: TrunkResult | None = None,
    on_step: OnStep | None = None,
    throw: bool = True,
) -> FitResult:
    """Train an operator on `data`, which holds training samples alone.

    `method` is a `TwoStep` or a `Monolithic` record; `key` a seed or a JAX key; `trunk_result` a finished step
    1 to build on; `on_step` is called with every line of the log. A loss that stops being finite raises
    `DivergedError`, or with `throw=False` comes back as the status "diverged" with the best finite parameters.

    Double precision is switched on inside and nowhere else.
    """
    with jax.enable_x64(True):
        key = jr.key(key) if isinstance(key, int) else key
        if isinstance(method, TwoStep):
            result = _fit_two_step(data, method, key=key, trunk_result=trunk_result, on_step=on_step)
        else:
            result = _fit_monolithic(data, method, key=key, on_step=on_step)
    if throw and result.status == "diverged":
        last = result.history[-1]
        raise DivergedError(
            f"the {last.stage} loss is no longer finite at iteration {last.iteration} (rate {last.rate:.1e}); "
            "try a smaller rate, or standardised inputs"
        )
    return result


def _fit_two_step(
    data: OperatorData,
    method: TwoStep,
    *,
    key: PRNGKeyArray,
    trunk_result: TrunkResult | None,
    on_step: OnStep | None,
) -> FitResult:
    dtype = _dtype(method)
    method.trunk.network.check(data)
    encoder = method.inputs.fit(data)
    inputs = encoder(jnp.asarray(data.flat_inputs, dtype))
    if trunk_result is None:
        trunk_result = fit_trunk(data, method.trunk, dtype=dtype, key=named_key(key, "trunk"), on_step=on_step)
    transform, targets, basis = _targets(data, trunk_result, method.orthonormalise)
    functions = trunk_result.trunk.width + 1
    # From the mean over the kept directions to the paper's |C - R A|^2 / (K (N + 1)) with Q^T Q = I.
    unit = basis["length"] * targets.shape[1] / functions
    regression = method.branch.fit(
        inputs,
        jnp.asarray(targets, dtype),
        key=named_key(key, "branch"),
        loss_unit=unit,
        on_step=on_step,
    )
    transform = None if transform is None else jnp.asarray(transform, dtype)
    operator = Operator(encoder, regression.branch, trunk_result.trunk, transform, tuple(data.inputs))
    return FitResult(
        operator,
        _worst(trunk_result.status, regression.status),
        trunk_result.history + regression.history,
        _two_step_diagnostics(data, trunk_result, regression, basis, unit),
        trunk_result,
    )


def _targets(
    data: OperatorData, step1: TrunkResult, orthonormalise: AbstractOrthonormaliser | None
) -> tuple[Float[np.ndarray, "functions rank"] | None, Float[np.ndarray, "samples rank"], dict[str, Any]]:
    """T, the targets (R A)^T of step 2, and what is known of the basis; without QR they are I and A^T."""
    if orthonormalise is None:
        return None, step1.coefficients, {"length": 1.0, "rank": step1.trunk.width + 1, "condition": None}
    features = np.asarray(step1.trunk(jnp.asarray(data.points, step1.coefficients.dtype)))
    basis = orthonormalise(features, point_weights=data.point_weights, targets=data.outputs)
    targets = step1.coefficients @ basis.coordinates.T
    known = {"length": basis.squared_length, "rank": basis.rank, "condition": basis.condition}
    return basis.transform, targets, known


def _two_step_diagnostics(
    data: OperatorData, step1: TrunkResult, regression: Regression, basis: dict[str, Any], unit: float
) -> dict[str, Any]:
    return {
        "trunk": {
            "loss": step1.loss,
            "limit": trunk_limit(data.outputs, step1.trunk.effective_width),
            "rank": basis["rank"],
            "condition": basis["condition"],
            "seconds": step1.seconds,
            "iterations": step1.iterations,
        },
        "branch": {
            "kind": "network",
            "loss": regression.loss * unit,
            "seconds": regression.seconds,
            "iterations": regression.iterations,
        },
        "parameters": {
            "trunk": count_parameters(step1.trunk),
            "coefficients": step1.coefficients.size,
            "branch": count_parameters(regression.branch),
        },
    }


def _fit_monolithic(
    data: OperatorData, method: Monolithic, *, key: PRNGKeyArray, on_step: OnStep | None
) -> FitResult:
    dtype = _dtype(method)
    method.trunk.check(data)
    encoder = method.inputs.fit(data)
    inputs: Array = encoder(jnp.asarray(data.flat_inputs, dtype))
    trunk = make_trunk(method.trunk, dtype=dtype, key=named_key(key, "trunk"))
    functions = trunk.width + 1
    branch = method.branch.make(inputs.shape[1], functions, dtype=dtype, key=named_key(key, "branch"))
    transform = jnp.eye(functions, dtype=dtype) if method.train_transform else None
    result = minimise(
        make_loss(data, inputs, p=method.p, batches=method.batches, dtype=dtype),
        BranchCoefficients(trunk, branch, transform),
        method.minimiser,
        iterations=method.iterations,
        key=named_key(key, "monolithic"),
        stage="monolithic",
        on_step=on_step,
    )
    best: BranchCoefficients = result.parameters
    diagnostics = {
        "trunk": {
            "loss": result.value,
            "limit": trunk_limit(data.outputs, trunk.effective_width),
            "rank": functions,
            "condition": None,
            "seconds": result.seconds,
            "iterations": result.iterations,
        },
        "branch": None,
        "parameters": {
            "trunk": count_parameters(trunk),
            "coefficients": None,
            "branch": count_parameters(branch),
        },
    }
    operator = Operator(encoder, best.branch, best.trunk, best.transform, tuple(data.inputs))
    return FitResult(operator, result.status, result.history, diagnostics)


def _dtype(method: Method) -> np.dtype:
    return np.dtype(np.float64 if method.precision == "double" else np.float32)


def _worst(*statuses: Status) -> Status:
    order: tuple[Status, ...] = ("finished", "interrupted", "diverged")
    return max(statuses, key=order.index)
