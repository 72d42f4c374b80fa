"""Encoded inputs, targets and weights of more samples than memory holds: in files, read in blocks."""

import dataclasses as dc
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..networks import Branch
from ._numbers import generator, mean_square

# Samples of a block; samples, and numbers of theirs, that a regressor gets at once.
_BLOCK = 2**14
_MOST_ROWS, _MOST_NUMBERS = 50_000, 2**24

Block = tuple[Float[Array, "block features"], Float[Array, "block coefficients"], Float[Array, " block"]]


@dc.dataclass(frozen=True)
class StoredRows:
    """Three .npy files with a row for each of the `samples`; the weights have the mean 1."""

    inputs: Path
    targets: Path
    weights: Path
    samples: int

    def blocks(self) -> Iterator[Block]:
        """All samples in their order. Files are opened anew for each block, so that no more stays in memory."""
        for begin in range(0, self.samples, _BLOCK):
            yield self._rows(slice(begin, begin + _BLOCK))

    def some(self, key: PRNGKeyArray) -> Block:
        """Random ones that fit into memory; all, in their order, if they do."""
        columns = sum(np.load(path, mmap_mode="r").shape[1] for path in (self.inputs, self.targets))
        most = min(_MOST_ROWS, max(_MOST_NUMBERS // columns, 1))
        if self.samples <= most:
            return self._rows(slice(None))
        return self._rows(np.sort(generator(key).choice(self.samples, most, replace=False)))

    def loss(self, branch: Branch) -> float:
        """The mean square of the errors over samples and coefficients, without weights."""
        sums = [float(mean_square(branch(X) - Y)) * len(X) for X, Y, _ in self.blocks()]
        return float(np.sum(sums)) / self.samples

    def _rows(self, rows: slice | Int[np.ndarray, " chosen"]) -> Block:
        paths = (self.inputs, self.targets, self.weights)
        X, Y, w = (jnp.asarray(np.array(np.load(path, mmap_mode="r")[rows])) for path in paths)
        return X, Y, w
