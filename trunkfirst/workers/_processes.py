"""Work in processes on this machine, each of which may end without harm to the others."""

import contextlib
import dataclasses as dc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

# A process that is asked to end finishes its write; one that is deep in a compiler is killed after so long.
_SECONDS_TO_END = 5.0


@dc.dataclass(frozen=True)
class Lost:
    """What there is of a task whose worker did not live to finish it."""

    reason: str


def on_processes(
    function: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int
) -> Generator[tuple[Task, Result | Lost]]:
    """Give each task with what `function` makes of it in one of so many processes.

    A process does task after task, so that what it has compiled serves again. One that ends, killed or out of
    memory, loses the task it had, and another takes its place. All end with this one, however it ends.
    """
    waiting = iter(tasks)
    crew: list[_Worker[Task, Result]] = []
    try:
        for task in islice(waiting, workers):
            crew.append(_Worker(function, task))
        while crew:
            ready = wait([worker.pipe for worker in crew])
            for worker in [worker for worker in crew if worker.pipe in ready]:
                task, result = worker.task, worker.receive()
                crew.remove(worker)
                for following in islice(waiting, 1):
                    crew.append(_Worker(function, following) if worker.is_gone else worker.take(following))
                if worker not in crew:
                    worker.stop()
                yield task, result
    finally:
        for worker in crew:
            worker.ask_to_end()
        for worker in crew:
            worker.stop()


class _Worker(Generic[Task, Result]):
    """A process, our end of the pipe to it, and what it is doing."""

    def __init__(self, function: Callable[[Task], Result], task: Task) -> None:
        # spawn: JAX and BLAS have threads, and a forked copy of a process with threads may hang
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(function, other), daemon=True)
        with without_main_module():
            self._process.start()
        other.close()
        self.is_gone = False
        self.take(task)

    def take(self, task: Task) -> "_Worker[Task, Result]":
        """Begin a task."""
        self.task = task
        with contextlib.suppress(BrokenPipeError):  # `receive` will say so
            self.pipe.send(task)
        return self

    def receive(self) -> Result | Lost:
        """The result of the task, or how its process ended."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.is_gone = True
            self._process.join()
            return Lost(_explain(self._process.exitcode or 0))

    def ask_to_end(self) -> None:
        """Let the process break off what it is doing, and write down where it stands."""
        self._process.terminate()

    def stop(self) -> None:
        """End the process and wait for that."""
        self.ask_to_end()
        self._process.join(_SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()


def _explain(code: int) -> str:
    if code >= 0:
        return f"its process ended by itself, with exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
    hint = ", perhaps because memory ran out" if name == "SIGKILL" else ""
    return f"its process was ended by {name}{hint}"


def _serve(function: Callable[[Any], Any], pipe: Connection) -> None:
    """In the process: task after task, until nobody asks any more."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        while True:
            pipe.send(function(pipe.recv()))


def _end_with_parent() -> None:
    """Whoever takes up the work again must not meet us still at it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_main_module_lock = threading.Lock()


@contextlib.contextmanager
def without_main_module() -> Generator[None]:
    """Start processes that do not import the caller's script.

    A spawned process imports the main script again to find functions defined there. Ours are defined in the
    package, and a script without `if __name__ == "__main__"` would start all over in each worker. What
    multiprocessing looks at is `__spec__` and `__file__` of the main module; both are hidden while the processes
    start.
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
