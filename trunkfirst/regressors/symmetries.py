"""Symmetries of an operator between functions on a grid, found in its samples.

The pressure of a flow on a square turns with the conductivity; the solution on a periodic interval moves with the
initial value. Such an operator G commutes with maps g of functions, G(g f) = g G(f): reflections and exchanges of
axes, shifts along periodic ones, changes of sign. Every sample is then as many as there are maps.

On a grid that lies a little aside, as every fourth cell of a finer one does, a reflection is nearly a symmetry.
The mean output then differs from its image by more than chance, but by less than a kernel misses. Outputs are
turned about their mean, so that this difference does no harm.
"""

import dataclasses as dc
import itertools
from collections.abc import Iterator, Sequence

import jax.random as jr
import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import KDTree

from ..networks.grids import SAME
from .input_grid import InputGrid, OutputBasis
from .ridge import Kernel

# Maps in all, and shifts along an axis in one, two or three dimensions.
_MOST, _SHIFTS = 64, (16, 4, 2)
# Numbers in the matrices of all maps.
_MOST_NUMBERS = 2**25
# Samples that a kernel is fitted to, and samples that it then predicts as they are and after a map.
_FITTED, _PREDICTED, _FEWEST = 800, 200, 60
# The square of a mean difference, in units of what chance gives, above which a map is no symmetry.
_CHANCE = 8.0
# Leading coefficients of the outputs whose means are compared.
_COMPARED = 64
# The difference of means, as a share of the error of a kernel, up to which a map is nearly a symmetry.
_NEARLY = 0.5
# How much larger the errors after a map may be, and the error of a kernel above which it says nothing.
_LARGER, _MOST_ERROR = 1.1, 0.5


@dc.dataclass(frozen=True, eq=False)
class Symmetry:
    """(g f)(x) = sign f(T x) of inputs and, with a sign for each channel, of outputs."""

    cells: Int[np.ndarray, " cells"]
    """Which cell of the grid T x is."""
    points: Int[np.ndarray, " points"]
    """The same for the output points."""
    input_sign: float
    output_signs: tuple[float, ...]

    def after(self, other: "Symmetry") -> "Symmetry":
        """The map `other`, then this one."""
        signs = tuple(a * b for a, b in zip(self.output_signs, other.output_signs, strict=True))
        return Symmetry(
            other.cells[self.cells], other.points[self.points], self.input_sign * other.input_sign, signs
        )

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal maps."""
        return self.cells.tobytes(), self.points.tobytes(), self.input_sign, self.output_signs

    def of_inputs(self, X: np.ndarray, grid: InputGrid) -> Float[np.ndarray, "samples inputs"]:
        """g f of all samples."""
        return self.input_sign * X[:, self.input_places(grid, X.shape[1])]

    def input_places(self, grid: InputGrid, inputs: int) -> Int[np.ndarray, " inputs"]:
        """Which input each one becomes; numbers, which are constants on the grid, stay."""
        found = np.arange(inputs)
        for places in grid.places:
            found[places] = places[self.cells]
        return found

    def of_targets(self, Y: np.ndarray, basis: OutputBasis) -> Float[np.ndarray, "samples coefficients"]:
        """The coefficients of g u of all samples."""
        each = Y.reshape(len(Y), len(self.output_signs), basis.dual.shape[1]) @ self.matrix(basis)
        return (each * np.array(self.output_signs)[:, None]).reshape(Y.shape)

    def matrix(self, basis: OutputBasis) -> Float[np.ndarray, "rank rank"]:
        """M with which the coefficients c of an output become c M, but for signs."""
        return basis.values[self.points].T @ basis.dual


@dc.dataclass(frozen=True, eq=False)
class Symmetries:
    """The maps that samples show, the identity first, and the field that outputs are turned about."""

    maps: list[Symmetry]
    centre: Float[np.ndarray, " coefficients"]
    """Of that field in the basis."""
    basis: OutputBasis

    def of_targets(self, g: Symmetry, Y: np.ndarray) -> Float[np.ndarray, "samples coefficients"]:
        """The coefficients of g u of all samples."""
        return self.centre + g.of_targets(Y - self.centre, self.basis)


def find_symmetries(
    X: Float[np.ndarray, "samples inputs"],
    Y: Float[np.ndarray, "samples coefficients"],
    grid: InputGrid,
    basis: OutputBasis,
) -> Symmetries:
    """All symmetries that the samples show; the identity alone where there are none."""
    channels = Y.shape[1] // basis.dual.shape[1]
    identity = Symmetry(np.arange(grid.places.shape[1]), np.arange(len(basis.points)), 1.0, (1.0,) * channels)
    mean = Y.mean(axis=0)
    if grid.columns is None or len(X) < _FEWEST:
        return Symmetries([identity], mean, basis)
    options = list(_options(grid, basis, channels))
    samples = _Samples(X, Y, grid, basis)
    plausible = [g for g in options if samples.agree_with(g)]
    kept = samples.confirmed(plausible) if plausible else []
    most = min(_MOST, max(_MOST_NUMBERS // basis.dual.shape[1] ** 2, 1))
    exact = _group(identity, [g for g in kept if samples.difference(g) == 0.0], most)
    centre = np.mean([g.of_targets(mean[None], basis)[0] for g in exact], axis=0)
    return Symmetries(_group(identity, kept, most), centre, basis)


@dc.dataclass(frozen=True, eq=False)
class WithImages:
    """Samples, followed by images of them under their symmetries."""

    inputs: Float[np.ndarray, "rows inputs"]
    targets: Float[np.ndarray, "rows coefficients"]
    rows: Int[np.ndarray, " rows"]
    """Which sample each one is, or is an image of."""


def with_images(
    X: Float[np.ndarray, "samples inputs"],
    Y: Float[np.ndarray, "samples coefficients"],
    grid: InputGrid,
    basis: OutputBasis,
    most: int,
) -> WithImages:
    """The samples and images of them, at random if not all fit into `most` rows."""
    found, samples = find_symmetries(X, Y, grid, basis), np.arange(len(X))
    maps = found.maps
    count = min((len(maps) - 1) * len(X), max(most - len(X), 0))
    which = np.sort(np.random.default_rng(0).choice((len(maps) - 1) * len(X), count, replace=False))
    rows = [samples, *(which[which // len(X) == k] % len(X) for k in range(len(maps) - 1))]
    inputs = [g.of_inputs(X[r], grid) for g, r in zip(maps, rows, strict=True)]
    targets = [found.of_targets(g, Y[r]) for g, r in zip(maps, rows, strict=True)]
    return WithImages(np.concatenate(inputs), np.concatenate(targets), np.concatenate(rows))


def periodic_axes(maps: Sequence[Symmetry], shape: Sequence[int]) -> list[bool]:
    """Along which axes of the grid one of the maps is a shift."""
    places = np.arange(np.prod(shape)).reshape(shape)
    first = [np.unravel_index(g.cells[0], shape) for g in maps]

    def is_shift(cells: np.ndarray, by: int, axis: int) -> bool:
        return by > 0 and np.array_equal(cells, np.roll(places, -by, axis).ravel())

    axes = range(len(shape))
    return [any(is_shift(g.cells, int(f[k]), k) for g, f in zip(maps, first, strict=True)) for k in axes]


def _options(grid: InputGrid, basis: OutputBasis, channels: int) -> Iterator[Symmetry]:
    """Maps of the grid to itself that also map the output points to themselves, with all signs."""
    some = min(channels, 3)
    signs = [s + s[-1:] * (channels - some) for s in itertools.product((1.0, -1.0), repeat=some)]
    for cells, points in _maps(grid, basis):
        is_identity = np.array_equal(cells, np.arange(len(cells)))
        for sign, others in itertools.product((1.0, -1.0), signs):
            if not is_identity or sign < 0:
                yield Symmetry(cells, points, sign, others)


def _maps(grid: InputGrid, basis: OutputBasis) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The identity, reflections, exchanges of two axes, and shifts."""
    assert grid.columns is not None
    axes, places = grid.axes, np.arange(grid.places.shape[1]).reshape(grid.shape)
    columns = list(grid.columns)
    index = _Index(basis.points)
    yield places.ravel(), np.arange(len(basis.points))
    for k, x in enumerate(axes):
        if np.allclose(x[0] + x[-1] - x[::-1], x, rtol=0, atol=1e-6 * np.ptp(x)):
            image = basis.points.copy()
            image[:, columns[k]] = x[0] + x[-1] - image[:, columns[k]]
            yield from index.found(np.flip(places, k), image)
    for j, k in itertools.combinations(range(len(axes)), 2):
        if len(axes[j]) == len(axes[k]) and np.allclose(axes[j], axes[k]):
            image = basis.points.copy()
            image[:, [columns[j], columns[k]]] = image[:, [columns[k], columns[j]]]
            yield from index.found(places.swapaxes(j, k), image)
    for k in range(len(axes)):
        yield from _shift(grid, k, places, basis.points, index)


def _shift(
    grid: InputGrid, k: int, places: np.ndarray, points: np.ndarray, index: "_Index"
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The shortest of a few shifts along an axis of even steps, whose period is one step longer than it is."""
    assert grid.columns is not None
    x, n = grid.axes[k], grid.shape[k]
    step = (x[-1] - x[0]) / (n - 1)
    if not np.allclose(np.diff(x), step, rtol=1e-6):
        return
    for cells in (c for c in range(1, n) if n % c == 0 and n // c <= _SHIFTS[len(grid.shape) - 1]):
        image = points.copy()
        column = image[:, grid.columns[k]]
        image[:, grid.columns[k]] = x[0] + (column - x[0] + cells * step + 1e-6 * step) % (n * step) - 1e-6 * step
        if found := list(index.found(np.roll(places, -cells, k), image)):
            yield from found
            return


class _Index:
    """Finds points by their coordinates."""

    def __init__(self, points: Float[np.ndarray, "points coordinates"]) -> None:
        self._scale = np.ptp(points, axis=0) + SAME
        self._tree = KDTree(points / self._scale)

    def found(self, cells: np.ndarray, image: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The map of cells and that of points, if every image is a point, and no two are the same."""
        distances, places = map(np.asarray, self._tree.query(image / self._scale))
        if distances.max() < 1e-6 and len(np.unique(places)) == len(places):
            yield cells.ravel(), places


class _Samples:
    """What samples say about a map."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, grid: InputGrid, basis: OutputBasis) -> None:
        self._X, self._Y, self._grid, self._basis = X, Y, grid, basis

    def agree_with(self, g: Symmetry) -> bool:
        """Whether the mean of inputs is that after the map but for chance, and that of outputs nearly."""
        if not _is_chance(self._X - g.of_inputs(self._X, self._grid)):
            return False
        return self.difference(g) <= _NEARLY * _MOST_ERROR

    def difference(self, g: Symmetry) -> float:
        """How much the mean of outputs differs from that after the map, by their size; 0 if it may be chance."""
        basis, samples = self._basis, len(self._Y)
        each = self._Y.reshape(samples, -1, basis.dual.shape[1])
        after = each @ (basis.values[g.points].T @ basis.dual[:, :_COMPARED]) * np.array(g.output_signs)[:, None]
        differences = (each[:, :, :_COMPARED] - after).reshape(samples, -1)
        if _is_chance(differences):
            return 0.0
        return float(np.linalg.norm(differences.mean(axis=0)) / np.linalg.norm(self._Y, axis=1).mean())

    def confirmed(self, options: Sequence[Symmetry]) -> list[Symmetry]:
        """Those after which a kernel, fitted to other samples, predicts as well as without them."""
        rows, most = np.arange(len(self._X)), min(_PREDICTED, len(self._X) // 4)
        fitted, others = rows[most : most + _FITTED], rows[:most]
        scale = self._X.std() or 1.0
        branch = Kernel().fit(self._X[fitted] / scale, self._Y[fitted], key=jr.key(0)).branch
        Y = self._Y[others]
        sizes = np.linalg.norm(Y, axis=1)
        usual = sizes.mean()

        def errors(X: np.ndarray, targets: np.ndarray) -> np.ndarray:
            missed = np.linalg.norm(np.asarray(branch(X / scale)) - targets, axis=1)
            return missed / np.maximum(sizes, 1e-3 * usual)

        plain = errors(self._X[others], Y)
        if plain.mean() > _MOST_ERROR:
            return []
        differences = [self.difference(g) for g in options]
        near = [(g, d > 0) for g, d in zip(options, differences, strict=True) if d <= _NEARLY * plain.mean()]
        after = [errors(g.of_inputs(self._X[others], self._grid), self._turned(g, Y, about)) for g, about in near]
        return [g for (g, _), e in zip(near, after, strict=True) if _is_no_worse(e, plain)]

    def _turned(self, g: Symmetry, Y: np.ndarray, about_mean: bool) -> np.ndarray:
        mean = self._Y.mean(axis=0) if about_mean else np.zeros(self._Y.shape[1])
        return mean + g.of_targets(Y - mean, self._basis)


def _is_chance(differences: np.ndarray) -> bool:
    mean, total = differences.mean(axis=0), differences.var(axis=0).sum()
    return bool(len(differences) * np.sum(mean**2) <= _CHANCE * total)


def _is_no_worse(after: np.ndarray, plain: np.ndarray) -> bool:
    doubt = 2 * (after - plain).std() / np.sqrt(len(plain))
    return bool(after.mean() <= min(_LARGER * plain.mean() + doubt, 2 * plain.mean()))


def _group(identity: Symmetry, generators: Sequence[Symmetry], most: int) -> list[Symmetry]:
    """All products of the generators, up to `most` of them."""
    found, new = {identity.key: identity}, [identity]
    while new and len(found) < most:
        products = [g.after(h) for g, h in itertools.product(generators, new)]
        new = [g for g in products if g.key not in found]
        found |= {g.key: g for g in new}
    return list(found.values())[:most]
