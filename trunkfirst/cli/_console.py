"""What the user sees: progress with remaining time on a terminal, plain lines elsewhere, results at the end.

Results go to standard output, everything else to standard error.
"""

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..errors import Terminated, TrunkfirstError

if TYPE_CHECKING:
    from ..minimisers import Step
    from ..runs import Progress as RunProgress

_SECONDS_BETWEEN_LINES = 10.0


class InterruptedRunError(TrunkfirstError):
    """Ctrl-C or SIGTERM, with what the library has to say about it: Typer would drop that."""

    def __init__(self, error: KeyboardInterrupt):
        super().__init__("; ".join(["interrupted", *getattr(error, "__notes__", [])]))
        self.exit_code = 143 if isinstance(error, Terminated) else 130


class TerminalReporter:
    """Shows a run as it goes; a context manager, because a progress bar must be taken down."""

    def __init__(self, *, quiet: bool = False):
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description:<11}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._tasks: dict[str, Any] = {}
        self._first: dict[str, Step] = {}
        self._last_line = 0.0

    def __enter__(self) -> "TerminalReporter":
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._console.is_terminal:
            self._progress.stop()
        if isinstance(error, KeyboardInterrupt):
            raise InterruptedRunError(error) from error

    def say(self, text: str) -> None:
        """A sentence; the bars below it start anew."""
        for task in self._tasks.values():
            self._progress.stop_task(task)
        self._tasks.clear()
        self._console.print(text)

    def on_samples(self, done: int, total: int) -> None:
        """Progress of solving samples."""
        self._show("data", done, total, f"{done:,} of {total:,} samples", None)

    def on_step(self, step: "Step") -> None:
        """Progress of training."""
        note = f"loss {step.best_loss:.2e}  rate {step.rate:.1e}"
        first = self._first.get(step.stage, step)
        if step.seconds <= first.seconds:  # a stage that begins, or begins again
            self._first[step.stage] = first = step
        self._show(step.stage, step.iteration, step.iterations, note, step.remaining_seconds(first))

    def on_run(self, progress: "RunProgress") -> None:
        """A run of a sweep is done."""
        row = progress.row
        told = f"validation {number(row.validation)}, test {number(row.test)}" if row.is_sound else row.reason
        left = f"  about {progress.remaining_seconds:.0f} s left" if progress.done < progress.total else ""
        count = f"{progress.done}/{progress.total}"
        self._console.print(f"{count}  {row.name}: {told}{left}", soft_wrap=True, markup=False)
        if self._console.is_terminal:
            self._show("runs", progress.done, progress.total, count, progress.remaining_seconds)

    def _show(self, name: str, done: int, total: int, note: str, remaining: float | None) -> None:
        if self._console.is_terminal:
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, total=total, note=note)
            self._progress.update(self._tasks[name], completed=done, note=note)
            return
        now = time.monotonic()
        if done == total or now - self._last_line > _SECONDS_BETWEEN_LINES:
            self._last_line = now
            left = "" if remaining is None or math.isnan(remaining) else f"  {remaining:.0f} s left"
            self._console.print(f"{name} {done:,}/{total:,}  {note}{left}", soft_wrap=True)


def print_json(value: object) -> None:
    """One object on standard output, nothing else."""
    from ..files import to_json

    print(to_json(value))  # noqa: T201


def print_table(title: str, columns: list[str], rows: list[list[str]], *, quiet: bool = False) -> None:
    """A table on standard output."""
    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    # Where there is no terminal there is no width to respect: rather long lines than cut numbers.
    width = None if sys.stdout.isatty() else 160
    Console(quiet=quiet, highlight=False, width=width).print(table)


def say(text: str, *, quiet: bool = False) -> None:
    """A line on standard output."""
    Console(quiet=quiet, highlight=False, soft_wrap=True).print(text, markup=False)


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.2e}"
