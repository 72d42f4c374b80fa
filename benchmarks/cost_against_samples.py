"""Cost of a projected trunk iteration against the number of samples, for multiple-inputs at 541 points.

    taskset -c 1 python benchmarks/cost_against_samples.py

The outputs enter through their thin factor, made once; its time is listed separately. For comparison, an iteration
of Adam on the loss of the paper's step 1 without compression, up to --plain-limit samples. Problems take turns in
one process; the median round counts.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _common import Stopwatch, Table, draw_curves, make_run_config, options_for, publish

from trunkfirst.fields import Fields
from trunkfirst.linear.low_rank import compress
from trunkfirst.losses import FreeCoefficients, OutputLoss
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import AbstractMinimiser, AbstractObjective, minimise
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.layers import Trunk
from trunkfirst.problems.generate import get_problem

PROBLEM = get_problem("multiple-inputs")
BLOCK = 90_000  # samples assembled and compressed at a time
DTYPE = np.dtype(np.float64)


def main(argv: Sequence[str] | None = None) -> None:
    """Compress, then time all sizes in turn."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.samples, options.rounds, options.iterations, options.plain_limit = [300, 900], 1, 3, 300
    with jax.enable_x64(True):
        compressed = {count: compressed_outputs(count, options.clock) for count in options.samples}
        searches = {count: projected_search(factor) for count, (factor, _) in compressed.items()}
        plain = {count: plain_search(count) for count in options.samples if count <= options.plain_limit}
        times = time_in_turn(searches, options, options.iterations)
        plain_times = time_in_turn(plain, options, 1)

    def draw(axes: Any) -> None:
        axes.set(
            xlabel="samples",
            ylabel="ms an iteration",
            xscale="log",
            yscale="log",
            title="multiple-inputs, 541 points",
        )
        compression = [(count, 1e3 * seconds) for count, (_, seconds) in compressed.items()]
        joint = list(plain_times.items())
        names = ("projected, L-BFGS", "not compressed, Adam", "compression, once")
        draw_curves(axes, dict(zip(names, (list(times.items()), joint, compression), strict=True)))

    first = times[options.samples[0]]
    rows = [
        (count, len(factor), seconds, times[count], times[count] / first, plain_times.get(count))
        for count, (factor, seconds) in compressed.items()
    ]
    head = ("samples", "rank", "compression, s", "ms an iteration", "/ first", "not compressed, ms")
    title = "Cost of a projected trunk iteration against the number of samples (multiple-inputs, 541 points)"
    publish("cost-against-samples", options, Table(title, head, rows), {"milliseconds": times}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, nargs="+", default=[900, 9_000, 90_000, 900_000], help="how many")
    parser.add_argument("--rounds", type=int, default=15, help="rounds whose median counts")
    parser.add_argument("--iterations", type=int, default=20, help="iterations in a round")
    parser.add_argument("--plain-limit", type=int, default=9_000, help="most samples without compression")


def compressed_outputs(count: int, clock: str) -> tuple[np.ndarray, float]:
    """The thin factor (rank, points) of relatively weighted outputs, by blocks, and the seconds it took."""
    parameters = PROBLEM.parameters(count, seed=0)
    factors, seconds = [], 0.0
    for start in range(0, count, BLOCK):
        outputs = weighted_outputs(parameters[start : start + BLOCK])
        watch = Stopwatch(clock)
        factors.append(compress(outputs).factor)
        seconds += watch.read()
    watch = Stopwatch(clock)
    # The factor of the factors is that of all: |B_1; B_2|^2 = |V_1 B_1; V_2 B_2|^2.
    return compress(np.concatenate(factors)).factor, seconds + watch.read()


def weighted_outputs(parameters: np.ndarray) -> np.ndarray:
    """Outputs by the closed form, every sample of length 1: relative errors count."""
    outputs = PROBLEM.assemble(parameters, None).outputs
    outputs /= np.linalg.norm(outputs, axis=1, keepdims=True)
    return outputs


def make_trunk() -> tuple[NetworkTrunk, Trunk]:
    """Step 1 of the preset, and its trunk before training."""
    method: Any = make_run_config("fast", PROBLEM.name, {}).method
    fields = Fields(PROBLEM.mesh.points, np.zeros((1, len(PROBLEM.mesh.points))))
    return method.trunk, method.trunk.make(fields, dtype=DTYPE, key=jr.key(0))


Search = tuple[AbstractObjective, Any, AbstractMinimiser]


def projected_search(factor: np.ndarray) -> Search:
    """Problem, start and minimiser of step 1, on the thin factor."""
    fit, _ = make_trunk()
    fields = Fields(PROBLEM.mesh.points, factor)
    return fields.problem(DTYPE)(fit.ridge), fit.start(fields, dtype=DTYPE, key=jr.key(0)), LBFGS()


def plain_search(count: int) -> Search:
    """The paper's step 1 on all outputs: trunk and A together, by Adam."""
    outputs = weighted_outputs(PROBLEM.parameters(count, seed=0))
    points = PROBLEM.mesh.points
    arrays = (points, np.zeros((count, 0)), outputs, np.ones(len(points)), np.ones(count))
    _, trunk = make_trunk()
    matrix = jr.normal(jr.key(1), (count, trunk.width + 1), DTYPE)
    return OutputLoss(*(jnp.asarray(a, DTYPE) for a in arrays)), FreeCoefficients(trunk, matrix), Adam()


def time_in_turn(searches: dict[int, Search], options: argparse.Namespace, iterations: int) -> dict[int, float]:
    """Milliseconds an iteration of each search, the median over the rounds; the first one compiles."""
    states: dict[int, Any] = dict.fromkeys(searches)
    seconds: dict[int, list[float]] = {count: [] for count in searches}
    for number in range(1, options.rounds + 2):
        for count, (objective, start, minimiser) in searches.items():
            watch = Stopwatch(options.clock)
            total = number * iterations
            result = minimise(objective, start, minimiser, iterations=total, key=jr.key(0), state=states[count])
            states[count] = result.state
            seconds[count].append(watch.read())
    return {count: 1e3 * float(np.median(each[1:])) / iterations for count, each in seconds.items()}


if __name__ == "__main__":
    main()
