"""Factorisations on the host at one BLAS thread: other thread counts give other bits."""

import contextlib
from collections.abc import Generator

import threadpoolctl


@contextlib.contextmanager
def one_blas_thread() -> Generator[None]:
    """Within this block NumPy and SciPy give the same bits on any number of cores."""
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield
