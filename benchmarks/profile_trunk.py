"""Where the time of a projected trunk iteration goes, on the paper's three problems.

    taskset -c 1 python benchmarks/profile_trunk.py

Pieces are compiled one by one and timed in turn with the whole iteration; the median round counts. The shares add
up: least squares as timed, the trunk is the rest of an evaluation (residual included), L-BFGS the rest of the
iteration. As a check L-BFGS is also timed alone, on a chained Rosenbrock function of as many parameters.
"""

import argparse
import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import jax.scipy.linalg as jsl
import numpy as np
from _common import Stopwatch, Table, add_problems, make_run_config, options_for, publish

from trunkfirst.encode import encode
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import AbstractObjective, Parameters, advance, minimise
from trunkfirst.minimisers.separable import solve_ridge
from trunkfirst.run_data import load_run_data

DTYPE = np.dtype(np.float64)
FORWARD, BOTH, GRAM, CHOLESKY, SOLVE, EVALUATION, DOUBLE, VECTORS, ITERATION = (
    "trunk forward",
    "trunk forward and backward",
    "Gram matrix",
    "Cholesky",
    "Gram, Cholesky, solve, two refinements",
    "value and gradient",
    "the same, gradient in double precision",
    "L-BFGS alone",
    "iteration",
)


def main(argv: Sequence[str] | None = None) -> None:
    """Time the pieces of each problem."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.problems, options.rounds, options.repeats = options.problems[:1], 1, 2
    with jax.enable_x64(True):
        times = {problem: profile(problem, options) for problem in options.problems}
    shares = {problem: as_shares(each) for problem, each in times.items()}

    def draw(axes: Any) -> None:
        bottom = np.zeros(len(shares))
        for piece in next(iter(shares.values())):
            heights = np.array([each[piece] for each in shares.values()])
            axes.bar(list(shares), heights, bottom=bottom, label=piece)
            bottom += heights
        axes.set(ylabel="ms", title="a projected trunk iteration")

    head = ("piece, ms", *times)
    rows = [(piece, *(each[piece] for each in times.values())) for piece in next(iter(times.values()))]
    for piece in next(iter(shares.values())):
        share = [f"{100 * each[piece] / times[problem][ITERATION]:.0f} %" for problem, each in shares.items()]
        rows.append((f"share: {piece}", *share))
    publish("profile-trunk", options, Table("Where a projected trunk iteration goes", head, rows), times, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_problems(parser)
    parser.add_argument("--rounds", type=int, default=15, help="rounds whose median counts")
    parser.add_argument("--repeats", type=int, default=20, help="calls of a piece in a round")


def as_shares(times: dict[str, float]) -> dict[str, float]:
    """Milliseconds that add up to the iteration; pieces called one by one cost a little more."""
    vectors = min(times[VECTORS], times[ITERATION])
    solve = times[SOLVE] / times[EVALUATION] * (times[ITERATION] - vectors)
    return {"trunk": times[ITERATION] - vectors - solve, "least squares": solve, "L-BFGS": vectors}


def profile(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of every piece, and how many evaluations an iteration takes."""
    problem, start = make_search(name)
    first = minimise(
        problem, start, LBFGS(), iterations=options.repeats, key=jr.key(0)
    )  # compiles, fills the memory
    pieces = {piece: timed_call(f, options) for piece, f in evaluation_pieces(problem, first.parameters).items()}
    valley = Search(Valley(), first.parameters, options)
    search = Search(problem, first.parameters, options)
    pieces |= {VECTORS: valley.advance, ITERATION: search.advance}
    for run in pieces.values():  # compile
        run()
    seconds = np.array([[run() for run in pieces.values()] for _ in range(options.rounds)])
    medians = 1e3 * np.median(seconds, axis=0) / options.repeats
    times = dict(zip(pieces, medians.tolist(), strict=True))
    return times | {"evaluations": search.evaluations_per_iteration}


def make_search(name: str) -> tuple[AbstractObjective, Any]:
    """The problem that step 1 of preset fast searches, and a start."""
    config = make_run_config("fast", name, {"inputs": "standardise"})
    method: Any = config.method
    fields = encode(load_run_data(config.data, config.problem).train, method, DTYPE).fields
    start = method.trunk.start(fields, dtype=DTYPE, key=jr.key(0))
    return fields.problem(DTYPE)(method.trunk.ridge), start


def evaluation_pieces(problem: Any, parameters: Any) -> dict[str, Callable[[], Any]]:
    """What a value and a gradient consist of, each as a compiled function without arguments."""
    Phi = eqx.filter_jit(problem.features)(parameters)
    weights, gram = jnp.ones_like(Phi), Phi.T @ Phi
    gram += 1e-6 * jnp.eye(len(gram))

    def pulled_back(parameters: Any, features: Any, weights: jax.Array) -> jax.Array:
        return jnp.vdot(features(parameters), weights)

    def evaluation(parameters: Any, problem: Any) -> Any:
        return problem.value_and_grad(parameters, key=jr.key(0))

    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        FORWARD: (lambda parameters, features: features(parameters), (parameters, problem.features)),
        BOTH: (eqx.filter_value_and_grad(pulled_back), (parameters, problem.features, weights)),
        GRAM: (lambda Phi: Phi.T @ Phi, (Phi,)),
        CHOLESKY: (lambda gram: jsl.cho_factor(gram, lower=True)[0], (gram,)),
        SOLVE: (solve_ridge, (Phi, problem.targets, problem.ridge)),
        EVALUATION: (evaluation, (parameters, problem)),
        DOUBLE: (evaluation, (dc.replace(parameters, has_fast_gradient=False), problem)),
    }
    return {name: compiled(function, arguments) for name, (function, arguments) in calls.items()}


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[[], Any]:
    """The function on its arguments, compiled."""
    fast = eqx.filter_jit(function)
    return lambda: fast(*arguments)


def timed_call(function: Callable[[], Any], options: argparse.Namespace) -> Callable[[], float]:
    """Seconds of all repeats of a call."""

    def advance() -> float:
        watch = Stopwatch(options.clock)
        for _ in range(options.repeats):
            jax.block_until_ready(function())
        return watch.read()

    return advance


class Search:
    """L-BFGS that continues from its last state, in one compiled loop, as `minimise` does it."""

    def __init__(self, objective: AbstractObjective, start: Parameters, options: argparse.Namespace) -> None:
        self._objective, self._options = objective, options
        self._state: Any = LBFGS().init(objective, start, key=jr.key(0))

    def advance(self) -> float:
        """Seconds of as many iterations as other pieces have repeats."""
        watch = Stopwatch(self._options.clock)
        self._state = advance(LBFGS(), self._objective, self._state, jnp.int32(self._options.repeats))
        jax.block_until_ready(self._state)
        return watch.read()

    @property
    def evaluations_per_iteration(self) -> float:
        """Of value and gradient, since the start."""
        return int(self._state.memory.evaluations) / int(self._state.iteration)


class Valley(AbstractObjective):
    """The chained Rosenbrock function of all parameters."""

    def value(self, parameters: Parameters) -> jax.Array:
        x, _ = jax.flatten_util.ravel_pytree(eqx.filter(parameters, eqx.is_inexact_array))
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


if __name__ == "__main__":
    main()
