"""Encoded inputs, targets and weights of more samples than memory holds: in files, read in blocks."""

import dataclasses as dc
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..distributed.processes import assemble_rows, sum_over_processes
from ..networks import Branch
from ._numbers import generator, mean_square

# Samples of a block; samples, and numbers of theirs, that a regressor gets at once.
_BLOCK = 2**14
_MOST_ROWS, _MOST_NUMBERS = 50_000, 2**24

Block = tuple[Float[Array, "block features"], Float[Array, "block coefficients"], Float[Array, " block"]]


@dc.dataclass(frozen=True, eq=False)
class StoredRows:
    """Three .npy files with a row for each sample, of all or of this process; the weights have the mean 1."""

    inputs: Path
    targets: Path
    weights: Path
    samples: int
    """How many there are in all."""
    places: Int[np.ndarray, " own"]
    """Which of them are in the files, in rising order."""

    def blocks(self) -> Iterator[Block]:
        """The samples in the files. These are opened anew for each block, so that no more stays in memory.

        Without samples it is an empty block.
        """
        for begin in range(0, max(len(self.places), 1), _BLOCK):
            yield self._rows(slice(begin, begin + _BLOCK))

    def some(self, key: PRNGKeyArray) -> Block:
        """Random ones of all processes that fit into memory; all, in their order, if they do."""
        columns = sum(np.load(path, mmap_mode="r").shape[1] for path in (self.inputs, self.targets))
        most = min(_MOST_ROWS, max(_MOST_NUMBERS // columns, 1))
        chosen = np.arange(self.samples)
        if self.samples > most:
            chosen = np.sort(generator(key).choice(self.samples, most, replace=False))
        own = np.flatnonzero(np.isin(chosen, self.places, assume_unique=True))
        rows = self._arrays(np.searchsorted(self.places, chosen[own]))
        X, Y, w = (jnp.asarray(assemble_rows(array, own, len(chosen))) for array in rows)
        return X, Y, w

    def loss(self, branch: Branch) -> float:
        """The mean square of the errors over samples and coefficients, without weights."""
        sums = [float(mean_square(branch(X) - Y)) * len(X) for X, Y, _ in self.blocks()]
        return float(sum_over_processes(np.sum(sums))) / self.samples

    def _rows(self, rows: slice) -> Block:
        X, Y, w = map(jnp.asarray, self._arrays(rows))
        return X, Y, w

    def _arrays(self, rows: slice | Int[np.ndarray, " chosen"]) -> list[np.ndarray]:
        paths = (self.inputs, self.targets, self.weights)
        return [np.array(np.load(path, mmap_mode="r")[rows]) for path in paths]
