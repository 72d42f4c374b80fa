"""Compares candidates by the errors of samples that were left out: which is best, and what measures the choice."""

import dataclasses as dc
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from .data.scattered_data import AnyData, mean_squares, output_units, unscaled_weights

# What is trained by iterations has to be this much better than a closed form, by this many standard errors.
_WORTH_TRAINING, _SURE = 0.97, 1.5

Errors = Float[np.ndarray, " samples"]
Mask = Bool[np.ndarray, " samples"]


class Comparison:
    """Compares candidates by name.

    A candidate is complete if every sample of all parts was left out once. What is trained by iterations is not:
    it was measured on the first part alone. One half of that part chooses among such candidates, the other
    measures; if there was nothing to choose, all of it.

    Args:
        parts: Rows that were left out, one array for each fold.
        samples: The number of samples.
        measured: Whether an error will be reported, so that some samples must not choose.
        tolerance: The first candidate whose error is within this factor of the least is the best.
        smallness: How many times smaller than usual every field is; all are of the usual size if left out.
    """

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        samples: int,
        *,
        measured: bool,
        tolerance: float = 1.0,
        smallness: Errors | None = None,
    ) -> None:
        self._parts, self._measured, self._tolerance = parts, measured, tolerance
        self._smallness = np.ones(samples) if smallness is None else smallness
        self.errors: dict[str, Errors] = {}
        self.left_out = np.sort(np.concatenate(parts))
        self.first, self._second = _halves(parts[0], samples, measured)

    def mean(self, name: str, rows: Mask | None = None) -> float:
        """The mean error of a candidate on the rows that choose."""
        return float(np.mean(self.errors[name][self._choosing(name) if rows is None else rows]))

    def score(self, name: str, rows: Mask | None = None) -> float:
        """What decides: the mean error on these rows, in which a small field has no more than its share."""
        return float(np.mean(self._scores(name, self._choosing(name) if rows is None else rows)))

    def _scores(self, name: str, rows: Mask) -> Float[np.ndarray, " rows"]:
        return with_shares(self.errors[name][rows], self._smallness[rows])

    def _choosing(self, name: str) -> Mask:
        return ~np.isnan(self.errors[name]) if self.is_complete(name) else self.first

    def is_complete(self, name: str) -> bool:
        """Whether there are several parts, and every sample of theirs was left out."""
        was_left_out = ~np.isnan(self.errors[name][self.left_out])
        return not self._measured or (len(self._parts) > 1 and bool(was_left_out.all()))

    def best(self, names: Sequence[str]) -> str:
        """The best complete candidate, or another one that is clearly better on the first half."""
        complete = [name for name in names if self.is_complete(name)]
        others = [name for name in names if name not in complete]
        if not others:
            return self.least(complete)
        trained = self.least(others, self.first)
        if not complete:
            return trained
        closed = self.least(complete)
        return trained if self._is_clearly_better(trained, closed) else closed

    def _is_clearly_better(self, trained: str, closed: str) -> bool:
        """By more than chance: one sample alone, whose gain is about one standard error, must not decide."""
        if not np.isfinite(self.score(closed, self.first)):
            return True
        gains = self._scores(closed, self.first) - self._scores(trained, self.first)
        is_sure = float(gains.mean()) >= _SURE * float(gains.std()) / np.sqrt(len(gains))
        return is_sure and self.score(trained, self.first) < _WORTH_TRAINING * self.score(closed, self.first)

    def least(self, names: Sequence[str], rows: Mask | None = None) -> str:
        """The first name whose error is nearly the least; the first of all if none is finite."""
        errors = {name: self.score(name, rows) for name in names}
        least = min((error for error in errors.values() if np.isfinite(error)), default=np.inf)
        return next((name for name in names if errors[name] <= self._tolerance * least), names[0])

    def measuring(self, names: Sequence[str]) -> Mask:
        """The samples of the first part that did not choose among `names`."""
        return self._second if len(names) > 1 else self.first | self._second

    def validation_error(self, name: str, names: Sequence[str]) -> float:
        """The error of the choice `name` among `names` on samples that did not choose.

        For complete candidates the samples of every part are predicted by what the other parts would choose.
        """
        if not self.is_complete(name):
            return self.mean(name, self.measuring(names))
        complete = [each for each in names if self.is_complete(each)]
        found = np.empty(len(self.first))
        for rows in self._parts:
            others = np.zeros(len(found), bool)
            others[np.setdiff1d(self.left_out, rows)] = True
            found[rows] = self.errors[self.least(complete, others)][rows]
        return float(found[self.left_out].mean())


def smallness(data: AnyData) -> Errors:
    """How many times smaller than usual the field of every sample is, in the channel where it is smallest."""
    unit = output_units(data)
    plain = data if data.sample_weights is None else dc.replace(data, sample_weights=None)
    weights = unscaled_weights(plain, mean_squares(data, unit), unit)
    assert weights is not None
    return np.sqrt(weights.max(axis=1))


def with_shares(errors: Float[np.ndarray, "samples ..."], smallness: Errors) -> Float[np.ndarray, "samples ..."]:
    """Errors of which none above 1 is only so large because its field is small: one such field would decide."""
    by_usual = errors / smallness.reshape(-1, *[1] * (errors.ndim - 1))
    return np.minimum(errors, np.maximum(by_usual, 1.0))


def _halves(part: np.ndarray, samples: int, measured: bool) -> tuple[Mask, Mask]:
    """Samples of the first part that choose among trained candidates, and those that measure the winner."""
    first, second = np.zeros((2, samples), bool)
    rows = np.random.default_rng(0).permutation(part)
    middle = (len(rows) + 1) // 2 if measured else len(rows)
    first[rows[:middle]] = True
    second[rows[middle:]] = True
    return (first, second) if second.any() else (first, first)
