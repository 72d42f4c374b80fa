"""Gaussian random fields on the unit square by their cosine expansion: functions of position, not of a grid."""

import numpy as np
from jaxtyping import Float

MODES = 128
"""Cosines in each direction."""
_SHIFT = 9.0


def draw_modes(seed: int) -> Float[np.ndarray, "modes modes"]:
    """Random coefficients of cos(pi j y) cos(pi k x): those of N(0, (-Laplace + 9)^-2), no flux at the edges.

    The eigenvalues of the covariance are (pi^2 (j^2 + k^2) + 9)^-2. The constant is left out, as in the code of
    the well-known Darcy benchmark (Li et al., Fourier neural operator, 2020): it would let many samples have
    nearly one value only.
    """
    k = np.arange(MODES)
    norm = np.where(k > 0, np.sqrt(2.0), 1.0)  # of the cosines in the mean square
    deviations = np.outer(norm, norm) / (np.pi**2 * (k[:, None] ** 2 + k**2) + _SHIFT)
    deviations[0, 0] = 0.0
    return np.random.default_rng(seed).normal(size=(MODES, MODES)) * deviations


def evaluate_modes(
    modes: Float[np.ndarray, "modes modes"], y: Float[np.ndarray, " rows"], x: Float[np.ndarray, " columns"]
) -> Float[np.ndarray, "rows columns"]:
    """The field on the grid of all pairs (y, x), from 0 to 1."""
    return _cosines(y) @ modes @ _cosines(x).T


def _cosines(t: Float[np.ndarray, " ticks"]) -> Float[np.ndarray, "ticks modes"]:
    return np.cos(np.pi * np.outer(t, np.arange(MODES)))
