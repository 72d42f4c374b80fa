"""Convergence rates: fitted slopes, the best N-term error, and the four terms of the paper's bound (thm:main)."""

import dataclasses as dc
import math
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, Num
from scipy.special import stdtrit

from ..errors import DataError, ValueRangeError
from ..linear.blocked_qr import one_blas_thread
from ..linear.low_rank import principal_directions

# Share of the outputs below which directions are rounding errors.
_ROUNDING = 1e-13
# A slope within this share of the theoretical one agrees with it.
_AGREEMENT = 0.15
# (1 + d) log(1 + d) - d for d = 1/2: the Chernoff bound of P(|G - I| > 1/2).
CHERNOFF = 1.5 * math.log(1.5) - 0.5

Outputs = Float[np.ndarray, "samples points"]
Weights = Float[np.ndarray, " points"]
Counts = Int[np.ndarray, " counts"]
Errors = Float[np.ndarray, " counts"]


def normalised_weights(
    weights: Float[np.ndarray, " given"] | None, points: int, *, name: str = "weights"
) -> Float[np.ndarray, " points"]:
    """The quadrature weights of a probability measure: `weights` over their sum, or equal ones for None."""
    if weights is None:
        return np.full(points, 1 / points)
    if len(weights) != points:
        raise DataError(f"{name}: axis 'points' has {len(weights)} entries, expected {points}")
    if not np.isfinite(weights).all() or weights.min() < 0 or weights.max() == 0:
        raise DataError(f"{name}: must be finite, not negative and not all zero; the smallest is {weights.min()}")
    return weights / weights.sum()


# -- slopes


@dc.dataclass(frozen=True)
class Slope:
    """The fit y = constant x^value; `lower` and `upper` are the confidence limits of the exponent."""

    value: float
    lower: float
    upper: float
    constant: float


def fit_slope(
    x: Num[np.ndarray, " measurements"], y: Float[np.ndarray, " measurements"], *, level: float = 0.95
) -> Slope:
    """Fit a power by least squares of log y on log x, with Student's interval at the confidence `level`.

    Two measurements leave no degree of freedom, so their interval is infinite. Raises `DataError` where x or y is
    not positive, or x has fewer than two different values.
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
    half = np.inf
    if freedom > 0:
        variance = np.sum((b - b.mean() - value * a) ** 2) / freedom
        half = float(stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance / (a @ a)))
    return Slope(value, value - half, value + half, float(np.exp(b.mean() - value * np.log(x).mean())))


@dc.dataclass(frozen=True, eq=False)
class Ladder:
    """Errors measured for several counts of samples or sensors."""

    counts: Counts
    errors: Errors

    @property
    def slope(self) -> Slope | None:
        """The slope through the positive errors; None where fewer than two counts have one."""
        x, y = self.counts[self.errors > 0], self.errors[self.errors > 0]
        return fit_slope(x, y) if len(np.unique(x)) > 1 else None


@dc.dataclass(frozen=True, eq=False)
class RateLadder:
    """Errors for growing counts, and the exponent that the theory predicts (None where it predicts none).

    `rule` is "equal" where the slope must be within 15 per cent of the theoretical one, "not slower" where the
    theory is an upper bound, so that a steeper slope agrees with it too.
    """

    name: str
    """What is counted, by the paper's letter: N, K, m_x or m_y."""
    what: str
    """What the errors are."""
    counts: Counts
    errors: Errors
    theory: float | None = None
    rule: Literal["equal", "not slower"] = "equal"

    @property
    def slope(self) -> Slope:
        """The fitted exponent with its 95 per cent interval."""
        return fit_slope(self.counts, self.errors)

    @property
    def holds(self) -> bool | None:
        """Whether the slope agrees with the theory; None without a theory."""
        if self.theory is None:
            return None
        excess = self.slope.value - self.theory
        allowed = _AGREEMENT * abs(self.theory)
        return excess <= allowed if self.rule == "not slower" else abs(excess) <= allowed


# -- the N-term error (assmpt-operators, second part)


@dc.dataclass(frozen=True, eq=False)
class Decay:
    """Errors in L2_omega left by the constant and N further functions, for N = 0, 1, 2, ..."""

    root_mean_square: Float[np.ndarray, " widths"]
    largest: Float[np.ndarray, " widths"]
    """Over the samples: a lower bound of the paper's supremum."""
    size: float
    """The root mean square of the outputs."""

    def width_needed(self, error: float) -> int | None:
        """The smallest N whose root mean square error is at most `error`; None where no N reaches it."""
        enough = np.flatnonzero(self.root_mean_square <= error)
        return int(enough[0]) if len(enough) else None

    @property
    def ladder(self) -> Counts:
        """N = 1, 2, 4, ... while the error is above rounding."""
        widths = 2 ** np.arange(len(self.largest).bit_length())
        widths = widths[widths < len(self.largest)]
        return widths[self.root_mean_square[widths] > 10 * _ROUNDING * self.size]

    def slope(self, widths: Counts | None = None) -> Slope:
        """Minus the rate r, from the root mean square errors at `widths` (default: the `ladder`)."""
        chosen = self.ladder if widths is None else widths
        return fit_slope(chosen, self.root_mean_square[chosen])


def best_basis(
    outputs: Outputs,
    *,
    weights: Weights | None = None,
    within: Float[np.ndarray, "points functions"] | None = None,
) -> Float[np.ndarray, "points rank"]:
    """The constant, then the functions that leave the smallest error on `outputs`, for every N at once.

    This is the proper orthogonal decomposition with the constant that every trunk has: no trunk of N functions
    does better on these samples than the first N + 1 columns (see `linear.trunk_limit`). `within` restricts it to
    the span of functions that are orthonormal in L2_omega. The columns are orthonormal in L2_omega, and zero at
    points without weight.
    """
    roots = np.sqrt(normalised_weights(weights, outputs.shape[1]))
    frame = None if within is None else within * roots[:, None]
    constant = roots if frame is None else roots @ frame
    constant = constant / np.linalg.norm(constant)
    coordinates = outputs * roots if frame is None else (outputs * roots) @ frame
    centred = coordinates - np.outer(coordinates @ constant, constant)
    directions = principal_directions(centred, tolerance=_ROUNDING)
    with one_blas_thread():
        # Orthonormal already, except for directions that are close to rounding.
        columns = np.linalg.qr(np.vstack([constant, directions]).T)[0]
    scaled = columns if frame is None else frame @ columns
    return np.divide(scaled, roots[:, None], out=np.zeros_like(scaled), where=roots[:, None] > 0)


def n_term_decay(
    outputs: Outputs, basis: Float[np.ndarray, "points rank"], *, weights: Weights | None = None
) -> Decay:
    """Errors on `outputs` of the first 1, 2, ... columns of a `basis` that is orthonormal in L2_omega.

    Pass samples that the basis was not computed from: on its own samples the error is too small.
    """
    omega = normalised_weights(weights, outputs.shape[1])
    coefficients = (outputs * omega) @ basis
    remainders = (outputs - coefficients @ basis.T) ** 2 @ omega
    # Summed from the tail: a difference of two large sums would lose every digit.
    tails = np.cumsum(coefficients[:, :0:-1] ** 2, axis=1)[:, ::-1]
    squares = np.hstack([tails, np.zeros((len(outputs), 1))]) + remainders[:, None]
    size = float(np.sqrt(np.mean(outputs**2 @ omega)))
    return Decay(np.sqrt(squares.mean(axis=0)), np.sqrt(squares.max(axis=0)), size)


# -- the bound


@dc.dataclass(frozen=True)
class Rates:
    """The paper's r, s and alpha (assmpt-operators, assmpt-inputspace).

    N-term errors fall like N^-`width`, fill distances like K^-`samples`, sensor gaps like m_x^-`sensors`. An
    infinite rate stands for an unknown one: its term is zero.
    """

    width: float
    samples: float = math.inf
    sensors: float = math.inf


@dc.dataclass(frozen=True)
class Constants:
    """The factor of each rate (for norms, not for their squares), and `size` = M with |G[f](y)| <= M."""

    width: float = 1.0
    samples: float = 1.0
    sensors: float = 1.0
    size: float = 1.0


@dc.dataclass(frozen=True)
class Terms:
    """The right-hand side of thm:main term by term, as squared errors; `exponent` is r_t of assmpt-trunk."""

    width: float
    samples: float
    sensors: float
    points: float
    exponent: float

    @property
    def total(self) -> float:
        """The sum of the four terms."""
        return self.width + self.samples + self.sensors + self.points

    @property
    def is_vacuous(self) -> bool:
        """Whether r_t <= 0, so that the theorem makes no statement."""
        return self.exponent <= 0


@dc.dataclass(frozen=True)
class Observed:
    """The mean squared error of an operator with N, K, m_x and m_y, and the terms of thm:main."""

    width: int
    samples: int
    sensors: int
    points: int
    terms: Terms
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over the sum of the terms; the proof allows up to 3, from |a + b + c|^2 <= 3 (...)."""
        return self.measured / self.terms.total


def bound_terms(
    rates: Rates, constants: Constants, *, width: int, samples: int, sensors: int, points: int, largest: float
) -> Terms:
    """C N^-2r + K^-2s + m_x^-2alpha + m_y^-r_t for N = `width`, K = `samples`, m_x = `sensors`, m_y = `points`.

    The exponents are the corrected ones: the paper prints K^-alpha, m_x^-s and N^-r. r_t is the value for which
    the condition on m_y sensors holds with equality for K_N = `largest`. Then
    C = 1 + (6 log(3/2) - 2) / ((1 + r_t) log m_y) is 1 + 4 K_N / m_y. The last term is 8 M^2 m_y^-r_t.
    """
    log = math.log(points)
    exponent = CHERNOFF * points / (largest * log) - 1
    return Terms(
        (1 + 4 * CHERNOFF / ((1 + exponent) * log)) * _term(constants.width, width, rates.width),
        _term(constants.samples, samples, rates.samples),
        _term(constants.sensors, sensors, rates.sensors),
        8 * constants.size**2 * points**-exponent,
        exponent,
    )


def _term(constant: float, count: int, rate: float) -> float:
    return 0.0 if math.isinf(rate) else (constant * float(count) ** -rate) ** 2


def truncate(values: Float[np.ndarray, "..."], bound: float) -> Float[np.ndarray, "..."]:
    """T_M(z) = sign(z) min(M, |z|) with M = `bound`, the truncation of thm:main (the paper prints max).

    Where the true output is within [-M, M] no error grows, since T_M is the projection onto that interval.
    """
    if not bound > 0:
        raise ValueRangeError(f"bound is {bound:g}; expected a positive number, such as the largest |output|")
    return np.clip(values, -bound, bound)
