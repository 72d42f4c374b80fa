"""The four terms of thm:main, corrected, and the ladders on which its rates are observed."""

import dataclasses as dc
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from ._christoffel import CHERNOFF, Christoffel
from ._least_squares import least_squares_ratio
from ._sensors import uniform_sensors
from ._slope import Slope, fit_slope

# A slope within this share of the theory's agrees with it.
TOLERANCE = 0.15


@dc.dataclass(frozen=True)
class Rates:
    """Exponents: N-term errors fall like N^-`width`, fill distances like K^-`samples`, gaps like m_x^-`sensors`.

    The paper's r, s and alpha (assmpt-operators, assmpt-inputspace). One that is not known, or has no ladder, is
    infinite: its term is then zero.
    """

    width: float
    samples: float = math.inf
    sensors: float = math.inf


@dc.dataclass(frozen=True)
class Constants:
    """What the paper hides: each rate's factor, of norms and not of their squares, and M with |G[f](y)| <= M."""

    width: float = 1.0
    samples: float = 1.0
    sensors: float = 1.0
    size: float = 1.0


@dc.dataclass(frozen=True)
class Terms:
    """The right-hand side of thm:main, term by term: all of them squares of errors."""

    width: float
    samples: float
    sensors: float
    points: float
    exponent: float
    """r_t of the condition on the output sensors (assmpt-trunk)."""

    @property
    def total(self) -> float:
        """The sum."""
        return self.width + self.samples + self.sensors + self.points

    @property
    def is_vacuous(self) -> bool:
        """Whether r_t <= 0: the theory then promises nothing, whatever the sum is."""
        return self.exponent <= 0


def bound_terms(
    rates: Rates, constants: Constants, *, width: int, samples: int, sensors: int, points: int, largest: float
) -> Terms:
    """C N^-2r + K^-2s + m_x^-2alpha + m_y^-r_t for N = `width`, K = `samples`, m_x = `sensors`, m_y = `points`.

    Exponents as corrected: the paper prints K^-alpha, m_x^-s and N^-r, swapped and not squared. r_t is that for
    which the condition on m_y sensors holds with equality for K_N = `largest`, so that
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


@dc.dataclass(frozen=True, eq=False)
class RateLadder:
    """Errors for growing counts, and the exponent that the theory has for them (None where it has none).

    `rule` says what agreement is: "equal", a slope within 15 per cent of the theory's; "not slower", one that is
    at least as steep up to 15 per cent, where the theory has an upper bound only.
    """

    name: str
    """What is counted, by the paper's letter: N, K, m_x or m_y."""
    what: str
    """What the errors are, in words."""
    counts: Int[np.ndarray, " rungs"]
    errors: Float[np.ndarray, " rungs"]
    theory: float | None = None
    rule: Literal["equal", "not slower"] = "equal"

    @property
    def slope(self) -> Slope:
        """The fitted exponent with its 95 per cent interval."""
        return fit_slope(self.counts, self.errors)

    @property
    def holds(self) -> bool | None:
        """Whether the slope agrees with the theory; None where there is nothing to agree with."""
        if self.theory is None:
            return None
        excess = self.slope.value - self.theory
        allowed = TOLERANCE * abs(self.theory)
        return excess <= allowed if self.rule == "not slower" else abs(excess) <= allowed


def excess_ladder(
    found: Christoffel,
    outputs: Float[np.ndarray, "samples points"],
    counts: Sequence[int],
    *,
    draws: int = 40,
    seed: int = 0,
) -> RateLadder:
    """What least squares from m_y sensors drawn from omega loses against the best approximation.

    In the mean over the draws, as squares over the best squared error. In the limit it is
    (1 / m_y) times the mean of k(y) e(y)^2 over that of e^2, e = u - Pi u: the slope is -1. (thm:main has
    1 / log m_y in its place, an upper bound for all u.)
    """
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(draws)]

    def excess(count: int) -> float:
        ratios = [least_squares_ratio(found, outputs, uniform_sensors(found, count, seed=s)) for s in seeds]
        return float(np.mean(np.square(ratios) - 1))

    what = "squared excess of least squares over the best squared error"
    return RateLadder("m_y", what, np.asarray(counts), np.asarray([excess(count) for count in counts]), -1.0)


@dc.dataclass(frozen=True)
class Observed:
    """A whole operator with N, K, m_x and m_y: its mean squared error beside the terms of thm:main."""

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
