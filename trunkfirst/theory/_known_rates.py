"""An operator whose rates are all known: every term of thm:main can be watched by itself."""

import dataclasses as dc
import functools as ft
import math

import numpy as np
import scipy.fft
from jaxtyping import Float
from numpy.polynomial import legendre

from ..errors import ValueRangeError
from ._bound import Constants, Rates

Parameters = Float[np.ndarray, "functions dimension"]
Coefficients = Float[np.ndarray, "functions terms"]

_CELLS = 4096


@dc.dataclass(frozen=True)
class KnownRates:
    """G[f] = sum_j c_j(f) psi_j on [0, 1] with psi_j = sqrt(2) cos(j pi y) and |c_j| at most sqrt(2) j^-(r + 1/2).

    Inputs are f = sum_i p_i a_i(x), p in [0, 1]^d, with Legendre polynomials a_i that are orthonormal on [0, 1]:
    the distance of two inputs in L2 is that of their parameters p. The coefficients are
    c_j(f) = sqrt(2) j^-(r + 1/2) cos(pi p_i + j), i = 1 + j mod d, and c_0 = 1. Hence

    - N terms leave N^-r / sqrt(2 r), in the mean over f and for every f up to a factor: the rate is r = `decay`;
    - K = n^d inputs in the middles of equal cells leave a fill distance of sqrt(d) / 2 K^(-1/d): s = 1 / d;
    - m_x equally spaced sensors with the weights of the trapezoidal rule see norms and integrals up to
      m_x^-2: alpha = 2.

    All three differ, so that no exponent can pass for another. Outputs are given on the middles of equal cells,
    where the first 4,096 psi_j are orthonormal as they are in L2; the sum ends there.
    """

    decay: float = 1.5
    dimension: int = 2

    def __post_init__(self) -> None:
        if not self.decay > 0 or self.dimension < 1:
            raise ValueRangeError(
                f"decay is {self.decay}, dimension {self.dimension}; expected a positive decay, a dimension from 1"
            )

    # -- what is known

    @property
    def rates(self) -> Rates:
        """r, s and alpha."""
        return Rates(self.decay, 1 / self.dimension, 2.0)

    @property
    def constants(self) -> Constants:
        """Factors of the rates, for m_x from 9 on, and M as the sum of the coefficients' bounds."""
        sizes = self._sizes[1:]
        most = np.asarray([np.sum(sizes[i :: self.dimension] ** 2) for i in range(self.dimension)])
        lipschitz = math.pi * math.sqrt(2 * float(most.max()))
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
        """K = cells^d inputs, in the middles of as many equal cells."""
        middles = (np.arange(cells) + 0.5) / cells
        return np.stack(np.meshgrid(*[middles] * self.dimension, indexing="ij"), axis=-1).reshape(
            -1, self.dimension
        )

    def nearest(self, parameters: Parameters, cells: int) -> Parameters:
        """The training input nearest to each, without a search."""
        return (np.clip(np.floor(parameters * cells), 0, cells - 1) + 0.5) / cells

    def exact(self, parameters: Parameters) -> Parameters:
        """Numbers whose root mean square difference is the distance of two inputs in L2."""
        return parameters * math.sqrt(self.dimension)

    def at_sensors(self, parameters: Parameters, sensors: int) -> Float[np.ndarray, "functions sensors"]:
        """f at equally spaced sensors."""
        return parameters @ self._modes(sensors)

    def integrals(self, values: Float[np.ndarray, "functions sensors"]) -> Parameters:
        """What a branch's first layer would compute: the integrals of f a_i, by the sensors' quadrature."""
        sensors = values.shape[1]
        return (values * sensor_weights(sensors)) @ self._modes(sensors).T

    # -- outputs

    def coefficients(self, parameters: Parameters, count: int = _CELLS) -> Coefficients:
        """c_0, ..., c_(count - 1)."""
        j = np.arange(count)
        values = math.sqrt(2) * self._sizes[:count] * np.cos(math.pi * parameters[:, j % self.dimension] + j)
        values[:, 0] = 1.0
        return values

    def outputs(self, coefficients: Coefficients) -> Float[np.ndarray, "functions points"]:
        """sum_j c_j psi_j on the grid, by a fast cosine transform."""
        padded = np.zeros((len(coefficients), _CELLS))
        padded[:, : coefficients.shape[1]] = coefficients
        return np.asarray(scipy.fft.dct(padded, type=3, norm="ortho", axis=1)) * math.sqrt(_CELLS)

    def functions(self, width: int) -> Float[np.ndarray, "points functions"]:
        """psi_0, ..., psi_N on the grid: the trunk, fixed beforehand."""
        return self.outputs(np.eye(width + 1)).T

    @ft.cached_property
    def _sizes(self) -> Float[np.ndarray, " terms"]:
        return np.maximum(np.arange(_CELLS), 1.0) ** -(self.decay + 0.5)

    def _modes(self, sensors: int) -> Float[np.ndarray, "dimension sensors"]:
        x = np.linspace(-1, 1, sensors)
        degrees = range(1, self.dimension + 1)
        return np.stack([math.sqrt(2 * i + 1) * legendre.legval(x, np.eye(i + 1)[i]) for i in degrees])

    @property
    def _quadrature_error(self) -> float:
        """The largest |p - integrals| times m_x^2, for m_x = 9; it falls from there to 0.8 of that."""
        sensors = 9
        modes = self._modes(sensors)
        off = (modes * sensor_weights(sensors)) @ modes.T - np.eye(self.dimension)
        return float(np.linalg.norm(off, 2)) * math.sqrt(self.dimension) * sensors**2


def sensor_weights(sensors: int) -> Float[np.ndarray, " sensors"]:
    """The trapezoidal rule on [0, 1]."""
    if sensors < 2:
        raise ValueRangeError(f"sensors is {sensors}; expected at least 2, one at each end")
    weights = np.full(sensors, 1 / (sensors - 1))
    weights[[0, -1]] /= 2
    return weights
