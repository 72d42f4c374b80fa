"""What is done to runs, files and the server, how often, and how often the promise held.

    python benchmarks/attacks.py --tries 100

The promises are those of docs/promises.md. Commands are forked from a process that has imported everything and
computed nothing. Each try of what is random is written to a file as it ends: the same command continues after an
interruption. The full disk is a tmpfs, which only the superuser can mount; elsewhere it is left out. More:
kill_and_resume.py (every stage), corrupt.py (damaged files) and outlier_marks.py (false alarms).
"""

import argparse
import contextlib
import ctypes
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import RESULTS, Table, options_for, publish

from trunkfirst import networks, runs  # noqa: F401  (imported before the forks)
from trunkfirst.cli import main as command
from trunkfirst.files.integrity import sha256_of, verify_run
from trunkfirst.report import pages  # noqa: F401

NETWORKS = (
    *("trunk.kind=network", "trunk.hidden=[20]", "trunk.width=8", "trunk.iterations=20", "trunk.starts=2"),
    *("branch.kind=network", "branch.hidden=[20]", "branch.iterations=20", "checkpoint_seconds=0.1"),
)
SMALL = ("trunk.hidden=[10]", "trunk.width=8", "branch.hidden=[10]", "trunk.starts=2")
CLOSED = ("trunk.kind=modes", "branch.kind=linear")
WIDE = ("trunk.hidden=[300000,300000]", "trunk.hidden=[1000000000]", "branch.hidden=[1000000000]")
OUTSIDE = (5.0, -1.0, 1e6, 1e300)
NOTHING = 2  # the exit code of `resume` where nothing was begun
Found = tuple[int, int, str]
Repeated = Callable[[Path, Sequence[int]], Iterator[tuple[bool, str]]]


def main(argv: Sequence[str] | None = None) -> None:
    """Try attacks and publish the table after each; those that are left out keep their rows."""
    options = options_for(__doc__, _add_options, argv)
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # nothing has been computed before the fork
    found: dict[str, Found] = {}
    for name in options.attacks:
        with tempfile.TemporaryDirectory() as folder:
            place = _with_data(Path(folder))
            results = place if options.quick else options.out or RESULTS
            results.mkdir(parents=True, exist_ok=True)
            if name in REPEATED:
                attack, most = REPEATED[name]
                journal = results / f"attacks-{attack.__name__}.jsonl"
                found[name] = _repeat(attack, place, 2 if options.quick else min(options.tries, most), journal)
                _publish(found, options)
                journal.unlink()
            else:
                found[name] = ONCE[name](place)
                _publish(found, options)


def _repeat(attack: Repeated, place: Path, tries: int, journal: Path) -> Found:
    """Carry out the tries that are not in the journal yet, and count all."""
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.is_file() else []
    done = {entry["try"]: entry for entry in map(json.loads, lines) if entry["try"] < tries}
    missing = [number for number in range(tries) if number not in done]
    for number, (held, remark) in zip(missing, attack(place, missing) if missing else (), strict=True):
        done[number] = {"try": number, "held": held, "remark": remark}
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[number]) + "\n")
    remarks = sorted(Counter(entry["remark"] for entry in done.values()).items())
    held = sum(entry["held"] for entry in done.values())
    return tries, held, ", ".join(f"{remark}: {count}" for remark, count in remarks)


def _publish(found: dict[str, Found], options: argparse.Namespace) -> None:
    path = (options.out or RESULTS) / "attacks.json"
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and not options.quick else {}
    by_name = {row[0]: row for row in earlier["table"]["rows"]} if earlier else {}
    by_name |= {name: (name, *result) for name, result in found.items()}
    commands: dict[str, str] = (earlier["details"] if earlier else {}) | dict.fromkeys(found, options.command)
    rows = [by_name[name] for name in ATTACKS if name in by_name]

    def draw(axes: Any) -> None:
        axes.barh([row[0] for row in rows], [row[1] for row in rows], color="0.8", label="tries")
        axes.barh([row[0] for row in rows], [row[2] for row in rows], height=0.4, label="held")
        axes.invert_yaxis()

    table = Table("Attacks", ("attack", "tries", "held", "remark"), rows)
    used: dict[str, None] = dict.fromkeys(commands[row[0]] for row in rows)
    shown = argparse.Namespace(**vars(options) | {"command": "`, then `".join(used)})
    publish("attacks", shown, table, commands, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tries", type=int, default=100, help="tries of what is random; of slow ones at most 40 or 10"
    )
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=ATTACKS, help="which")


def _with_data(folder: Path) -> Path:
    x, a = np.linspace(0, 1, 40), np.random.default_rng(0).normal(size=(80, 3))
    outputs = np.tanh(a @ np.stack([np.sin(3 * x), x**2, np.cos(5 * x)]))
    np.savez(folder / "data.npz", inputs=a, points=x[:, None], outputs=outputs)
    os.environ["TRUNKFIRST_CACHE"] = str(folder)
    os.environ.pop("TRUNKFIRST_PROGRAM_CACHE", None)
    return folder


# -- attacks


def signals(place: Path, numbers: Sequence[int]) -> Iterator[tuple[bool, str]]:
    """SIGTERM and SIGINT at random moments from the first to the last: 143 and 130, or 0 if it was faster."""
    commands = _commands(place)
    commands["fit that chooses"] = ["fit", "--data", str(place / "data.npz"), "--minutes", "0.1", "--quiet"]
    os.environ["TRUNKFIRST_PROGRAM_CACHE"] = "off"  # most dangerous are signals while XLA compiles
    seconds: dict[str, float] = {}
    for number in numbers:
        name = list(commands)[number // 15 % len(commands)]  # seldom another: each has to be timed once
        sent = (signal.SIGTERM, signal.SIGINT)[number % 2]
        if name not in seconds:
            seconds[name] = _timed(commands[name], place / name)
        child = _start([*commands[name], "--out", str(place / str(number))])
        time.sleep(random.Random(number).uniform(0, seconds[name]))
        os.kill(child, sent)
        code = _code(child)
        code = 128 - code if code < 0 else code  # as shells show a process that a signal has ended
        yield code in (0, 128 + sent), f"{sent.name} {code}"


def kills(place: Path, numbers: Sequence[int]) -> Iterator[tuple[bool, str]]:
    """kill -9 at any moment, every second time while the report is written, then resume: all files are there."""
    commands = _commands(place)
    seconds: dict[str, float] = {}
    for number in numbers:
        name, out = list(commands)[number // 2 % len(commands)], place / str(number)
        if name not in seconds:
            seconds[name] = _timed(commands[name], place / name)
        child = _start([*commands[name], "--out", str(out)])
        if number % 2:
            _wait_for(out / "figures", child)
        time.sleep(random.Random(number).uniform(0, 1 if number % 2 else seconds[name]))
        os.kill(child, signal.SIGKILL)
        _code(child)
        code = _run("resume", str(out), "--quiet") if out.is_dir() else NOTHING
        if code == NOTHING:
            code = _run(*commands[name], "--out", str(out))
        yield code == 0 and _files(out) == _files(place / name), name


def checkpoints(place: Path, numbers: Sequence[int]) -> Iterator[tuple[bool, str]]:
    """A byte of every second checkpoint changed after kill -9, then resume: the same SHA-256."""
    fit = [*_commands(place)["fit"], "--out"]
    _run(*fit, str(place / "whole"))
    whole = sha256_of(place / "whole" / "model" / "model.safetensors")
    for number in numbers:
        out, rng = place / str(number), random.Random(number)
        child = _start([*fit, str(out)])
        _wait_for(out / "checkpoints" / "000002.finished", child)
        time.sleep(rng.uniform(0, 2))
        os.kill(child, signal.SIGKILL)
        _code(child)
        damaged = sorted(out.glob("checkpoints/*.*-way")) + sorted(out.glob("checkpoints/*.finished"))[::2]
        for path in damaged:
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 1
            path.write_bytes(content)
        code = _run("resume", str(out), "--quiet")
        same = code == 0 and sha256_of(out / "model" / "model.safetensors") == whole
        yield same, f"{len(damaged)} files damaged"


def read_only(place: Path, numbers: Sequence[int]) -> Iterator[tuple[bool, str]]:
    """A folder that becomes read-only during a fit: exit code 9; writable again, resumed to the same bits."""
    fit = _commands(place)["fit"]
    _run(*fit, "--out", str(place / "whole"))
    for number in numbers:
        out = place / str(number)
        child = _start([*fit, "--out", str(out)], obeys_modes=True)
        _wait_for(out / "checkpoints" / "0.under-way", child)
        for folder in (out, out / "checkpoints"):
            folder.chmod(0o555)
        code = _code(child)
        for folder in (out, out / "checkpoints"):
            folder.chmod(0o755)
        resumed = _run("resume", str(out), "--quiet")
        yield code == 9 and resumed == 0 and _files(out) == _files(place / "whole"), f"exit code {code}"


def memory(place: Path) -> Found:
    """Networks of absurd widths: exit code 18."""
    kinds = {"trunk": "trunk.kind=network", "branch": "branch.kind=network"}
    codes = [
        _run(
            "fit",
            "--data",
            str(place / "data.npz"),
            "--quiet",
            "--out",
            str(place / str(number)),
            *_set(*settings),
        )
        for number, width in enumerate(WIDE)
        for settings in [(kinds[width.partition(".")[0]], width, "trunk.width=2")]
    ]
    return len(codes), codes.count(18), ", ".join(WIDE)


def full_disk(place: Path) -> Found:
    """A fit whose folder is on a file system of some KiB: exit code 9, and no file that looks whole but is not."""
    held, sizes = 0, (8, 16, 32, 64, 128)
    disk = place / "disk"
    disk.mkdir()
    for size in sizes:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            return 0, 0, "left out: mounting is not allowed here"
        try:
            data = str(place / "data.npz")
            code = _run("fit", "--data", data, *_set(*CLOSED), "--quiet", "--out", str(disk / "run"))
            held += code in (0, 9) and _is_whole_or_refused(disk / "run")
        finally:
            subprocess.run(["umount", str(disk)], check=True)
    return len(sizes), held, f"{', '.join(map(str, sizes))} KiB"


def domain(place: Path) -> Found:
    """Points outside the domain: the command line refuses them with exit code 6, the server with 422."""
    codes: list[int] = []
    with _served(place) as port:
        np.savez(place / "inputs.npz", inputs=np.zeros((1, 3)))
        for x in OUTSIDE:
            np.save(place / "points.npy", np.array([[x]]))
            files = ["--inputs", str(place / "inputs.npz"), "--points", str(place / "points.npy")]
            codes.append(_run("predict", str(place / "run"), *files, "--out", str(place / "u.npz")))
            codes.append(_ask(port, points=[[x]])[0])
    held = codes.count(6) + codes.count(422)
    return len(codes), held, f"x = {', '.join(f'{x:g}' for x in OUTSIDE)}; by command line and server"


def abandoned(place: Path) -> Found:
    """16 requests of 1.1 MB closed after 3 s: small requests are answered all the time."""
    body = json.dumps({"inputs": [[0.123456, 0.234567, 0.345678]] * 36_000}).encode()
    head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    with _served(place) as port:
        quiet = [_ask(port) for _ in range(50)]
        clients = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(16)]
        for client in clients:
            client.sendall(head.encode() + body)
        begin, during = time.perf_counter(), list[tuple[int, float]]()
        while time.perf_counter() - begin < 3:
            during.append(_ask(port))
        for client in clients:
            client.close()
        after = [_ask(port) for _ in range(50)]
    times = [_percentiles([seconds for _, seconds in answers]) for answers in (quiet, during, after)]
    held = sum(status == 200 for status, _ in (*during, *after))
    note = "; ".join(f"{name} {text}" for name, text in zip(("before", "during", "after"), times, strict=True))
    return len(during) + len(after), held, f"{len(body):,} bytes each; p50 and p99 in ms: {note}"


REPEATED: dict[str, tuple[Repeated, int]] = {
    "SIGTERM and SIGINT": (signals, 1000),
    "kill -9, then resume": (kills, 40),
    "damaged checkpoints": (checkpoints, 10),
    "folder that becomes read-only": (read_only, 10),
}
ONCE: dict[str, Callable[[Path], Found]] = {
    "full disk": full_disk,
    "widths beyond memory": memory,
    "points outside the domain": domain,
    "abandoned requests": abandoned,
}
ATTACKS = (*REPEATED, *ONCE)


# -- processes


def _set(*settings: str) -> list[str]:
    return [f"--set={setting}" for setting in settings]


def _commands(place: Path) -> dict[str, list[str]]:
    data = ["--data", str(place / "data.npz"), "--quiet"]
    problem = ["nonlinear-conductivity", "--samples", "20", "--iterations", "5", "--quiet"]
    return {
        "fit": ["fit", *data, *_set(*NETWORKS)],
        "fit with cross-validation": ["fit", *data, "--cross-validate", *_set(*CLOSED)],
        "compare": ["compare", *problem, *_set(*SMALL)],
    }


def _start(arguments: list[str], *, obeys_modes: bool = False) -> int:
    """Fork a process that carries out a command; `obeys_modes`: of files, which the superuser may ignore."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
        if obeys_modes:
            _drop_override()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.argv = ["trunkfirst", *arguments]
        command()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 99)
    finally:
        os._exit(99)


def _drop_override() -> None:
    """Give up CAP_DAC_OVERRIDE, by the system calls of Linux."""
    system, head, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    system.capget(head, sets)
    sets[0] &= ~2
    system.capset(head, sets)


def _code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(*arguments: str) -> int:
    return _code(_start(list(arguments)))


def _timed(arguments: list[str], out: Path) -> float:
    """The seconds of an uninterrupted command."""
    begin = time.perf_counter()
    assert _run(*arguments, "--out", str(out)) == 0, arguments
    return time.perf_counter() - begin


def _files(folder: Path) -> dict[str, str]:
    """The names of all files, of arrays of the model with their SHA-256."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: sha256_of(path) if path.suffix == ".safetensors" else "" for name, path in found.items()}


def _wait_for(path: Path, child: int) -> None:
    """Wait until there is such a file, or the process has ended; WNOWAIT leaves it to be waited for."""
    ended = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while not path.exists() and os.waitid(os.P_PID, child, ended) is None:
        time.sleep(0.001)


def _is_whole_or_refused(folder: Path) -> bool:
    """A manifest, where there is one, tells the truth."""
    if (folder / "MANIFEST.sha256").is_file():
        verify_run(folder)
    return True


@contextlib.contextmanager
def _served(place: Path) -> Generator[int]:
    """The port of a server of a small operator."""
    run = str(place / "run")
    _run("fit", "--data", str(place / "data.npz"), *_set(*CLOSED), "--quiet", "--out", run)
    command = [sys.executable, "-m", "trunkfirst", "serve", run, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(next(filter(None, (re.search(r"http://[^:]+:(\d+)", line) for line in server.stdout)))[1])
        finally:
            server.terminate()


def _ask(port: int, **more: Any) -> tuple[int, float]:
    """The status of a small prediction, and its seconds."""
    begin = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        body = json.dumps({"inputs": [[0.1, 0.2, 0.3]], **more})
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    return answer.status, time.perf_counter() - begin


def _percentiles(seconds: list[float]) -> str:
    return " and ".join(f"{1e3 * value:.0f}" for value in np.percentile(seconds, [50, 99]))


if __name__ == "__main__":
    main()
