"""An operator whose rates are all known, and the rates of thm:main observed on it: one ladder for every count."""

import dataclasses as dc
import functools as ft
import math

import numpy as np
import scipy.fft
from jaxtyping import Float
from numpy.polynomial import legendre
from scipy.interpolate import RegularGridInterpolator

from ..errors import ValueRangeError
from .assumptions import fill_distances, generalisation_errors, sensor_gaps
from .optimal_sensors import christoffel, excess_ladder, uniform_sensors
from .rates import Constants, Observed, RateLadder, Rates, bound_terms, n_term_decay, truncate

Parameters = Float[np.ndarray, "functions dimension"]
Coefficients = Float[np.ndarray, "functions terms"]

_GRID = 4096
# The ladders, with K = cells^d.
_WIDTHS = (4, 8, 16, 32, 64, 128, 256)
_CELLS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
_SENSORS = (9, 17, 33, 65, 129, 257, 513)
_POINTS = (256, 512, 1024, 2048, 4096)
# N where it is not varied: for coefficients, and for least squares.
_COEFFICIENT_WIDTH, _LEAST_SQUARES_WIDTH = 64, 8
_TEST_INPUTS, _LEAST_SQUARES_INPUTS = 400, 50
# All four counts together, by N: m_y / N, and m_x / N^(3/4).
_TOGETHER = (4, 8, 16, 32, 64)
_POINTS_EACH, _SENSORS_EACH = 600, 8


@dc.dataclass(frozen=True)
class KnownRates:
    """G[f] = sum_j c_j(f) psi_j on [0, 1] with psi_j = sqrt(2) cos(j pi y) and |c_j| at most sqrt(2) j^-(r + 1/2).

    Inputs are f = sum_i p_i a_i(x), p in [0, 1]^d, with Legendre polynomials a_i that are orthonormal on [0, 1]:
    the distance of two inputs in L2 is that of their parameters p. The coefficients are
    c_j(f) = sqrt(2) j^-(r + 1/2) cos(pi p_i + j), i = 1 + j mod d, and c_0 = 1. Hence

    - N terms leave N^-r / sqrt(2 r), in the mean over f and for every f up to a factor: the rate is r = `decay`;
    - K = n^d inputs at the midpoints of equal cells have the fill distance sqrt(d) / 2 K^(-1/d): s = 1 / d;
    - m_x equally spaced sensors with trapezoidal weights see norms and integrals up to m_x^-2: alpha = 2.

    The three rates differ, so that none can be mistaken for another. Outputs are given at the midpoints of 4,096
    equal cells, where the first 4,096 psi_j are orthonormal as in L2; the sum ends there.
    """

    decay: float = 1.5
    dimension: int = 2

    def __post_init__(self) -> None:
        if not self.decay > 0 or self.dimension < 1:
            raise ValueRangeError(
                f"decay is {self.decay}, dimension {self.dimension}; expected a positive decay, a dimension from 1"
            )

    @property
    def rates(self) -> Rates:
        """r, s and alpha."""
        return Rates(self.decay, 1 / self.dimension, 2.0)

    @property
    def constants(self) -> Constants:
        """Factors of the rates, for m_x from 9 on, and M as the sum of the bounds of the coefficients."""
        sizes = self._sizes[1:]
        sums = np.asarray([np.sum(sizes[i :: self.dimension] ** 2) for i in range(self.dimension)])
        lipschitz = math.pi * math.sqrt(2 * float(sums.max()))
        return Constants(
            math.sqrt(1 / self.decay),
            lipschitz * math.sqrt(self.dimension) / 2,
            lipschitz * self._quadrature_error,
            1 + 2 * float(sizes.sum()),
        )

    # -- inputs

    def sample(self, count: int, *, seed: int) -> Parameters:
        """Random inputs, by their parameters."""
        return np.random.default_rng(seed).uniform(size=(count, self.dimension))

    def training(self, cells: int) -> Parameters:
        """K = cells^d inputs at the midpoints of equal cells."""
        axes = [_midpoints(cells)] * self.dimension
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, self.dimension)

    def nearest(self, parameters: Parameters, cells: int) -> Parameters:
        """The training input nearest to each."""
        return (np.clip(np.floor(parameters * cells), 0, cells - 1) + 0.5) / cells

    def exact(self, parameters: Parameters) -> Parameters:
        """Numbers whose root mean square difference is the distance of two inputs in L2."""
        return parameters * math.sqrt(self.dimension)

    def at_sensors(self, parameters: Parameters, sensors: int) -> Float[np.ndarray, "functions sensors"]:
        """f at equally spaced sensors."""
        return parameters @ self._modes(sensors)

    def integrals(self, values: Float[np.ndarray, "functions sensors"]) -> Parameters:
        """The integrals of f a_i by quadrature at the sensors, as the first layer of a branch."""
        sensors = values.shape[1]
        return (values * trapezoidal_weights(sensors)) @ self._modes(sensors).T

    # -- outputs

    def coefficients(self, parameters: Parameters, count: int = _GRID) -> Coefficients:
        """c_0, ..., c_(count - 1)."""
        j = np.arange(count)
        values = math.sqrt(2) * self._sizes[:count] * np.cos(math.pi * parameters[:, j % self.dimension] + j)
        values[:, 0] = 1.0
        return values

    def outputs(self, coefficients: Coefficients) -> Float[np.ndarray, "functions points"]:
        """sum_j c_j psi_j on the grid, by a fast cosine transform."""
        padded = np.zeros((len(coefficients), _GRID))
        padded[:, : coefficients.shape[1]] = coefficients
        return np.asarray(scipy.fft.dct(padded, type=3, norm="ortho", axis=1)) * math.sqrt(_GRID)

    def functions(self, width: int) -> Float[np.ndarray, "points functions"]:
        """The trunk: psi_0, ..., psi_N on the grid."""
        return self.outputs(np.eye(width + 1)).T

    @ft.cached_property
    def _sizes(self) -> Float[np.ndarray, " terms"]:
        return np.maximum(np.arange(_GRID), 1.0) ** -(self.decay + 0.5)

    def _modes(self, sensors: int) -> Float[np.ndarray, "dimension sensors"]:
        x = np.linspace(-1, 1, sensors)
        degrees = range(1, self.dimension + 1)
        return np.stack([math.sqrt(2 * i + 1) * legendre.legval(x, np.eye(i + 1)[i]) for i in degrees])

    @property
    def _quadrature_error(self) -> float:
        """The largest |p - integrals| times m_x^2 at m_x = 9; for larger m_x it falls to 0.8 of that."""
        sensors = 9
        modes = self._modes(sensors)
        off = (modes * trapezoidal_weights(sensors)) @ modes.T - np.eye(self.dimension)
        return float(np.linalg.norm(off, 2)) * math.sqrt(self.dimension) * sensors**2


def trapezoidal_weights(sensors: int) -> Float[np.ndarray, " sensors"]:
    """The trapezoidal rule on [0, 1]."""
    if sensors < 2:
        raise ValueRangeError(f"sensors is {sensors}; expected at least 2, one at each end")
    weights = np.full(sensors, 1 / (sensors - 1))
    weights[[0, -1]] /= 2
    return weights


def _midpoints(cells: int) -> Float[np.ndarray, " cells"]:
    return (np.arange(cells) + 0.5) / cells


# -- the rates observed


def known_rates_ladders(known: KnownRates, *, seed: int = 0) -> tuple[RateLadder, ...]:
    """Ladders of N, K, m_x and m_y, each with the others exact or large enough not to matter."""
    p = known.sample(_TEST_INPUTS, seed=seed)
    return (
        _width_ladder(known, p),
        *_sample_ladders(known, p),
        *_sensor_ladders(known, p),
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
    p = known.sample(_TEST_INPUTS // 4, seed=seed)
    seen = known.integrals(known.at_sensors(p, sensors))
    learned, truth = (known.outputs(known.coefficients(q)) for q in (known.nearest(seen, cells), p))
    found = christoffel(known.functions(width))
    errors: list[float] = []
    for draw in range(3):
        chosen = uniform_sensors(found, points, seed=seed + draw).indices
        c = np.linalg.lstsq(found.basis[chosen], learned[:, chosen].T, rcond=None)[0]
        predicted = truncate((found.basis @ c).T, known.constants.size)
        errors.append(float(np.mean(generalisation_errors(predicted, truth) ** 2)))
    return float(np.mean(errors))


def _width_ladder(known: KnownRates, p: Parameters) -> RateLadder:
    outputs = known.outputs(known.coefficients(p))
    widths = np.asarray(_WIDTHS)
    largest = n_term_decay(outputs, known.functions(_WIDTHS[-1])).largest[widths]
    return RateLadder("N", "best N-term error, largest over inputs", widths, largest, -known.rates.width)


def _sample_ladders(known: KnownRates, p: Parameters) -> tuple[RateLadder, ...]:
    exact = known.coefficients(p, _COEFFICIENT_WIDTH + 1)
    others = known.exact(known.sample(10 * len(p), seed=1))

    def fill_distance(cells: int) -> float:
        return float(fill_distances(known.exact(known.training(cells)), others, levels=1).errors[0])

    def nearest(cells: int) -> float:
        return _rms(known.coefficients(known.nearest(p, cells), _COEFFICIENT_WIDTH + 1) - exact)

    def linear(cells: int) -> float:
        table = known.coefficients(known.training(cells), _COEFFICIENT_WIDTH + 1)
        table = table.reshape(*[cells] * known.dimension, _COEFFICIENT_WIDTH + 1)
        axes = (_midpoints(cells),) * known.dimension
        # fill_value=None extrapolates beyond the outermost midpoints.
        interpolant = RegularGridInterpolator(axes, table, bounds_error=False, fill_value=None)  # pyright: ignore[reportArgumentType]
        return _rms(interpolant(p) - exact)

    samples, s = np.asarray(_CELLS) ** known.dimension, -known.rates.samples
    distances, near, line = (np.asarray([error(n) for n in _CELLS]) for error in (fill_distance, nearest, linear))
    how = "error of the coefficients, "
    return (
        RateLadder("K", "fill distance of the training inputs", samples, distances, s),
        RateLadder("K", how + "those of the nearest training input", samples, near, s, "not slower"),
        RateLadder("K", how + "a branch linear between training inputs", samples, line, s, "not slower"),
    )


def _sensor_ladders(known: KnownRates, p: Parameters) -> tuple[RateLadder, ...]:
    counts = np.asarray(_SENSORS)
    coarse = [(known.at_sensors(p, m), trapezoidal_weights(m)) for m in _SENSORS]
    gaps = sensor_gaps(known.exact(p), coarse).errors
    exact, width = known.coefficients(p, _COEFFICIENT_WIDTH + 1), _COEFFICIENT_WIDTH + 1
    seen = np.asarray([_rms(known.coefficients(known.integrals(f), width) - exact) for f, _ in coarse])
    distance = "excess of the distance that sensors see, largest over pairs"
    branch = "error of the coefficients, an exact branch on m_x sensors"
    return (
        RateLadder("m_x", distance, counts, gaps, -known.rates.sensors),
        RateLadder("m_x", branch, counts, seen, -known.rates.sensors),
    )


def _point_ladder(known: KnownRates, seed: int) -> RateLadder:
    outputs = known.outputs(known.coefficients(known.sample(_LEAST_SQUARES_INPUTS, seed=seed)))
    return excess_ladder(christoffel(known.functions(_LEAST_SQUARES_WIDTH)), outputs, _POINTS, seed=seed)


def _rms(differences: Coefficients) -> float:
    return float(np.sqrt(np.mean(np.sum(differences**2, axis=1))))
