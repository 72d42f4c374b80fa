"""What the server has done so far, in Prometheus' text format."""

import itertools
from collections import Counter
from typing import Any

import jax

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts since the start. Changed from one thread, except for the compilations."""

    def __init__(self):
        self.requests: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.points = 0
        """Samples times points that were predicted."""
        self.compilations = 0
        """By JAX, in this process; the server itself needs none."""
        self._seconds, self._slower_than = 0.0, [0] * (len(_BOUNDS) + 1)
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def count(self, path: str, status: int, seconds: float) -> None:
        """One more answer. The seconds are those of predictions alone."""
        self.requests[path, status] += 1
        if path == "/predict":
            self._seconds += seconds
            self._slower_than[sum(seconds > bound for bound in _BOUNDS)] += 1

    def text(self) -> str:
        """All of it."""
        totals = list(itertools.accumulate(self._slower_than))
        buckets = [f'{{le="{bound}"}} {n}' for bound, n in zip((*_BOUNDS, "+Inf"), totals, strict=True)]
        requests = [f'{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self.requests.items())]
        return "\n".join(
            [
                *_block("requests_total", "counter", "Answers by path and status.", requests),
                *_block("points_predicted_total", "counter", "Samples times points.", [f" {self.points}"]),
                *_block("compilations_total", "counter", "Compilations by JAX.", [f" {self.compilations}"]),
                *_block("predict_seconds", "histogram", "Seconds from request to answer.", buckets, "_bucket"),
                f"trunkfirst_predict_seconds_sum {self._seconds:.6f}",
                f"trunkfirst_predict_seconds_count {totals[-1]}",
                "",
            ]
        )

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        del duration_secs
        self.compilations += event.endswith("backend_compile_duration")


def _block(name: str, kind: str, words: str, values: list[str], suffix: str = "") -> list[str]:
    name = f"trunkfirst_{name}"
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *(f"{name}{suffix}{value}" for value in values)]
