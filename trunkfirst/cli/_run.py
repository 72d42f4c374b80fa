"""`trunkfirst run`."""

from pathlib import Path
from typing import Any

from ..distributed.processes import is_leader, join_processes
from ..report import write_report
from ..runs import Outcome, run
from ._console import TerminalReporter, number, print_json, print_table, say
from ._settings import default_folder, prepare_on_cluster, resolve


def run_command(
    target: str, *, scheduler: str | None, out: Path | None, json: bool, quiet: bool, **options: Any
) -> int:
    """Carry out one configuration."""
    join_processes()
    quiet = quiet or not is_leader()
    (config,) = resolve(target, **options)
    folder = out or default_folder(f"{config.name}-{config.method}-seed{config.seed}")
    with TerminalReporter(quiet=quiet or json) as reporter:
        prepare_on_cluster(config, scheduler, reporter)
        outcome = run(config, folder, reporter=reporter)
    return show_outcome(outcome, json=json, quiet=quiet)


def show_outcome(outcome: Outcome, *, json: bool, quiet: bool) -> int:
    """Write the report of a run and print its numbers."""
    if not is_leader():
        return 0
    page = write_report(outcome.folder)
    if json:
        print_json(outcome.metrics)
    else:
        columns, row = metrics_row(outcome.metrics)
        print_table(outcome.config.name, columns, [row], quiet=quiet)
        say(f"report: {page}", quiet=quiet)
    return 0


def metrics_row(metrics: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The numbers people ask for first."""
    test = metrics["test"] or {}
    branch = metrics["branch"] or {}
    columns = [
        "method",
        "seed",
        "loss",
        "branch loss",
        "rank",
        "test mean",
        "median",
        "max",
        "optimal",
        "seconds",
    ]
    row = [
        metrics["method"] if metrics["status"] == "finished" else f"{metrics['method']} ({metrics['status']})",
        str(metrics["seed"]),
        number(metrics["trunk"]["loss"]),
        number(branch.get("loss")),
        str(metrics["trunk"]["rank"]),
        number(test.get("mean_relative_l2")),
        number(test.get("median_relative_l2")),
        number(test.get("max_relative_l2")),
        number(test.get("optimal_mean_relative_l2")),
        f"{metrics['trunk']['seconds'] + branch.get('seconds', 0):.0f}",
    ]
    return columns, row
