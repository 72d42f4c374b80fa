"""How many times faster a prediction is than our finite-element solver, one at a time and batched.

    taskset -c 1 python benchmarks/speed_against_fem.py

A quick operator with a tanh trunk is trained first. Errors are against the closed form on a fine mesh. The solver
is Newton's method on banded matrices, which are not assembled again: started from the Kirchhoff transform, or from
the solution of a neighbour; to the last digit, or only to the accuracy of the operator; and on the coarsest mesh
that is as accurate as the operator, at its own nodes. The closed form, which this problem has and most problems
do not have, is shown as well. Then a server is started on the same core and asked 50 times a second
(latency), and as fast as it answers (throughput).
"""

import argparse
import contextlib
import dataclasses as dc
import http.client
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import CLOCKS, Table, make_run_config, options_for, publish

from trunkfirst.linear.orthonormalise import relative_errors
from trunkfirst.problems import nonlinear_darcy
from trunkfirst.problems.nonlinear_darcy import NonlinearConductivity, cosine, set_up
from trunkfirst.runs.run import run
from trunkfirst.serve.predictor import JSON, NPZ, Predictor

PROBLEM = "nonlinear-conductivity"
EQUATION = NonlinearConductivity()
SETTINGS: dict[str, Any] = {
    "trunk": {"activation": "tanh", "initialisation": "xavier", "starts": 1, "iterations": 1500},
    "inputs": {"kind": "standardise", "function": "inverse"},
}
SAMPLES = 100
MESHES = (50, 75, 100, 150, 200, 300, 400, 541, 700, 1000, 1400)
RATE = 50.0  # requests a second
Solve = Callable[[np.ndarray], np.ndarray]  # from (samples,) values of beta to (samples, points)


@dc.dataclass(frozen=True)
class Contender:
    """Something that gives fields, how far off they are, and its seconds a sample."""

    name: str
    error: float
    alone: float
    batched: float


def main(argv: Sequence[str] | None = None) -> None:
    """Train, time all contenders on the same samples, then the server."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        SETTINGS["trunk"]["iterations"], options.seconds = 20, 1.0
    beta = np.random.default_rng(0).uniform(1, 1000, SAMPLES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        run(make_run_config("fast", PROBLEM, SETTINGS), folder)
        contenders = time_all(folder, beta, options)
        asked = {kind: measure_server(folder, kind, options.seconds) for kind in (JSON, NPZ)}
    first = contenders[0]
    rows = [
        (c.name, c.error, 1e3 * c.alone, c.alone / first.alone, 1e3 * c.batched, c.batched / first.batched)
        for c in contenders
    ]
    head = ("way to a field", "error", "ms, alone", "/ prediction", f"ms, of {SAMPLES}", "/ prediction")
    notes = [
        "Mean relative l2 error against the truth, at 2049 nodes or those of the coarser mesh"
        + ("." if len(contenders) > 5 else "; no coarser mesh is as right as the operator."),
        *(_sentence(*each) for each in asked.items()),
    ]
    details = {"contenders": [dc.asdict(c) for c in contenders], "server": asked}
    title = "Nonlinear conductivity: predictions against solves"
    publish("speed-against-fem", options, Table(title, head, rows, notes), details, _drawing(contenders))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=20.0, help="of asking the server 50 times a second")


# -- fields


def time_all(folder: Path, beta: np.ndarray, options: argparse.Namespace) -> list[Contender]:
    """The operator, the solver in its forms, and the closed form."""

    def measure(name: str, solve: Solve, problem: NonlinearConductivity = EQUATION) -> Contender:
        error = mean_error(solve, beta, problem)
        clock = CLOCKS[options.clock]
        alone = _median_seconds(clock, [lambda b=b: solve(b[None]) for b in beta])
        return Contender(name, error, alone, _median_seconds(clock, [lambda: solve(beta)] * 7) / len(beta))

    predictor = Predictor(folder)
    found = [measure("prediction", lambda b: predictor(b[:, None]).outputs)]
    allowed = found[0].error
    found += [
        measure("Newton from the Kirchhoff start", newton_on(EQUATION)),
        measure("Newton from the solution of beta + 1", neighbour_start(beta)),
    ]
    with stopped_at(allowed / 10):
        found.append(measure("Newton, stopped at a tenth of the first error", newton_on(EQUATION)))
        if (coarse := coarsest(beta, allowed)) is not None:
            found.append(measure(f"the same on {coarse.nodes} nodes", newton_on(coarse), coarse))
    profiles = set_up(EQUATION.nodes, cosine)[1]
    found.append(
        measure("the closed form of this problem", lambda b: profiles.pressures(**EQUATION.constants(b[:, None])))
    )
    return found


def neighbour_start(beta: np.ndarray) -> Solve:
    """Newton's method from solutions that are known, as when a parameter is moved step by step."""
    known = dict(zip(beta, newton_on(EQUATION)(beta + 1), strict=True))
    equation = set_up(EQUATION.nodes, cosine)[0]

    def solve(b: np.ndarray) -> np.ndarray:
        start = np.stack([known[each] for each in b])
        return equation.solve(start, kappa=b, f=np.ones_like(b)).pressures

    return solve


def newton_on(problem: NonlinearConductivity) -> Solve:
    """The Kirchhoff start and Newton's method, at the nodes of the mesh."""
    return lambda beta: problem.newton(beta[:, None]).pressures


def coarsest(beta: np.ndarray, allowed: float) -> NonlinearConductivity | None:
    """The first mesh on which the mean error is at most that of the operator; None where none is."""
    problems = (NonlinearConductivity(nodes) for nodes in MESHES)
    return next((p for p in problems if mean_error(newton_on(p), beta, p) <= allowed), None)


def mean_error(solve: Solve, beta: np.ndarray, problem: NonlinearConductivity) -> float:
    """Relative to the truth, at the nodes."""
    return float(relative_errors(solve(beta), problem.closed_form(beta[:, None])).mean())


@contextlib.contextmanager
def stopped_at(tolerance: float) -> Iterator[None]:
    """Newton's method ends at this relative residual instead of 1e-10."""
    before, nonlinear_darcy.TOLERANCE = nonlinear_darcy.TOLERANCE, tolerance
    yield
    nonlinear_darcy.TOLERANCE = before


def _median_seconds(clock: Callable[[], float], calls: Sequence[Callable[[], object]]) -> float:
    calls[0]()
    times: list[float] = []
    for each in calls:
        begin = clock()
        each()
        times.append(clock() - begin)
    return float(np.median(times))


# -- the server


def measure_server(folder: Path, kind: str, seconds: float) -> dict[str, float]:
    """Milliseconds at 50 requests a second, then requests and fields a second without a pause."""
    with serving(folder) as ask:
        one, many = _body(kind, 1), _body(kind, 64)
        ask(kind, one)
        latencies: list[float] = []
        begin = time.perf_counter()
        for number in range(int(seconds * RATE)):
            due = begin + number / RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            ask(kind, one)
            latencies.append(time.perf_counter() - due)  # what waited behind another counts as waiting
        p50, p99 = 1e3 * np.percentile(latencies, (50, 99))
        rates = [_rate(lambda body=body: ask(kind, body), min(seconds, 3.0)) for body in (one, many)]
    return {"p50": float(p50), "p99": float(p99), "requests": rates[0], "fields": 64 * rates[1]}


def _sentence(kind: str, found: dict[str, float]) -> str:
    return (
        f"Server, {kind}: {found['p50']:.3g} ms (p50) and {found['p99']:.3g} ms (p99) at {RATE:g} requests a "
        f"second of one field of 2049 numbers; {found['requests']:.0f} requests a second without a pause, and "
        f"{found['fields']:,.0f} fields a second in requests of 64; client and server on the same core."
    )


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Callable[[str, bytes], bytes]]:
    """A server in a process of its own, and a way to ask it over one connection."""
    program = "import sys; from trunkfirst.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "serve", str(folder), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline().partition("127.0.0.1:")[2].partition(";")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def ask(kind: str, body: bytes) -> bytes:
        connection.request("POST", "/predict", body, {"Content-Type": kind})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    try:
        yield ask
    finally:
        connection.close()
        process.terminate()
        process.wait()


def _body(kind: str, samples: int) -> bytes:
    inputs = np.linspace(2, 900, samples)[:, None]
    if kind == JSON:
        return json.dumps({"inputs": inputs.tolist()}).encode()
    file = io.BytesIO()
    np.savez(file, inputs=inputs)
    return file.getvalue()


def _rate(call: Callable[[], object], seconds: float) -> float:
    count, begin = 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        call()
        count += 1
    return count / (time.perf_counter() - begin)


def _drawing(contenders: Sequence[Contender]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        places = np.arange(len(contenders))
        axes.barh(places - 0.2, [1e3 * c.alone for c in contenders], 0.4, label="one at a time")
        axes.barh(places + 0.2, [1e3 * c.batched for c in contenders], 0.4, label=f"{SAMPLES} at a time")
        axes.set_yticks(places, [f"{c.name}\nerror {c.error:.1e}" for c in contenders], fontsize=7)
        axes.set(xscale="log", xlabel="milliseconds a field of 2049 points")
        axes.invert_yaxis()

    return draw


if __name__ == "__main__":
    main()
