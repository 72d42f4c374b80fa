"""Work on a Dask cluster. Dask is imported when somebody asks for it."""

import contextlib
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, TypeVar

from .._version import __version__
from ..errors import ClusterError, MissingExtraError, TrunkfirstError
from ._processes import Lost

Task = TypeVar("Task")
Result = TypeVar("Result")

ANSWER_SECONDS = 10.0
WORKER_SECONDS = 30.0


def on_cluster(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, address: str
) -> Generator[tuple[Task, Result | Lost]]:
    """Give each task with what `function` makes of it on a worker of the Dask scheduler at `address`.

    Tasks of a worker that ends go to another one; a task that ended several workers, or that they cannot carry
    out, is `Lost`. Our own errors come through. Only as many tasks are on the way as the workers can do soon, so
    that results never pile up.
    """
    waiting = iter(tasks)
    with _connected(address) as client, _naming(address):
        under_way: dict[Any, Task] = {}
        while True:
            room = 2 * sum(client.nthreads().values()) + 1 - len(under_way)
            for task in islice(waiting, max(room, 0)):
                under_way[client.submit(_checked, __version__, function, task, pure=False)] = task
            if not under_way:
                return
            for future in _first_done(client, list(under_way)):
                yield under_way.pop(future), _result(future)


def _first_done(client: Any, futures: list[Any]) -> list[Any]:
    from distributed import wait

    with client.as_current():
        finished: Any = wait(futures, return_when="FIRST_COMPLETED")
    return list(finished.done)


def _checked(version: str, function: Callable[[Task], Result], task: Task) -> Result:
    """On the worker: other versions may give other numbers."""
    if version != __version__:
        raise ClusterError(f"a worker has trunkfirst {__version__}, and here it is {version}; install the same")
    return function(task)


def _result(future: Any) -> Any:
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    try:
        return future.result()
    except (TrunkfirstError, CancelledError, CommClosedError):
        raise
    except Exception as error:  # whatever a worker can meet, from a missing package to its own end
        return Lost(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def _connected(address: str) -> Generator[Any]:
    """A client that has seen at least one worker."""
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("--scheduler", "distributed", "dask") from error
    try:
        client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:  # no answer, or no address
        raise ClusterError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}); expected an address such as "
            "tcp://127.0.0.1:8786"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the Dask scheduler at {address} has no workers; start some with: dask worker {address}"
            ) from error
        yield client


@contextlib.contextmanager
def _naming(address: str) -> Generator[None]:
    """A scheduler that goes away is an error that names it."""
    from distributed import CancelledError
    from distributed.comm.core import CommClosedError

    try:
        yield
    except (CancelledError, CommClosedError) as error:
        raise ClusterError(
            f"the Dask scheduler at {address} went away; what was done is kept: give the same command again"
        ) from error
