"""`trunkfirst compare`."""

from pathlib import Path
from typing import Any

from ..data import OperatorData
from ..distributed.processes import is_leader, join_processes
from ..report import write_report
from ..runs import Comparison, compare
from ._console import TerminalReporter, print_json, print_table, say
from ._run import metrics_row
from ._settings import default_folder, prepare_on_cluster, resolve


def compare_command(
    target: str,
    *,
    seeds: int,
    scheduler: str | None,
    out: Path | None,
    json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Carry out several methods and print them beside the paper."""
    join_processes()
    quiet = quiet or not is_leader()
    configs = resolve(target, **options)
    folder = out or default_folder(f"{configs[0].name}-compare")
    with TerminalReporter(quiet=quiet or json) as reporter:
        prepare_on_cluster(configs[0], scheduler, reporter)
        comparison = compare(configs, folder, seeds=seeds, reporter=reporter)
    return show_comparison(comparison, json=json, quiet=quiet)


def show_comparison(comparison: Comparison, *, json: bool, quiet: bool) -> int:
    """Write the report of a comparison and print it beside the paper."""
    if not is_leader():
        return 0
    data = comparison.data
    page = write_report(comparison.folder, data=data if isinstance(data, OperatorData) else None)
    if json:
        print_json([outcome.metrics for outcome in comparison.outcomes])
        return 0
    rows = [metrics_row(outcome.metrics) for outcome in comparison.outcomes]
    print_table(comparison.outcomes[0].config.name, rows[0][0], [row for _, row in rows], quiet=quiet)
    claims = [
        [claim.claim, claim.paper, claim.ours, {True: "yes", False: "no", None: "-"}[claim.holds]]
        for claim in comparison.claims
    ]
    print_table("the paper's claims", ["claim", "paper", "ours", "holds"], claims, quiet=quiet)
    say(f"report: {page}", quiet=quiet)
    return 0
