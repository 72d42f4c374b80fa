"""Errors on data that took no part in training."""

from ._evaluate import Evaluation, conditional_optimum, evaluate
from ._kernel import kernel_baseline

__all__ = ["Evaluation", "conditional_optimum", "evaluate", "kernel_baseline"]
