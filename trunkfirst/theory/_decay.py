"""How fast the best N-term error falls with N (the paper's assmpt-operators, second part)."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float, Int

from ..linear import one_blas_thread, principal_directions
from ._measure import measure
from ._slope import Slope, fit_slope

# Directions below this share of the outputs are rounding; so are errors a little above it.
_ROUNDING = 1e-13

Outputs = Float[np.ndarray, "samples points"]
Weights = Float[np.ndarray, " points"]


@dc.dataclass(frozen=True, eq=False)
class Decay:
    """Errors in L2_omega that the constant and N further functions leave, for N = 0, 1, 2, ..."""

    root_mean_square: Float[np.ndarray, " widths"]
    largest: Float[np.ndarray, " widths"]
    """Over the samples: the paper's supremum, as far as samples show it."""
    size: float
    """The root mean square of the outputs themselves."""

    def width_needed(self, error: float) -> int | None:
        """The smallest N whose root mean square error is at most `error`; None where there is none."""
        enough = np.flatnonzero(self.root_mean_square <= error)
        return int(enough[0]) if len(enough) else None

    @property
    def ladder(self) -> Int[np.ndarray, " rungs"]:
        """N = 1, 2, 4, ... as long as the error is above rounding."""
        widths = 2 ** np.arange(len(self.largest).bit_length())
        widths = widths[widths < len(self.largest)]
        return widths[self.root_mean_square[widths] > 10 * _ROUNDING * self.size]

    def slope(self, widths: Int[np.ndarray, " rungs"] | None = None) -> Slope:
        """Minus the rate r of the root mean square, from the errors at `widths` (by default the `ladder`)."""
        rungs = self.ladder if widths is None else widths
        return fit_slope(rungs, self.root_mean_square[rungs])


def best_basis(
    outputs: Outputs,
    *,
    weights: Weights | None = None,
    within: Float[np.ndarray, "points functions"] | None = None,
) -> Float[np.ndarray, "points rank"]:
    """The constant and then the functions that leave the smallest error on `outputs`, for every N at once.

    Proper orthogonal decomposition with the constant column that every trunk has: no trunk of N functions does
    better on these samples than the first N + 1 columns (`linear.trunk_limit`, there for equal weights). `within`
    asks for the best in the span of a given trunk: give it as functions orthonormal in L2_omega
    (`Christoffel.basis`). The columns are orthonormal in L2_omega, and zero at points without weight.
    """
    roots = np.sqrt(measure(weights, outputs.shape[1]))
    frame = None if within is None else within * roots[:, None]
    constant = roots if frame is None else roots @ frame
    constant = constant / np.linalg.norm(constant)
    coordinates = outputs * roots if frame is None else (outputs * roots) @ frame
    centred = coordinates - np.outer(coordinates @ constant, constant)
    directions = principal_directions(centred, tolerance=_ROUNDING)
    with one_blas_thread():
        # Orthonormal already, but for directions that are themselves near rounding.
        columns = np.linalg.qr(np.vstack([constant, directions]).T)[0]
    scaled = columns if frame is None else frame @ columns
    return np.divide(scaled, roots[:, None], out=np.zeros_like(scaled), where=roots[:, None] > 0)


def n_term_decay(
    outputs: Outputs, basis: Float[np.ndarray, "points rank"], *, weights: Weights | None = None
) -> Decay:
    """Errors on `outputs` of the first 1, 2, ... columns of a `basis` that is orthonormal in L2_omega.

    Give other samples than those the basis was made from: its own samples flatter it.
    """
    omega = measure(weights, outputs.shape[1])
    coefficients = (outputs * omega) @ basis
    remainders = (outputs - coefficients @ basis.T) ** 2 @ omega
    # Added up from the tail: the difference of two large sums would lose every digit.
    tails = np.cumsum(coefficients[:, :0:-1] ** 2, axis=1)[:, ::-1]
    squares = np.hstack([tails, np.zeros((len(outputs), 1))]) + remainders[:, None]
    size = float(np.sqrt(np.mean(outputs**2 @ omega)))
    return Decay(np.sqrt(squares.mean(axis=0)), np.sqrt(squares.max(axis=0)), size)
