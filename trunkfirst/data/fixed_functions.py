"""How many fixed functions the outputs need: for all samples, and for samples that did not make the functions."""

import dataclasses as dc
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from .array_checks import evenly
from .operator_data import OperatorData

# Samples and points that are looked at.
_MOST_SAMPLES, _MOST_PLACES = 400, 2000
_FEWEST_SAMPLES = 40
_WANTED = 0.01
# Features move where four times as many functions leave these shares of the error, and more than the error wanted.
# The errors of smooth outputs fall much faster, and those of noise hardly at all.
_FEW, _MANY, _SHARES = 8, 32, (0.3, 0.85)
# Of a spectrum. More rows and points do not change the rank and cost minutes.
_MOST_ROWS, _MOST_POINTS = 1000, 4000
_TOLERANCES = (1e-4, 1e-8, 1e-12)
_WIDTHS = (5, 10, 20, 50, 100, 200)
# Widths beyond the first with an error this small are not listed.
_NEGLIGIBLE = 1e-12


@dc.dataclass(frozen=True)
class FixedFunctions:
    """The relative error that the best N fixed functions leave, and the N that they need for 1 %."""

    few: float
    many: float
    needed: int | None
    """None where no number of functions made of the samples is enough."""

    @property
    def features_move(self) -> bool:
        """Whether errors fall like a low power of N, as where shocks, fronts or waves move."""
        low, high = _SHARES
        return self.many > _WANTED and low * self.few < self.many < high * self.few

    def in_words(self) -> str:
        """The sentence of `data check`."""
        need = (
            "no number of fixed functions made of these samples reaches"
            if self.needed is None
            else (f"fixed functions need N = {self.needed:,} for")
        )
        return f"features move, or are rough: {need} 1 %"


def fixed_functions(data: OperatorData) -> FixedFunctions | None:
    """Errors of modes of every second sample on the others; None for too few samples or points."""
    samples = evenly(data.samples, _MOST_SAMPLES)
    points = evenly(len(data.points), _MOST_PLACES)
    if len(samples) < _FEWEST_SAMPLES or len(points) < 3 * _MANY:
        return None
    outputs = data.outputs[samples][:, points].reshape(len(samples), len(points), -1)
    found = [_errors(outputs[..., channel]) for channel in range(outputs.shape[2])]
    errors = np.max([each for each in found if each is not None], axis=0, initial=0.0)
    if errors.ndim == 0 or len(errors) <= _MANY:
        return None
    needed = np.flatnonzero(errors <= _WANTED)
    return FixedFunctions(float(errors[_FEW]), float(errors[_MANY]), int(needed[0]) if len(needed) else None)


def _errors(outputs: np.ndarray) -> np.ndarray | None:
    """Relative errors, root mean square over the unseen samples, of 0, 1, 2, ... modes."""
    size = np.abs(outputs).max()
    if size == 0:
        return None
    train, unseen = outputs[::2] / size, outputs[1::2] / size
    modes = np.linalg.svd(train, full_matrices=False)[2]
    total = np.sum(unseen**2)
    left = total - np.concatenate([[0.0], np.cumsum(np.sum((unseen @ modes.T) ** 2, axis=0))])
    return np.sqrt(np.maximum(left, 0.0) / total) if total > 0 else None


@dc.dataclass(frozen=True)
class Spectrum:
    """Numerical ranks of outputs and best errors by width, from their singular values."""

    ranks: dict[float, int]
    """By relative tolerance: the fewest functions that leave at most that share of the norm of all outputs."""
    best_errors: dict[int, float]
    """By width N: the mean relative l2 error that the constant and the N best functions leave."""
    rows: int
    points: int
    """How many samples (times channels) and points were used, evenly chosen where there are more."""


def spectrum(
    outputs: Float[np.ndarray, "samples points *channels"],
    point_weights: Float[np.ndarray, " points"] | None = None,
    *,
    tolerances: Sequence[float] = _TOLERANCES,
    widths: Sequence[int] = _WIDTHS,
) -> Spectrum:
    """Return numerical ranks of the outputs, and the smallest errors that trunks of `widths` can leave on them.

    Eckart-Young with the constant function that every trunk has: every sample is scaled to norm 1, its projection
    on the constant is subtracted, and the rest is projected on its first N principal functions. No trunk of width
    N has a smaller root mean square of the relative errors on these samples. Channels, each in units of its own
    size, are rows like samples: they share the trunk.
    """
    rows = _rows(outputs)
    weights = np.ones(rows.shape[1]) if point_weights is None else point_weights
    columns = evenly(rows.shape[1], _MOST_POINTS)
    roots = np.sqrt(weights[columns] / weights[columns].sum())
    values = rows[evenly(len(rows), _MOST_ROWS)][:, columns].astype(np.float64) * roots
    values /= np.abs(values).max() or 1.0  # squares must not overflow
    return Spectrum(_ranks(values, tolerances), _best_errors(values, roots, widths), *values.shape)


def _rows(outputs: Float[np.ndarray, "samples points *channels"]) -> Float[np.ndarray, "rows points"]:
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
    """Return the coordinates of the rows along their principal functions, and the singular values.

    QR reduces the longer axis first: then the SVD is that of a square.
    """
    if len(values) > values.shape[1]:
        _, s, W = np.linalg.svd(np.linalg.qr(values)[1])
        return values @ W.T, s
    V, s, _ = np.linalg.svd(np.linalg.qr(values.T)[1].T)
    return V * s, s
