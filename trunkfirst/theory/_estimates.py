"""What the paper assumes about operator and inputs (assmpt-operators, assmpt-inputspace), measured on samples.

Distances of input functions are |f - g|_{w,2} on their sensors, with weights divided by their sum; give values on
a grid fine enough to stand for the function. At most 4,000 evenly chosen samples are compared, 1,000 where every
pair is. Every maximum here is one over samples, and so a lower bound of the true constant.
"""

import dataclasses as dc
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import pdist

from ..data import evenly
from ..errors import ValueRangeError
from ..linear import relative_errors
from ._measure import measure
from ._slope import Slope, slope_of_positive

_MOST_SAMPLES, _MOST_IN_PAIRS = 4000, 1000
# How many numbers are held at once.
_BLOCK = 4_000_000

Values = Float[np.ndarray, "samples columns"]
Inputs = Float[np.ndarray, "samples sensors"]
Counts = Int[np.ndarray, " counts"]


# -- the error of the theorem


@dc.dataclass(frozen=True, eq=False)
class GeneralisationErrors:
    """|G[f] - ONet[f]| in L2_omega for every sample (the paper's eqn:def:gen-err), and relative to |G[f]|."""

    errors: Float[np.ndarray, " samples"]
    relative: Float[np.ndarray, " samples"]

    @property
    def mean_squared(self) -> float:
        """The mean of the squared errors: what thm:main bounds."""
        return float(np.mean(self.errors**2))


def generalisation_errors(
    predictions: Float[np.ndarray, "samples points"],
    outputs: Float[np.ndarray, "samples points"],
    *,
    weights: Float[np.ndarray, " points"] | None = None,
) -> GeneralisationErrors:
    """Errors on samples that took no part in training, with quadrature weights of omega."""
    omega = measure(weights, outputs.shape[1])
    errors = np.sqrt((predictions - outputs) ** 2 @ omega)
    return GeneralisationErrors(errors, relative_errors(predictions, outputs, point_weights=omega))


# -- how well samples fill the space of inputs


@dc.dataclass(frozen=True, eq=False)
class FillDistances:
    """h_K = max over f of the distance to the nearest of K training inputs, for falling K."""

    counts: Counts
    distances: Float[np.ndarray, " counts"]

    @property
    def slope(self) -> Slope | None:
        """Minus the rate s in h_K ~ K^-s; None where too few distances are positive."""
        return slope_of_positive(self.counts, self.distances)

    @property
    def dimension(self) -> float | None:
        """1 / s, the number of parameters the inputs seem to have."""
        return None if self.slope is None or self.slope.value >= 0 else -1 / self.slope.value


def fill_distances(
    training: Inputs,
    others: Float[np.ndarray, "others sensors"],
    *,
    weights: Float[np.ndarray, " sensors"] | None = None,
    levels: int = 5,
    seed: int = 0,
) -> FillDistances:
    """h_K on the inputs `others` (validation) for K, K/2, K/4, ... of the training inputs, at random.

    Of the others 4,000 are taken; of the training inputs all.
    """
    roots = np.sqrt(measure(weights, training.shape[1]))
    seen = (training * roots)[np.random.default_rng(seed).permutation(len(training))]
    asked = (others * roots)[evenly(len(others), _MOST_SAMPLES)]
    counts = np.asarray([len(seen) >> level for level in range(levels) if len(seen) >> level > 0])
    return FillDistances(counts, np.asarray([_fill_distance(seen[:count], asked) for count in counts]))


def _fill_distance(seen: Values, asked: Float[np.ndarray, "others columns"]) -> float:
    nearest = _nearest(asked, seen, 1)[:, 0]
    return float(np.linalg.norm(asked - seen[nearest], axis=1).max())


# -- Lipschitz constants


@dc.dataclass(frozen=True, eq=False)
class Lipschitz:
    """The largest |v_i - v_j| / |f_i - f_j| over pairs of samples, and the pair that has it.

    Infinite where two equal inputs have different values. `single` holds the same for every coefficient by itself.
    """

    largest: float
    pair: tuple[int, int]
    single: Float[np.ndarray, " coefficients"] | None = None


def operator_lipschitz(
    inputs: Inputs,
    outputs: Float[np.ndarray, "samples points"],
    *,
    sensor_weights: Float[np.ndarray, " sensors"] | None = None,
    point_weights: Float[np.ndarray, " points"] | None = None,
    neighbours: int = 8,
) -> Lipschitz:
    """L_G, in L2_omega, from every sample and its nearest `neighbours`."""
    chosen = _several(len(inputs), _MOST_SAMPLES)
    f = inputs[chosen] * np.sqrt(measure(sensor_weights, inputs.shape[1], name="sensor_weights"))
    u = outputs[chosen] * np.sqrt(measure(point_weights, outputs.shape[1], name="point_weights"))
    near = _nearest(f, f, min(neighbours + 1, len(f)))  # one of them the sample itself, at no distance
    return _lipschitz(f, u, near, chosen)


def coefficient_lipschitz(
    inputs: Inputs,
    coefficients: Float[np.ndarray, "samples coefficients"],
    *,
    sensor_weights: Float[np.ndarray, " sensors"] | None = None,
) -> Lipschitz:
    """The constant of a map to coefficients, such as a branch, from all pairs; and L_j of every coefficient."""
    chosen = _several(len(inputs), _MOST_IN_PAIRS)
    f = inputs[chosen] * np.sqrt(measure(sensor_weights, inputs.shape[1], name="sensor_weights"))
    c = coefficients[chosen]
    everyone = np.broadcast_to(np.arange(len(f)), (len(f), len(f)))
    single = np.zeros(c.shape[1])
    for block in _pairs(f, c, everyone):
        ratios = _ratios(np.abs(block.differences), block.distances[..., None])
        single = np.maximum(single, ratios.max(axis=(0, 1)))
    return dc.replace(_lipschitz(f, c, everyone, chosen), single=single)


class _Pairs(NamedTuple):
    """Samples from `first` on, each with some others."""

    first: int
    differences: Float[np.ndarray, "rows others columns"]
    distances: Float[np.ndarray, "rows others"]


def _pairs(f: np.ndarray, values: np.ndarray, others: Int[np.ndarray, "samples others"]) -> Iterator[_Pairs]:
    rows = max(1, _BLOCK // (others.shape[1] * max(f.shape[1], values.shape[1])))
    for first in range(0, len(f), rows):
        part = slice(first, first + rows)
        distances = np.linalg.norm(f[part, None] - f[others[part]], axis=2)
        yield _Pairs(first, values[part, None] - values[others[part]], distances)


def _lipschitz(f: np.ndarray, values: np.ndarray, others: np.ndarray, chosen: np.ndarray) -> Lipschitz:
    best = Lipschitz(0.0, (int(chosen[0]), int(chosen[0])))
    for first, differences, distances in _pairs(f, values, others):
        ratios = _ratios(np.linalg.norm(differences, axis=2), distances)
        row, column = np.unravel_index(int(ratios.argmax()), ratios.shape)
        if ratios[row, column] > best.largest:
            pair = int(chosen[first + row]), int(chosen[others[first + row, column]])
            best = Lipschitz(float(ratios[row, column]), pair)
    return best


def _ratios(differences: np.ndarray, distances: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(differences == 0, 0.0, differences / distances)


# -- input sensors


@dc.dataclass(frozen=True, eq=False)
class SensorGaps:
    """By how much |f - g| on m_x sensors exceeds the true distance, at most over all pairs, for several m_x."""

    counts: Counts
    gaps: Float[np.ndarray, " counts"]

    @property
    def slope(self) -> Slope | None:
        """Minus the rate alpha of the gap m_x^-alpha; None where too few gaps are positive."""
        return slope_of_positive(self.counts, self.gaps)


def sensor_gaps(
    fine: Inputs,
    coarse: Sequence[tuple[Float[np.ndarray, "samples _"], Float[np.ndarray, " _"] | None]],
    *,
    weights: Float[np.ndarray, " sensors"] | None = None,
) -> SensorGaps:
    """max over pairs of (|f - g|_{w,2; m_x} - d_X(f, g))_+, with d_X on the `fine` sensors.

    `coarse` holds the same inputs on fewer sensors, several times, each with the weights of these sensors.
    """
    chosen = _several(len(fine), _MOST_IN_PAIRS)
    true = pdist(fine[chosen] * np.sqrt(measure(weights, fine.shape[1])))
    gaps = [
        float((pdist(values[chosen] * np.sqrt(measure(own, values.shape[1]))) - true).max(initial=0.0))
        for values, own in coarse
    ]
    return SensorGaps(np.asarray([values.shape[1] for values, _ in coarse]), np.asarray(gaps))


# -- many samples


def _several(samples: int, most: int) -> Int[np.ndarray, " chosen"]:
    if samples < 2:
        raise ValueRangeError(f"inputs: axis 'samples' has {samples} entries; expected at least 2 to compare")
    return evenly(samples, most)


def _nearest(asked: np.ndarray, seen: np.ndarray, count: int) -> Int[np.ndarray, "asked count"]:
    """The nearest of `seen`, from |a|^2 - 2 a b + |b|^2: right up to 1e-8 of the spread, so measure them again."""
    centre = seen.mean(axis=0)
    a, b = asked - centre, seen - centre
    squares = np.sum(b**2, axis=1)
    rows = max(1, _BLOCK // len(b))
    blocks = (squares - 2 * a[first : first + rows] @ b.T for first in range(0, len(a), rows))
    if count == 1:  # many times faster
        return np.concatenate([block.argmin(axis=1) for block in blocks])[:, None]
    return np.vstack([np.argpartition(block, count - 1, axis=1)[:, :count] for block in blocks])
