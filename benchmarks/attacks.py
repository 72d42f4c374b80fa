"""What is done to runs, files and the server, how often, and how often the promise held.

    python benchmarks/attacks.py --tries 100

The promises are those of docs/promises.md. Commands are forked from a process that has imported everything and
computed nothing. The full disk is a tmpfs, which only the superuser can mount; elsewhere it is left out. Two more
scripts: kill -9 in every stage (kill_and_resume.py) and the marks of outliers (outlier_marks.py).
"""

import argparse
import contextlib
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import Table, options_for, publish

from trunkfirst import networks, runs  # noqa: F401  (imported before the forks)
from trunkfirst.cli import main as command
from trunkfirst.files.integrity import sha256_of, verify_run
from trunkfirst.report import pages  # noqa: F401

NETWORKS = (
    *("trunk.kind=network", "trunk.hidden=[20]", "trunk.width=8", "trunk.iterations=100", "trunk.starts=2"),
    *("branch.kind=network", "branch.hidden=[20]", "branch.iterations=100", "checkpoint_seconds=0.5"),
)
SMALL = ("trunk.hidden=[10]", "trunk.width=8", "branch.hidden=[10]", "trunk.starts=2")
CLOSED = ("trunk.kind=modes", "branch.kind=linear")
WIDE = ("trunk.hidden=[300000,300000]", "trunk.hidden=[1000000000]", "branch.hidden=[1000000000]")
# A command is stopped at a moment up to this many seconds after it has begun.
LATEST = 10.0
Found = tuple[int, int, str]


def main(argv: Sequence[str] | None = None) -> None:
    """Try all attacks and print the table."""
    options = options_for(__doc__, _add_options, argv)
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # nothing has been computed before the fork
    rows: list[tuple[Any, ...]] = []
    for name in options.attacks:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((name, *ATTACKS[name](_with_data(Path(folder)), 2 if options.quick else options.tries)))
        print(rows[-1], flush=True)

    def draw(axes: Any) -> None:
        axes.barh([row[0] for row in rows], [row[1] for row in rows], color="0.8", label="tries")
        axes.barh([row[0] for row in rows], [row[2] for row in rows], height=0.4, label="held")
        axes.invert_yaxis()

    publish("attacks", options, Table("Attacks", ("attack", "tries", "held", "remark"), rows), {}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tries", type=int, default=100, help="tries of what is random")
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), help="which")


def _with_data(folder: Path) -> Path:
    x, a = np.linspace(0, 1, 40), np.random.default_rng(0).normal(size=(80, 3))
    outputs = np.tanh(a @ np.stack([np.sin(3 * x), x**2, np.cos(5 * x)]))
    np.savez(folder / "data.npz", inputs=a, points=x[:, None], outputs=outputs)
    os.environ["TRUNKFIRST_CACHE"] = str(folder)
    return folder


# -- attacks


def signals(place: Path, tries: int) -> Found:
    """SIGTERM at random moments of a fit of networks, a fit that chooses, and a comparison."""
    data, rng, codes = str(place / "data.npz"), random.Random(5), Counter[int]()
    commands = (
        ["fit", "--data", data, *_set(*NETWORKS)],
        ["fit", "--data", data, "--minutes", "0.2"],
        ["compare", "nonlinear-conductivity", "--samples", "30", "--iterations", "30", *_set(*SMALL)],
    )
    for number in range(tries):
        out = place / str(number)
        child = _start([*commands[number % len(commands)], "--quiet", "--out", str(out)])
        _wait_for(out / "checkpoints" / "request.json", child)
        time.sleep(rng.uniform(0, LATEST))
        os.kill(child, signal.SIGTERM)
        codes[_code(child)] += 1
    # 0: finished before the signal; shells show 143 for a process that SIGTERM has ended, too
    held = codes[143] + codes[-signal.SIGTERM] + codes[0]
    return tries, held, "exit codes " + ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))


def reports(place: Path, tries: int) -> Found:
    """kill -9 once the figures are being written, then resume: the report is there."""
    held, tries = 0, min(tries, 10)
    for number in range(tries):
        out = place / str(number)
        child = _start(["fit", "--data", str(place / "data.npz"), *_set(*CLOSED), "--quiet", "--out", str(out)])
        _wait_for(out / "figures", child)
        os.kill(child, signal.SIGKILL)
        _code(child)
        held += _run("resume", str(out), "--quiet") == 0 and (out / "report.html").is_file()
    return tries, held, ""


def checkpoints(place: Path, tries: int) -> Found:
    """A byte of every second checkpoint changed after kill -9, then resume: the same SHA-256."""
    held, tries, rng = 0, min(tries, 5), random.Random(0)
    fit = ["fit", "--data", str(place / "data.npz"), *_set(*NETWORKS), "--quiet", "--out"]
    _run(*fit, str(place / "whole"))
    whole = sha256_of(place / "whole" / "model" / "model.safetensors")
    for number in range(tries):
        out = place / str(number)
        child = _start([*fit, str(out)])
        _wait_for(out / "checkpoints" / "000002.finished", child)
        os.kill(child, signal.SIGKILL)
        _code(child)
        for path in sorted(out.glob("checkpoints/*.*-way")) + sorted(out.glob("checkpoints/*.finished"))[::2]:
            content = bytearray(path.read_bytes())
            content[rng.randrange(len(content))] ^= 1
            path.write_bytes(content)
        code = _run("resume", str(out), "--quiet")
        held += code == 0 and sha256_of(out / "model" / "model.safetensors") == whole
    return tries, held, ""


def memory(place: Path, tries: int) -> Found:
    """Networks of absurd widths: exit code 18."""
    del tries
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


def full_disk(place: Path, tries: int) -> Found:
    """A fit whose folder is on a file system of some KiB: exit code 9, and no file that looks whole but is not."""
    held, sizes = 0, (8, 16, 32, 64, 128)[: max(2, min(tries, 5))]
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


def domain(place: Path, tries: int) -> Found:
    """Points outside the domain: refused with exit code 6."""
    del tries
    run, places = str(place / "run"), (5.0, -1.0, 1e6, 1e300)
    _run("fit", "--data", str(place / "data.npz"), *_set(*CLOSED), "--quiet", "--out", run)
    codes: list[int] = []
    for x in places:
        np.save(place / "points.npy", np.array([[x]]))
        np.savez(place / "inputs.npz", inputs=np.zeros((1, 3)))
        files = ["--inputs", str(place / "inputs.npz"), "--points", str(place / "points.npy")]
        codes.append(_run("predict", run, *files, "--out", str(place / "u.npz")))
    return len(codes), codes.count(6), f"x = {', '.join(f'{x:g}' for x in places)}"


def abandoned(place: Path, tries: int) -> Found:
    """16 requests of 1.1 MB closed after 3 s: small requests are answered all the time."""
    del tries
    run = str(place / "run")
    _run("fit", "--data", str(place / "data.npz"), *_set(*CLOSED), "--quiet", "--out", run)
    server = subprocess.Popen(
        [sys.executable, "-m", "trunkfirst", "serve", run, "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        found = next(filter(None, (re.search(r"http://[^:]+:(\d+)", line) for line in server.stdout)))
        port = int(found[1])
        quiet = [_ask(port) for _ in range(50)]
        body = json.dumps({"inputs": [[0.1, 0.2, 0.3]] * 49_000}).encode()
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        clients = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(16)]
        for client in clients:
            client.sendall(head.encode() + body)
        begin, during = time.perf_counter(), list[tuple[int, float]]()
        while time.perf_counter() - begin < 3:
            during.append(_ask(port))
        for client in clients:
            client.close()
        after = [_ask(port) for _ in range(50)]
    finally:
        server.terminate()
        server.wait(60)
    times = [_percentiles([seconds for _, seconds in answers]) for answers in (quiet, during, after)]
    held = sum(status == 200 for status, _ in (*during, *after))
    note = "; ".join(f"{name} {text}" for name, text in zip(("before", "during", "after"), times, strict=True))
    return len(during) + len(after), held, f"{len(body):,} bytes each; p50 and p99 in ms: {note}"


ATTACKS: dict[str, Callable[[Path, int], Found]] = {
    "SIGTERM": signals,
    "kill -9 while the report is written": reports,
    "damaged checkpoints": checkpoints,
    "full disk": full_disk,
    "widths beyond memory": memory,
    "points outside the domain": domain,
    "abandoned requests": abandoned,
}


# -- processes


def _set(*settings: str) -> list[str]:
    return [f"--set={setting}" for setting in settings]


def _start(arguments: list[str]) -> int:
    """Fork a process that carries out a command."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.argv = ["trunkfirst", *arguments]
        command()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 99)
    finally:
        os._exit(99)


def _code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(*arguments: str) -> int:
    return _code(_start(list(arguments)))


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


def _ask(port: int) -> tuple[int, float]:
    """The status of a small prediction, and its seconds."""
    begin = time.perf_counter()
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        body = json.dumps({"inputs": [[0.1, 0.2, 0.3]]})
        connection.request("POST", "/predict", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    return answer.status, time.perf_counter() - begin


def _percentiles(seconds: list[float]) -> str:
    return " and ".join(f"{1e3 * value:.0f}" for value in np.percentile(seconds, [50, 99]))


if __name__ == "__main__":
    main()
