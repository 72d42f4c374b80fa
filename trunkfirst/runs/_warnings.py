"""What a user should know before trusting the numbers of a run."""

import math

import numpy as np

from ..data import AnyData, OperatorData
from ..linear import SVD
from ..training import FitResult
from ._config import RunConfig

# Beyond this, single precision leaves a projected gradient fewer than three digits.
_LARGEST_FOR_SINGLE = 1e4
_DIGITS_OF_SINGLE = 7.2


def precision_warnings(config: RunConfig, result: FitResult, data: AnyData) -> list[str]:
    """One sentence where single precision meets a trunk whose condition number makes it meaningless.

    A monolithic fit without projection solves no linear system, and is left alone.
    """
    if config.precision == "double" or config.method == "monolithic":
        return []
    condition = result.diagnostics["trunk"]["condition"]
    if condition is None:
        points = data.points if isinstance(data, OperatorData) else data.pooled()[0]
        condition = SVD()(np.asarray(result.operator.basis(points), np.float64)).condition
    return [] if condition < _LARGEST_FOR_SINGLE else [_explain(condition)]


def _explain(condition: float) -> str:
    lost = math.log10(condition) if math.isfinite(condition) else math.inf
    left = max(_DIGITS_OF_SINGLE - lost, 0.0)
    return (
        f"the trunk's condition number is {condition:.1e}: of the 7 digits of single precision about {left:.0f} "
        "are left in what is solved for, so that small losses and errors mean nothing "
        f'(single precision serves up to {_LARGEST_FOR_SINGLE:.0e}); set precision = "double"'
    )
