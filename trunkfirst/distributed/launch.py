"""Start the processes of one command, and start them again from the last checkpoint when one of them is lost.

JAX ends all processes when one of them dies, so that only a process outside of them can restart them.
"""

import contextlib
import dataclasses as dc
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
from ..files import write_text

COMMANDS = ("run", "fit", "compare", "resume")
# Names the file in which a launched process notes the folder that it works in.
_NOTE = "TRUNKFIRST_NOTE"
_POLL_SECONDS, _GRACE_SECONDS = 0.1, 10.0


@dc.dataclass(frozen=True)
class Launch:
    """What to start.

    Attributes:
        arguments: The command and its options, as after `trunkfirst`.
        processes: The number of processes on this host.
        coordinator: HOST:PORT of the first process; a free port of this host if None.
        node: The number of this host among `nodes`.
        nodes: The number of hosts, each with a launcher of its own.
        restarts: How often all processes are started again after a loss.
        patience: Seconds that processes wait for each other before one counts as stuck.
        program: The Python program that takes the arguments.
    """

    arguments: tuple[str, ...]
    processes: int
    coordinator: str | None = None
    node: int = 0
    nodes: int = 1
    restarts: int = 3
    patience: float = 600.0
    program: str = "from trunkfirst.cli import main; main()"

    def __post_init__(self) -> None:
        if not self.arguments or self.arguments[0] not in COMMANDS:
            raise UsageError(
                f"launch starts one of {', '.join(COMMANDS)}; got: {' '.join(self.arguments) or 'nothing'}"
            )
        if not 0 <= self.node < self.nodes:
            raise UsageError(f"node is {self.node}; expected a number from 0 to {self.nodes - 1}")
        if self.nodes > 1 and self.coordinator is None:
            raise UsageError("several nodes need --coordinator HOST:PORT, the address of the first of them")

    def environment(self, local: int, coordinator: str, scratch: Path) -> dict[str, str]:
        """The environment of process `local` of this host."""
        process = self.node * self.processes + local
        ours = {
            "TRUNKFIRST_PROCESSES": str(self.processes * self.nodes),
            "TRUNKFIRST_PROCESS": str(process),
            "TRUNKFIRST_COORDINATOR": coordinator,
            "TRUNKFIRST_LAUNCHER": str(os.getpid()),
            "TRUNKFIRST_PATIENCE": str(self.patience),
        }
        if self.processes > 1:
            ours["TRUNKFIRST_LOCAL"] = str(local)
        if local == 0:
            ours[_NOTE] = str(_note_in(scratch))
        if process > 0:
            ours["TMPDIR"] = str(scratch)
        return {"OPENBLAS_NUM_THREADS": "1"} | dict(os.environ) | ours


def launch(plan: Launch, *, say: Callable[[str], None]) -> int:
    """Start the processes and return their exit code.

    When a process is lost all are ended and started again. An error of ours in any process ends all with its exit
    code. Ctrl-C and SIGTERM go to the first process, which writes a checkpoint; then all end, with 130 or 143.

    Raises:
        LostProcessError: A process was lost and `plan.restarts` are used up.
    """
    arguments = plan.arguments
    with tempfile.TemporaryDirectory(prefix="trunkfirst-launch-") as folder, _signals_received() as signals:
        scratch = Path(folder)
        for attempt in range(1, plan.restarts + 2):
            with _started(plan, arguments, scratch) as group:
                end = group.wait(signals)
            if signals:
                if _note_in(scratch).is_file():
                    command = f"trunkfirst launch --processes {plan.processes} resume {_read_note(scratch)}"
                    say(f"continue with: {command}")
                return 130 if signals[0] == signal.SIGINT else 143
            if not end.is_lost:
                return end.code
            lost = f"process {end.process} of {plan.processes * plan.nodes} {end.reason}"
            if attempt <= plan.restarts:
                arguments = _resuming(arguments, scratch)
                count = f"restart {attempt} of at most {plan.restarts}"
                say(f"{lost}; restarting all from the last checkpoint ({count})")
    raise LostProcessError(f"{lost}, and all {plan.restarts} restarts are used up")


def note_folder(folder: str) -> None:
    """Let the launcher, if there is one, know what to resume should this process die."""
    path = os.environ.get(_NOTE)
    if path is not None:
        write_text(Path(path), folder)


@dc.dataclass(frozen=True)
class _End:
    """How the processes ended: exit code 0, or that of the process that failed first."""

    code: int
    process: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether another attempt may succeed."""
        return self.code < 0 or self.code == LostProcessError.exit_code

    @property
    def reason(self) -> str:
        return f"was ended by signal {-self.code}" if self.code < 0 else "gave up"


class _Group:
    """The processes of this host."""

    def __init__(self, first: int, logs: list[Path]) -> None:
        self._first, self._logs = first, logs
        self.processes: list[subprocess.Popen[bytes]] = []

    def wait(self, signals: list[int]) -> _End:
        """Wait until all have succeeded, one has failed, or a signal has been received and passed on."""
        while not signals:
            codes = [process.poll() for process in self.processes]
            failed = [(code, local) for local, code in enumerate(codes) if code]
            if failed:
                return self._blame(failed)
            if all(code == 0 for code in codes):
                return _End(0)
            time.sleep(_POLL_SECONDS)
        if self._first == 0:
            self._end_leader(signals)
        return _End(0)

    def _end_leader(self, signals: list[int]) -> None:
        """Pass the signal on and wait for the checkpoint; a second signal ends the wait."""
        leader, deadline = self.processes[0], time.monotonic() + _GRACE_SECONDS
        leader.send_signal(signals[0])
        while leader.poll() is None and len(signals) == 1 and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _blame(self, failed: list[tuple[int, int]]) -> _End:
        """An error of ours comes first: the other processes failed because of it."""
        code, local = min(failed, key=lambda each: (not _is_ours(each[0]), each[0]))
        if code > 0 and self._logs[local].is_file():
            sys.stderr.write(self._logs[local].read_text(errors="replace")[-4000:])
        return _End(code, self._first + local)


def _is_ours(code: int) -> bool:
    """Whether an exit code is that of an error which another attempt would meet again."""
    return 1 < code < 128 and code != LostProcessError.exit_code


@contextlib.contextmanager
def _started(plan: Launch, arguments: tuple[str, ...], scratch: Path) -> Generator[_Group]:
    """Start the processes; at the end of the block none is left."""
    coordinator = plan.coordinator or f"127.0.0.1:{_free_port()}"
    logs = [scratch / f"process-{local}.log" for local in range(plan.processes)]
    group = _Group(plan.node * plan.processes, logs)
    try:
        for local, log in enumerate(logs):
            environment = plan.environment(local, coordinator, scratch)
            is_leader = environment["TRUNKFIRST_PROCESS"] == "0"
            with contextlib.nullcontext() if is_leader else log.open("wb") as file:
                group.processes.append(
                    subprocess.Popen(  # noqa: S603 - our own command line
                        [sys.executable, "-P", "-c", plan.program, *arguments],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,  # Ctrl-C reaches the launcher alone, which passes it on
                    )
                )
        yield group
    finally:
        for process in group.processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def _signals_received() -> Generator[list[int]]:
    """Collect SIGINT and SIGTERM instead of handling them."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: received.append(number)) for number in numbers]
    try:
        yield received
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _note_in(scratch: Path) -> Path:
    return scratch / "folder"


def _read_note(scratch: Path) -> str:
    return _note_in(scratch).read_text(encoding="utf-8").strip()


def _resuming(arguments: tuple[str, ...], scratch: Path) -> tuple[str, ...]:
    """The command that resumes; the same again if no folder was noted."""
    if not _note_in(scratch).is_file():
        return arguments
    return ("resume", _read_note(scratch), *(word for word in arguments if word in ("--json", "--quiet")))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
