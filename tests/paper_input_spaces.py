"""The three input spaces that the paper gives after assmpt-inputspace, corrected, with computable constants.

The assumption has two parts. Sensors: |f - g|_w <= d(f, g) + gap, where |.|_w is a weighted Euclidean norm of the
sensor values. Training functions: K of them such that every f has one within a radius. Gap and radius are numbers
here, proved in the docstrings.

The paper takes as training functions those whose sensor values are on a grid. Often X contains none of them, or
too few. Here every grid cell that X meets gives one function of X.
"""

import abc
import dataclasses as dc
import functools as ft
import math

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

# A function is a row of numbers; what they mean depends on the space.
Functions = Float[np.ndarray, "functions numbers"]
AtSensors = Float[np.ndarray, "functions sensors"]
SensorWeights = Float[np.ndarray, " sensors"]
Left = Float[np.ndarray, "left numbers"]
Right = Float[np.ndarray, "right numbers"]
Distances = Float[np.ndarray, "left right"]


class AbstractInputSpace(abc.ABC):
    """A set X of functions with a distance d, sensors, and finite covers."""

    @property
    @abc.abstractmethod
    def sensor_weights(self) -> SensorWeights:
        """The weights of |f|_w^2 = sum_j w_j f_j^2."""

    @property
    @abc.abstractmethod
    def sensor_gap(self) -> float:
        """A bound of | |f - g|_w - d(f, g) | for all f and g in X."""

    @abc.abstractmethod
    def at_sensors(self, functions: Functions) -> AtSensors:
        """The sensor values, which are the inputs of a branch."""

    def coordinates(self, functions: Functions) -> Float[np.ndarray, "functions coordinates"]:
        """Numbers whose Euclidean distance is d."""
        return functions

    @abc.abstractmethod
    def sample(self, count: int, *, seed: int) -> Functions:
        """Random members of X."""

    @abc.abstractmethod
    def cover(self, cells: int) -> Functions:
        """One member of X for every cell that X meets, with `cells` of them along the range of a sensor."""

    @abc.abstractmethod
    def cover_radius(self, cells: int) -> float:
        """A bound of the distance from any member of X to the nearest of `cover(cells)`."""

    def distances(self, left: Left, right: Right) -> Distances:
        """d(f, g) for all pairs."""
        return cdist(self.coordinates(left), self.coordinates(right))

    def sensor_distances(self, left: Left, right: Right) -> Distances:
        """|f - g|_w for all pairs."""
        roots = np.sqrt(self.sensor_weights)
        return cdist(self.at_sensors(left) * roots, self.at_sensors(right) * roots)


@dc.dataclass(frozen=True, eq=False)
class DiskFields(AbstractInputSpace):
    """Fields on the square [-1, 1]^2: kappa in [0, 1] on the unit disk, 1 outside; d is the difference in kappa.

    A function is the number kappa. Sensors outside the disk are constant and have weight zero, so that
    |f - g|_w = d(f, g); the branch must ignore them too (see `branch_lipschitz`).
    """

    sensors: Float[np.ndarray, "sensors 2"]

    @property
    def _is_inside(self) -> np.ndarray:
        return np.linalg.norm(self.sensors, axis=1) <= 1

    @property
    def sensor_weights(self) -> SensorWeights:
        return self._is_inside / self._is_inside.sum()

    @property
    def sensor_gap(self) -> float:
        return 0.0

    def at_sensors(self, functions: Functions) -> AtSensors:
        return np.where(self._is_inside, functions, 1.0)

    def sample(self, count: int, *, seed: int) -> Functions:
        return np.random.default_rng(seed).uniform(size=(count, 1))

    def cover(self, cells: int) -> Functions:
        """kappa = 1/K, 2/K, ..., 1."""
        return np.arange(1, cells + 1)[:, None] / cells

    def cover_radius(self, cells: int) -> float:
        return 1 / cells


@dc.dataclass(frozen=True)
class SlopeBall(AbstractInputSpace):
    """Functions on [-1, 1] with |f| <= 1 and |f'| <= 1, d the L2 distance, sensors at the Gauss-Legendre points.

    The paper's ball in C^1, closed in L2, so that kinks are allowed. A function is its values at `knots`, which
    contain the sensors, and linear between them: distances are exact.
    """

    sensor_count: int

    @ft.cached_property
    def _rule(self) -> tuple[np.ndarray, np.ndarray]:
        return np.polynomial.legendre.leggauss(self.sensor_count)

    @property
    def sensors(self) -> Float[np.ndarray, " sensors"]:
        """The Gauss-Legendre points."""
        return self._rule[0]

    @ft.cached_property
    def knots(self) -> Float[np.ndarray, " knots"]:
        """A fine grid and the sensors."""
        return np.union1d(np.linspace(-1, 1, 257), self.sensors)

    @property
    def sensor_weights(self) -> SensorWeights:
        return self._rule[1]

    @property
    def sensor_gap(self) -> float:
        """2 (sum_j w_j^3 / 3)^(1/2), at most 5.2 / sensors.

        Cut [-1, 1] into pieces as long as the weights. By Chebyshev, Markov and Stieltjes piece j contains
        sensor j. For h = f - g the step function of the values h(x_j) has the L2 norm |h|_w, and differs from h
        by at most 2 |x - x_j| on piece j. (The paper uses an interpolation error; none is needed.)
        """
        return 2 * math.sqrt(np.sum(self.sensor_weights**3) / 3)

    def at_sensors(self, functions: Functions) -> AtSensors:
        return functions[:, np.searchsorted(self.knots, self.sensors)]

    def coordinates(self, functions: Functions) -> Float[np.ndarray, "functions coordinates"]:
        """From p to q on a length h, the integral of f^2 is h (p + q)^2 / 4 + h (p - q)^2 / 12."""
        p, q, h = functions[:, :-1], functions[:, 1:], np.diff(self.knots)
        return np.hstack([(p + q) * np.sqrt(h / 4), (p - q) * np.sqrt(h / 12)])

    def sample(self, count: int, *, seed: int) -> Functions:
        """c + a sin(omega x + phi) / omega, with slopes up to 1."""
        rng = np.random.default_rng(seed)
        slope, phase, place = rng.uniform((0, 0, -1), (1, 2 * np.pi, 1), (count, 3)).T[..., None]
        frequency = np.exp(rng.uniform(0, np.log(40), (count, 1)))
        size = slope / frequency
        return place * (1 - size) + size * np.sin(frequency * self.knots + phase)

    def cover(self, cells: int) -> Functions:
        """Piecewise linear functions, one for every sequence of cells that slopes up to 1 can follow."""
        edges = np.linspace(-1, 1, cells + 1)
        low, high = edges[:-1, None], edges[1:, None]  # what each path can reach: (paths, sensors so far)
        for step in np.diff(self.sensors):
            lows = np.maximum(low[:, -1:] - step, edges[:-1])  # (paths, cells)
            highs = np.minimum(high[:, -1:] + step, edges[1:])
            path, cell = np.nonzero(lows < highs)  # on an edge a function belongs to the cell above
            low = np.hstack([low[path], lows[path, cell][:, None]])
            high = np.hstack([high[path], highs[path, cell][:, None]])
        values = (low + high) / 2
        for j in range(self.sensor_count - 2, -1, -1):  # backwards, the nearest value that can be reached
            values[:, j] = np.clip(values[:, j + 1], low[:, j], high[:, j])
        hats = np.stack([np.interp(self.knots, self.sensors, hat) for hat in np.eye(self.sensor_count)])
        return values @ hats

    def cover_radius(self, cells: int) -> float:
        """In one cell |f - g| <= 2 / cells at the sensors, and the weights sum to 2."""
        return 2 * math.sqrt(2) / cells + self.sensor_gap


@dc.dataclass(frozen=True)
class SobolevBall(AbstractInputSpace):
    """Functions on [-1, 1] with sum_(j <= p) int (1 - x^2)^j f^(j)(x)^2 dx <= 1, d the L2 distance.

    A function is its coefficients in the orthonormal Legendre polynomials, in which the norm is the sum
    sum_k mu_k c_k^2 with mu_k = sum_(j <= min(p, k)) (k + j)! / (k - j)!. The sensors are the first `degree` + 1
    coefficients. The ball without the weights (1 - x^2)^j is contained in this one.
    """

    order: int
    degree: int

    @property
    def norm_weights(self) -> Float[np.ndarray, " numbers"]:
        """mu_k for all coefficients of a function, of which there are more than sensors."""
        return np.array([_sobolev_weight(k, self.order) for k in range(4 * (self.degree + 2))])

    @property
    def sensor_weights(self) -> SensorWeights:
        return np.ones(self.degree + 1)

    @property
    def sensor_gap(self) -> float:
        """The remaining coefficients have at most the length 2 / sqrt(mu_(degree + 1)), about degree^(-order)."""
        return 2 * self._tail

    @property
    def _tail(self) -> float:
        return 1 / math.sqrt(_sobolev_weight(self.degree + 1, self.order))

    def at_sensors(self, functions: Functions) -> AtSensors:
        return functions[:, : self.degree + 1]

    def sample(self, count: int, *, seed: int) -> Functions:
        """Norms between 1/2 and 1, with few or many degrees."""
        rng = np.random.default_rng(seed)
        sizes = rng.uniform(0.2, 1, (count, 1)) ** np.arange(len(self.norm_weights))
        parts = sizes * rng.normal(size=sizes.shape)
        parts *= rng.uniform(0.5, 1, (count, 1)) / np.linalg.norm(parts, axis=1, keepdims=True)
        return parts / np.sqrt(self.norm_weights)

    def cover(self, cells: int) -> Functions:
        """From every cell of [-1, 1]^(degree + 1) the point nearest to 0, where that has a norm of at most 1."""
        edges = np.linspace(-1, 1, cells + 1)
        nearest = np.unique(np.clip(0, edges[:-1], edges[1:]))
        found, used = np.zeros((1, 0)), np.zeros(1)  # coefficients so far, and their part of the norm
        for mu in self.norm_weights[: self.degree + 1]:
            sums = used[:, None] + mu * nearest**2
            row, cell = np.nonzero(sums <= 1)
            found, used = np.hstack([found[row], nearest[cell][:, None]]), sums[row, cell]
        return np.pad(found, ((0, 0), (0, len(self.norm_weights) - self.degree - 1)))

    def cover_radius(self, cells: int) -> float:
        """2 / cells in each of degree + 1 coefficients, and the length of the remaining ones."""
        return math.hypot(2 * math.sqrt(self.degree + 1) / cells, self._tail)


def _sobolev_weight(k: int, order: int) -> float:
    return float(sum(math.perm(k + j, 2 * j) for j in range(min(order, k) + 1)))
