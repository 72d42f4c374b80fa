"""What a run tells while it works. Printing is the business of whoever listens."""

from typing import Protocol

from ..minimisers import Step


class Reporter(Protocol):
    """Listens to a run."""

    def say(self, text: str) -> None:
        """A sentence about what happens now."""

    def on_samples(self, done: int, total: int) -> None:
        """So many samples have been solved."""

    def on_step(self, step: Step) -> None:
        """A line of the training log."""


class Silent:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def on_samples(self, done: int, total: int) -> None:
        """Nothing."""

    def on_step(self, step: Step) -> None:
        """Nothing."""
