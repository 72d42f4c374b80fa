"""What a fit reports while it works; whoever listens decides what to print."""

import contextlib
import sys
from collections.abc import Generator
from typing import Protocol

from .minimisers import Step


class Reporter(Protocol):
    """Listens to a fit."""

    def say(self, text: str) -> None:
        """A sentence about what happens now."""

    def on_samples(self, done: int, total: int) -> None:
        """This many samples have been solved."""

    def on_step(self, step: Step) -> None:
        """A line of the training log."""


class Silent:
    """Reports nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def on_samples(self, done: int, total: int) -> None:
        """Nothing."""

    def on_step(self, step: Step) -> None:
        """Nothing."""


@contextlib.contextmanager
def as_reporter(progress: "bool | Reporter | None") -> Generator[Reporter]:
    """The reporter asked for: an object as it is, True or on a terminal progress lines, else silence."""
    if progress is not None and not isinstance(progress, bool):
        yield progress
    elif progress or (progress is None and sys.stderr.isatty()):
        with TerminalReporter() as reporter:
            yield reporter
    else:
        yield Silent()
