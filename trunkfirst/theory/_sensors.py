"""Where to measure: sensors drawn by the Christoffel function, or picked one by one.

The same for output sensors, with the functions of a trunk, and for input sensors, with the principal modes of the
inputs (`input_modes`). All return `Sensors`; least squares from them minimises sum w_i (u(y_i) - psi(y_i)^T c)^2.
Except for sensors drawn from omega the weights are r / k: every sensor then adds the same to the trace of G.
"""

import dataclasses as dc

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from ..errors import ValueRangeError
from ..linear import compress, one_blas_thread
from ._christoffel import STABLE, Christoffel, christoffel, gram_deviation
from ._measure import measure

# A swap must gain more than rounding, or two equal sets would take turns for ever.
_GAIN, _SWEEPS = 1e-9, 50
# Nothing is picked where k is smaller: all such points together hold less than a tenth of any function of norm 1,
# so the others suffice. With the constant among the functions, k is at least 1 everywhere.
_LEAST = 0.1

Indices = Int[np.ndarray, " sensors"]
Rows = Float[np.ndarray, "points rank"]


@dc.dataclass(frozen=True, eq=False)
class Sensors:
    """Grid points to measure at, and their weights in least squares.

    `deviation` is |G - I| with these weights, `draws` how many sets were drawn until one was taken (None where
    nothing is random).
    """

    indices: Indices
    weights: Float[np.ndarray, " sensors"]
    deviation: float
    draws: int | None = None

    @property
    def is_stable(self) -> bool:
        """Whether |G - I| <= 1/2."""
        return self.deviation <= STABLE

    @property
    def sentence(self) -> str:
        """How they were found and how good they are."""
        draws = "drawn once" if self.draws == 1 else f"best of {self.draws} draws"
        found = "picked one by one" if self.draws is None else draws
        verdict = "at most" if self.is_stable else "above"
        return f"{len(self.indices)} sensors, {found}: |G - I| = {self.deviation:.2g}, {verdict} 1/2."


def uniform_sensors(found: Christoffel, count: int, *, seed: int = 0) -> Sensors:
    """Drawn from omega itself, independently: what the paper's assmpt-trunk has."""
    _check_count(found, count)
    chosen = np.random.default_rng(seed).choice(len(found.weights), count, p=found.weights)
    return _weighted(found, chosen, np.ones(count), 1)


def christoffel_sensors(found: Christoffel, count: int, *, seed: int = 0, tries: int = 100) -> Sensors:
    """Drawn by the density k / r with respect to omega, with replacement and weights r / k.

    In the theory r takes the place of K_N then. Drawn again until |G - I| <= 1/2, at most `tries` times; if that
    never happens, the best draw is returned and says so (`is_stable`, `sentence`).
    """
    _check_count(found, count)
    rng = np.random.default_rng(seed)
    shares = found.values * found.weights
    best: Sensors | None = None
    for draw in range(1, tries + 1):
        chosen = rng.choice(len(shares), count, p=shares / shares.sum())
        sensors = _weighted(found, chosen, found.rank / found.values[chosen], draw)
        if best is None or sensors.deviation < best.deviation:
            best = sensors
        if best.is_stable:
            return best
    if best is None:
        raise ValueRangeError(f"tries is {tries}; expected at least 1")
    return dc.replace(best, draws=tries)


def pivoted_sensors(found: Christoffel, count: int) -> Sensors:
    """The first r by QR with pivoting (Q-DEIM), then always the point that adds most to log det G.

    Both work on the rows sqrt(r / k) psi, all of one length, and not on psi itself: then points would pile up
    where k is largest, and least squares from 2 r to 5 r sensors be worse by tens of per cent. No point is taken
    twice.
    """
    rows = _equal_rows(found)
    _check_count(found, count, most=int(rows.any(axis=1).sum()))
    with one_blas_thread():
        order = scipy.linalg.qr(rows.T, mode="r", pivoting=True)[-1]
        chosen = _add_greedily(rows, [int(i) for i in order[: found.rank]], count)
    return _picked(found, chosen)


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
    return _picked(found, chosen)


def input_modes(
    inputs: Float[np.ndarray, "samples sensors"],
    *,
    weights: Float[np.ndarray, " sensors"] | None = None,
    tolerance: float = 1e-3,
) -> Christoffel:
    """The principal modes of input functions as a basis on their sensors: which of these are worth measuring?

    As many modes as leave at most `tolerance` of the norm of all inputs. `weights` are those of the sensors.
    """
    omega = measure(weights, inputs.shape[1])
    directions = compress(inputs * np.sqrt(omega), tolerance=tolerance).directions
    return christoffel(inputs.T @ directions, weights=omega)


def _check_count(found: Christoffel, count: int, most: int | None = None) -> None:
    if count < found.rank:
        raise ValueRangeError(f"count is {count}; {found.rank} functions need at least as many sensors")
    if most is not None and count > most:
        raise ValueRangeError(f"count is {count}; there are {most} points to pick from: give a finer grid")


def _weighted(found: Christoffel, chosen: Indices, weights: np.ndarray, draws: int | None) -> Sensors:
    return Sensors(chosen, weights, gram_deviation(found.basis[chosen], weights), draws)


def _picked(found: Christoffel, chosen: Indices) -> Sensors:
    return _weighted(found, chosen, found.rank / found.values[chosen], None)


def _equal_rows(found: Christoffel) -> Rows:
    """sqrt(r / k) psi, every row of length sqrt(r); zero at points that are not worth picking."""
    k = found.values[:, None]
    rows = np.zeros_like(found.basis)
    return np.divide(found.basis, np.sqrt(k / found.rank), out=rows, where=k >= _LEAST)


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
    """Offer every sensor, in its turn, the exchange that gains most; changes `chosen`."""
    white = _whitened(rows, chosen)
    for place in range(len(chosen)):
        leverages, v = np.sum(white**2, axis=1), white[chosen[place]]
        gains = (1 + leverages) * (1 - v @ v) + (white @ v) ** 2  # the factor by which det changes
        gains[chosen] = 0.0
        best = int(gains.argmax())
        if gains[best] > 1 + _GAIN:
            chosen[place] = best
            white = _whitened(rows, chosen)
