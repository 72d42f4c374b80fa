"""Several processes of one command, watched, and started again from the last checkpoint when one of them is lost.

JAX ends all processes when one of them dies, so that none can go on by itself: somebody outside has to notice.
"""

import contextlib
import dataclasses as dc
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path

from ..errors import LostProcessError, UsageError
from ._workplace import NOTE

COMMANDS = ("run", "fit", "compare", "resume")
_START = "from trunkfirst.cli import main; main()"
_LOOK_SECONDS, _GRACE_SECONDS = 0.1, 10.0


@dc.dataclass(frozen=True)
class Launch:
    """What to start: `processes` of the command on this host, which is number `node` of `nodes` alike."""

    arguments: tuple[str, ...]
    processes: int
    coordinator: str | None = None
    node: int = 0
    nodes: int = 1
    restarts: int = 3
    patience: float = 600.0

    def __post_init__(self) -> None:
        if not self.arguments or self.arguments[0] not in COMMANDS:
            raise UsageError(
                f"launch starts one of {', '.join(COMMANDS)}; got: {' '.join(self.arguments) or 'nothing'}"
            )
        if not 0 <= self.node < self.nodes:
            raise UsageError(
                f"node is {self.node}; expected a number from 0 to {self.nodes - 1}, as there are nodes"
            )
        if self.nodes > 1 and self.coordinator is None:
            raise UsageError("several nodes need --coordinator HOST:PORT, where the first of them can be reached")

    def environment(self, local: int, coordinator: str, scratch: Path) -> dict[str, str]:
        """What process number `local` of this host is told."""
        place = self.node * self.processes + local
        told = {
            "TRUNKFIRST_PROCESSES": str(self.processes * self.nodes),
            "TRUNKFIRST_PROCESS": str(place),
            "TRUNKFIRST_COORDINATOR": coordinator,
            "TRUNKFIRST_LAUNCHER": str(os.getpid()),
            "TRUNKFIRST_PATIENCE": str(self.patience),
        }
        if self.processes > 1:
            told["TRUNKFIRST_LOCAL"] = str(local)
        if local == 0:
            told[NOTE] = str(scratch / "folder")
        if place > 0:
            told["TMPDIR"] = str(scratch)
        return {"OPENBLAS_NUM_THREADS": "1"} | dict(os.environ) | told


def launch(plan: Launch, *, say: Callable[[str], None]) -> int:
    """Start the processes and return their exit code; a lost one ends all, and all start again.

    At most `plan.restarts` times; then it is a `LostProcessError`. An error of ours in any process ends all with
    its exit code. Ctrl-C and SIGTERM go to the first process, which writes a checkpoint; then all end.
    """
    arguments = plan.arguments
    with tempfile.TemporaryDirectory(prefix="trunkfirst-launch-") as folder, _heard_signals() as heard:
        scratch = Path(folder)
        for attempt in itertools.count(1):
            with _started(plan, arguments, scratch) as group:
                ended = group.wait(heard)
            if heard:
                _say_how_to_go_on(plan, scratch, say)
                return 130 if heard[0] == signal.SIGINT else 143
            if not ended.is_lost:
                return ended.code
            lost = f"process {ended.place} of {plan.processes * plan.nodes} {ended.how}"
            if attempt > plan.restarts:
                raise LostProcessError(f"{lost}, and all {plan.restarts} restarts are used up")
            arguments = _to_resume(arguments, scratch)
            say(f"{lost}; all start again from the last checkpoint (restart {attempt} of at most {plan.restarts})")
    raise AssertionError("counting does not end")


@dc.dataclass(frozen=True)
class _Ended:
    """How the processes ended: 0, or the exit code of the one to blame."""

    code: int
    place: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether that was no decision of the program, so that another attempt may do better."""
        return self.code < 0 or self.code == LostProcessError.exit_code

    @property
    def how(self) -> str:
        return f"was ended by signal {-self.code}" if self.code < 0 else "gave up"


class _Group:
    """The processes of this host."""

    def __init__(self, plan: Launch, logs: list[Path]) -> None:
        self._first = plan.node * plan.processes
        self._logs = logs
        self.processes: list[subprocess.Popen[bytes]] = []

    def wait(self, heard: list[int]) -> _Ended:
        """Look after them until all have ended well, one has not, or a signal has been heard and served."""
        while not heard:
            codes = [process.poll() for process in self.processes]
            bad = [(code, place) for place, code in enumerate(codes) if code]
            if bad:
                return self._blame(bad)
            if all(code == 0 for code in codes):
                return _Ended(0)
            time.sleep(_LOOK_SECONDS)
        if self._first == 0:
            self._end_first(heard)
        return _Ended(0)

    def _end_first(self, heard: list[int]) -> None:
        """Pass the signal on to the first process and give it time; a second signal is the end of patience."""
        self.processes[0].send_signal(heard[0])
        deadline = time.monotonic() + _GRACE_SECONDS
        while self.processes[0].poll() is None and len(heard) == 1 and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _blame(self, bad: list[tuple[int, int]]) -> _Ended:
        """An error of ours comes first: whoever raised it is gone, and the others die of that."""
        code, local = min(bad, key=lambda each: (not _is_ours(each[0]), each[0]))
        if code > 0 and self._logs[local].is_file():
            sys.stderr.write(self._logs[local].read_text(errors="replace")[-4000:])
        return _Ended(code, self._first + local)


def _is_ours(code: int) -> bool:
    """Whether an exit code is that of an error of ours that another attempt would meet again."""
    return 1 < code < 128 and code != LostProcessError.exit_code


@contextlib.contextmanager
def _started(plan: Launch, arguments: tuple[str, ...], scratch: Path) -> Generator[_Group]:
    """The processes; when the block ends none is left."""
    coordinator = plan.coordinator or f"127.0.0.1:{_free_port()}"
    logs = [scratch / f"process-{local}.log" for local in range(plan.processes)]
    group = _Group(plan, logs)
    try:
        for local, log in enumerate(logs):
            environment = plan.environment(local, coordinator, scratch)
            is_first = environment["TRUNKFIRST_PROCESS"] == "0"
            with contextlib.nullcontext() if is_first else log.open("wb") as file:
                group.processes.append(
                    subprocess.Popen(  # noqa: S603 - our own command line
                        [sys.executable, "-P", "-c", _START, *arguments],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,  # Ctrl-C is for the launcher, which passes it on
                    )
                )
        yield group
    finally:
        for process in group.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _heard_signals() -> Generator[list[int]]:
    """Signals that ask for the end, as they come in."""
    heard: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in numbers]
    try:
        yield heard
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _noted_folder(scratch: Path) -> str | None:
    note = scratch / "folder"
    return note.read_text(encoding="utf-8").strip() if note.is_file() else None


def _to_resume(arguments: tuple[str, ...], scratch: Path) -> tuple[str, ...]:
    """The command that goes on; the same again where nothing had begun."""
    folder = _noted_folder(scratch)
    if folder is None:
        return arguments
    return ("resume", folder, *(word for word in arguments if word in ("--json", "--quiet")))


def _say_how_to_go_on(plan: Launch, scratch: Path, say: Callable[[str], None]) -> None:
    folder = _noted_folder(scratch)
    if folder is not None:
        say(f"go on with: trunkfirst launch --processes {plan.processes} resume {folder}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
