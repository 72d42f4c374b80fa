"""Where to measure: the Christoffel function of a trunk, sensors placed by it, and the error of least squares.

For functions psi that are orthonormal in L2_omega, least squares from m sensors is as good as the projection, up
to a constant, where G = (1/m) sum w_i psi(y_i) psi(y_i)^T is close to the identity. For sensors drawn from omega
this depends on K_N = sup k(y), k(y) = |psi(y)|^2 (Cohen, Davenport and Leviatan; the paper's assmpt-trunk). Output
sensors use the functions of a trunk, input sensors the principal modes of the inputs.
"""

import dataclasses as dc
import math
from collections.abc import Callable, Sequence

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int
from scipy.special import lambertw

from ..errors import DataError, ValueRangeError
from ..linear.blocked_qr import one_blas_thread
from ..linear.low_rank import compress
from ..linear.orthonormalise import SVD, projection
from .rates import CHERNOFF, RateLadder, normalised_weights

_STABLE = 0.5
# A swap must gain more than rounding, or two equally good sets would alternate.
_GAIN, _SWEEPS = 1e-9, 50
# Points with a smaller k are never picked: all of them together hold less than a tenth of any function of norm 1.
# With the constant among the functions, k is at least 1 everywhere.
_SMALLEST_K = 0.1
# Share of the outputs below which the best error is rounding.
_ROUNDING = 1e-13

Indices = Int[np.ndarray, " sensors"]
Rows = Float[np.ndarray, "points rank"]
Outputs = Float[np.ndarray, "samples points"]
AtSensors = Float[np.ndarray, "sensors rank"]
SensorWeights = Float[np.ndarray, " sensors"]


# -- the Christoffel function


@dc.dataclass(frozen=True, eq=False)
class Christoffel:
    """k(y) = |psi(y)|^2 on a grid, for functions psi = phi T that are orthonormal in L2_omega.

    `basis` is psi on the grid, zero at points without weight, and `values` is k. The mean of k under omega is the
    rank r, so that K_N = `largest` >= r.
    """

    basis: Rows
    transform: Float[np.ndarray, "functions rank"]
    weights: Float[np.ndarray, " points"]
    values: Float[np.ndarray, " points"]

    @property
    def rank(self) -> int:
        """r, the number of orthonormal functions."""
        return self.basis.shape[1]

    @property
    def largest(self) -> float:
        """K_N, the largest value of k on the grid."""
        return float(self.values.max())

    def functions_at(self, features: Float[np.ndarray, "sensors functions"]) -> AtSensors:
        """psi = phi T at any points, from the values of phi there."""
        return features @ self.transform


def christoffel(
    features: Float[np.ndarray, "points functions"],
    *,
    weights: Float[np.ndarray, " points"] | None = None,
    tolerance: float | None = None,
) -> Christoffel:
    """The Christoffel function of the span of `features`, the values phi of a trunk on a fine grid.

    `weights` are quadrature weights of omega. Directions with singular values below `tolerance` times the largest
    (default: below rounding) are left out, so that phi may be redundant.
    """
    omega = normalised_weights(weights, len(features))
    found = SVD(tolerance)(features, point_weights=omega)
    basis = np.where(omega[:, None] > 0, found.values, 0.0)
    return Christoffel(basis, found.transform, omega, np.sum(basis**2, axis=1))


def gram(functions: AtSensors, weights: SensorWeights | None = None) -> Float[np.ndarray, "rank rank"]:
    """G = (1/m) sum_i w_i psi(y_i) psi(y_i)^T for the values `functions` of psi at m sensors."""
    weighted = functions if weights is None else functions * weights[:, None]
    return weighted.T @ functions / len(functions)


def gram_deviation(functions: AtSensors, weights: SensorWeights | None = None) -> float:
    """|G - I| in the spectral norm; up to 1/2, least squares from these sensors is stable."""
    return float(np.linalg.norm(gram(functions, weights) - np.eye(functions.shape[1]), 2))


@dc.dataclass(frozen=True)
class SensorCondition:
    """Whether K_N <= kappa m / log m, kappa = c / (1 + r_t), for some r_t > 0 (the paper's assmpt-trunk).

    Checked for one trunk, at the trained mu* and not over the feasible set, and as if the sensors had been drawn
    from omega after the trunk was fixed.
    """

    sensors: int
    rank: int
    largest: float
    """K_N; for weighted sensors the largest w k, which is the rank for those drawn by the Christoffel function."""
    deviation: float
    """|G - I| of these sensors; exact, whether or not the condition holds."""

    @property
    def exponent(self) -> float:
        """The r_t for which the condition holds with equality: c m / (K_N log m) - 1."""
        return CHERNOFF * self.sensors / (self.largest * math.log(self.sensors)) - 1

    @property
    def is_vacuous(self) -> bool:
        """Whether no r_t > 0 fulfils the condition, so that the theory makes no statement."""
        return self.exponent <= 0

    @property
    def failure(self) -> float:
        """The bound 2 r exp(-c m / K_N) of P(|G - I| > 1/2), at most 1."""
        return min(1.0, 2 * self.rank * math.exp(-CHERNOFF * self.sensors / self.largest))


def sensor_condition(
    found: Christoffel, functions: AtSensors, weights: SensorWeights | None = None
) -> SensorCondition:
    """The condition for sensors where psi has the values `functions` (see `Christoffel.functions_at`).

    With `weights`, K_N is replaced by the largest w k over the sensors.
    """
    if len(functions) < 2:
        raise ValueRangeError(f"functions: axis 'sensors' has {len(functions)} entries; expected at least 2")
    largest = found.largest if weights is None else float((weights * np.sum(functions**2, axis=1)).max())
    return SensorCondition(len(functions), found.rank, largest, gram_deviation(functions, weights))


def theoretical_sensors(largest: float, *, exponent: float = 1.0) -> int:
    """The smallest m with K_N <= c m / ((1 + r_t) log m), for K_N = `largest` and r_t = `exponent`.

    For sensors drawn by the Christoffel function pass the rank as `largest`.
    """
    wanted = (1 + exponent) * largest / CHERNOFF
    return math.ceil(-wanted * lambertw(-1 / wanted, -1).real)  # m / log m grows from m = 3 on


def input_modes(
    inputs: Float[np.ndarray, "samples sensors"], *, weights: SensorWeights | None = None, tolerance: float = 1e-3
) -> Christoffel:
    """The principal modes of input functions as a basis on their sensors, to choose some of these sensors.

    As many modes as leave at most `tolerance` of the norm of all inputs.
    """
    omega = normalised_weights(weights, inputs.shape[1])
    directions = compress(inputs * np.sqrt(omega), tolerance=tolerance).directions
    return christoffel(inputs.T @ directions, weights=omega)


# -- placing sensors


@dc.dataclass(frozen=True, eq=False)
class Sensors:
    """Grid points to measure at, with the weights w of least squares, sum w_i (u(y_i) - psi(y_i)^T c)^2.

    `deviation` is |G - I| with these weights; `draws` is the number of random draws, None for a deterministic
    choice.
    """

    indices: Indices
    weights: SensorWeights
    deviation: float
    draws: int | None = None

    @property
    def is_stable(self) -> bool:
        """Whether |G - I| <= 1/2."""
        return self.deviation <= _STABLE

    @property
    def sentence(self) -> str:
        """How they were found and how good they are."""
        draws = "drawn once" if self.draws == 1 else f"best of {self.draws} draws"
        found = "picked one by one" if self.draws is None else draws
        verdict = "at most" if self.is_stable else "above"
        return f"{len(self.indices)} sensors, {found}: |G - I| = {self.deviation:.2g}, {verdict} 1/2."


def uniform_sensors(found: Christoffel, count: int, *, seed: int = 0) -> Sensors:
    """Sensors drawn independently from omega, as in the paper's assmpt-trunk, with weights 1."""
    _check_count(found, count)
    chosen = np.random.default_rng(seed).choice(len(found.weights), count, p=found.weights)
    return _weighted(found, chosen, np.ones(count), 1)


def christoffel_sensors(found: Christoffel, count: int, *, seed: int = 0, tries: int = 100) -> Sensors:
    """Sensors drawn with replacement by the density k / r with respect to omega, with weights r / k.

    In the theory r then replaces K_N. The draw is repeated until |G - I| <= 1/2, at most `tries` times; after that
    the best draw is returned (see `Sensors.is_stable`).
    """
    _check_count(found, count)
    if tries < 1:
        raise ValueRangeError(f"tries is {tries}; expected at least 1")
    rng = np.random.default_rng(seed)
    shares = found.values * found.weights
    best: Sensors | None = None
    for draw in range(1, tries + 1):
        chosen = rng.choice(len(shares), count, p=shares / shares.sum())
        sensors = _weighted(found, chosen, found.rank / found.values[chosen], draw)
        if sensors.is_stable:
            return sensors
        if best is None or sensors.deviation < best.deviation:
            best = sensors
    assert best is not None
    return dc.replace(best, draws=tries)


def pivoted_sensors(found: Christoffel, count: int) -> Sensors:
    """The first r sensors by QR with pivoting (Q-DEIM), then always the point that adds most to log det G.

    Both work on the rows sqrt(r / k) psi, which all have the same length. With psi itself, points would cluster
    where k is largest, and least squares from 2 r to 5 r sensors would be worse by tens of per cent. No point is
    picked twice.
    """
    rows = _equal_rows(found)
    _check_count(found, count, max_count=int(rows.any(axis=1).sum()))
    with one_blas_thread():
        order = scipy.linalg.qr(rows.T, mode="r", pivoting=True)[-1]
        chosen = _add_greedily(rows, [int(i) for i in order[: found.rank]], count)
    return _weighted(found, chosen, found.rank / found.values[chosen], None)


def exchange_sensors(found: Christoffel, count: int) -> Sensors:
    """The pivoted sensors, exchanged one by one for better points while log det G grows (Fedorov's exchange)."""
    rows = _equal_rows(found)
    chosen = pivoted_sensors(found, count).indices
    with one_blas_thread():
        for _ in range(_SWEEPS):
            before = chosen.copy()
            _exchange_once(rows, chosen)
            if np.array_equal(before, chosen):
                break
    return _weighted(found, chosen, found.rank / found.values[chosen], None)


def _check_count(found: Christoffel, count: int, max_count: int | None = None) -> None:
    if count < found.rank:
        raise ValueRangeError(f"count is {count}; {found.rank} functions need at least as many sensors")
    if max_count is not None and count > max_count:
        raise ValueRangeError(f"count is {count}; there are {max_count} points to pick from: give a finer grid")


def _weighted(found: Christoffel, chosen: Indices, weights: np.ndarray, draws: int | None) -> Sensors:
    return Sensors(chosen, weights, gram_deviation(found.basis[chosen], weights), draws)


def _equal_rows(found: Christoffel) -> Rows:
    """sqrt(r / k) psi: every row has the length sqrt(r), or 0 where k is too small to pick the point."""
    k = found.values[:, None]
    rows = np.zeros_like(found.basis)
    return np.divide(found.basis, np.sqrt(k / found.rank), out=rows, where=k >= _SMALLEST_K)


def _whitened(rows: Rows, chosen: Indices) -> Rows:
    """Rows in coordinates where the chosen ones have the Gram matrix I: their squares are the leverages."""
    _, R = np.linalg.qr(rows[chosen])
    return scipy.linalg.solve_triangular(R.T, rows.T, lower=True).T


def _add_greedily(rows: Rows, chosen: list[int], count: int) -> Indices:
    """det(A + v v^T) = det A (1 + v^T A^-1 v): the largest leverage gains most."""
    white = _whitened(rows, np.asarray(chosen))
    while len(chosen) < count:
        leverages = np.sum(white**2, axis=1)
        leverages[chosen] = -1.0
        best = int(leverages.argmax())
        chosen.append(best)
        v, size = white[best].copy(), leverages[best]
        # times (I + v v^T)^(-1/2)
        white -= np.outer(white @ v, v) * ((1 - 1 / np.sqrt(1 + size)) / size)
    return np.asarray(chosen)


def _exchange_once(rows: Rows, chosen: Indices) -> None:
    """Replace every sensor in turn by the point that gains most; changes `chosen`."""
    white = _whitened(rows, chosen)
    for place in range(len(chosen)):
        leverages, v = np.sum(white**2, axis=1), white[chosen[place]]
        gains = (1 + leverages) * (1 - v @ v) + (white @ v) ** 2  # the factor by which det changes
        gains[chosen] = 0.0
        best = int(gains.argmax())
        if gains[best] > 1 + _GAIN:
            chosen[place] = best
            white = _whitened(rows, chosen)


# -- least squares from sensors


@dc.dataclass(frozen=True, eq=False)
class SensorLadder:
    """Errors of least squares for several counts of random sensors."""

    counts: Int[np.ndarray, " counts"]
    ratios: Float[np.ndarray, " counts"]
    """The median over the draws of the error of least squares over the best error."""
    failures: Float[np.ndarray, " counts"]
    """The share of draws with |G - I| > 1/2."""

    def sensors_needed(self, ratio: float) -> int | None:
        """The smallest count whose median ratio is at most `ratio`; None where there is none."""
        enough = self.counts[self.ratios <= ratio]
        return int(enough.min()) if len(enough) else None


def default_counts(rank: int) -> list[int]:
    """1.25, 2.5, 5, 10 and 20 sensors a function."""
    return [math.ceil(factor * rank) for factor in (1.25, 2.5, 5.0, 10.0, 20.0)]


def least_squares_errors(
    found: Christoffel, outputs: Outputs, counts: Sequence[int] | None = None, *, draws: int = 20, seed: int = 0
) -> dict[str, SensorLadder]:
    """Ladders of sensors drawn from omega (`uniform`) and by the Christoffel function (`christoffel`).

    No draw is repeated. `outputs` are given on the grid of `found`; pass samples that the trunk was not trained
    on. See `default_counts`.
    """
    ladder = default_counts(found.rank) if counts is None else list(counts)
    rest, best = _residuals(found, outputs)
    seeds = _seeds(seed, draws)

    def measure(place: Callable[[int, int], Sensors]) -> SensorLadder:
        drawn = [[place(count, s) for s in seeds] for count in ladder]
        ratios = [np.median([_ratio(found, rest, best, sensors) for sensors in row]) for row in drawn]
        failures = [np.mean([not sensors.is_stable for sensors in row]) for row in drawn]
        return SensorLadder(np.asarray(ladder), np.asarray(ratios), np.asarray(failures))

    return {
        "uniform": measure(lambda count, s: uniform_sensors(found, count, seed=s)),
        "christoffel": measure(lambda count, s: christoffel_sensors(found, count, seed=s, tries=1)),
    }


def least_squares_ratio(found: Christoffel, outputs: Outputs, sensors: Sensors) -> float:
    """The error of least squares from the `sensors` over the best error, both root mean squares in L2_omega.

    It is at least 1, for |u - u_LS|^2 = |u - Pi u|^2 + |c_LS - c*|^2, and c_LS - c* is the least-squares fit of
    u - Pi u.
    """
    return _ratio(found, *_residuals(found, outputs), sensors)


def excess_ladder(
    found: Christoffel, outputs: Outputs, counts: Sequence[int], *, draws: int = 40, seed: int = 0
) -> RateLadder:
    """The squared excess of least squares from m_y uniform sensors over the best squared error, mean over draws.

    In the limit it is (1 / m_y) mean(k e^2) / mean(e^2), e = u - Pi u: the slope is -1. (thm:main has 1 / log m_y
    in its place, an upper bound for all u.)
    """
    seeds = _seeds(seed, draws)

    def excess(count: int) -> float:
        ratios = [least_squares_ratio(found, outputs, uniform_sensors(found, count, seed=s)) for s in seeds]
        return float(np.mean(np.square(ratios) - 1))

    what = "squared excess of least squares over the best squared error"
    return RateLadder("m_y", what, np.asarray(counts), np.asarray([excess(count) for count in counts]), -1.0)


def _seeds(seed: int, draws: int) -> list[int]:
    return [int(s) for s in np.random.SeedSequence(seed).generate_state(draws)]


def _residuals(found: Christoffel, outputs: Outputs) -> tuple[Outputs, float]:
    """u - Pi u on the grid, and the sum of its squares in L2_omega."""
    rest = outputs - projection(outputs, found.basis, point_weights=found.weights)
    best, size = (float(np.sum(values**2 @ found.weights)) for values in (rest, outputs))
    if best <= _ROUNDING**2 * size:
        raise DataError("outputs: the functions represent them up to rounding; there is no error to compare with")
    return rest, best


def _ratio(found: Christoffel, rest: Outputs, best: float, sensors: Sensors) -> float:
    roots = np.sqrt(sensors.weights)[:, None]
    rows, targets = found.basis[sensors.indices] * roots, rest[:, sensors.indices].T * roots
    off = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return math.sqrt(1 + float(np.sum(off**2)) / best)
