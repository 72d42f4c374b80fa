"""The command line."""

import os
import sys


def main() -> None:
    """Entry point of the console script."""
    _settle_threads()
    from ._app import main as run

    try:
        code = run()
    except Exception as error:
        from ..distributed.processes import unexpected_error_code

        code = unexpected_error_code(error)
    if "jax" in sys.modules:
        from ..distributed.processes import leave_processes

        code = leave_processes(code)
    sys.exit(code)


def _settle_threads() -> None:
    """One thread on one core and on two, half of more: how a sum is divided among them decides its last bits.

    Read by XLA and by the BLAS of NumPy and SciPy when they are loaded; what is set already stays.
    """
    os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // 2)))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


__all__ = ["main"]
