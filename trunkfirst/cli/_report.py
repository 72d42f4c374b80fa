"""`trunkfirst report`."""

from pathlib import Path

from ..report import write_report
from ._console import print_json, say


def report_command(folder: Path, *, json: bool, quiet: bool) -> int:
    """Write the report of a folder again."""
    page = write_report(folder)
    if json:
        print_json({"report": str(page)})
    else:
        say(f"report: {page}", quiet=quiet)
    return 0
