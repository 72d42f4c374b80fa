"""Solving blocks of samples, here or in several processes, each block written as a shard at once."""

import contextlib
import dataclasses as dc
import multiprocessing
import sys
import threading
import warnings
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import threadpoolctl
from jaxtyping import Float

from ..data import ShardFolder
from ._abstract import AbstractProblem


@dc.dataclass(frozen=True, eq=False)
class ShardTask:
    """One block of samples, and the shard that keeps its fields."""

    problem: AbstractProblem
    parameters: Float[np.ndarray, "samples parameters"]
    first: int
    folder: ShardFolder
    number: int

    @property
    def samples(self) -> int:
        """How many samples the block has."""
        return len(self.parameters)


def solve_shard(task: ShardTask) -> str:
    """Solve a block, write its shard, return the SHA-256. One BLAS thread: same bits however many workers."""
    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        fields = task.problem.solve(task.parameters, first=task.first)
    return task.folder.write(task.number, {"parameters": task.parameters, "fields": fields})


def solve_all(tasks: list[ShardTask], *, workers: int) -> Iterator[tuple[ShardTask, str]]:
    """Solve all tasks and give each with its SHA-256 as it is done, in any order.

    If the processes cannot be kept running, the rest is solved here, with a warning.
    """
    remaining = {task.number: task for task in tasks}
    if workers > 1:
        try:
            for task, digest in _solve_in_processes(tasks, workers=workers):
                del remaining[task.number]
                yield task, digest
        except BrokenProcessPool as error:
            warnings.warn(
                f"worker processes ended ({error}); going on in one process", RuntimeWarning, stacklevel=2
            )
    for task in remaining.values():
        yield task, solve_shard(task)


def _solve_in_processes(tasks: list[ShardTask], *, workers: int) -> Iterator[tuple[ShardTask, str]]:
    # spawn: JAX and BLAS have threads, and a forked copy of a process with threads may hang
    executor = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        with _without_main_module():
            futures: dict[Future[str], ShardTask] = {executor.submit(solve_shard, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        executor.shutdown(cancel_futures=True)


_main_module_lock = threading.Lock()


@contextlib.contextmanager
def _without_main_module() -> Generator[None]:
    """Start processes that do not import the caller's script.

    A spawned process imports the main script again to find functions defined there. Ours are defined here,
    and a script without `if __name__ == "__main__"` would start all over in each worker. What multiprocessing
    looks at is `__spec__` and `__file__` of the main module; both are hidden while the processes start.
    """
    main = sys.modules["__main__"]
    with _main_module_lock:
        hidden = {name: vars(main)[name] for name in ("__spec__", "__file__") if name in vars(main)}
        try:
            vars(main)["__spec__"] = None
            vars(main).pop("__file__", None)
            yield
        finally:
            vars(main).update(hidden)
