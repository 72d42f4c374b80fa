"""Exchanges of one neuron: what it gains, with all output weights refitted, for all pairs from one factorisation.

Symbols: Phi (samples, 1 + neurons) the constant and the neurons at the samples, columns scaled to length one;
G the output weights; rho the ridge. The factorisation is of the augmented matrix [Phi; sqrt(rho) I] = Q R.
"""

import dataclasses as dc
import functools as ft
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from ..memory import check_network

# Below this a candidate is a combination of the neurons that stay, up to rounding: its gain means nothing.
_INDEPENDENT = 1e-10
# Steps from a neuron towards its local least-squares fit.
_STEPS = np.array([1.0, 0.5, 0.25, 0.1, 0.02])
# Candidates scored at once against every neuron.
_BLOCK = 128
# Breakpoints tried at once when an exchange is refined.
_GRID = 33


@dc.dataclass(frozen=True, eq=False)
class Samples:
    """A regression problem; `targets` are multiplied by `roots` already, the square roots of the weights."""

    coordinates: Float[np.ndarray, "samples coordinates"]
    targets: Float[np.ndarray, "samples coefficients"]
    roots: Float[np.ndarray, " samples"]

    def take(self, rows: Int[np.ndarray, " some"]) -> "Samples":
        """The problem on some of the samples."""
        return Samples(self.coordinates[rows], self.targets[rows], self.roots[rows])


@dc.dataclass(frozen=True, eq=False)
class Neurons:
    """relu(<w_l, x> + b_l) with |w_l| = 1: a positive factor belongs to the output weights."""

    directions: Float[np.ndarray, "neurons coordinates"]
    biases: Float[np.ndarray, " neurons"]

    def __call__(self, samples: Samples) -> Float[np.ndarray, "samples neurons"]:
        """Values at the samples, times the roots of the weights."""
        values = samples.coordinates @ self.directions.T
        values += self.biases
        np.maximum(values, 0, out=values)
        values *= samples.roots[:, None]
        return values

    def replace(self, neuron: int, direction: Float[np.ndarray, " coordinates"], bias: float) -> "Neurons":
        """The same neurons but for one."""
        directions, biases = self.directions.copy(), self.biases.copy()
        directions[neuron], biases[neuron] = direction, bias
        return Neurons(directions, biases)


@dc.dataclass(frozen=True, eq=False)
class OutputFit:
    """The best output weights for given neurons, and what the exchange formula needs.

    `removal` has a row R^-1_l / sqrt(P_ll) for every neuron l, where P = R^-1 R^-T: with a candidate psi,
    u = removal Q^T psi is its component along what neuron l alone adds. `share` has the rows g_l / sqrt(P_ll):
    |share_l|^2 is what the loss grows by without neuron l.
    """

    weights: Float[np.ndarray, "functions coefficients"]
    residual: Float[np.ndarray, "samples coefficients"]
    loss: float
    is_dead: Bool[np.ndarray, " neurons"]
    # for the exchange formula
    basis: Float[np.ndarray, "samples functions"]
    removal: Float[np.ndarray, "neurons functions"]
    share: Float[np.ndarray, "neurons coefficients"]
    ridge: float


def fit_output(samples: Samples, neurons: Neurons, *, ridge: float) -> OutputFit:
    """Least squares for the output layer, columns scaled to length one, by QR of the augmented matrix."""
    Phi = np.hstack([samples.roots[:, None], neurons(samples)])
    lengths = np.linalg.norm(Phi, axis=0)
    scales = np.where(lengths > 0, lengths, 1.0)
    Phi /= scales
    augmented = np.vstack([Phi, np.sqrt(ridge) * np.eye(Phi.shape[1])])
    Q, inverse = _orthogonal(augmented, len(Phi))
    G = inverse @ (Q.T @ samples.targets)
    residual = samples.targets - Phi @ G
    roots = np.linalg.norm(inverse[1:], axis=1, keepdims=True)  # sqrt(P_ll)
    return OutputFit(
        weights=G / scales[:, None],
        residual=residual,
        loss=float(np.sum(residual**2)),
        is_dead=lengths[1:] == 0,
        basis=Q,
        removal=inverse[1:] / roots,
        share=G[1:] / roots,
        ridge=ridge,
    )


def _orthogonal(augmented: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of Q, and R^-1."""
    factors: Any = scipy.linalg.qr(augmented, mode="economic", overwrite_a=True, check_finite=False)
    Q, R = factors
    return Q[:rows], scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False)


@dc.dataclass(frozen=True, eq=False)
class Products:
    """What a gain needs of candidate columns psi: psi^T Q, psi^T residual, |psi|^2; one row a candidate."""

    projections: Float[np.ndarray, "candidates functions"]
    correlations: Float[np.ndarray, "candidates coefficients"]
    squares: Float[np.ndarray, " candidates"]

    def take(self, rows: Int[np.ndarray, " some"]) -> "Products":
        """Those of some candidates."""
        return Products(self.projections[rows], self.correlations[rows], self.squares[rows])


def products(fit: OutputFit, columns: Float[np.ndarray, "samples candidates"]) -> Products:
    """The products of candidate columns, one by one."""
    return Products(columns.T @ fit.basis, columns.T @ fit.residual, np.sum(columns**2, axis=0))


def gain_bounds(fit: OutputFit, candidates: Products) -> Float[np.ndarray, " candidates"]:
    """What every candidate would gain as one more neuron: no exchange gains more (Cauchy-Schwarz)."""
    squares, Qpsi, c = candidates.squares, candidates.projections, candidates.correlations
    d = (1 + fit.ridge) * squares - np.einsum("jk,jk->j", Qpsi, Qpsi)
    bounds = np.einsum("jk,jk->j", c, c) / np.maximum(d, np.finfo(float).tiny)
    return np.where(squares > 0, bounds, -np.inf)


def exchange_gains(
    fit: OutputFit, candidates: Products, neurons: Int[np.ndarray, " neurons"]
) -> Float[np.ndarray, "candidates neurons"]:
    """How much |residual|^2 + rho |G|^2 falls when a neuron gives way to a candidate and G is solved for again.

    With psi of length one, c = residual^T psi, d = 1 + rho - |Q^T psi|^2, u and h = share as in `OutputFit`:
    gain = |c + u h_l|^2 / (d + u^2) - |h_l|^2 = (|c|^2 + 2 u c.h_l - d |h_l|^2) / (d + u^2).
    Exact; for small rho the gain of the loss itself. -inf where rounding decides.
    """
    lengths = np.sqrt(np.where(candidates.squares > 0, candidates.squares, 1.0))[:, None]
    Qpsi, c = candidates.projections / lengths, candidates.correlations / lengths
    removal, h = fit.removal[neurons], fit.share[neurons]
    d = 1 + fit.ridge - np.einsum("jk,jk->j", Qpsi, Qpsi)
    u = Qpsi @ removal.T
    gains = c @ (2 * h).T
    gains *= u
    gains += np.einsum("jk,jk->j", c, c)[:, None]
    gains -= d[:, None] * np.einsum("lk,lk->l", h, h)
    np.square(u, out=u)
    u += d[:, None]
    np.maximum(u, _INDEPENDENT, out=u)
    gains /= u
    gains[u == _INDEPENDENT] = -np.inf
    gains[candidates.squares <= 0] = -np.inf
    return gains


def random_neurons(samples: Samples, width: int, *, rng: np.random.Generator) -> Neurons:
    """Random directions; breakpoints spread evenly over the data along them.

    With zero biases all breakpoints of a one-dimensional input would coincide.
    """
    count, coordinates = samples.coordinates.shape
    check_network((coordinates, width, 1), count, is_last_solved=True)
    directions = _unit(rng.normal(size=(width, coordinates)))
    t = np.sort(samples.coordinates @ directions.T, axis=0)
    places = (rng.permutation(width) + rng.random(width)) / width * (count - 1)
    below = places.astype(int)
    low, high = t[below, np.arange(width)], t[below + 1, np.arange(width)]
    return Neurons(directions, -(low + (places - below) * (high - low)))


def pair_directions(
    samples: Samples, count: int, *, rng: np.random.Generator
) -> Float[np.ndarray, "directions coordinates"]:
    """(x_i - x_j) / |x_i - x_j| for random pairs of samples; pairs that coincide are left out."""
    i, j = rng.integers(len(samples.roots), size=(2, count))
    differences = samples.coordinates[i] - samples.coordinates[j]
    return _unit(differences[np.any(differences != 0, axis=1)])


def local_fits(
    samples: Samples, neurons: Neurons, fit: OutputFit, sources: Int[np.ndarray, " sources"]
) -> Neurons:
    """Some neurons moved towards their local least-squares fits, the fits themselves first.

    With the active samples D and the output weights g of a neuron frozen, the residual is best reduced by
    (w*, b*) = argmin sum_{k in D} |<w - w*, x_k> + b - b* + <residual_k, g> / |g|^2|^2.
    """
    corrections = np.array([_correction(samples, neurons, fit, int(source)) for source in sources])
    starts = np.column_stack([neurons.directions, neurons.biases])[sources]
    moved = (starts + _STEPS[:, None, None] * corrections).reshape(-1, starts.shape[1])
    lengths = np.linalg.norm(moved[:, :-1], axis=1, keepdims=True)
    moved = (moved / np.where(lengths > 0, lengths, 1.0))[lengths[:, 0] > 0]
    return Neurons(moved[:, :-1], moved[:, -1])


def _correction(
    samples: Samples, neurons: Neurons, fit: OutputFit, neuron: int
) -> Float[np.ndarray, " coordinates_and_bias"]:
    """(w*, b*) - (w, b); zero for a neuron without effect."""
    g = fit.weights[1 + neuron]
    active = np.flatnonzero(samples.coordinates @ neurons.directions[neuron] + neurons.biases[neuron] > 0)
    if not g.any() or not len(active):
        return np.zeros(samples.coordinates.shape[1] + 1)
    X = np.column_stack([samples.coordinates[active], np.ones(len(active))]) * samples.roots[active, None]
    gram = X.T @ X
    # Few active samples leave the fit open; this takes a small correction.
    gram[np.diag_indices_from(gram)] += 1e-12 * np.trace(gram) + np.finfo(float).tiny
    return np.linalg.solve(gram, X.T @ (fit.residual[active] @ g) / (g @ g))


def _unit(vectors: Float[np.ndarray, "count coordinates"]) -> Float[np.ndarray, "count coordinates"]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@dc.dataclass(frozen=True, eq=False)
class Exchange:
    """Neuron `neuron` becomes relu(<direction, x> + bias); the loss should fall by `gain`."""

    gain: float
    neuron: int
    direction: Float[np.ndarray, " coordinates"]
    bias: float


@dc.dataclass(frozen=True, eq=False)
class Scores:
    """Finds good exchanges for neurons whose output layer is fitted.

    `positions` limits the breakpoints tried along a direction.
    """

    samples: Samples
    fit: OutputFit
    positions: int

    @property
    def replaceable(self) -> Int[np.ndarray, " replaceable"]:
        """The neurons that may go: the dead ones, or all if none is dead."""
        is_dead = self.fit.is_dead
        return np.flatnonzero(is_dead if is_dead.any() else ~is_dead)

    def best(
        self,
        candidates: Neurons,
        directions: Float[np.ndarray, "directions coordinates"],
        count: int,
        *,
        floor: float,
        rng: np.random.Generator,
    ) -> list[Exchange]:
        """The `count` best exchanges that gain more than `floor`, one of the candidates and one a direction."""
        first = self._best_of(candidates, self.replaceable, floor)
        found = [] if first is None else [first]
        for direction in directions:
            # A direction that cannot be among the best is dropped early.
            least = found[-1].gain if len(found) == count else floor
            exchange = self._best_along(direction, least, rng)
            if exchange is not None:
                found = sorted([*found, exchange], key=lambda e: -e.gain)[:count]
        return found

    def refine(self, exchange: Exchange) -> Exchange:
        """Move the breakpoint of an exchange to the best place between its neighbours."""
        t = np.sort(self.samples.coordinates @ exchange.direction)
        k = int(np.searchsorted(t, -exchange.bias))
        low, high = t[max(k - 2, 0)], t[min(k + 2, len(t) - 1)]
        directions = np.repeat(exchange.direction[None], _GRID, axis=0)
        for _ in range(2):
            grid = Neurons(directions, -np.linspace(low, high, _GRID))
            exchange = self._best_of(grid, np.array([exchange.neuron]), exchange.gain) or exchange
            width = (high - low) / (_GRID - 1)
            low, high = -exchange.bias - width, -exchange.bias + width
        return exchange

    def _best_of(
        self, candidates: Neurons, replaceable: Int[np.ndarray, " some"], floor: float
    ) -> Exchange | None:
        gain, best, neuron = _best_pair(self.fit, products(self.fit, candidates(self.samples)), replaceable, floor)
        if not gain > floor:
            return None
        return Exchange(gain, neuron, candidates.directions[best], float(candidates.biases[best]))

    def _best_along(
        self, direction: Float[np.ndarray, " coordinates"], floor: float, rng: np.random.Generator
    ) -> Exchange | None:
        """The best breakpoint along a direction: on the samples' projections, and between neighbours."""
        t = self.samples.coordinates @ direction
        order = np.argsort(t)
        t = t[order]
        first = _first_active(len(t), self.positions, rng)
        low, high = t[first - 1], t[first]
        taus = np.stack([low, low + rng.uniform(0.1, 0.9, len(low)) * (high - low)])
        candidates = self._shift_products(self._stack[order], t, first, taus)
        gain, best, neuron = _best_pair(self.fit, candidates, self.replaceable, floor)
        return Exchange(gain, neuron, direction, -float(taus.ravel()[best])) if gain > floor else None

    @ft.cached_property
    def _stack(self) -> Float[np.ndarray, "samples columns"]:
        """What a candidate is multiplied with: Q, the residual, and last the weights, for its length."""
        roots = self.samples.roots[:, None]
        return np.hstack([self.fit.basis * roots, self.fit.residual * roots, roots**2])

    def _shift_products(
        self,
        stack: Float[np.ndarray, "samples columns"],
        t: Float[np.ndarray, " samples"],
        first: Int[np.ndarray, " positions"],
        taus: Float[np.ndarray, "kinds positions"],
    ) -> Products:
        """Products of relu(t - tau), with rows sorted by t and the samples from position `first` on active.

        While tau moves between neighbouring samples the same ones stay active, and every product is
        <v, relu(t - tau)> = sum v t - tau sum v over them: all activation patterns cost two cumulated sums.
        """
        weighted = stack * t[:, None]
        s0, s1 = _tail_sums(stack, first), _tail_sums(weighted, first)
        s2 = _tail_sums(weighted[:, -1:] * t[:, None], first)[:, 0]
        values = s1 - taus[..., None] * s0
        squares = s2 - taus * (s1[:, -1] + values[..., -1])  # sum w (t - tau)^2
        # A small difference of large sums says nothing.
        squares[squares < 1e-11 * (s2 + taus**2 * s0[:, -1])] = 0.0
        values = values.reshape(-1, values.shape[-1])
        functions = self.fit.basis.shape[1]
        return Products(values[:, :functions], values[:, functions:-1], squares.ravel())


def _best_pair(
    fit: OutputFit, candidates: Products, replaceable: Int[np.ndarray, " some"], floor: float
) -> tuple[float, int, int]:
    """Gain, candidate and neuron of the best pair, if it gains more than `floor`.

    Candidates come by falling bounds, so that most are never paired with anything.
    """
    bounds = gain_bounds(fit, candidates)
    order = np.argsort(-bounds)
    best = (floor, -1, -1)
    for start in range(0, len(order), _BLOCK):
        block = order[start : start + _BLOCK]
        if not bounds[block[0]] > best[0]:
            break
        gains = exchange_gains(fit, candidates.take(block), replaceable)
        j, gone = np.unravel_index(np.argmax(gains), gains.shape)
        if gains[j, gone] > best[0]:
            best = (float(gains[j, gone]), int(block[j]), int(replaceable[gone]))
    return best


def _first_active(count: int, positions: int, rng: np.random.Generator) -> Int[np.ndarray, " positions"]:
    """Which sorted sample is the first active one: all in turn, or as many as allowed, evenly spread."""
    if count - 1 <= positions:
        return np.arange(1, count)
    return 1 + ((np.arange(positions) + rng.random()) * ((count - 1) / positions)).astype(int)


def _tail_sums(
    values: Float[np.ndarray, "samples columns"], first: Int[np.ndarray, " positions"]
) -> Float[np.ndarray, "positions columns"]:
    """Sums of the rows from each position to the end."""
    is_every = len(first) == len(values) - 1
    blocks = values[1:] if is_every else np.add.reduceat(values, first, axis=0)
    return np.cumsum(blocks[::-1], axis=0)[::-1]
