"""Errors on data that took no part in training."""

from ._evaluate import Evaluation, conditional_optimum, evaluate

__all__ = ["Evaluation", "conditional_optimum", "evaluate"]
