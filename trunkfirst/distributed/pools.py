"""Independent tasks in worker processes or on a Dask cluster; results come in the order of completion."""

import contextlib
import dataclasses as dc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from .. import __version__
from ..errors import ClusterError, TrunkfirstError, import_extra

Task = TypeVar("Task")
Result = TypeVar("Result")

ANSWER_SECONDS = 10.0
WORKER_SECONDS = 30.0
# A worker that is asked to end finishes its write; one that is inside a compiler is killed after this time.
_SECONDS_TO_END = 5.0


@dc.dataclass(frozen=True)
class Lost:
    """A task without a result, and the reason."""

    reason: str


def on_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int
) -> Generator[tuple[Task, Result | Lost]]:
    """Yield (task, result) pairs from `workers` processes of this machine.

    A process carries out one task after another and reuses what it has compiled. If it is killed or runs out of
    memory, its task is `Lost` and a new process replaces it. Errors of ours are raised, others make the task
    `Lost`. All processes end with this one, even if this one is killed.
    """
    crew = _Crew()
    try:
        yield from _completed(
            tasks,
            submit=lambda task: crew.submit(function, task),
            limit=lambda: workers,
            first_done=lambda futures: wait(futures, return_when=FIRST_COMPLETED).done,
            result=crew.result,
        )
    finally:
        crew.close()


def on_cluster(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, address: str
) -> Generator[tuple[Task, Result | Lost]]:
    """Yield (task, result) pairs from the workers of the Dask scheduler at `address`.

    Dask gives the tasks of a lost worker to another one. A task that ended several workers, or that they cannot
    carry out, is `Lost`. Errors of ours are raised. No more tasks are submitted than the workers can do soon, so
    that results do not pile up.

    Raises:
        ClusterError: The scheduler does not answer, has no workers or goes away, or a worker has another version.
    """
    with _dask_client(address) as client:
        # Not client.get_executor(): its futures never complete if the scheduler goes away while one is fetched.
        yield from _completed(
            tasks,
            submit=lambda task: client.submit(_checked, __version__, function, task, pure=False),
            limit=lambda: 2 * sum(client.nthreads().values()) + 1,
            first_done=lambda futures: _first_done(client, futures),
            result=_dask_result,
        )


def _completed(
    tasks: Iterable[Task],
    *,
    submit: Callable[[Task], Any],
    limit: Callable[[], int],
    first_done: Callable[[Collection[Any]], Iterable[Any]],
    result: Callable[[Any], Any],
) -> Generator[tuple[Task, Any]]:
    """Keep `limit()` tasks submitted and yield each with its result."""
    waiting = iter(tasks)
    submitted: dict[Any, Task] = {}
    while True:
        for task in islice(waiting, max(limit() - len(submitted), 0)):
            submitted[submit(task)] = task
        if not submitted:
            return
        for future in first_done(submitted):
            yield submitted.pop(future), result(future)


def _lost(error: Exception) -> Lost:
    return Lost(f"{type(error).__name__}: {error}")


# -- processes


class _Worker:
    """An executor with a single process: the death of one process breaks a whole `ProcessPoolExecutor`."""

    def __init__(self) -> None:
        # A forked copy of a process with the threads of JAX and BLAS may hang; spawn starts afresh.
        context = multiprocessing.get_context("spawn")
        self.executor = ProcessPoolExecutor(1, mp_context=context, initializer=_begin_worker)
        with without_main_module():
            self.executor.submit(os.getpid)  # starts the process
        # No public name gives the exit code of the process, nor before Python 3.14 a way to terminate it.
        processes: Any = getattr(self.executor, "_processes")  # noqa: B009
        (self.process,) = processes.values()

    def explain_end(self) -> str:
        self.executor.shutdown()
        code = self.process.exitcode or 0
        if code >= 0:
            return f"its process ended by itself, with exit code {code}"
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{hint}"


class _Crew:
    """The workers; each has at most one task."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._busy: dict[Future[Any], _Worker] = {}

    def submit(self, function: Callable[[Any], Any], task: Any) -> Future[Any]:
        try:
            worker = self._idle.pop()
            future = worker.executor.submit(function, task)
        except (IndexError, BrokenProcessPool):  # none is idle, or it died while it was
            worker = _Worker()
            future = worker.executor.submit(function, task)
        self._busy[future] = worker
        return future

    def result(self, future: Future[Any]) -> Any:
        worker = self._busy.pop(future)
        try:
            result = future.result()
        except BrokenProcessPool:
            return Lost(worker.explain_end())
        except TrunkfirstError:
            self._idle.append(worker)
            raise
        except Exception as error:
            result = _lost(error)
        self._idle.append(worker)
        return result

    def close(self) -> None:
        """End all processes; a run under way writes a checkpoint first."""
        for worker in self._busy.values():
            worker.process.terminate()
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.process.join(_SECONDS_TO_END)
            worker.process.kill()
            worker.executor.shutdown()


def _begin_worker() -> None:
    """In a worker: leave Ctrl-C to the parent, which ends the workers by SIGTERM, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A resumed sweep must not find a worker of the killed one still writing."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_main_module_lock = threading.Lock()


@contextlib.contextmanager
def without_main_module() -> Generator[None]:
    """Start processes that do not import the caller's script.

    A spawned process imports the main script to find functions defined there. Ours are defined in the package, and
    a script without `if __name__ == "__main__"` would run again in each worker. multiprocessing looks at
    `__spec__` and `__file__` of the main module; both are hidden inside the block.
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


# -- Dask


def _first_done(client: Any, futures: Collection[Any]) -> Iterable[Any]:
    from distributed import wait as wait_for

    with client.as_current():
        finished: Any = wait_for(list(futures), return_when="FIRST_COMPLETED")
    return finished.done


def _dask_result(future: Any) -> Any:
    try:
        return future.result()
    except (TrunkfirstError, *_connection_errors()):
        raise
    except Exception as error:
        return _lost(error)


def _checked(version: str, function: Callable[[Task], Result], task: Task) -> Result:
    """On the worker: other versions may compute other numbers."""
    if version != __version__:
        raise ClusterError(
            f"a worker has trunkfirst {__version__}, this machine {version}; install the same version"
        )
    return function(task)


@contextlib.contextmanager
def _dask_client(address: str) -> Generator[Any]:
    """Connect and wait for at least one worker."""
    distributed = import_extra("--scheduler", "distributed", "dask")
    try:
        client = distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # no answer, or no address
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); expected an address such as "
            "tcp://127.0.0.1:8786"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
            yield client
        except TimeoutError as error:
            raise ClusterError(
                f"the Dask scheduler at {address} has no workers; start some with: dask worker {address}"
            ) from error
        except _connection_errors() as error:
            raise ClusterError(
                f"the Dask scheduler at {address} no longer answers; finished work is kept: run the command again"
            ) from error


def _connection_errors() -> tuple[type[BaseException], ...]:
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    return CancelledError, CommClosedError
