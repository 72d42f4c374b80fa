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
from ..files.text_files import write_text

COMMANDS = ("run", "fit", "compare", "resume")
# Names the file in which a launched process notes the folder that it works in.
_NOTE, _FOLDER = "TRUNKFIRST_NOTE", "folder"
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

    @property
    def first(self) -> int:
        """The number of the first process of this host."""
        return self.node * self.processes

    def environment(self, local: int, coordinator: str, scratch: Path) -> dict[str, str]:
        """The environment of process `local` of this host."""
        process = self.first + local
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
            ours[_NOTE] = str(scratch / _FOLDER)
        if process > 0:
            ours["TMPDIR"] = str(scratch)
        return {"OPENBLAS_NUM_THREADS": "1"} | dict(os.environ) | ours


def launch(plan: Launch, *, say: Callable[[str], None]) -> int:
    """Start the processes and return their exit code.

    When a process is lost all are ended and started again. An error of ours in any process ends all with its exit
    code. Ctrl-C and SIGTERM go to the first process, which writes a checkpoint; then all end, with 130 or 143.

    Raises:
        LostProcessError: A process was lost and `plan.restarts` are used up.
        UsageError: On Windows, where a process cannot pass Ctrl-C on to another.
    """
    if sys.platform == "win32":
        raise UsageError(
            "launch needs Linux or macOS; on Windows train in one process, or use the Linux subsystem (WSL)"
        )
    arguments, lost = plan.arguments, ""
    with tempfile.TemporaryDirectory(prefix="trunkfirst-launch-") as temporary, _signals_received() as signals:
        scratch = Path(temporary)
        for attempt in range(1, plan.restarts + 2):
            with _started(plan, arguments, scratch) as processes:
                local, code = _wait(processes, signals)
                if signals and plan.node == 0:
                    _end_leader(processes[0], signals)
            if signals:
                if folder := _noted_folder(scratch):
                    say(f"continue with: trunkfirst launch --processes {plan.processes} resume {folder}")
                return 130 if signals[0] == signal.SIGINT else 143
            if code > 0 and _log_in(scratch, local).is_file():
                sys.stderr.write(_log_in(scratch, local).read_text(encoding="utf-8", errors="replace")[-4000:])
            if code >= 0 and code != LostProcessError.exit_code:
                return code
            reason = f"was ended by signal {-code}" if code < 0 else "gave up"
            lost = f"process {plan.first + local} of {plan.processes * plan.nodes} {reason}"
            if attempt <= plan.restarts:
                if folder := _noted_folder(scratch):
                    words = [word for word in arguments if word in ("--json", "--quiet")]
                    arguments = ("resume", folder, *words)
                count = f"restart {attempt} of at most {plan.restarts}"
                say(f"{lost}; restarting all from the last checkpoint ({count})")
    raise LostProcessError(f"{lost}, and none of the {plan.restarts} restarts is left")


def note_folder(folder: str) -> None:
    """Let the launcher, if there is one, know what to resume should this process die."""
    path = os.environ.get(_NOTE)
    if path is not None:
        write_text(Path(path), folder)


def _wait(processes: list[subprocess.Popen[bytes]], signals: list[int]) -> tuple[int, int]:
    """Wait until all have succeeded, one has failed, or a signal is received; the failed one and its exit code.

    An error of ours comes before the failures of other processes that it caused.
    """
    while not signals:
        codes = [process.poll() for process in processes]
        failed = [(not _is_ours(code), code, local) for local, code in enumerate(codes) if code]
        if failed:
            _, code, local = min(failed)
            return local, code
        if all(code == 0 for code in codes):
            break
        time.sleep(_POLL_SECONDS)
    return 0, 0


def _is_ours(code: int) -> bool:
    """Whether an exit code is that of an error which another attempt would meet again."""
    return 1 < code < 128 and code != LostProcessError.exit_code


def _end_leader(leader: subprocess.Popen[bytes], signals: list[int]) -> None:
    """Pass the signal on and wait for the checkpoint; a second signal ends the wait."""
    leader.send_signal(signals[0])
    deadline = time.monotonic() + _GRACE_SECONDS
    while leader.poll() is None and len(signals) == 1 and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _started(plan: Launch, arguments: tuple[str, ...], scratch: Path) -> Generator[list[subprocess.Popen[bytes]]]:
    """Start the processes; at the end of the block none is left. All but the leader print to log files."""
    coordinator = plan.coordinator or f"127.0.0.1:{_free_port()}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for local in range(plan.processes):
            is_leader = plan.first + local == 0
            with contextlib.nullcontext() if is_leader else _log_in(scratch, local).open("wb") as file:
                processes.append(
                    subprocess.Popen(  # noqa: S603 - our own command line
                        [sys.executable, "-P", "-c", plan.program, *arguments],
                        env=plan.environment(local, coordinator, scratch),
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=file,
                        start_new_session=True,  # Ctrl-C reaches the launcher alone, which passes it on
                    )
                )
        yield processes
    finally:
        for process in processes:
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


def _log_in(scratch: Path, local: int) -> Path:
    return scratch / f"process-{local}.log"


def _noted_folder(scratch: Path) -> str | None:
    """The folder that the leader works in, if it has noted one."""
    path = scratch / _FOLDER
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
