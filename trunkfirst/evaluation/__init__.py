"""Errors on data that took no part in training, and how far a prediction can be trusted."""

from ._evaluate import Evaluation, conditional_optimum, evaluate, field_errors, predict_at
from ._familiarity import Familiarity, familiarity_from, learn_familiarity
from ._intervals import LEVELS, Intervals, conformal_intervals, conformal_quantile, intervals_from
from ._kernel import kernel_baseline

__all__ = [
    "LEVELS",
    "Evaluation",
    "Familiarity",
    "Intervals",
    "conditional_optimum",
    "conformal_intervals",
    "conformal_quantile",
    "evaluate",
    "familiarity_from",
    "field_errors",
    "intervals_from",
    "kernel_baseline",
    "learn_familiarity",
    "predict_at",
]
