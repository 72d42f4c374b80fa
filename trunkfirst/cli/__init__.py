"""The command line."""

import sys


def main() -> None:
    """Entry point of the console script."""
    from ._app import main as run

    try:
        code = run()
    except Exception as error:
        from ..devices import fail

        code = fail(error)
    if "jax" in sys.modules:
        from ..devices import leave_processes

        code = leave_processes(code)
    sys.exit(code)


__all__ = ["main"]
