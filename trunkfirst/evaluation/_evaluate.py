"""How good an operator is, on samples that took no part in its making."""

import dataclasses as dc
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..data import OperatorData
from ..linear import SVD, projection, relative_errors
from ..networks import Operator

Errors = Float[np.ndarray, " samples"]


@dc.dataclass(frozen=True, eq=False)
class Evaluation:
    """Relative l2 errors, one a sample, in physical units.

    `optimal_errors` are those of the conditional optimum: the best coefficients for the same trunk, which only
    somebody who knows the output could choose (the paper's def:cond-opt-rel). `reference_errors` compare with a
    finer solution, `own_errors` the data themselves with it; None where there is none.
    """

    predictions: Float[np.ndarray, "samples points"]
    errors: Errors
    optimal_errors: Errors
    reference_errors: Errors | None
    own_errors: Errors | None
    kernel_error: float | None = None
    """Mean relative error of the kernel baseline on the same samples, where somebody computed it."""

    def summary(self) -> dict[str, Any]:
        """The part `test` of `metrics.json` that comes from here."""
        reference = self.reference_errors
        return {
            "mean_relative_l2": float(self.errors.mean()),
            "median_relative_l2": float(np.median(self.errors)),
            "max_relative_l2": float(self.errors.max()),
            "optimal_mean_relative_l2": float(self.optimal_errors.mean()),
            "kernel_mean_relative_l2": self.kernel_error,
            "reference_mean_relative_l2": None if reference is None else float(reference.mean()),
        }


def evaluate(operator: Operator, data: OperatorData) -> Evaluation:
    """Predict every sample of `data` and compare."""
    predictions = operator.predict(data.flat_inputs, data.points)
    weights, reference = data.point_weights, data.reference_outputs

    def errors_of(fields: np.ndarray, truth: np.ndarray) -> Errors:
        return relative_errors(fields, truth, point_weights=weights)

    optimal = conditional_optimum(operator, data)
    return Evaluation(
        predictions,
        errors_of(predictions, data.outputs),
        errors_of(optimal, data.outputs),
        None if reference is None else errors_of(predictions, reference),
        None if reference is None else errors_of(data.outputs, reference),
    )


def conditional_optimum(operator: Operator, data: OperatorData) -> Float[np.ndarray, "samples points"]:
    """The least-squares approximation of each output by the operator's own basis.

    For a two-step operator the basis is Phi T, else Phi. Directions at rounding level are left out.
    """
    with jax.enable_x64(operator.dtype == np.float64):
        features = np.asarray(operator.basis(data.points), np.float64)
    basis = SVD()(features, point_weights=data.point_weights)
    return projection(data.outputs, basis.values, point_weights=data.point_weights)
