"""`trunkfirst export`."""

from pathlib import Path

from ..serving import export
from ._console import number, print_json, say


def export_command(folder: Path, *, to: str, out: Path, precision: str | None, json: bool, quiet: bool) -> int:
    """Write the operator of a run into one file for other programs."""
    done = export(folder, to, out, precision=precision)
    if json:
        print_json(
            {"to": to, "precision": done.precision, "bytes": done.size, "error": done.error, "out": str(out)}
        )
        return 0
    cost = "" if done.error is None else f", which changes outputs by {number(done.error)} (relative)"
    say(f"{to} in {done.precision} precision{cost}, {done.size / 1024:,.0f} KiB: {out}", quiet=quiet)
    return 0
