"""How many sensors: the error of least squares from few of them, over that of the best approximation."""

import dataclasses as dc
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError
from ..linear import projection
from ._christoffel import Christoffel
from ._sensors import Sensors, christoffel_sensors, uniform_sensors

# Sensors per function on the default ladder, and the share of the outputs where rounding begins.
_LADDER = (1.25, 2.5, 5.0, 10.0, 20.0)
_ROUNDING = 1e-13

Outputs = Float[np.ndarray, "samples points"]


@dc.dataclass(frozen=True, eq=False)
class SensorLadder:
    """What `counts` sensors of one kind are worth, over many draws."""

    counts: Int[np.ndarray, " counts"]
    ratios: Float[np.ndarray, " counts"]
    """The median over the draws of the error of least squares over the best error."""
    failures: Float[np.ndarray, " counts"]
    """The share of draws with |G - I| > 1/2."""

    def sensors_needed(self, ratio: float) -> int | None:
        """The smallest count of the ladder whose median ratio is at most `ratio`; None where all are larger."""
        enough = self.counts[self.ratios <= ratio]
        return int(enough.min()) if len(enough) else None


def least_squares_errors(
    found: Christoffel, outputs: Outputs, counts: Sequence[int] | None = None, *, draws: int = 20, seed: int = 0
) -> dict[str, SensorLadder]:
    """Ladders of sensors drawn from omega (`uniform`) and by the Christoffel function (`christoffel`).

    Each draw is taken as it comes, not repeated until it is good. `outputs` are given on the grid of `found`; use
    samples that took no part in training the trunk. The default ladder has 1.25 to 20 sensors a function.
    """
    ladder = [math.ceil(factor * found.rank) for factor in _LADDER] if counts is None else list(counts)
    rest, best = _residuals(found, outputs)
    seeds = [int(s) for s in np.random.SeedSequence(seed).generate_state(draws)]

    def climb(place: Callable[[int, int], Sensors]) -> SensorLadder:
        drawn = [[place(count, s) for s in seeds] for count in ladder]
        ratios = [np.median([_ratio(found, rest, best, sensors) for sensors in row]) for row in drawn]
        failures = [np.mean([not sensors.is_stable for sensors in row]) for row in drawn]
        return SensorLadder(np.asarray(ladder), np.asarray(ratios), np.asarray(failures))

    return {
        "uniform": climb(lambda count, s: uniform_sensors(found, count, seed=s)),
        "christoffel": climb(lambda count, s: christoffel_sensors(found, count, seed=s, tries=1)),
    }


def least_squares_ratio(found: Christoffel, outputs: Outputs, sensors: Sensors) -> float:
    """The error of least squares from the `sensors` over the best error.

    Both are root mean squares over the samples, in L2_omega. It is at least 1, for
    |u - u_LS|^2 = |u - Pi u|^2 + |c_LS - c*|^2, and c_LS - c* is the least-squares fit of u - Pi u.
    """
    return _ratio(found, *_residuals(found, outputs), sensors)


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
