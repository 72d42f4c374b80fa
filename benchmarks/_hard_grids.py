"""Two sets of functions on grids that are hard for every method, for `against_fno.py`.

Both are -div(a grad u) = f on the unit square, by finite volumes on 64 x 64 cells, with `a` of two values:

- `fine-darcy`: a = 12 or 1 by the sign of smoothed noise, f = 1, u = 0 on the boundary. Inputs and outputs are
  those of every fourth cell in each direction, 16 x 16: what lies between them, the input does not say.
- `obstacles`: one to four circles and rectangles that conduct less, a = 0.3. The first output is the potential, 1
  at the left and 0 at the right, no flux through top and bottom; the second the flux to the right. Every second
  cell, 32 x 32; inputs are the mask of the obstacles and f, a bump of random place and strength.
"""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import spsolve

from trunkfirst.data.operator_data import InputFunction, OperatorData

_CELLS = 64
_HIGH, _LOW, _SMOOTH = 12.0, 1.0, 2.0
"""Conductivities, and the length of smoothing in cells."""
_OBSTACLE = 0.3

Cells = Float[np.ndarray, "rows columns"]


def fine_darcy(samples: int = 1200, seed: int = 0) -> OperatorData:
    """Media of two values with a short correlation length, known at every fourth cell."""
    rng = np.random.default_rng(seed)
    noise = (gaussian_filter(rng.normal(size=(_CELLS, _CELLS)), _SMOOTH, mode="reflect") for _ in range(samples))
    media = [np.where(field >= 0, _HIGH, _LOW) for field in noise]
    outputs = [solve(a, np.ones_like(a), (0.0, 0.0), is_closed=False) for a in media]
    return OperatorData(
        {"conductivity": _function(media, 4)}, _centres(4), np.stack([u[2::4, 2::4].ravel() for u in outputs])
    )


def obstacles(samples: int = 1000, seed: int = 0) -> OperatorData:
    """Potential and flux around obstacles."""
    rng = np.random.default_rng(seed)
    masks, sources = [_mask(rng) for _ in range(samples)], [_source(rng) for _ in range(samples)]
    media = [np.where(mask, _OBSTACLE, 1.0) for mask in masks]
    fields = [solve(a, f, (1.0, 0.0), is_closed=True) for a, f in zip(media, sources, strict=True)]
    fluxes = [_flux(a, u) for a, u in zip(media, fields, strict=True)]
    outputs = np.stack(
        [np.stack([u[1::2, 1::2].ravel() for u in each], 1) for each in zip(fields, fluxes, strict=True)]
    )
    functions = {"mask": _function([m.astype(float) for m in masks], 2), "source": _function(sources, 2)}
    return OperatorData(functions, _centres(2), outputs)


HARD_SETS: dict[str, Callable[[], OperatorData]] = {"fine-darcy": fine_darcy, "obstacles": obstacles}
"""By name; the last 200 samples are for the test."""


def solve(a: Cells, f: Cells, sides: tuple[float, float], *, is_closed: bool) -> Cells:
    """u at the centres of the cells; its values left and right, 0 or no flux (`is_closed`) at top and bottom."""
    rows, columns = a.shape
    h, number = 1 / columns, np.arange(a.size).reshape(a.shape)
    across, up = _between(a[:, :-1], a[:, 1:]), _between(a[:-1], a[1:])
    first = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    second = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    k = np.concatenate([across.ravel(), up.ravel()])
    # The boundary is half a cell away.
    ends, load, diagonal = 2 * a, h**2 * f, np.zeros_like(a)
    for column, value in zip((0, columns - 1), sides, strict=True):
        diagonal[:, column] += ends[:, column]
        load[:, column] += ends[:, column] * value
    if not is_closed:
        diagonal[0] += ends[0]
        diagonal[rows - 1] += ends[-1]
    pairs = sp.coo_array((k, (first, second)), (a.size, a.size))
    K = -(pairs + pairs.T)
    K = (K + sp.diags_array(diagonal.ravel() - K.sum(axis=1))).tocsc()
    return np.asarray(spsolve(K, load.ravel(), permc_spec="MMD_AT_PLUS_A")).reshape(a.shape)


def _between(a: Cells, b: Cells) -> Cells:
    return 2 * a * b / (a + b)


def _flux(a: Cells, u: Cells) -> Cells:
    """-a du/dx at the centres: the mean of both faces."""
    h = 1 / a.shape[1]
    left, right = 2 * a[:, :1] * (1 - u[:, :1]) / h, 2 * a[:, -1:] * u[:, -1:] / h
    faces = np.concatenate([left, -_between(a[:, :-1], a[:, 1:]) * np.diff(u, axis=1) / h, right], axis=1)
    return (faces[:, :-1] + faces[:, 1:]) / 2


def _mask(rng: np.random.Generator) -> Bool[np.ndarray, "rows columns"]:
    x, y = _grid()
    found = np.zeros(x.shape, bool)
    for _ in range(rng.integers(1, 5)):
        (p, q), (r, s) = rng.uniform(0.15, 0.85, 2), rng.uniform(0.05, 0.18, 2)
        is_circle = rng.random() < 0.5
        found |= (x - p) ** 2 + (y - q) ** 2 < r**2 if is_circle else (abs(x - p) < r) & (abs(y - q) < s)
    return found


def _source(rng: np.random.Generator) -> Cells:
    x, y = _grid()
    p, q = rng.uniform(0.2, 0.8, 2)
    return rng.uniform(-10, 10) * np.exp(-((x - p) ** 2 + (y - q) ** 2) / 0.02)


def _grid() -> tuple[Cells, Cells]:
    ticks = (np.arange(_CELLS) + 0.5) / _CELLS
    x, y = np.meshgrid(ticks, ticks)
    return x, y


def _function(fields: list[Cells], every: int) -> InputFunction:
    some = np.stack([field[every // 2 :: every, every // 2 :: every].ravel() for field in fields])
    return InputFunction(some, _centres(every), grid_shape=(_CELLS // every,) * 2)


def _centres(every: int) -> Float[np.ndarray, "cells 2"]:
    return np.stack([x[every // 2 :: every, every // 2 :: every].ravel() for x in _grid()], axis=1)
