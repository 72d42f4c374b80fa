"""The rates of thm:main observed on the operator that has known ones: one ladder for every count."""

import math

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator

from ._bound import Observed, RateLadder, Rates, bound_terms, excess_ladder
from ._christoffel import christoffel
from ._decay import n_term_decay
from ._estimates import fill_distances, generalisation_errors, sensor_gaps
from ._known_rates import KnownRates, Parameters, sensor_weights
from ._sensors import uniform_sensors
from ._truncation import truncate

_WIDTHS = (4, 8, 16, 32, 64, 128, 256)
_CELLS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_SENSORS = (9, 17, 33, 65, 129, 257, 513)
_POINTS = (256, 512, 1024, 2048, 4096)
# Where it is not what is varied: N for coefficients, and for least squares.
_WIDTH, _FEW = 64, 8
_TESTS, _FUNCTIONS = 400, 50
# All four together, by N: m_y / N, and m_x / N^(3/4).
_TOGETHER = (4, 8, 16, 32, 64)
_POINTS_EACH, _SENSORS_EACH = 600, 8


def known_rates_ladders(
    known: KnownRates, claimed: Rates | None = None, *, seed: int = 0
) -> tuple[RateLadder, ...]:
    """Ladders of N, K, m_x and m_y, each with the others exact or large enough not to matter.

    `claimed` rates take the place of the operator's own as what the slopes are compared with.
    """
    rates = claimed or known.rates
    p = known.sample(_TESTS, seed=seed)
    return (
        _width_ladder(known, p, rates),
        _fill_ladder(known, p, rates),
        *_sample_ladders(known, p, rates),
        *_sensor_ladders(known, p, rates),
        _point_ladder(known, seed),
    )


def known_rates_together(known: KnownRates, *, seed: int = 0) -> tuple[Observed, ...]:
    """Whole operators, N, K, m_x and m_y growing together so that every term falls like N^-2r.

    Least squares from m_y sensors drawn from omega gives the coefficients of K training inputs; an input is seen
    by m_x sensors and takes the coefficients of the training input nearest to it; the output is truncated.
    """
    rates, constants = known.rates, known.constants
    rows: list[Observed] = []
    for width in _TOGETHER:
        cells = math.ceil(width ** (rates.width / rates.samples / known.dimension))
        sensors = math.ceil(_SENSORS_EACH * width ** (rates.width / rates.sensors)) + 1
        points, samples = _POINTS_EACH * width, cells**known.dimension
        counts = {"width": width, "samples": samples, "sensors": sensors, "points": points}
        terms = bound_terms(rates, constants, **counts, largest=2.0 * width + 1)
        measured = _mean_square(known, width=width, cells=cells, sensors=sensors, points=points, seed=seed)
        rows.append(Observed(**counts, terms=terms, measured=measured))
    return tuple(rows)


def _mean_square(known: KnownRates, *, width: int, cells: int, sensors: int, points: int, seed: int) -> float:
    p = known.sample(_TESTS // 4, seed=seed)
    seen = known.integrals(known.at_sensors(p, sensors))
    taught, truth = (known.outputs(known.coefficients(q)) for q in (known.nearest(seen, cells), p))
    found = christoffel(known.functions(width))
    errors: list[float] = []
    for draw in range(3):
        chosen = uniform_sensors(found, points, seed=seed + draw).indices
        c = np.linalg.lstsq(found.basis[chosen], taught[:, chosen].T, rcond=None)[0]
        predicted = truncate((found.basis @ c).T, known.constants.size)
        errors.append(generalisation_errors(predicted, truth).mean_squared)
    return float(np.mean(errors))


def _width_ladder(known: KnownRates, p: Parameters, rates: Rates) -> RateLadder:
    outputs = known.outputs(known.coefficients(p))
    widths = np.asarray(_WIDTHS)
    largest = n_term_decay(outputs, known.functions(_WIDTHS[-1])).largest[widths]
    return RateLadder("N", "best N-term error, largest over inputs", widths, largest, -rates.width)


def _fill_ladder(known: KnownRates, p: Parameters, rates: Rates) -> RateLadder:
    others = known.exact(known.sample(10 * len(p), seed=1))
    found = [fill_distances(known.exact(known.training(cells)), others, levels=1) for cells in _CELLS]
    distances = np.concatenate([each.distances for each in found])
    return RateLadder("K", "fill distance of the training inputs", _samples(known), distances, -rates.samples)


def _sample_ladders(known: KnownRates, p: Parameters, rates: Rates) -> tuple[RateLadder, RateLadder]:
    exact = known.coefficients(p, _WIDTH + 1)

    def by_line(cells: int) -> np.ndarray:
        middles = (np.arange(cells) + 0.5) / cells
        table = known.coefficients(known.training(cells), _WIDTH + 1)
        table = table.reshape(*[cells] * known.dimension, _WIDTH + 1)
        axes = (middles,) * known.dimension
        # Straight on beyond the outermost middles.
        return RegularGridInterpolator(axes, table, bounds_error=False, fill_value=None)(p)  # pyright: ignore[reportArgumentType]

    def ladder(how: str, errors: list[float]) -> RateLadder:
        what = f"error of the coefficients, {how}"
        return RateLadder("K", what, _samples(known), np.asarray(errors), -rates.samples, "not slower")

    near = [_rms(known.coefficients(known.nearest(p, cells), _WIDTH + 1) - exact) for cells in _CELLS]
    line = [_rms(by_line(cells) - exact) for cells in _CELLS]
    return (
        ladder("those of the nearest training input", near),
        ladder("a branch linear between training inputs", line),
    )


def _sensor_ladders(known: KnownRates, p: Parameters, rates: Rates) -> tuple[RateLadder, RateLadder]:
    counts = np.asarray(_SENSORS)
    coarse = [(known.at_sensors(p, m), sensor_weights(m)) for m in _SENSORS]
    gaps = sensor_gaps(known.exact(p), coarse).gaps
    exact = known.coefficients(p, _WIDTH + 1)
    seen = [_rms(known.coefficients(known.integrals(values), _WIDTH + 1) - exact) for values, _ in coarse]
    return (
        RateLadder(
            "m_x", "excess of the distance that sensors see, largest over pairs", counts, gaps, -rates.sensors
        ),
        RateLadder(
            "m_x",
            "error of the coefficients, an exact branch on m_x sensors",
            counts,
            np.asarray(seen),
            -rates.sensors,
        ),
    )


def _point_ladder(known: KnownRates, seed: int) -> RateLadder:
    outputs = known.outputs(known.coefficients(known.sample(_FUNCTIONS, seed=seed)))
    return excess_ladder(christoffel(known.functions(_FEW)), outputs, _POINTS, seed=seed)


def _samples(known: KnownRates) -> np.ndarray:
    return np.asarray(_CELLS) ** known.dimension


def _rms(differences: Float[np.ndarray, "functions terms"]) -> float:
    return float(np.sqrt(np.mean(np.sum(differences**2, axis=1))))
