"""Periods and waves of the output coordinates, found in the outputs, for trunks that are networks."""

from typing import Any

import numpy as np
from jaxtyping import Float

from .data.array_checks import evenly
from .data.operator_data import OperatorData
from .inputs import Coordinates
from .linear.low_rank import principal_rows
from .networks.grids import grid_order, is_grid

# Fewer values say little about a period. At the seam, second differences may be this much larger than elsewhere.
_FEWEST, _SEAM = 8, 1.5
# Modes with this share of the squares of the outputs oscillate if they have this many waves; frequencies to try.
_MODES_SHARE, _WAVES, _FREQUENCIES = 0.99, 4.0, 32
_MAX_ROWS = 500


def coordinate_candidates(given: Coordinates, data: OperatorData) -> dict[str, dict[str, Any]]:
    """Settings to try for a network trunk, by name: periods and waves on a grid, where none are given."""
    if not is_grid(data.points):
        return {}
    found: dict[str, dict[str, Any]] = {}
    if not given.periods and (periods := periods_on_grid(data)):
        found[f"periodic in {', '.join(periods)}"] = {"periods": periods}
    if not given.fourier and (waves := waves_on_grid(data)) >= _WAVES:
        found[f"{_FREQUENCIES} waves"] = {"fourier": _FREQUENCIES, "cycles": round(1.5 * waves, 1)}
    return found


def periods_on_grid(data: OperatorData) -> dict[str, float]:
    """Periods of evenly spaced coordinates where values and slopes at both ends match, in all samples.

    The last point may be the first one of the next period or the one before it.
    """
    axes, fields = _on_grid(data)
    found: dict[str, float] = {}
    for number, (name, x) in enumerate(zip(data.coordinate_names, axes, strict=True)):
        steps, values = np.diff(x), np.moveaxis(fields, number + 1, 0)
        if len(x) < _FEWEST or np.ptp(steps) > 1e-6 * steps[0]:
            continue
        if _is_cyclic(values[:-1], values[-1] - values[0]):
            found[name] = float(x[-1] - x[0])
        elif _is_cyclic(values):
            found[name] = float(x[-1] - x[0] + steps.mean())
    return found


def _is_cyclic(values: Float[np.ndarray, "n ..."], apart: np.ndarray | float = 0.0) -> bool:
    """Whether a sequence continues with its first value: its second differences there are like all others."""
    bends = np.abs(np.roll(values, -1, axis=0) - 2 * values + np.roll(values, 1, axis=0))
    inside = bends[1:-1].max()
    seam = max(bends[0].max(), bends[-1].max(), float(np.abs(apart).max()))
    return bool(1e-12 * np.abs(values).max() < inside and seam <= _SEAM * inside)


def waves_on_grid(data: OperatorData) -> float:
    """Waves across the box in the leading modes of the outputs, along the coordinate that has the most."""
    axes, fields = _on_grid(data)
    rows = np.moveaxis(fields, -1, 1).reshape(-1, len(data.points))
    sizes, modes, _ = principal_rows(rows[evenly(len(rows), _MAX_ROWS)], 1e-12)
    before = np.concatenate([[0.0], np.cumsum(sizes**2)[:-1]])
    leading = modes[before < _MODES_SHARE * np.sum(sizes**2)].reshape(-1, *map(len, axes))
    is_positive = leading > 0
    changes = [
        np.mean(np.sum(np.diff(is_positive, axis=axis + 1), axis=axis + 1), axis=tuple(range(1, len(axes))))
        for axis in range(len(axes))
    ]
    return float(np.max(changes)) / 2


def _on_grid(data: OperatorData) -> tuple[list[np.ndarray], Float[np.ndarray, "samples ..."]]:
    """The axes, and the outputs with an axis for each, then the channels."""
    axes, order = grid_order(data.points)
    outputs = data.outputs if data.is_multichannel else data.outputs[..., None]
    return axes, outputs[:, order].reshape(data.samples, *map(len, axes), -1)
