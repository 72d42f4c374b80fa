"""Several processes that run the same program in step, each on its own rows.

All of them do the same things in the same order; the first alone prints and writes files. What depends on a clock
or a disk is decided by the first and told to the others. Whoever waits too long for the others gives up.
"""

import contextlib
import dataclasses as dc
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Int

from ..errors import LostProcessError, UsageError

HEARTBEAT_SECONDS = 15
PATIENCE_SECONDS = 600.0
# Bytes that are told at once: a few copies of them are made on the way.
_TOLD_BYTES = 2**26
Value = TypeVar("Value")


@dc.dataclass(frozen=True)
class Membership:
    """The place of this process among several; `local` is its number on its host, if there are others there."""

    processes: int
    place: int
    coordinator: str
    local: int | None = None


def find_membership(environment: Mapping[str, str]) -> Membership | None:
    """What the environment says: the variables of `trunkfirst launch`, or those of a step of Slurm."""
    given = environment if "TRUNKFIRST_PROCESSES" in environment else _from_slurm(environment)
    try:
        processes = int(given.get("TRUNKFIRST_PROCESSES", "1"))
        if processes == 1:
            return None
        place, local = int(given["TRUNKFIRST_PROCESS"]), given.get("TRUNKFIRST_LOCAL")
        member = Membership(
            processes, place, given["TRUNKFIRST_COORDINATOR"], None if local is None else int(local)
        )
    except (KeyError, ValueError) as error:
        raise UsageError(
            f"TRUNKFIRST_PROCESSES, _PROCESS and _COORDINATOR, or Slurm's own, do not fit together: {error}"
        ) from error
    if not 0 <= place < processes or ":" not in member.coordinator:
        raise UsageError(
            f"TRUNKFIRST_PROCESS is {place} of {processes}, TRUNKFIRST_COORDINATOR is {member.coordinator!r}; "
            "expected a number below that of the processes, and HOST:PORT"
        )
    return member


def _from_slurm(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The same variables from those that srun gives to each process; a batch script by itself is no step."""
    if "SLURM_STEP_NODELIST" not in environment:
        return {}
    processes, port = environment["SLURM_NTASKS"], 61_440 + int(environment.get("SLURM_JOB_ID", "0")) % 4096
    given = {
        "TRUNKFIRST_PROCESSES": processes,
        "TRUNKFIRST_PROCESS": environment["SLURM_PROCID"],
        "TRUNKFIRST_COORDINATOR": f"{first_host(environment['SLURM_STEP_NODELIST'])}:{port}",
    }
    is_alone = environment.get("SLURM_STEP_NUM_NODES") == processes
    return given if is_alone else given | {"TRUNKFIRST_LOCAL": environment.get("SLURM_LOCALID", "0")}


def first_host(nodes: str) -> str:
    """The first of Slurm's list of hosts, such as gpu[07-09,12],login."""
    found = re.match(r"([^,\[]+)(?:\[([^\],-]+)[^\]]*\])?([^,]*)", nodes)
    if found is None:
        raise UsageError(f"SLURM_STEP_NODELIST is {nodes!r}, which names no host")
    return found[1] + (found[2] or "") + found[3]


def join_processes() -> None:
    """Take one's place among the processes, if the environment gives one; before JAX is first used."""
    member = find_membership(os.environ)
    if member is None or jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM for itself
    jax.distributed.initialize(
        member.coordinator,
        member.processes,
        member.place,
        # One GPU each where a host has several processes; a CPU has no such numbers.
        local_device_ids=member.local,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
    )
    if member.place > 0:
        # The first ends the work, in good order; without it the others cannot go on anyway.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watchdog.start(os.environ)
    with _quiet_output():
        agree(None)


@contextlib.contextmanager
def _quiet_output() -> Generator[None]:
    """Gloo greets every other process on standard output, which is for results."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def leave_processes(code: int) -> int:
    """End with the exit code: together if all is well, and at once, without waiting for anybody, if not."""
    if not jax.distributed.is_initialized():
        return code
    if code == 0:
        jax.distributed.shutdown()
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def fail(error: Exception) -> int:
    """The exit code for an error that nobody expected; alone, it is raised again.

    One of JAX's own is most often that another process does not answer any more.
    """
    if not is_several():
        raise error
    if isinstance(error, jax.errors.JaxRuntimeError):
        reason = next(iter(str(error).splitlines()), "")
        print(f"trunkfirst: the other processes cannot be reached: {reason[:300]}", file=sys.stderr)  # noqa: T201
        return LostProcessError.exit_code
    traceback.print_exception(error)
    return 1


def is_several() -> bool:
    """Whether there are other processes."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this process prints and writes files; it does where it is alone."""
    return not is_several() or jax.process_index() == 0


def own_part() -> tuple[int, int]:
    """Which part of the work this process has, and how many parts there are; alone all of it, (0, 1)."""
    return (jax.process_index(), jax.process_count()) if is_several() else (0, 1)


def agree(value: Value) -> Value:
    """What the first process holds for it: a number, a text, or lists of them."""
    return json.loads(share(json.dumps(value).encode())) if is_several() else value


def share(content: bytes) -> bytes:
    """The bytes that the first process gives, whatever the others give."""
    if not is_several():
        return content
    length = int(_told(np.asarray(len(content), np.int64)))
    own = np.frombuffer(content, np.uint8) if is_first() else np.zeros(length, np.uint8)
    return _told(own).tobytes()


def check_in_step(is_quick: bool, value: float) -> bool:
    """What the first process says of `is_quick`; all must hold the same value.

    Processes of the same program on hosts of the same kind do. Elsewhere rounding may differ, and once one takes
    another turn than the rest, all would wait for ever.
    """
    if not is_several():
        return is_quick
    told = _told(np.array([is_quick, value]))
    if not np.array_equal(told[1], value, equal_nan=True):
        raise LostProcessError(
            f"process {jax.process_index()} has the value {value!r} where the first has {float(told[1])!r}: hosts "
            "must be of one kind, with the same versions and data"
        )
    return bool(told[0])


def first_alone(compute: Callable[[], Value]) -> Value:
    """What `compute` returns; the first process is done with it before the others begin, and may take its time."""
    if is_first():
        result = compute()
        agree(None)
        return result
    with waiting(without_end=True):
        agree(None)
    return compute()


def allgather(array: Any, *, is_spread: bool = False) -> np.ndarray:
    """The arrays of all processes, stacked; or the whole of one that is spread over their devices."""
    from jax.experimental import multihost_utils

    with jax.enable_x64(True), waiting():
        return np.asarray(multihost_utils.process_allgather(array, tiled=is_spread))


def summed(array: np.ndarray) -> np.ndarray:
    """The sum of the arrays of all processes, added in their order: the same bits in each."""
    return np.sum(allgather(array), axis=0) if is_several() else array


def in_turn(array: np.ndarray) -> Iterator[np.ndarray]:
    """The arrays of all processes, one after the other, the same in each; they may have different lengths.

    Whoever is early waits for as long as it takes: what comes before may be a pass over all data.
    """
    if not is_several():
        yield array
        return
    with waiting(without_end=True):
        lengths = allgather(np.asarray(len(array)))
    for source, length in enumerate(lengths):
        is_own = source == jax.process_index()
        whole = np.ascontiguousarray(array) if is_own else np.empty((length, *array.shape[1:]), array.dtype)
        # Bytes arrive as they are; numbers would be added to zeros, which spoils the sign of -0.
        content = whole.reshape(-1).view(np.uint8)
        for begin in range(0, len(content), _TOLD_BYTES):
            told = _told(content[begin : begin + _TOLD_BYTES], source)
            if not is_own:
                content[begin : begin + _TOLD_BYTES] = told
        yield whole


def join_rows(own: np.ndarray, places: Int[np.ndarray, " own"], count: int) -> np.ndarray:
    """An array of `count` rows of which every process gives those at its `places`; alone all, in order."""
    if not is_several():
        return own
    whole = np.empty((count, *own.shape[1:]), own.dtype)
    for at, rows in zip(list(in_turn(places)), in_turn(own), strict=True):
        whole[at] = rows
    return whole


def _told(array: np.ndarray, source: int = 0) -> np.ndarray:
    from jax.experimental import multihost_utils

    with jax.enable_x64(True), waiting():
        return np.asarray(multihost_utils.broadcast_one_to_all(array, is_source=jax.process_index() == source))


@contextlib.contextmanager
def waiting(*, without_end: bool = False) -> Generator[None]:
    """Inside this block one may be waiting for the other processes, and not for ever."""
    if not is_several():
        yield
        return
    before = _watchdog.deadline
    if before is None:
        _watchdog.deadline = time.monotonic() + (np.inf if without_end else _watchdog.patience)
    try:
        yield
    finally:
        _watchdog.deadline = before


class _Watchdog:
    """Ends this process when it has waited too long, or when its launcher is gone."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.patience = PATIENCE_SECONDS

    def start(self, environment: Mapping[str, str]) -> None:
        """Watch from a thread of its own."""
        self.patience = float(environment.get("TRUNKFIRST_PATIENCE", PATIENCE_SECONDS))
        launcher = environment.get("TRUNKFIRST_LAUNCHER")
        threading.Thread(target=self._watch, args=(launcher,), daemon=True).start()

    def _watch(self, launcher: str | None) -> None:
        while True:
            time.sleep(0.5)
            deadline = self.deadline
            if deadline is not None and time.monotonic() > deadline:
                _give_up(f"waited more than {self.patience:.0f} s for the others; one of them must be stuck")
            if launcher is not None and os.getppid() != int(launcher):
                _give_up("its launcher is gone")


_watchdog = _Watchdog()


def _give_up(why: str) -> None:
    print(f"trunkfirst: process {jax.process_index()}: {why}", file=sys.stderr, flush=True)  # noqa: T201
    os._exit(LostProcessError.exit_code)
