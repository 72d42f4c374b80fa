"""The command line."""

import sys


def main() -> None:
    """Entry point of the console script."""
    from ._app import main as run

    sys.exit(run())


__all__ = ["main"]
