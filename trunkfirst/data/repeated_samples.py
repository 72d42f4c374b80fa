"""Samples that repeat others: copies, and samples with the same inputs."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from .operator_data import OperatorData
from .scattered_data import AnyData

Rows: TypeAlias = Int[np.ndarray, " rows"]

# With fewer different inputs no error on other inputs can be measured.
FEWEST_INPUTS = 4


def repeated_rows(rows: Float[np.ndarray, "rows columns"]) -> Int[np.ndarray, "repeated 2"]:
    """Return every row that repeats an earlier one, as pairs (index of the first, index of the repetition)."""
    first: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        earlier = first.setdefault(hash((row + 0.0).tobytes()), index)  # -0.0 becomes 0.0
        if earlier != index and np.array_equal(rows[earlier], row, equal_nan=True):
            pairs.append((earlier, index))
    return np.array(pairs, np.int64).reshape(-1, 2)


def copied_samples(data: AnyData) -> Bool[np.ndarray, " samples"]:
    """Whether a sample has the inputs, points and outputs of an earlier one."""
    is_copy = np.zeros(data.samples, bool)
    if len(pairs := repeated_rows(data.flat_inputs)):
        rows = np.unique(pairs)
        parts = (data.outputs,) if isinstance(data, OperatorData) else (data.outputs, data.points)
        first = np.arange(data.samples)
        first[pairs[:, 1]] = pairs[:, 0]
        values = [first[rows, None], *(part[rows].reshape(len(rows), -1) for part in parts)]
        is_copy[rows[repeated_rows(np.concatenate(values, axis=1))[:, 1]]] = True
    return is_copy


def first_with_inputs(data: AnyData) -> Int[np.ndarray, " samples"]:
    """The first sample that has the inputs of each; each itself, if too few of them differ."""
    first = np.arange(data.samples)
    pairs = repeated_rows(data.flat_inputs)
    if data.samples - len(pairs) >= FEWEST_INPUTS:
        first[pairs[:, 1]] = pairs[:, 0]
    return first


def different(data: AnyData, order: Rows) -> Rows:
    """Of samples in this order the first with each inputs."""
    return _different(first_with_inputs(data), order)


def _different(first: Rows, order: Rows) -> Rows:
    return order[np.sort(np.unique(first[order], return_index=True)[1])]


def parts_apart(data: AnyData, order: Rows, split: Callable[[Rows], Sequence[Rows]]) -> list[Rows]:
    """Parts of these samples, of which no two share inputs: `split` makes them of one sample for each inputs.

    The error on samples left out would else be that on inputs that were seen in training.
    """
    first, may = first_with_inputs(data), np.zeros(data.samples, bool)
    may[order] = True
    parts = split(_different(first, order))
    return [np.flatnonzero(may & np.isin(first, first[part])) for part in parts]
