"""Triangles and tetrahedra between scattered points: how they are made and found, and derivatives at the points.

Everything here runs once, in NumPy; `interpolants.SimplexInterpolation` evaluates in JAX.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Bool, Float, Int, Real
from scipy.spatial import Delaunay, KDTree, QhullError

from ..errors import DataError
from .grids import GAIN, SAME, wrapped

# A simplex is flat if its volume is below this share of its longest edge to the power of the dimension.
_FLAT = 1e-9
# Singular values below this share of the largest are left out of a local quadratic.
_RCOND = 1e-3
# The most points that are left out to choose between linear and smooth.
_LEFT_OUT = 2000
# Points that are located at once.
_SEARCHED = 4096


class Nodes(NamedTuple):
    """Places (nodes, coordinates) and the number of the point at each; with periods a point has several places.

    Distances are measured in units of `size`.
    """

    places: Float[np.ndarray, "nodes coordinates"]
    points: Int[np.ndarray, " nodes"]
    size: Float[np.ndarray, " coordinates"]

    @property
    def scaled(self) -> Float[np.ndarray, "nodes coordinates"]:
        """Places in these units."""
        return self.places / self.size


# -- meshes


def covers(triangles: np.ndarray, points: np.ndarray, periods: Sequence[float]) -> bool:
    """Whether every point is a corner, and the points reach over the whole of each period."""
    is_whole = bool((np.ptp(points, axis=0) >= np.array(periods) * (1 - SAME)).all())
    is_fitting = triangles.ndim == 2 and triangles.shape[1] == points.shape[1] + 1
    return is_whole and is_fitting and np.array_equal(np.unique(triangles), np.arange(len(points)))


def make_size(points: np.ndarray, triangles: np.ndarray | None, periods: Sequence[float]) -> np.ndarray:
    """Units of distance along the axes: the mean edge of the triangles, or the box of the points or a period."""
    if triangles is not None:
        return np.abs(points[triangles] - points[np.roll(triangles, 1, axis=1)]).mean(axis=(0, 1))
    box = np.where(np.array(periods) > 0, periods, np.ptp(points, axis=0))
    return np.where(box > 0, box, 1.0)


def make_mesh(
    points: Float[np.ndarray, "points coordinates"], triangles: np.ndarray | None, periods: Sequence[float]
) -> tuple[Nodes, Int[np.ndarray, "simplices corners"]]:
    """The nodes and the simplices between them; without triangles, those of a Delaunay triangulation."""
    start = points.min(axis=0)
    nodes = Nodes(points, np.arange(len(points)), make_size(points, triangles, periods))
    if triangles is not None:
        return nodes, _thick(nodes, triangles)
    for axis, period in enumerate(periods):
        nodes = _continued(nodes, axis, start[axis], period) if period else nodes
    simplices = _thick(nodes, _delaunay(nodes.scaled).simplices)
    corners = nodes.places[simplices]
    is_needed = (corners.max(axis=1) >= start) & (corners.min(axis=1) <= start + np.array(periods))
    return nodes, simplices[(is_needed | (np.array(periods) == 0)).all(axis=1)]


def _continued(nodes: Nodes, axis: int, start: float, period: float) -> Nodes:
    """The nodes of one period, and those of half a period more on both sides."""
    places = nodes.places.copy()
    places[:, axis] = wrapped(places[:, axis], start, period)
    _, first = np.unique((places / nodes.size / SAME).round(), axis=0, return_index=True)
    places, points = places[first], nodes.points[first]
    step = period * np.eye(places.shape[1])[axis]
    is_late = places[:, axis] > start + period / 2
    parts = [places, places[is_late] - step, places[~is_late] + step]
    return Nodes(np.concatenate(parts), np.concatenate([points, points[is_late], points[~is_late]]), nodes.size)


def _delaunay(places: np.ndarray) -> Delaunay:
    try:
        return Delaunay(places)
    except (QhullError, ValueError) as error:
        raise DataError(
            "points: all lie on a line or plane, so they cannot be joined by triangles or tetrahedra; "
            "leave out the coordinates that follow from others"
        ) from error


def _thick(nodes: Nodes, simplices: np.ndarray) -> np.ndarray:
    """The simplices that have a volume."""
    corners = nodes.scaled[simplices]
    edges = corners[:, 1:] - corners[:, :1]
    longest = np.linalg.norm(edges, axis=2).max(axis=1)
    return simplices[np.abs(np.linalg.det(edges)) > _FLAT * longest ** len(nodes.size)]


def barycentric_slopes(corners: Float[np.ndarray, "simplices corners d"]) -> Float[np.ndarray, "simplices d d"]:
    """The gradients of the barycentric coordinates of the corners 1, 2, ..., d of each simplex."""
    return np.linalg.inv(corners[:, 1:] - corners[:, :1]).swapaxes(1, 2)


# -- bins


def make_bins(
    corners: Float[np.ndarray, "simplices corners d"], slopes: Float[np.ndarray, "simplices d d"], count: int
) -> tuple[Int[np.ndarray, "bins candidates"], list[Float[np.ndarray, " _"]]]:
    """The simplices that touch each bin, and where the bins of every axis start.

    There are about `count` bins, narrow where simplices are many. Lists are filled up with the nearest simplex,
    which is the only one of a bin that none touches.
    """
    edges = _bin_edges(corners, count)
    simplices, places = _overlapping_boxes(corners, edges)
    is_touching = _touches(corners[simplices, 0], slopes[simplices], places, edges)
    shape = tuple(len(each) - 1 for each in edges)
    bins = np.asarray(np.ravel_multi_index(tuple(places[is_touching].T), shape))
    return _lists(simplices[is_touching], bins, _nearest(corners, edges)), [each[:-1] for each in edges]


def _bin_edges(corners: np.ndarray, count: int) -> list[np.ndarray]:
    """Quantiles of the centres; the number of bins along an axis follows the mean size of the simplices there."""
    low, high, centres = corners.min(axis=1), corners.max(axis=1), corners.mean(axis=1)
    ratios = np.ptp(centres, axis=0) / (high - low).mean(axis=0)
    counts = ratios * (count / ratios.prod()) ** (1 / corners.shape[2])
    edges: list[np.ndarray] = []
    for axis, each in enumerate(counts):
        inner = np.quantile(centres[:, axis], np.linspace(0, 1, max(int(each), 1) + 1)[1:-1])
        edges.append(np.unique([low[:, axis].min(), *inner, high[:, axis].max()]))
    return edges


def _overlapping_boxes(corners: np.ndarray, edges: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of a simplex and a bin that its bounding box overlaps: (pairs,), (pairs, d)."""
    first, last = (_places_in(edges, side) for side in (corners.min(axis=1), corners.max(axis=1)))
    counts = last - first + 1
    total = counts.prod(axis=1)
    simplices = np.repeat(np.arange(len(corners)), total)
    number = np.arange(len(simplices)) - np.repeat(np.cumsum(total) - total, total)
    places = np.empty((len(simplices), len(edges)), np.int64)
    for axis in range(len(edges)):
        number, step = np.divmod(number, counts[simplices, axis])
        places[:, axis] = first[simplices, axis] + step
    return simplices, places


def _places_in(edges: list[np.ndarray], x: np.ndarray) -> np.ndarray:
    found = [np.searchsorted(e, column, "right") - 1 for e, column in zip(edges, x.T, strict=True)]
    return np.stack([np.clip(f, 0, len(e) - 2) for e, f in zip(edges, found, strict=True)], axis=1)


def _touches(origins: np.ndarray, slopes: np.ndarray, places: np.ndarray, edges: list[np.ndarray]) -> np.ndarray:
    """Whether no face separates simplex and bin: every barycentric coordinate is positive somewhere in the bin."""
    low, high = (np.stack([e[p] for e, p in zip(edges, side.T, strict=True)], 1) for side in (places, places + 1))
    others = np.einsum("pkc,pc->pk", slopes, (low + high) / 2 - origins)
    all_slopes = np.concatenate([-slopes.sum(axis=1, keepdims=True), slopes], axis=1)
    middle = np.column_stack([1 - others.sum(axis=1), others])
    reach = np.einsum("pkc,pc->pk", np.abs(all_slopes), (high - low) / 2)
    return (middle + reach >= -SAME).all(axis=1)


def _nearest(corners: np.ndarray, edges: list[np.ndarray]) -> np.ndarray:
    """The simplex with the nearest centre, for every bin."""
    middles = np.meshgrid(*((each[:-1] + each[1:]) / 2 for each in edges), indexing="ij")
    size = np.array([each[-1] - each[0] for each in edges])
    tree = KDTree(corners.mean(axis=1) / size)
    return np.asarray(tree.query(np.stack(middles, axis=-1).reshape(-1, len(edges)) / size)[1])


def _lists(simplices: np.ndarray, bins: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    order = np.argsort(bins, kind="stable")
    counts = np.bincount(bins, minlength=len(nearest))
    columns = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    lists = np.repeat(nearest[:, None], max(int(counts.max()), 1), axis=1)
    lists[bins[order], columns] = simplices[order]
    return lists


class Elements:
    """Triangles or tetrahedra whose corners are `points`, and the size of the cells around each corner."""

    def __init__(self, points: Float[np.ndarray, "points d"], simplices: Int[np.ndarray, "simplices corners"]):
        nodes, thick = make_mesh(points, simplices, (0.0,) * points.shape[1])
        # Units of the mean edge along each axis, which may be in kilometres or in millimetres.
        self._size = np.where(nodes.size > 0, nodes.size, 1.0)
        places = points / self._size
        corners = places[thick]
        self._origins, self._slopes = corners[:, 0], barycentric_slopes(corners)
        self._lists, self._starts = make_bins(corners, self._slopes, len(thick))
        self._tree, self._reach = KDTree(places), np.zeros(len(points))
        for shift in range(1, simplices.shape[1]):
            other = np.roll(simplices, shift, axis=1)
            np.maximum.at(self._reach, simplices, np.linalg.norm(places[simplices] - places[other], axis=2))

    def reaches(self, points: Real[np.ndarray, "n d"], rounding: float) -> Bool[np.ndarray, " n"]:
        """Whether each point is in an element, or no further from a corner than the longest edge there."""
        places = points / self._size
        blocks = [places[i : i + _SEARCHED] for i in range(0, len(places), _SEARCHED)]
        is_near = np.concatenate([np.zeros(0, bool), *map(self._contains, blocks)])
        distances, nearest = self._tree.query(places[~is_near])
        is_near[~is_near] = np.asarray(distances) <= self._reach[nearest] * (1 + rounding)
        return is_near

    def _contains(self, places: np.ndarray) -> np.ndarray:
        """Whether each place lies in an element, up to rounding."""
        found = [np.searchsorted(s, x, "right") - 1 for s, x in zip(self._starts, places.T, strict=True)]
        bins = tuple(np.maximum(each, 0) for each in found)
        near = self._lists[np.ravel_multi_index(bins, tuple(map(len, self._starts)))]  # (n, candidates)
        shares = np.einsum("nkac,nkc->nka", self._slopes[near], places[:, None] - self._origins[near])
        least = np.minimum(shares.min(axis=2), 1 - shares.sum(axis=2))
        return (least >= -SAME).any(axis=1)


# -- local quadratics


def monomials(offset: Any) -> list[Any]:
    """y_1, ..., y_d, then y_i y_j for i <= j, halved if i = j: what multiplies the derivatives of a quadratic."""
    d = offset.shape[-1]
    pairs = itertools.combinations_with_replacement(range(d), 2)
    squares = [offset[..., i] * offset[..., j] * (0.5 if i == j else 1.0) for i, j in pairs]
    return [*(offset[..., i] for i in range(d)), *squares]


def derivatives(
    nodes: Nodes, values: Float[np.ndarray, "points functions"]
) -> Float[np.ndarray, "points derivatives functions"]:
    """Gradient and second derivatives at the points, in the order of `monomials`.

    They are those of a quadratic through the point that is fitted to its neighbours, twice as many as there are
    unknowns, with weights 1 / distance.
    """
    first = np.zeros(len(values), np.int64)
    first[nodes.points[::-1]] = np.arange(len(nodes.points))[::-1]
    places = nodes.scaled
    unknowns = len(monomials(places))
    found = KDTree(places).query(places[first], min(2 * unknowns + 1, len(places)))
    distances, near = (np.asarray(each)[:, 1:] for each in found)  # the first is the point itself
    radius = distances[:, -1]
    offset = (places[near] - places[first][:, None]) / radius[:, None, None]
    weights = radius[:, None] / distances
    fit = np.linalg.pinv(np.stack(monomials(offset), axis=-1) * weights[..., None], _RCOND) * weights[:, None]
    back = np.abs(np.stack(monomials(radius[:, None] * nodes.size), axis=1)) * _twice_squares(places.shape[1])
    return _differences(fit / back[..., None], nodes.points[near], values)


def _twice_squares(d: int) -> np.ndarray:
    """Undoes the halves of `monomials`."""
    return 1 / np.array(monomials(np.ones(d)))


def _differences(
    fit: Float[np.ndarray, "points derivatives neighbours"], near: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """sum_j fit_j (u_j - u_i) for every point i, as a product with a sparse matrix."""
    count, unknowns, neighbours = fit.shape
    columns = np.concatenate([near, np.arange(count)[:, None]], axis=1)
    entries = np.concatenate([fit, -fit.sum(axis=2, keepdims=True)], axis=2)
    starts = np.arange(0, entries.size + 1, neighbours + 1)
    indices = np.repeat(columns[:, None], unknowns, axis=1)
    matrix = scipy.sparse.csr_array(
        (entries.ravel(), indices.ravel(), starts), shape=(count * unknowns, len(values))
    )
    return (matrix @ values).reshape(count, unknowns, -1)


def is_smooth_between(
    points: Float[np.ndarray, "points coordinates"],
    values: Float[np.ndarray, "points functions"],
    size: Float[np.ndarray, " coordinates"],
) -> bool:
    """Whether blended quadratics predict points that are left out better than linear functions."""
    order = np.random.default_rng(0).permutation(len(points))
    out, rest = np.split(order, [min(len(points) // 2, _LEFT_OUT)])
    if len(rest) <= 2 * len(monomials(points)) + 1:
        return False
    nodes, known = Nodes(points[rest], np.arange(len(rest)), size), values[rest]
    corners, shares, is_inside = _locate(nodes, points[out])
    out = out[is_inside]
    linear = np.einsum("nk,nkf->nf", shares, known[corners])
    terms = np.stack(monomials(points[out][:, None] - nodes.places[corners]), axis=-1) * shares[..., None]
    slopes = derivatives(nodes, known)
    smooth = linear + np.einsum("nkq,nkqf->nf", terms, slopes[corners])
    errors = [np.sum((predicted - values[out]) ** 2) for predicted in (linear, smooth)]
    return bool(errors[1] < GAIN * errors[0])


def _locate(nodes: Nodes, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners and barycentric coordinates of the points inside the triangulation, and which these are."""
    mesh, places, d = _delaunay(nodes.scaled), points / nodes.size, points.shape[1]
    simplices = mesh.find_simplex(places)
    is_inside = (simplices >= 0) & np.isfinite(mesh.transform[simplices]).all(axis=(1, 2))
    simplices = simplices[is_inside]
    maps = mesh.transform[simplices]
    others = np.einsum("nkc,nc->nk", maps[:, :d], places[is_inside] - maps[:, d])
    return mesh.simplices[simplices], np.column_stack([others, 1 - others.sum(axis=1)]), is_inside
