"""Inverse use of an operator: the inputs that explain measurements, by least squares from several starts."""

import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ..errors import DataError, UsageError, ValueRangeError
from ..intervals import MOST_NUMBERS

# Minima whose inputs differ by less than this share of the range are the same.
_SAME = 1e-3
# Minima that are this much worse, in units of half the squared misfit, are not reported.
_MOST_WORSE = 10.0

Inputs = Float[np.ndarray, " sensors"]
Values = Float[np.ndarray, " observations"]
Function = Callable[[Inputs], Values]
Jacobian = Callable[[Inputs], Float[np.ndarray, "observations sensors"]]


@dc.dataclass(frozen=True, eq=False)
class Inversion:
    """The result of `Operator.invert`: inputs that explain measurements.

    `inputs` (sensors,) have the smallest misfit. `covariance` (sensors, sensors) is their covariance within the
    training range, from the noise and the derivatives of the operator. `misfit` is the root mean square of the
    residuals in units of the noise, about 1 if these inputs explain the measurements. `others` are further local
    minima, the best first, each with inputs, spread and misfit.
    """

    names: tuple[str, ...]
    inputs: Inputs
    covariance: Float[np.ndarray, "sensors sensors"]
    misfit: float
    noise: float
    """The noise that was given, or its estimate from the residuals; root mean square."""
    is_at_bound: np.ndarray
    """Which inputs are at an end of the training range: outside, others may explain the measurements better."""
    others: tuple["Inversion", ...] = ()

    @property
    def spread(self) -> Inputs:
        """Standard deviations of the inputs."""
        return np.sqrt(np.diag(self.covariance))

    def __repr__(self) -> str:
        values = zip(self.names, self.inputs, self.spread, self.is_at_bound, strict=True)
        words = [f"{n} = {x:.4g} ± {s:.1g}{' (end of the range)' if end else ''}" for n, x, s, end in values]
        others = f"; {len(self.others)} other local minima" if self.others else ""
        return f"Inversion({', '.join(words)}; misfit {self.misfit:.2g}{others})"


@dc.dataclass(frozen=True, eq=False)
class InverseProblem:
    """Measurements, what predicts them from inputs, and the range of the inputs.

    `noise` has the standard deviation of every measurement; None if it is not known.
    """

    names: tuple[str, ...]
    measured: Values
    predict: Function
    jacobian: Jacobian
    low: Inputs
    high: Inputs
    noise: Values | None

    def solve(self, starts: int, seed: int) -> Inversion:
        """The best of the local minima that are found from `starts` points, with the others."""
        if starts < 1:
            raise ValueRangeError(f"starts is {starts}; search from 1 or more")
        width = np.where(self.high > self.low, self.high - self.low, 1.0)
        sigma = np.ones(len(self.measured)) if self.noise is None else self.noise

        def residuals(z: Inputs) -> Values:
            return (self.predict(self.low + z * width) - self.measured) / sigma

        def slopes(z: Inputs) -> np.ndarray:
            return self.jacobian(self.low + z * width) * width / sigma[:, None]

        top = np.where(self.high > self.low, 1.0, np.finfo(float).eps)  # bounds must differ
        places = [np.full(len(width), 0.5), *sobol_points(len(width), starts, seed)[1:starts]]
        options: dict[str, Any] = {"jac": slopes, "bounds": (0 * top, top)}
        found = [
            scipy.optimize.least_squares(residuals, np.minimum(place, 0.9 * top), **options) for place in places
        ]
        minima = _distinct(sorted(found, key=lambda each: each.cost))
        spare = max(len(self.measured) - len(width), 1)
        scale = 1.0 if self.noise is not None else np.sqrt(2 * minima[0].cost / spare)
        noise = float(np.sqrt(np.mean(sigma**2))) * scale
        best, *others = [self._inversion(each, width, scale, noise) for each in minima]
        kept = [o for o in others if (o.misfit**2 - best.misfit**2) * len(self.measured) / 2 < _MOST_WORSE]
        return dc.replace(best, others=tuple(kept))

    def _inversion(
        self, found: scipy.optimize.OptimizeResult, width: Inputs, scale: float, noise: float
    ) -> Inversion:
        """With the covariance of Laplace's approximation, and of the uniform distribution over the range."""
        scale = max(scale, np.finfo(float).tiny)
        precision = found.jac.T @ found.jac / scale**2 + 12 * np.eye(len(width))
        covariance = np.linalg.inv(precision) * np.outer(width, width)
        is_fixed = self.high <= self.low
        covariance[is_fixed] = covariance[:, is_fixed] = 0.0
        misfit = float(np.sqrt(2 * found.cost / len(self.measured))) / scale
        inputs = np.clip(self.low + found.x * width, self.low, self.high)
        is_at_bound = ((found.x < _SAME) | (found.x > 1 - _SAME)) & ~is_fixed
        return Inversion(self.names, inputs, covariance, misfit, noise, is_at_bound)


def _distinct(found: Sequence[scipy.optimize.OptimizeResult]) -> list[scipy.optimize.OptimizeResult]:
    kept: list[scipy.optimize.OptimizeResult] = []
    for each in found:
        if all(np.abs(each.x - other.x).max() > _SAME for other in kept):
            kept.append(each)
    return kept


def sobol_points(dimensions: int, count: int, seed: int) -> Float[np.ndarray, "points dimensions"]:
    """Sobol points in the unit cube, scrambled by the seed: at least `count` of them, a power of 2."""
    from scipy.stats import qmc  # takes longer to import than all else of SciPy

    options: dict[str, Any] = {"seed": seed}  # which SciPy 1.15 calls rng
    return qmc.Sobol(dimensions, **options).random_base2(int(np.ceil(np.log2(count))))


def checked_range(input_ranges: np.ndarray | None) -> tuple[Inputs, Inputs]:
    """The least and the largest training inputs; raises a `UsageError` where they cannot be searched."""
    if input_ranges is None:
        raise UsageError("this operator does not know the range of its training inputs; fit it again")
    if (count := input_ranges.shape[1]) > MOST_NUMBERS:
        raise UsageError(
            f"the inputs are functions with {count} values, too many to find from measurements; fit an "
            f"operator of at most {MOST_NUMBERS} numbers, such as coefficients of the functions in a basis"
        )
    low, high = np.asarray(input_ranges, float)
    return low, high


def checked_observations(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Measurements in the shape of the output of one sample; NaN where nothing was measured."""
    array = np.asarray(values, float)
    if array.shape != shape:
        raise DataError(f"observations: expected shape {shape}, a value for each point; got {array.shape}")
    if np.isinf(array).any() or np.isnan(array).all():
        what = "none is given" if np.isnan(array).all() else "some are infinite"
        raise DataError(f"observations: {what}; NaN marks what was not measured")
    return array


def checked_noise(noise: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Standard deviations, one for all or one for each measurement."""
    array = np.asarray(noise, float)
    if array.shape not in ((), shape):
        raise DataError(f"noise: expected one number or the shape {shape} of the observations; got {array.shape}")
    if not (array > 0).all():
        raise ValueRangeError(f"noise: standard deviations must be above 0; the smallest is {array.min()}")
    return np.broadcast_to(array, shape)
