"""`trunkfirst sweep`."""

from pathlib import Path

from ..errors import FailedRunsError, UsageError
from ..files import read_toml
from ..report import write_sweep
from ..runs import Sweep, make_grid, setting_text, sweep
from ._console import TerminalReporter, number, print_json, print_table, say
from ._settings import default_folder


def sweep_command(
    config: Path, *, workers: int | None, scheduler: str | None, out: Path | None, json: bool, quiet: bool
) -> int:
    """Carry out all combinations of a section [sweep]."""
    if not config.is_file():
        raise UsageError(f"there is no configuration file {config}")
    grid = make_grid(read_toml(config))
    folder = out or default_folder(f"{config.stem}-sweep")
    with TerminalReporter(quiet=quiet or json) as reporter:
        reporter.say(f"{len(grid.configs)} runs in {folder}")
        found = sweep(
            grid, folder, workers=workers, scheduler=scheduler, on_run=reporter.on_run, reporter=reporter
        )
    return show_sweep(found, json=json, quiet=quiet)


def show_sweep(found: Sweep, *, json: bool, quiet: bool) -> int:
    """Write the page of a sweep and print its table; the exit code says whether runs failed."""
    page = write_sweep(found.folder)
    if json:
        print_json(found.summary())
    else:
        _print(found, quiet)
        say(f"report: {page}", quiet=quiet)
    return FailedRunsError.exit_code if found.failures else 0


def _print(found: Sweep, quiet: bool) -> None:
    columns = [*found.keys, "validation", "test", "trunk loss", "seconds", "status"]
    rows = [
        [
            *(setting_text(value) for value in row.settings.values()),
            number(row.validation),
            number(row.test),
            number(row.trunk_loss),
            "-" if row.seconds is None else f"{row.seconds:.0f}",
            row.status,
        ]
        for row in found.rows
    ]
    print_table(f"{len(rows)} runs, the best on validation samples first", columns, rows, quiet=quiet)
    for sentence in found.explain_failures():
        say(sentence, quiet=quiet)
