"""Processes that run the same program in lockstep, each on its own rows.

All processes execute the same statements in the same order. Only the leader, process 0, prints and writes files.
What depends on a clock or a disk is decided by the leader and broadcast. A process that waits too long for the
others exits.
"""

import contextlib
import json
import os
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
INTERRUPTED = (130, 143)  # Ctrl-C and SIGTERM, as in shells
# Bytes of one broadcast; JAX makes several copies of them.
_BROADCAST_BYTES = 2**26
Value = TypeVar("Value")


# -- joining and leaving


def find_processes(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the arguments of `jax.distributed.initialize`, or None for a process of its own.

    `trunkfirst launch` sets `TRUNKFIRST_PROCESSES`, `TRUNKFIRST_PROCESS` and `TRUNKFIRST_COORDINATOR`. Without
    them JAX itself reads the variables of a Slurm step or of Open MPI; with `TRUNKFIRST_PROCESSES=auto` those of
    every cluster that it knows, such as Kubernetes.
    """
    count, process, coordinator, local = (
        environment.get(f"TRUNKFIRST_{name}", "") for name in ("PROCESSES", "PROCESS", "COORDINATOR", "LOCAL")
    )
    if not count:
        return _find_cluster(environment)
    if count in ("1", "auto"):
        return {} if count == "auto" else None
    is_possible = count.isdecimal() and process.isdecimal() and int(process) < int(count)
    if not is_possible or ":" not in coordinator:
        raise UsageError(
            f"TRUNKFIRST_PROCESSES is {count!r}, TRUNKFIRST_PROCESS is {process!r} and TRUNKFIRST_COORDINATOR is "
            f"{coordinator!r}; expected a number, a smaller number from 0, and HOST:PORT"
        )
    return {
        "coordinator_address": coordinator,
        "num_processes": int(count),
        "process_id": int(process),
        "cluster_detection_method": "deactivate",
    } | ({"local_device_ids": int(local)} if local else {})


def _find_cluster(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """A batch script of Slurm outside of srun is no step and has no SLURM_STEP_NODELIST."""
    if "SLURM_STEP_NODELIST" in environment:
        tasks = environment.get("SLURM_NTASKS", "1")
        # An empty list leaves a process all GPUs of its host; by default JAX gives it one.
        alone = {"local_device_ids": []} if environment.get("SLURM_STEP_NUM_NODES") == tasks else {}
        return None if tasks == "1" else alone
    is_mpi = "OMPI_MCA_orte_hnp_uri" in environment and environment.get("OMPI_COMM_WORLD_SIZE", "1") != "1"
    return {} if is_mpi else None


def join_processes() -> None:
    """Connect to the other processes if the environment names any; call it before JAX is first used."""
    found = find_processes(os.environ)
    if found is None or jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", False)  # it would handle SIGTERM itself
    try:
        jax.distributed.initialize(**found, heartbeat_timeout_seconds=HEARTBEAT_SECONDS)
    except (KeyError, ValueError) as error:  # variables of the cluster that do not fit together
        raise UsageError(f"JAX cannot find the other processes: {error}") from error
    _watchdog.start(os.environ)
    with _quiet_output():
        if jax.process_index() > 0:
            # The leader handles both signals; the others cannot continue without it anyway.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        broadcast_value(None)


@contextlib.contextmanager
def _quiet_output() -> Generator[None]:
    """Gloo prints a line for every connection on standard output, which is for results."""
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
    """Disconnect and return the exit code.

    After an interrupt, or an error in one of several processes, this process ends at once instead. The shutdown of
    the interpreter can crash while XLA computes in other threads, and it would wait for the other processes.
    """
    is_joined = jax.distributed.is_initialized()
    if code in INTERRUPTED or (is_joined and code != 0):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if is_joined:
        jax.distributed.shutdown()
    return code


def unexpected_error_code(error: Exception) -> int:
    """Print an unexpected error and return its exit code; with one process, raise it again.

    An error of JAX's runtime mostly means that another process does not answer.
    """
    if not is_distributed():
        raise error
    if isinstance(error, jax.errors.JaxRuntimeError):
        reason = next(iter(str(error).splitlines()), "")
        print(f"trunkfirst: the other processes cannot be reached: {reason[:300]}", file=sys.stderr)  # noqa: T201
        return LostProcessError.exit_code
    traceback.print_exception(error)
    return 1


def is_distributed() -> bool:
    """Whether there are other processes."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def is_leader() -> bool:
    """Whether this process prints and writes files."""
    return not is_distributed() or jax.process_index() == 0


def process_shard() -> tuple[int, int]:
    """The index of this process and the number of processes: (0, 1) for one alone."""
    return (jax.process_index(), jax.process_count()) if is_distributed() else (0, 1)


# -- collectives


def broadcast(array: np.ndarray, source: int = 0) -> np.ndarray:
    """The array of process `source`; all processes pass one of the same shape and type."""
    from jax.experimental import multihost_utils

    with jax.enable_x64(True), collective_timeout():
        return np.asarray(multihost_utils.broadcast_one_to_all(array, is_source=jax.process_index() == source))


def broadcast_value(value: Value) -> Value:
    """The leader's value: a number, a text, None, or lists and dictionaries of them."""
    if not is_distributed():
        return value
    content = json.dumps(value).encode()
    length = int(broadcast(np.asarray(len(content), np.int64)))
    own = np.frombuffer(content, np.uint8) if is_leader() else np.zeros(length, np.uint8)
    return json.loads(broadcast(own).tobytes())


def check_in_step(is_quick: bool, value: float) -> bool:
    """The leader's `is_quick`, after checking that all processes hold the same `value`.

    Processes on hosts of one kind do. Where rounding differs they would take different branches and wait for each
    other without end.

    Raises:
        LostProcessError: The values differ.
    """
    if not is_distributed():
        return is_quick
    leader = broadcast(np.array([is_quick, value]))
    if not np.array_equal(leader[1], value, equal_nan=True):
        raise LostProcessError(
            f"process {jax.process_index()} has the value {value!r} where the first has {float(leader[1])!r}: "
            "hosts must be of one kind, with the same versions and data"
        )
    return bool(leader[0])


def leader_first(compute: Callable[[], Value]) -> Value:
    """Call `compute` in the leader, and in the others once it has finished there."""
    if is_leader():
        result = compute()
        broadcast_value(None)
        return result
    with collective_timeout(seconds=np.inf):
        broadcast_value(None)
    return compute()


def allgather(array: Any, *, is_sharded: bool = False) -> np.ndarray:
    """The arrays of all processes, stacked; or the whole of one that is sharded over their devices."""
    from jax.experimental import multihost_utils

    with jax.enable_x64(True), collective_timeout():
        return np.asarray(multihost_utils.process_allgather(array, tiled=is_sharded))


def sum_over_processes(array: np.ndarray) -> np.ndarray:
    """The sum of the arrays of all processes, added in their order: the same bits in each."""
    return np.sum(allgather(array), axis=0) if is_distributed() else array


def gather_in_order(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the arrays of all processes in their order; their lengths may differ.

    Waits for the slowest process without limit, since a pass over all data may precede this.
    """
    if not is_distributed():
        yield array
        return
    with collective_timeout(seconds=np.inf):
        lengths = allgather(np.asarray(len(array)))
    for source, length in enumerate(lengths):
        is_own = source == jax.process_index()
        whole = np.ascontiguousarray(array) if is_own else np.empty((length, *array.shape[1:]), array.dtype)
        # A broadcast adds zeros, which changes the sign of -0.0; bytes arrive unchanged.
        content = whole.reshape(-1).view(np.uint8)
        for begin in range(0, len(content), _BROADCAST_BYTES):
            part = slice(begin, begin + _BROADCAST_BYTES)
            received = broadcast(content[part], source)
            if not is_own:
                content[part] = received
        yield whole


def assemble_rows(own: np.ndarray, places: Int[np.ndarray, " own"], count: int) -> np.ndarray:
    """Gather an array of `count` rows, of which each process has its `own`, to stand at `places`."""
    if not is_distributed():
        return own
    whole = np.empty((count, *own.shape[1:]), own.dtype)
    for at, rows in zip(list(gather_in_order(places)), gather_in_order(own), strict=True):
        whole[at] = rows
    return whole


# -- waiting for the others, but not without end


@contextlib.contextmanager
def collective_timeout(*, seconds: float | None = None) -> Generator[None]:
    """Exit this process if the block takes more than `seconds`; the default is the launcher's `--patience`.

    An outer block decides for those inside it.
    """
    if not is_distributed() or _watchdog.deadline is not None:
        yield
        return
    _watchdog.deadline = time.monotonic() + (_watchdog.patience if seconds is None else seconds)
    try:
        yield
    finally:
        _watchdog.deadline = None


class _Watchdog:
    """Ends this process when it has waited too long or its launcher is gone."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.patience = PATIENCE_SECONDS

    def start(self, environment: Mapping[str, str]) -> None:
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
