"""How many fixed functions the outputs need, judged on samples that did not make them."""

import dataclasses as dc

import numpy as np

from .array_checks import evenly
from .operator_data import OperatorData

# Samples and points that are looked at.
_MOST_SAMPLES, _MOST_POINTS = 400, 2000
_FEWEST_SAMPLES = 40
_WANTED = 0.01
# Features move where four times as many functions leave these shares of the error, and more than the error wanted.
# The errors of smooth outputs fall much faster, and those of noise hardly at all.
_FEW, _MANY, _SHARES = 8, 32, (0.3, 0.85)


@dc.dataclass(frozen=True)
class FixedFunctions:
    """The relative error that the best N fixed functions leave, and the N that they need for 1 %."""

    few: float
    many: float
    needed: int | None
    """None where no number of functions made of the samples is enough."""

    @property
    def features_move(self) -> bool:
        """Whether errors fall like a low power of N, as where shocks, fronts or waves move."""
        low, high = _SHARES
        return self.many > _WANTED and low * self.few < self.many < high * self.few

    def in_words(self) -> str:
        """The sentence of `data check`."""
        need = (
            "no number of fixed functions made of these samples reaches"
            if self.needed is None
            else (f"fixed functions need N = {self.needed:,} for")
        )
        return f"features move, or are rough: {need} 1 %"


def fixed_functions(data: OperatorData) -> FixedFunctions | None:
    """Errors of modes of every second sample on the others; None for too few samples or points."""
    samples = evenly(data.samples, _MOST_SAMPLES)
    points = evenly(len(data.points), _MOST_POINTS)
    if len(samples) < _FEWEST_SAMPLES or len(points) < 3 * _MANY:
        return None
    outputs = data.outputs[samples][:, points].reshape(len(samples), len(points), -1)
    found = [_errors(outputs[..., channel]) for channel in range(outputs.shape[2])]
    errors = np.max([each for each in found if each is not None], axis=0, initial=0.0)
    if errors.ndim == 0 or len(errors) <= _MANY:
        return None
    needed = np.flatnonzero(errors <= _WANTED)
    return FixedFunctions(float(errors[_FEW]), float(errors[_MANY]), int(needed[0]) if len(needed) else None)


def _errors(outputs: np.ndarray) -> np.ndarray | None:
    """Relative errors, root mean square over the unseen samples, of 0, 1, 2, ... modes."""
    size = np.abs(outputs).max()
    if size == 0:
        return None
    train, unseen = outputs[::2] / size, outputs[1::2] / size
    modes = np.linalg.svd(train, full_matrices=False)[2]
    total = np.sum(unseen**2)
    left = total - np.concatenate([[0.0], np.cumsum(np.sum((unseen @ modes.T) ** 2, axis=0))])
    return np.sqrt(np.maximum(left, 0.0) / total) if total > 0 else None
