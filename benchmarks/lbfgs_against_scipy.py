"""Our L-BFGS against SciPy's L-BFGS-B on a projected trunk: loss at equal numbers of evaluations.

    taskset -c 1 python benchmarks/lbfgs_against_scipy.py

Same start, same objective, as many pairs kept by both. Where SciPy gives up before its evaluations are used, it
is started again from its last point. The ratio is our loss over SciPy's, the geometric mean over the seeds.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.optimize
from _common import Table, draw_curves, make_run_config, options_for, publish

from trunkfirst.encode import encode
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import AbstractObjective, minimise
from trunkfirst.run_data import load_run_data

NETWORKS = {"relu": {"initialisation": "he"}, "tanh": {"initialisation": "xavier"}}
DTYPE = np.dtype(np.float64)


def main(argv: Sequence[str] | None = None) -> None:
    """Both minimisers from every seed, for both activations."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.seeds, options.evaluations = 1, 20
    marks = [options.evaluations // 8 * part for part in (1, 2, 4, 8)]
    curves = {name: losses_of(name, options) for name in NETWORKS}  # (2, seeds, evaluations)
    rows = [row for name, (ours, scipys) in curves.items() for row in make_rows(name, ours, scipys, marks)]

    def draw(axes: Any) -> None:
        axes.set(xlabel="evaluations", ylabel="loss, geometric mean over seeds", xscale="log", yscale="log")
        lines: dict[str, Any] = {}
        for name, both in curves.items():
            for who, losses in zip(("ours", "SciPy"), both, strict=True):
                lines[f"{name}, {who}"] = thinned(np.exp(np.log(losses).mean(axis=0)))
        draw_curves(axes, lines)

    head = ("trunk", "evaluations", "our loss", "SciPy's loss", "ratio", "smallest", "largest", "seeds won")
    title = "L-BFGS on the projected trunk of nonlinear-conductivity: our loss over that of SciPy's L-BFGS-B"
    details = {name: both[:, :, [mark - 1 for mark in marks]].tolist() for name, both in curves.items()}
    publish("lbfgs-against-scipy", options, Table(title, head, rows), {"marks": marks, "losses": details}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="how many starts")
    parser.add_argument("--evaluations", type=int, default=1600, help="of value and gradient, by each")


def make_rows(name: str, ours: np.ndarray, scipys: np.ndarray, marks: list[int]) -> list[tuple[Any, ...]]:
    """One row a mark: geometric means, their ratio, its range over the seeds."""
    rows: list[tuple[Any, ...]] = []
    for mark in marks:
        a, b = ours[:, mark - 1], scipys[:, mark - 1]
        means = [float(np.exp(np.log(losses).mean())) for losses in (a, b)]
        won = f"{int((a < b).sum())} of {len(a)}"
        rows.append((name, mark, *means, means[0] / means[1], float((a / b).min()), float((a / b).max()), won))
    return rows


def thinned(losses: np.ndarray) -> list[tuple[float, float]]:
    """A point for each of some thirty evenly spread logarithms."""
    places = np.unique(np.geomspace(1, len(losses), 30).round().astype(int))
    return [(float(place), float(losses[place - 1])) for place in places]


def losses_of(activation: str, options: argparse.Namespace) -> np.ndarray:
    """Best loss so far after each evaluation: (ours and SciPy's, seeds, evaluations)."""
    with jax.enable_x64(True):
        fit, fields = make_problem(activation)
        problem = fields.problem(DTYPE)(fit.ridge)
        starts = [fit.start(fields, dtype=DTYPE, key=jr.key(seed)) for seed in range(options.seeds)]
        both = [
            [our_losses(problem, start, options.evaluations), scipy_losses(problem, start, options.evaluations)]
            for start in starts
        ]
    return np.array(both).swapaxes(0, 1)


def make_problem(activation: str) -> tuple[Any, Any]:
    """The trunk of preset fast for nonlinear-conductivity, and the fields it is fitted to."""
    values = {"trunk": {"activation": activation, **NETWORKS[activation]}, "inputs": "standardise"}
    config = make_run_config("fast", "nonlinear-conductivity", values)
    data = load_run_data(config.data, config.problem).train
    method: Any = config.method
    return method.trunk, encode(data, method, DTYPE).fields


def our_losses(problem: AbstractObjective, start: Any, evaluations: int) -> np.ndarray:
    """One iteration at a time; the value of an iterate counts from its last evaluation on."""
    losses = np.full(evaluations, np.inf)
    state, done = None, 0
    while done < evaluations:
        count = 1 if state is None else int(state.iteration) + 1
        state = minimise(problem, start, LBFGS(), iterations=count, key=jr.key(0), state=state).state
        done = int(state.memory.evaluations)
        losses[done - 1 : done] = float(state.best_value)
    return filled(losses, problem, start)


def scipy_losses(problem: AbstractObjective, start: Any, evaluations: int) -> np.ndarray:
    """The same of SciPy."""
    losses, done = np.full(evaluations, np.inf), 0
    trained, fixed = eqx.partition(start, eqx.is_inexact_array)
    x, unravel = jax.flatten_util.ravel_pytree(trained)

    @eqx.filter_jit
    def value_and_grad(problem: AbstractObjective, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = problem.value_and_grad(eqx.combine(unravel(x), fixed), key=jr.key(0))
        return value, jax.flatten_util.ravel_pytree(gradient)[0]

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal done
        done += 1
        value, gradient = value_and_grad(problem, jnp.asarray(x))
        return float(value), np.asarray(gradient)

    def on_iterate(intermediate_result: Any) -> None:
        losses[done - 1 : done] = intermediate_result.fun

    x = np.asarray(x)
    limits = {"maxcor": LBFGS().pairs, "maxiter": 10**9, "ftol": 0.0, "gtol": 0.0}
    while done < evaluations:
        options = limits | {"maxfun": evaluations - done}
        x = scipy.optimize.minimize(
            evaluate, x, jac=True, method="L-BFGS-B", callback=on_iterate, options=options
        ).x
    return filled(losses, problem, start)


def filled(losses: np.ndarray, problem: AbstractObjective, start: Any) -> np.ndarray:
    """Best so far; before anything is known, the loss of the start."""
    first = float(eqx.filter_jit(problem.value)(start))
    return np.minimum.accumulate(np.minimum(losses, first))


if __name__ == "__main__":
    main()
