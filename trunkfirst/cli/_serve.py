"""`trunkfirst serve`."""

import dataclasses as dc
from pathlib import Path

from ..serving import Limits, serve
from ._console import print_json, say


def serve_command(
    folder: Path, *, host: str, port: int, token: str | None, limit_mib: float, json: bool, quiet: bool
) -> int:
    """Serve the operator of a run until it is stopped."""

    def on_start(url: str) -> None:
        if json:
            print_json({"url": url, "folder": str(folder)})
        else:
            say(f"{folder} is served at {url}; Ctrl-C ends it", quiet=quiet)

    limits = dc.replace(Limits(), bytes=int(limit_mib * 2**20))
    serve(folder, host=host, port=port, token=token, limits=limits, on_start=on_start)
    return 0
