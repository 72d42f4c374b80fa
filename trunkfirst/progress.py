"""What a fit reports while it works, and progress bars that show it.

Rich is imported when it is needed, because it would slow down --help.
"""

import contextlib
import math
import sys
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Protocol

from .errors import Terminated, TrunkfirstError

if TYPE_CHECKING:
    from .records import LogEntry

_SECONDS_BETWEEN_LINES = 10.0


class Reporter(Protocol):
    """Listens to a fit; these methods do nothing."""

    def say(self, text: str) -> None:
        """A sentence about what happens now."""

    def on_samples(self, done: int, total: int) -> None:
        """This many samples have been solved."""

    def on_step(self, step: "LogEntry") -> None:
        """A line of the training log."""


class Silent(Reporter):
    """Reports nothing."""


class InterruptedRunError(TrunkfirstError):
    """Ctrl-C or SIGTERM, with the notes that the library added: Typer would drop them."""

    def __init__(self, error: KeyboardInterrupt):
        super().__init__("; ".join(["interrupted", *getattr(error, "__notes__", [])]))
        self.exit_code = 143 if isinstance(error, Terminated) else 130


class TerminalReporter:
    """Shows progress: bars with the remaining time on a terminal, elsewhere a line at least every 10 seconds."""

    def __init__(self, *, quiet: bool = False):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True, quiet=quiet, highlight=False, force_jupyter=False)
        self._progress = Progress(
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._tasks: dict[str, Any] = {}
        self._first: dict[str, LogEntry] = {}
        self._start = self._last_line = time.monotonic()
        self._latest = "starting"
        self._is_closed = threading.Event()

    def __enter__(self) -> "TerminalReporter":
        if self._console.is_terminal:
            self._progress.start()
        elif not self._console.quiet:
            threading.Thread(target=self._keep_printing, daemon=True).start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._is_closed.set()
        if self._console.is_terminal:
            self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedRunError(error) from error

    def say(self, text: str) -> None:
        """Print a sentence; the bars below it start anew."""
        for task in self._tasks.values():
            self._progress.stop_task(task)
        self._tasks.clear()
        self._latest = text.strip()
        self._print_line(text)

    def on_samples(self, done: int, total: int) -> None:
        """Show the progress of solving samples."""
        self._show("data", done, total, f"{done:,} of {total:,} samples", None)

    def on_step(self, step: "LogEntry") -> None:
        """Show the progress of training; a closed form has none."""
        if step.iterations == 1:
            return
        note = f"loss {step.best_loss:.2e}  rate {step.rate:.1e}"
        first = self._first.get(step.stage, step)
        if step.seconds <= first.seconds:  # a stage that starts, or starts again
            self._first[step.stage] = first = step
        self._show(step.stage, step.iteration, step.iterations, note, step.remaining_seconds(first))

    def on_run(self, progress: Any) -> None:
        """Show a finished run of a sweep."""
        row = progress.row
        result = f"validation {_number(row.validation)}, test {_number(row.test)}" if row.is_sound else row.reason
        left = f"  about {progress.remaining_seconds:.0f} s left" if progress.done < progress.total else ""
        count = f"{progress.done}/{progress.total}"
        self._print_line(f"{count}  {row.name}: {result}{left}")
        if self._console.is_terminal:
            self._show("runs", progress.done, progress.total, count, progress.remaining_seconds)

    def _show(self, name: str, done: int, total: int, note: str, remaining: float | None) -> None:
        if self._console.is_terminal:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=total, note=note)
            self._progress.update(self._tasks[name], completed=done, note=note)
            return
        is_known = remaining is not None and not math.isnan(remaining) and done < total
        left = f"  {remaining:.0f} s left" if is_known else ""
        self._latest = f"{name} {done:,}/{total:,}  {note}{left}"
        if done == total or time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
            self._print_line(self._latest)

    def _print_line(self, text: str) -> None:
        self._last_line = time.monotonic()
        # A terminal breaks lines between words; in a file a sentence stays in its line.
        self._console.print(text, soft_wrap=not self._console.is_terminal, markup=False)

    def _keep_printing(self) -> None:
        """Print the latest line again if nothing was printed for a while, e.g. during a compilation."""
        while not self._is_closed.wait(1.0):
            if (now := time.monotonic()) - self._last_line > _SECONDS_BETWEEN_LINES:
                self._print_line(f"{self._latest}  ({now - self._start:.0f} s)")


def _is_interactive() -> bool:
    """On a terminal or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2e}"


@contextlib.contextmanager
def as_reporter(progress: "bool | Reporter | None") -> Generator[Reporter]:
    """The reporter asked for; by default progress lines on a terminal and in notebooks, else silence."""
    if progress is not None and not isinstance(progress, bool):
        yield progress
    elif progress or (progress is None and _is_interactive()):
        with TerminalReporter() as reporter:
            yield reporter
    else:
        yield Silent()
