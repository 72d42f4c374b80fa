"""How many functions the outputs need: their numerical rank, and what error a trunk of given width leaves."""

import dataclasses as dc
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ._evenly import evenly

# More than this teaches nothing new about the rank and costs minutes.
_MOST_ROWS = 1000
_MOST_POINTS = 4000
TOLERANCES = (1e-4, 1e-8, 1e-12)
WIDTHS = (5, 10, 20, 50, 100, 200)
# Wider trunks than one that leaves this much are not worth telling.
_NEGLIGIBLE = 1e-12


@dc.dataclass(frozen=True)
class Spectrum:
    """What the singular values of the outputs say."""

    ranks: dict[float, int]
    """By relative tolerance: the fewest functions that leave at most that share of the norm of all outputs."""
    best_errors: dict[int, float]
    """By width N: the mean relative l2 error that the constant and the N best functions leave."""
    rows: int
    points: int
    """How many samples (times channels) and points were looked at, evenly chosen where there are more."""


def spectrum(
    outputs: Float[np.ndarray, "samples points ..."],
    point_weights: Float[np.ndarray, " points"] | None = None,
    *,
    tolerances: Sequence[float] = TOLERANCES,
    widths: Sequence[int] = WIDTHS,
) -> Spectrum:
    """Numerical ranks of the outputs, and the errors that trunks of `widths` can at best leave on them.

    Eckart-Young with the constant function that every trunk has: every sample is scaled to norm 1, what the
    constant explains is taken away, and the rest is projected on its first N principal functions. No trunk of
    width N has a smaller root mean square of the relative errors on these samples. Channels, each in units of
    its own size, are rows like samples: they share the trunk.
    """
    rows = _rows(outputs)
    weights = np.ones(rows.shape[1]) if point_weights is None else point_weights
    columns = evenly(rows.shape[1], _MOST_POINTS)
    roots = np.sqrt(weights[columns] / weights[columns].sum())
    values = rows[evenly(len(rows), _MOST_ROWS)][:, columns].astype(np.float64) * roots
    values /= np.abs(values).max() or 1.0  # nothing overflows when squared
    return Spectrum(_ranks(values, tolerances), _best_errors(values, roots, widths), *values.shape)


def _rows(outputs: Float[np.ndarray, "samples points ..."]) -> Float[np.ndarray, "rows points"]:
    if outputs.ndim == 2:
        return outputs
    sizes = np.sqrt(np.mean(outputs**2, axis=(0, 1)))
    scaled = outputs / np.where(sizes > 0, sizes, 1)
    return np.moveaxis(scaled, 2, 1).reshape(-1, outputs.shape[1])


def _ranks(values: np.ndarray, tolerances: Sequence[float]) -> dict[float, int]:
    _, s = _principal(values)
    tails = np.sqrt(np.cumsum(s[::-1] ** 2)[::-1])
    return {tolerance: int((tails > tolerance * tails[0]).sum()) for tolerance in tolerances}


def _best_errors(values: np.ndarray, roots: np.ndarray, widths: Sequence[int]) -> dict[int, float]:
    sizes = np.linalg.norm(values, axis=1, keepdims=True)
    scaled = values[sizes[:, 0] > 0] / sizes[sizes[:, 0] > 0]
    if len(scaled) == 0:
        return {}
    centred = scaled - np.outer(scaled @ roots, roots)  # the roots have norm 1
    squares = _principal(centred)[0] ** 2
    errors: dict[int, float] = {}
    for width in widths:
        if width < min(values.shape) and min(errors.values(), default=1.0) > _NEGLIGIBLE:
            errors[width] = float(np.sqrt(squares[:, width:].sum(axis=1)).mean())
    return errors


def _principal(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the rows along their principal functions, and the singular values.

    The longer axis goes first, by QR: then the SVD is that of a square.
    """
    if len(values) > values.shape[1]:
        _, s, W = np.linalg.svd(np.linalg.qr(values)[1])
        return values @ W.T, s
    V, s, _ = np.linalg.svd(np.linalg.qr(values.T)[1].T)
    return V * s, s
