"""`trunkfirst diagnose`."""

import math
from pathlib import Path

from ..files import update_manifest, verify_run
from ..progress import TerminalReporter
from ..report import write_report
from ..runs import Diagnosed, diagnose_run
from ._console import number, print_json, print_table, say

_PARTS = {
    "total_squared": "total",
    "trunk_squared": "trunk: outside the span of its functions",
    "coefficients_squared": "coefficients: sensors and branch together",
    "sensors_squared": "  sensors: least squares from the training points",
    "branch_squared": "  branch: what it does not learn",
    "data_squared": "  of the sensors' part, the data's own error",
}
_CHAIN = {
    "operator_squared": "outputs of the two",
    "sensors_squared": "sensors",
    "training_squared": "branch at the training sample",
    "network_squared": "predictions of the two",
}


def diagnose_command(folder: Path, *, data: Path | None, json: bool, quiet: bool) -> int:
    """Print where the error of a run comes from and what to improve; the report gets a section."""
    verify_run(folder)
    with TerminalReporter(quiet=quiet or json) as reporter:
        found = diagnose_run(folder, data=data, reporter=reporter)
    update_manifest(folder, "diagnosis.*")
    page = write_report(folder)
    if json:
        print_json(found.numbers)
        return 0
    _print(found, quiet)
    say(f"report: {page}", quiet=quiet)
    return 0


def _print(found: Diagnosed, quiet: bool) -> None:
    case, budget = found.case, found.evidence.budget
    summary = found.numbers["budget"]
    rows = [
        [words, _root(summary[name]), _root(summary["relative"][name]), _share(summary, name)]
        for name, words in _PARTS.items()
        if name in summary
    ]
    title = f"error budget of {case.test.samples:,} test samples (root mean squares)"
    print_table(title, ["part", "error", "relative", "of the square"], rows, quiet=quiet)
    say(f"evaluated at {case.where}", quiet=quiet)
    remainder = abs(budget.mean(budget.remainder))
    if remainder > 1e-6 * budget.mean(budget.total):
        why = "rounding" if case.operator.output is None else "an output map that is not linear"
        say(f"{why} leaves a remainder of {_share(summary, 'remainder')} of the square", quiet=quiet)
    if summary["chain"] is not None:
        rows = [[words, _root(summary["chain"]["relative"][name])] for name, words in _CHAIN.items()]
        print_table("the paper's chain, nearest training sample", ["part", "relative"], rows, quiet=quiet)
    rows = [[f"{each.name}: {each.meaning}", number(each.value)] for each in found.assumptions]
    print_table("what thm:main assumes", ["quantity", "measured"], rows, quiet=quiet)
    say(found.diagnosis.sentence, quiet=quiet)


def _root(square: float) -> str:
    return number(math.sqrt(max(square, 0.0)))


def _share(summary: dict[str, float], name: str) -> str:
    total = summary["total_squared"]
    return f"{summary[name] / total:.0%}" if total > 0 else "-"
