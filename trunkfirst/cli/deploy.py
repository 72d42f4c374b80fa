"""`trunkfirst export` and `trunkfirst serve`."""

from pathlib import Path

from ._console import number, print_json, say


def export_command(folder: Path, *, to: str, out: Path, precision: str | None, json: bool, quiet: bool) -> int:
    """Write the operator of a run to one file for other programs."""
    from ..exporters import export

    done = export(folder, to, out, precision=precision)
    if json:
        print_json(
            {"to": to, "precision": done.precision, "bytes": done.size, "error": done.error, "out": str(out)}
        )
        return 0
    cost = "" if done.error is None else f", which changes outputs by {number(done.error)} (relative)"
    say(f"{to} in {done.precision} precision{cost}, {done.size / 1024:,.0f} KiB: {out}", quiet=quiet)
    return 0


def serve_command(
    folder: Path, *, host: str, port: int, token: str | None, limit_mib: float, json: bool, quiet: bool
) -> int:
    """Serve the operator of a run until it is stopped."""
    from ..serve import Limits, serve

    def on_start(url: str) -> None:
        if json:
            print_json({"url": url, "folder": str(folder)})
        else:
            say(f"{folder} is served at {url}; stop with Ctrl-C", quiet=quiet)

    limits = Limits(bytes=int(limit_mib * 2**20))
    serve(folder, host=host, port=port, token=token, limits=limits, on_start=on_start)
    return 0
