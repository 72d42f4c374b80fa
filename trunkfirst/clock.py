"""The time allowed for a fit, asked between units of work."""

import math
import time
from collections.abc import Callable

import numpy as np

from .checkpoints import remember
from .distributed.processes import broadcast_value


class Clock:
    """Says whether another unit of work may begin.

    What it said is journalled with the time used so far, so that a resumed fit carries out the same units.

    Args:
        minutes: The time allowed; None for any.
        start: When it began, as `time.perf_counter` counts; now if left out.
    """

    def __init__(self, minutes: float | None = None, *, start: float | None = None) -> None:
        self._seconds = math.inf if minutes is None else 60 * minutes
        self._start = time.perf_counter() if start is None else start
        self._kept = 0.0

    @property
    def minutes(self) -> float | None:
        """The time allowed; None for any."""
        return None if math.isinf(self._seconds) else self._seconds / 60

    @property
    def used(self) -> float:
        """Seconds since the beginning, those before an interruption included."""
        return time.perf_counter() - self._start

    @property
    def left(self) -> float:
        """Seconds left for other units than the last one, negative when they are over."""
        return self._seconds - self.used - self._kept

    def keep(self, seconds: float) -> None:
        """Keep seconds for the last unit of work: the training on all samples, saving it, the report."""
        self._kept = seconds

    def allows(self, unit: str, seconds: float = 0.0) -> bool:
        """Whether a unit of work that takes about `seconds` may begin."""
        return self._asked(f"clock, {unit}", lambda: float(self.left >= seconds)) > 0

    def share(self, unit: str, share: float, *, most: float = math.inf) -> float:
        """Seconds for a unit of work: a share of what is left, at most `most`."""
        return self._asked(f"seconds, {unit}", lambda: min(max(share * self.left, 0.0), most))

    def _asked(self, name: str, answer: Callable[[], float]) -> float:
        found = remember(
            name, lambda: {"answer": np.array([broadcast_value(answer())]), "used": np.array([self.used])}
        )
        # After an interruption the time before it counts too.
        self._start = min(self._start, time.perf_counter() - float(found["used"][0]))
        return float(found["answer"][0])
