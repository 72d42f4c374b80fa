"""The best exchanges: among given candidates, and among all breakpoints along given directions."""

import dataclasses as dc
import functools as ft

import numpy as np
from jaxtyping import Float, Int

from ._exchange import Neurons, OutputFit, Products, Samples, exchange_gains, gain_bounds, products

# Candidates scored at once against every neuron.
_BLOCK = 128
# Breakpoints tried at once when an exchange is refined.
_GRID = 33


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

    `replaceable` are the neurons that may go; `positions` limits the breakpoints tried along a direction.
    """

    samples: Samples
    fit: OutputFit
    replaceable: Int[np.ndarray, " replaceable"]
    positions: int

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
            # A direction that cannot come in among the best is hardly looked at.
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
