"""kill -9 at random moments of a run, in each of its stages, and resume: the same SHA-256 as an uninterrupted run.

    python benchmarks/kill_and_resume.py --kills 200 --terms 50

Every kill has a run of its own, which is resumed after it; some are killed again while they resume. Processes are
forked from one that has imported everything and computed nothing. A stage is delayed by some milliseconds at its
beginning, so that short ones can be hit.
"""

import argparse
import functools as ft
import mmap
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from _common import Table, options_for, publish

from trunkfirst import fields, fitting
from trunkfirst.cli import console, main as command
from trunkfirst.files.integrity import sha256_of, verify_manifest
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.problems import generate
from trunkfirst.regressors.network import NetworkBranch

# The function of a stage, and how long it may be delayed at its beginning, in seconds.
STAGES: dict[str, tuple[Any, str, float]] = {
    "data": (generate, "solve_shard", 0.05),
    "selection": (fitting, "choose", 0.0),
    "compression": (fields, "thin_factor", 0.05),
    "trunk": (NetworkTrunk, "fit", 0.0),
    "orthonormalisation": (fields.Fields, "basis", 0.05),
    "branch": (NetworkBranch, "fit", 0.02),
    "evaluation and files": (fitting, "evaluate", 0.05),
}
ARGUMENTS = ("nonlinear-conductivity", "--samples", "60", "--iterations", "400", "--quiet")
SETTINGS = (
    "trunk.hidden=[20]",
    "trunk.width=20",
    "branch.hidden=[20]",
    "checkpoint_seconds=0.1",
    "trunk.starts=4",
)
SETTINGS_OPTIONS = [f"--set={setting}" for setting in SETTINGS]
MOST_SECONDS = 120.0


def main(argv: Sequence[str] | None = None) -> None:
    """Send the signals, the same number in every stage, and print the table."""
    options = options_for(__doc__, _add_options, argv)
    signals = [signal.SIGKILL] * options.kills + [signal.SIGTERM] * options.terms
    signals = signals[:2] if options.quick else signals
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # nothing has been computed before the fork
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        begin = time.perf_counter()
        whole = _run_uninterrupted(place)
        seconds = time.perf_counter() - begin
        hits: Counter[str] = Counter()
        same: Counter[str] = Counter()
        for number, each in enumerate(signals):
            wanted = options.stages[number % len(options.stages)]
            stage, digest = _interrupt_and_resume(place / str(number), wanted, each, rng, place)
            hits[stage] += 1
            same[stage] += digest == whole
            shutil.rmtree(place / str(number))
    rows = [(stage, hits[stage], same[stage]) for stage in (*STAGES, "elsewhere") if hits[stage]]
    rows.append(("all", sum(hits.values()), sum(same.values())))
    note = f"An uninterrupted run takes {seconds:.1f} s here; the state is saved every 0.1 s."

    def draw(axes: Any) -> None:
        names = [row[0] for row in rows[:-1]]
        axes.barh(names, [row[1] for row in rows[:-1]], color="0.8", label="killed")
        axes.barh(names, [row[2] for row in rows[:-1]], height=0.4, label="resumed to the same bits")
        axes.invert_yaxis()
        axes.set(xlabel="runs", title="kill, then resume")

    table = Table("kill -9 and resume", ("killed in", "kills", "resumed to the same SHA-256"), rows, [note])
    publish("kill-and-resume", options, table, {"hits": hits, "same": same}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=200, help="number of runs that get SIGKILL")
    parser.add_argument("--terms", type=int, default=0, help="number of runs that get SIGTERM")
    parser.add_argument("--stages", nargs="+", choices=list(STAGES), default=list(STAGES), help="stages to hit")


def _run_uninterrupted(place: Path) -> str:
    code = _wait(_start(place, ["run", *ARGUMENTS, *SETTINGS_OPTIONS, "--out", str(place / "whole")]))
    assert code == 0, "the uninterrupted run failed"
    return _digest(place / "whole")


def _interrupt_and_resume(
    folder: Path, wanted: str, number: signal.Signals, rng: random.Random, place: Path
) -> tuple[str, str]:
    """The stage in which a run got the signal, and the digest of its model after resuming."""
    folder.mkdir()
    # Data are in the cache already, except where making them is to be interrupted.
    start = ft.partial(_start, place, cache=folder if wanted == "data" else None)
    run = ["run", *ARGUMENTS, *SETTINGS_OPTIONS, "--out", str(folder / "run")]
    resume = ["resume", str(folder / "run"), "--quiet"]
    stage = _interrupt_in(wanted, ft.partial(start, run), number, rng)
    if rng.random() < 0.3:
        _interrupt_in(wanted, ft.partial(start, resume), number, rng)
    code = _wait(start(resume))
    assert code == 0, f"resume failed with {code} after {number.name} in {stage}"
    return stage, _digest(folder / "run")


def _interrupt_in(
    wanted: str, start: Callable[[mmap.mmap, float], int], number: signal.Signals, rng: random.Random
) -> str:
    """Start a process, wait until it reaches the stage and a little more, and send it the signal."""
    board = mmap.mmap(-1, 1)
    hold = STAGES[wanted][2]
    child = start(board, hold)
    expected = list(STAGES).index(wanted) + 1
    deadline = time.monotonic() + MOST_SECONDS
    # WNOWAIT leaves an ended child to be waited for below.
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while board[0] != expected and time.monotonic() < deadline and os.waitid(os.P_PID, child, ended) is None:
        time.sleep(0.001)
    time.sleep(rng.uniform(0.0, hold or 0.8))
    stage = board[0]
    os.kill(child, number)
    code = _wait(child)
    # A run may finish before the signal. Outside of a run directory SIGTERM has its default effect.
    allowed = (0, -signal.SIGKILL) if number == signal.SIGKILL else (0, 143, -signal.SIGTERM)
    assert code in allowed, f"{number.name} in stage {stage}: exit code {code}"
    return list(STAGES)[stage - 1] if stage else "elsewhere"


def _start(
    place: Path,
    arguments: list[str],
    board: mmap.mmap | None = None,
    hold: float = 0.0,
    *,
    cache: Path | None = None,
) -> int:
    """Fork a process that carries out a command and writes the number of its stage to the `board`."""
    child = os.fork()
    if child:
        return child
    try:
        os.environ["TRUNKFIRST_CACHE"] = str(cache or place)
        # Share compiled programs: compiling would take most of the time.
        jax.config.update("jax_compilation_cache_dir", str(place / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        console.write_run_report = lambda folder, *_: Path(folder)  # drawn after all that counts is written
        if board is not None:
            for number, (owner, name, _) in enumerate(STAGES.values(), start=1):
                setattr(owner, name, _announced(getattr(owner, name), board, number, hold))
        sys.argv = ["trunkfirst", *arguments]
        command()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 99)
    finally:
        os._exit(99)


def _announced(function: Callable[..., Any], board: mmap.mmap, number: int, hold: float) -> Callable[..., Any]:
    @ft.wraps(function)
    def wrapped(*arguments: Any, **more: Any) -> Any:
        before, board[0] = board[0], number
        time.sleep(hold)
        try:
            return function(*arguments, **more)
        finally:
            board[0] = before

    return wrapped


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _digest(folder: Path) -> str:
    verify_manifest(folder)
    return sha256_of(folder / "model" / "model.safetensors")


if __name__ == "__main__":
    main()
