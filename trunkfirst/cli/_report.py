"""`trunkfirst report`."""

from pathlib import Path

from ..files import verify_manifest
from ..report import write_report, write_sweep
from ._console import print_json, say


def report_command(folder: Path, *, json: bool, quiet: bool) -> int:
    """Write the report of a run, comparison or sweep again from its files."""
    for each in (folder, *(path.parent for path in sorted(folder.glob("*/metrics.json")))):
        if any((each / name).exists() for name in ("metrics.json", "MANIFEST.sha256")):
            # Runs of a comparison may have been diagnosed later; each has its own manifest.
            verify_manifest(each, but=("*report.html", "*figures/*", "*/diagnosis.*"))
    page = write_sweep(folder) if (folder / "sweep.json").is_file() else write_report(folder)
    if json:
        print_json({"report": str(page)})
    else:
        say(f"report: {page}", quiet=quiet)
    return 0
