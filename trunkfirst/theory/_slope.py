"""Rates of convergence from measured errors."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float, Num
from scipy.special import stdtrit

from ..errors import DataError


@dc.dataclass(frozen=True)
class Slope:
    """y = constant x^value, fitted in logarithms; `lower` and `upper` bound the exponent with some confidence."""

    value: float
    lower: float
    upper: float
    constant: float


def fit_slope(
    x: Num[np.ndarray, " measurements"], y: Float[np.ndarray, " measurements"], *, level: float = 0.95
) -> Slope:
    """Least squares of log y on log x, with Student's interval at the confidence `level`.

    With two measurements nothing is known about their scatter, and the interval is infinite.
    """
    for name, values in (("x", x), ("y", y)):
        if not (np.isfinite(values) & (values > 0)).all():
            raise DataError(
                f"{name}: must be finite and positive to have a logarithm; the smallest is {values.min()}"
            )
    if len(np.unique(x)) < 2:
        raise DataError(f"x: has {len(np.unique(x))} different values; a slope needs at least 2")
    a, b = np.log(x) - np.log(x).mean(), np.log(y)
    value = float(a @ b / (a @ a))
    freedom = len(x) - 2
    if freedom == 0:
        half = np.inf
    else:
        scatter = np.sum((b - b.mean() - value * a) ** 2) / freedom
        half = float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(scatter / (a @ a)))
    return Slope(value, value - half, value + half, float(np.exp(b.mean() - value * np.log(x).mean())))


def slope_of_positive(x: Num[np.ndarray, " measurements"], y: Float[np.ndarray, " measurements"]) -> Slope | None:
    """The slope through the measurements that are not zero; None where fewer than two are left."""
    return fit_slope(x[y > 0], y[y > 0]) if len(np.unique(x[y > 0])) > 1 else None
