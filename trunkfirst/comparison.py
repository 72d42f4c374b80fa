"""Errors of candidates, sample by sample, and what follows from them: the best one, and its honest error."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

# What is trained by iterations has to be this much better than a closed form.
_WORTH_TRAINING = 0.97

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
    """

    def __init__(
        self, parts: Sequence[np.ndarray], samples: int, *, measured: bool, tolerance: float = 1.0
    ) -> None:
        self._parts, self._measured, self._tolerance = parts, measured, tolerance
        self.errors: dict[str, Errors] = {}
        self.left_out = np.sort(np.concatenate(parts))
        self.first, self._second = _halves(parts[0], samples, measured)

    def mean(self, name: str, rows: Mask | None = None) -> float:
        """The mean error of a candidate on the rows that choose."""
        errors = self.errors[name]
        if rows is None:
            rows = ~np.isnan(errors) if self.is_complete(name) else self.first
        return float(np.mean(errors[rows]))

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
        is_better = self.mean(trained, self.first) < _WORTH_TRAINING * self.mean(closed, self.first)
        return trained if is_better else closed

    def least(self, names: Sequence[str], rows: Mask | None = None) -> str:
        """The first name whose error is nearly the least; the first of all if none is finite."""
        errors = {name: self.mean(name, rows) for name in names}
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


def _halves(part: np.ndarray, samples: int, measured: bool) -> tuple[Mask, Mask]:
    """Samples of the first part that choose among trained candidates, and those that measure the winner."""
    first, second = np.zeros((2, samples), bool)
    rows = np.random.default_rng(0).permutation(part)
    middle = (len(rows) + 1) // 2 if measured else len(rows)
    first[rows[:middle]] = True
    second[rows[middle:]] = True
    return (first, second) if second.any() else (first, first)
