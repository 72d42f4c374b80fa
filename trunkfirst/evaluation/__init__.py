"""Errors on unseen data, their sources, prediction intervals and out-of-distribution inputs."""

from .budget import ErrorBudget, error_budget, free_basis, input_weights, nearest_samples, trunk_basis
from .evaluate import Evaluation, conditional_optimum, evaluate, kernel_baseline, predict_at
from .intervals import (
    LEVELS,
    Intervals,
    Novelty,
    conformal_intervals,
    conformal_quantile,
    fit_novelty,
    intervals_from,
    novelty_from,
)

__all__ = [
    "LEVELS",
    "ErrorBudget",
    "Evaluation",
    "Intervals",
    "Novelty",
    "conditional_optimum",
    "conformal_intervals",
    "conformal_quantile",
    "error_budget",
    "evaluate",
    "fit_novelty",
    "free_basis",
    "input_weights",
    "intervals_from",
    "kernel_baseline",
    "nearest_samples",
    "novelty_from",
    "predict_at",
    "trunk_basis",
]
