"""The command line."""

import os
import sys


def main() -> None:
    """Entry point of the console script."""
    _limit_threads()
    from .commands import main as run

    try:
        code = run()
    except KeyboardInterrupt as error:  # a second one, while the first was handled
        from ..errors import Terminated

        code = 143 if isinstance(error, Terminated) else 130
    except Exception as error:
        from ..distributed.processes import unexpected_error_code

        code = unexpected_error_code(error)
    if "jax" in sys.modules:
        from ..distributed.processes import leave_processes

        code = leave_processes(code)
    sys.exit(code)


def _limit_threads() -> None:
    """Use one thread on one or two cores, half of the cores otherwise: the number decides the last bits of sums.

    XLA and the BLAS of NumPy and SciPy read these variables when they are loaded. Values already set are kept.
    """
    os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // 2)))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


__all__ = ["main"]
