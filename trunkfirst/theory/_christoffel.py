"""The Christoffel function of a trunk: where its functions are large, and how many sensors that costs.

Least squares from m sensors is as good as the projection, up to a constant, where the matrix
G = (1/m) sum psi(y_i) psi(y_i)^T is near the identity. For sensors drawn from omega this is decided by
K_N = sup k(y), k(y) = |psi(y)|^2, for functions psi that are orthonormal in L2_omega (Cohen, Davenport and
Leviatan; the paper's assmpt-trunk).
"""

import dataclasses as dc
import math

import numpy as np
from jaxtyping import Float

from ..errors import ValueRangeError
from ..linear import SVD
from ._measure import measure

# c = (1 + d) log(1 + d) - d for d = 1/2: from Chernoff's bound of P(|G - I| > 1/2).
CHERNOFF = 1.5 * math.log(1.5) - 0.5
STABLE = 0.5


@dc.dataclass(frozen=True, eq=False)
class Christoffel:
    """k(y) = |psi(y)|^2 on a reference grid, for functions psi = phi T that are orthonormal in L2_omega.

    `basis` is psi on the grid, zero at points without weight: omega does not see them. The mean of k under omega
    is the rank r exactly, so K_N = `largest` >= r.
    """

    basis: Float[np.ndarray, "points rank"]
    transform: Float[np.ndarray, "functions rank"]
    weights: Float[np.ndarray, " points"]
    values: Float[np.ndarray, " points"]

    @property
    def rank(self) -> int:
        """r, the number of orthonormal functions."""
        return self.basis.shape[1]

    @property
    def mean(self) -> float:
        """The mean of k under omega; the rank, up to rounding."""
        return float(self.weights @ self.values)

    @property
    def largest(self) -> float:
        """K_N, the largest value of k on the grid."""
        return float(self.values.max())

    @property
    def peak(self) -> int:
        """The index of the grid point with the largest value."""
        return int(self.values.argmax())

    def functions_at(self, features: Float[np.ndarray, "sensors functions"]) -> Float[np.ndarray, "sensors rank"]:
        """psi = phi T at points that need not be of the grid, from the trunk's values there."""
        return features @ self.transform


def christoffel(
    features: Float[np.ndarray, "points functions"],
    *,
    weights: Float[np.ndarray, " points"] | None = None,
    tolerance: float | None = None,
) -> Christoffel:
    """The Christoffel function of what the `features` phi (a trunk on a fine grid) span.

    `weights` are quadrature weights of omega, divided by their sum. A redundant phi is cut by singular values:
    directions below `tolerance` times the largest (by default, below rounding) do not count. This is the numerical
    Christoffel function phi^T (G_phi + eps^2 I)^-1 phi with a sharp edge at eps in the place of a soft one.
    """
    omega = measure(weights, len(features))
    found = SVD(tolerance)(features, point_weights=omega)
    basis = np.where(omega[:, None] > 0, found.values, 0.0)
    return Christoffel(basis, found.transform, omega, np.sum(basis**2, axis=1))


def gram(
    functions: Float[np.ndarray, "sensors rank"], weights: Float[np.ndarray, " sensors"] | None = None
) -> Float[np.ndarray, "rank rank"]:
    """G = (1/m) sum_i w_i psi(y_i) psi(y_i)^T for the values `functions` of psi at m sensors."""
    weighted = functions if weights is None else functions * weights[:, None]
    return weighted.T @ functions / len(functions)


def gram_deviation(
    functions: Float[np.ndarray, "sensors rank"], weights: Float[np.ndarray, " sensors"] | None = None
) -> float:
    """|G - I| in the spectral norm; up to 1/2, least squares from these sensors is stable."""
    return float(np.linalg.norm(gram(functions, weights) - np.eye(functions.shape[1]), 2))


@dc.dataclass(frozen=True)
class SensorCondition:
    """Whether K_N <= kappa m / log m, kappa = c / (1 + r_t), for some r_t > 0 (the paper's assmpt-trunk).

    Checked for the one trunk given, that is at the trained mu*, and not over the feasible set as the paper has it;
    and as if the sensors had been drawn from omega after the trunk was fixed.
    """

    sensors: int
    rank: int
    largest: float
    """K_N; for weighted sensors the largest w k, which is the rank for those drawn by the Christoffel function."""
    deviation: float
    """|G - I| of the sensors themselves: true whatever the theory promises."""

    @property
    def exponent(self) -> float:
        """The r_t for which the condition holds with equality: c m / (K_N log m) - 1."""
        return CHERNOFF * self.sensors / (self.largest * math.log(self.sensors)) - 1

    @property
    def is_vacuous(self) -> bool:
        """Whether the theory promises nothing: no r_t > 0 fulfils the condition."""
        return self.exponent <= 0

    @property
    def failure(self) -> float:
        """The bound 2 r exp(-c m / K_N) of P(|G - I| > 1/2), at most 1."""
        return min(1.0, 2 * self.rank * math.exp(-CHERNOFF * self.sensors / self.largest))

    @property
    def sentence(self) -> str:
        """The condition in words."""
        asked, best = theoretical_sensors(self.largest), theoretical_sensors(float(self.rank))
        verdict = (
            "vacuous, the theory promises nothing"
            if self.is_vacuous
            else f"least squares fails with a probability of at most 2 m^-r_t = {self._promise:.2g}"
        )
        measured = "stable" if self.deviation <= STABLE else "not known to be stable"
        return (
            f"Condition on {self.sensors} sensors for {self.rank} functions with K_N = {self.largest:.4g}: "
            f"r_t = {self.exponent:.2g}, {verdict}. For r_t = 1 it asks for {asked} sensors, or {best} drawn by "
            f"the Christoffel function. Measured: |G - I| = {self.deviation:.2g}, {measured}. "
            "Checked at the trained mu*, not over the feasible set."
        )

    @property
    def _promise(self) -> float:
        return 2 * self.sensors**-self.exponent


def sensor_condition(
    found: Christoffel,
    functions: Float[np.ndarray, "sensors rank"],
    weights: Float[np.ndarray, " sensors"] | None = None,
) -> SensorCondition:
    """The condition for sensors where psi has the values `functions` (see `Christoffel.functions_at`).

    With `weights` the theory needs the largest w k instead of K_N; it is taken over the sensors.
    """
    if len(functions) < 2:
        raise ValueRangeError(f"functions: axis 'sensors' has {len(functions)} entries; expected at least 2")
    largest = found.largest if weights is None else float((weights * np.sum(functions**2, axis=1)).max())
    return SensorCondition(len(functions), found.rank, largest, gram_deviation(functions, weights))


def theoretical_sensors(largest: float, *, exponent: float = 1.0) -> int:
    """The fewest sensors m with K_N <= c m / ((1 + r_t) log m), for K_N = `largest` and r_t = `exponent`.

    Sensors drawn by the Christoffel function have the rank in the place of K_N.
    """
    wanted = (1 + exponent) * largest / CHERNOFF
    few, enough = 3, 4  # m / log m grows from m = 3 on, and `wanted` is above 9
    while enough / math.log(enough) < wanted:
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if middle / math.log(middle) >= wanted else (middle, enough)
    return enough
