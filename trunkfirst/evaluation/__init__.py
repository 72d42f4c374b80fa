"""Errors on data that took no part in training, and how far a prediction can be trusted."""

from ._budget import (
    Chain,
    ErrorBudget,
    basis_values,
    error_budget,
    input_weights,
    nearest_samples,
    trunk_basis,
)
from ._evaluate import Evaluation, conditional_optimum, evaluate, field_errors, predict_at
from ._familiarity import Familiarity, familiarity_from, learn_familiarity
from ._intervals import LEVELS, Intervals, conformal_intervals, conformal_quantile, intervals_from
from ._kernel import kernel_baseline

__all__ = [
    "LEVELS",
    "Chain",
    "ErrorBudget",
    "Evaluation",
    "Familiarity",
    "Intervals",
    "basis_values",
    "conditional_optimum",
    "conformal_intervals",
    "conformal_quantile",
    "error_budget",
    "evaluate",
    "familiarity_from",
    "field_errors",
    "input_weights",
    "intervals_from",
    "kernel_baseline",
    "learn_familiarity",
    "nearest_samples",
    "predict_at",
    "trunk_basis",
]
