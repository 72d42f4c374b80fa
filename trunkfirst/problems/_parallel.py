"""Solving blocks of samples, here, in processes or on a cluster, each block written as a shard at once."""

import dataclasses as dc
import multiprocessing
import warnings
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import threadpoolctl
from jaxtyping import Float

from ..data import ShardFolder
from ..distributed.pools import Lost, on_cluster, without_main_module
from ..errors import ClusterError
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
    return _write(task, fields)


def _solve_there(task: ShardTask) -> Float[np.ndarray, "samples nodes"]:
    """On a worker. Its BLAS stays at one thread: another block may be solved beside this one."""
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")
    return task.problem.solve(task.parameters, first=task.first)


def _write(task: ShardTask, fields: Float[np.ndarray, "samples nodes"]) -> str:
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


def solve_on_cluster(tasks: list[ShardTask], *, address: str) -> Iterator[tuple[ShardTask, str]]:
    """Like `solve_all`, by the workers of a Dask scheduler; they return the fields and need not see the cache."""
    for task, fields in on_cluster(_solve_there, tasks, address=address):
        if isinstance(fields, Lost):
            raise ClusterError(f"samples from {task.first} on could not be solved on {address}: {fields.reason}")
        yield task, _write(task, fields)


def _solve_in_processes(tasks: list[ShardTask], *, workers: int) -> Iterator[tuple[ShardTask, str]]:
    # spawn: JAX and BLAS have threads, and a forked copy of a process with threads may hang
    executor = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    try:
        with without_main_module():
            futures: dict[Future[str], ShardTask] = {executor.submit(solve_shard, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        executor.shutdown(cancel_futures=True)
