"""Mean and spread over seeds."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ._history import Curve

MOST_POINTS = 600  # drawn per line: more cannot be seen and makes the page heavy


def mean_and_spread(
    values: Float[np.ndarray, "seeds steps"],
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """Mean and sample standard deviation over the seeds; the latter is 0 for a single seed."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0), spread


def band(
    mean: Float[np.ndarray, " steps"], spread: Float[np.ndarray, " steps"]
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """One standard deviation about the mean, for a logarithmic axis.

    Where the deviation exceeds the mean the lower edge falls below any axis drawn here.
    """
    lower = mean - spread
    return np.where(lower > 0, lower, mean * 1e-12), mean + spread


def finite_curve(curve: Curve) -> Curve | None:
    """The part of a history that a logarithmic axis can show; None when nothing is left."""
    keep = np.isfinite(curve.best_losses) & (curve.best_losses > 0) & np.isfinite(curve.places)
    if not keep.any():
        return None
    order = np.argsort(curve.places[keep], kind="stable")
    return Curve(curve.places[keep][order], curve.losses[keep][order], curve.best_losses[keep][order])


def thin(curve: Curve) -> Curve:
    """At most MOST_POINTS evenly chosen steps, first and last included."""
    steps = len(curve.places)
    chosen = np.unique(np.linspace(0, steps - 1, min(steps, MOST_POINTS)).round().astype(int))
    return Curve(curve.places[chosen], curve.losses[chosen], curve.best_losses[chosen])


def best_on_common_steps(
    curves: Sequence[Curve],
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, "seeds steps"]]:
    """Best losses of several histories at the places they share.

    Seeds may stop early: the comparison ends with the shortest history.
    """
    first = max(curve.places[0] for curve in curves)
    last = min(curve.places[-1] for curve in curves)
    steps = np.unique(np.concatenate([curve.places for curve in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    if len(steps) == 0:  # histories that do not overlap: nothing can be averaged
        return steps, np.empty((len(curves), 0))
    steps = steps[np.unique(np.linspace(0, len(steps) - 1, MOST_POINTS).round().astype(int))]
    places = [np.searchsorted(curve.places, steps, side="right") - 1 for curve in curves]
    return steps, np.stack([c.best_losses[place] for c, place in zip(curves, places, strict=True)])
