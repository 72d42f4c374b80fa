"""Against DeepXDE's DeepONet (PyTorch): seconds per Adam iteration, and test error against wall time.

    taskset -c 1 python benchmarks/against_deepxde.py
    taskset -c 1 python benchmarks/against_deepxde.py --error-against-time 100 --problem nonlinear-conductivity

Needs `pip install trunkfirst[bench]`. The contenders share one process; pin it to a core. Their networks differ in
that DeepXDE has N + 1 trunk outputs behind an activation and one bias, trunkfirst N linear ones and a constant.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import trunkfirst
from trunkfirst.data import OperatorData, Split
from trunkfirst.linear import relative_errors
from trunkfirst.minimisers import minimise
from trunkfirst.runs import Prepared, RunConfig, build_method, make_config, merge, prepare, preset_values, run
from trunkfirst.training import BranchCoefficients, OutputLoss

os.environ["DDE_BACKEND"] = "pytorch"
try:
    import deepxde as dde
    import torch
except ImportError as error:
    sys.exit(f"this script needs DeepXDE and PyTorch ({error}); install them with: pip install trunkfirst[bench]")

NAMES = ("trunkfirst", "jax", "jaxlib", "deepxde", "torch", "numpy")
GOAL = 1.5
MOST_SAMPLES = 1000  # where there are more, DeepXDE's Adam takes batches of so many
Watch = Callable[[Any], None]  # called at every iteration
Curve = list[tuple[float, float]]  # (seconds of training, mean relative l2 test error)


def main() -> None:
    """Read the options and do the one or the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=5, help="blocks whose median counts")
    parser.add_argument("--iterations", type=int, default=20, help="Adam iterations in a block")
    parser.add_argument("--error-against-time", type=float, metavar="SECONDS", help="training time of a contender")
    parser.add_argument("--problem", default="nonlinear-conductivity", help="for --error-against-time")
    parser.add_argument("--out", type=Path, default=Path("runs/against-deepxde"), help="for --error-against-time")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(cores)
    print(versions := f"{', '.join(f'{name} {version(name)}' for name in NAMES)}; {cores} core(s)")
    if options.error_against_time is None:
        for dtype in ("float32", "float64"):
            seconds_per_iteration(dtype, options.blocks, options.iterations)
    else:
        error_against_time(options.problem, options.error_against_time, options.out, versions)


def seconds_per_iteration(dtype: str, blocks: int, iterations: int) -> None:
    """The monolithic method on 5.1, full batch: one block each in turn, the first round dropped."""
    precision = {"float32": "single", "float64": "double"}[dtype]
    values = {"method": "monolithic", "precision": precision, "trunk": {"iterations": iterations + 1}}
    config = _config("paper", "nonlinear-conductivity", values)
    data = (prepared := prepare(config)).data.take(prepared.split.train)
    model = deepxde_model(config, data.flat_inputs, data, dtype)
    model.compile("adam", lr=1e-3, verbose=0)
    contenders: dict[str, Callable[[Watch], Any]] = {
        "DeepXDE": lambda clock: _train(model, clock, config.trunk.iterations),
        # for p = 2 and full batch `fit` compresses the outputs, without loss, at the start
        "trunkfirst.fit": lambda clock: trunkfirst.fit(data, build_method(config, data), on_step=clock),
        "trunkfirst, loss not compressed": lambda clock: fit_uncompressed(config, data, dtype, clock),
    }
    rounds = np.array([[timed(train) for train in contenders.values()] for _ in range(blocks + 1)])
    (wall, cpu, _), start_up = np.median(rounds[1:], axis=0).T, rounds[0, :, 2]
    print(f"\n5.1, {data.samples} x {len(data.points)}, {dtype}, full batch; {blocks} blocks x {iterations}")
    print(f"{'':34s}{'ms/iteration':>14s}{'CPU ms':>9s}{'first start s':>15s}{'DeepXDE / it':>14s}")
    for i, name in enumerate(contenders):
        print(f"{name:34s}{wall[i] * 1e3:14.2f}{cpu[i] * 1e3:9.2f}{start_up[i]:15.2f}{wall[0] / wall[i]:14.2f}")
    single, verdict = rounds[1:, 0, 0] / rounds[1:, 1, 0], "reached" if wall[0] >= GOAL * wall[1] else "MISSED"
    print(f"ratio {wall[0] / wall[1]:.2f} (blocks {single.min():.2f}-{single.max():.2f}), goal {GOAL}: {verdict}")


def timed(train: Callable[[Watch], Any]) -> tuple[float, float, float]:
    """Seconds of wall and of processor time an iteration, and of wall time before the first stamp: start-up."""
    stamps = [(time.perf_counter(), time.process_time())]
    train(lambda _: stamps.append((time.perf_counter(), time.process_time())))
    start, first, *_, last = np.array(stamps)
    wall, cpu = (last - first) / (len(stamps) - 2)
    return float(wall), float(cpu), float((first - start)[0])


class Before(dde.callbacks.Callback):
    """Calls a function with the model before every iteration of DeepXDE (every part of its L-BFGS)."""

    def __init__(self, function: Watch) -> None:
        super().__init__()
        self.on_batch_begin = lambda: function(self.model)


def fit_uncompressed(config: RunConfig, data: OperatorData, dtype: str, clock: Watch) -> None:
    """The loop of `fit` on the sum over all samples and points, which is what DeepXDE computes."""
    method: Any = build_method(config, data)
    with jax.enable_x64(True):
        keys = jr.split(jr.key(0), 3)
        trunk = method.trunk.make(dtype=np.dtype(dtype), key=keys[0])
        branch = method.branch.make(1, trunk.width + 1, dtype=np.dtype(dtype), key=keys[1])
        ones = np.ones(len(data.points)), np.ones(data.samples)
        loss = OutputLoss(*(jnp.asarray(a, dtype) for a in (data.points, data.flat_inputs, data.outputs, *ones)))
        start, count = BranchCoefficients(trunk, branch), method.iterations
        minimise(loss, start, method.minimiser, iterations=count, key=keys[2], on_step=clock)


def _train(model: Any, watch: Watch, iterations: int | None = None, **options: Any) -> None:
    model.train(iterations, display_every=10**9, callbacks=[Before(watch)], verbose=0, **options)


def deepxde_model(config: RunConfig, inputs: np.ndarray, data: OperatorData, dtype: str) -> Any:
    """A DeepONetCartesianProd of the sizes in `config` on encoded `inputs` (samples, features)."""
    dde.config.set_default_float(dtype)  # and says so on standard output
    dde.config.set_random_seed(0)
    *hidden, width = config.trunk.architecture
    start = {"he": "He normal", "xavier": "Glorot normal"}[config.trunk.initialisation]
    branch = [inputs.shape[1], *config.branch.architecture[1:]]
    net = dde.nn.DeepONetCartesianProd(branch, [*hidden, width + 1], config.trunk.activation, start)
    X, y = (inputs.astype(dtype), data.points.astype(dtype)), data.outputs.astype(dtype)
    return dde.Model(dde.data.TripleCartesianProd(X, y, (X[0][:1], X[1]), y[:1]), net)


def error_against_time(problem: str, seconds: float, out: Path, versions: str) -> None:
    """All contenders on one problem, one after the other; a table and a figure in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    data = prepare(config := _config("paper", problem, {}))
    fast, encoder = trunkfirst_curve("fast", problem, seconds)
    adam, _ = trunkfirst_curve("paper", problem, seconds)
    curves = {
        "trunkfirst, preset fast": fast,
        "the paper's two-step Adam": adam,
        "DeepXDE, Adam": deepxde_curve(config, data, seconds),
        "DeepXDE, Adam, our encoder and weights": deepxde_curve(config, data, seconds, encoder),
        "DeepXDE, Adam then L-BFGS": deepxde_curve(config, data, seconds, lbfgs=True),
        "DeepXDE, both, our encoder and weights": deepxde_curve(config, data, seconds, encoder, lbfgs=True),
    }
    print(table := _table(curves, problem, seconds))
    (out / f"error-against-time-{problem}.txt").write_text(f"{versions}\n{table}\n")
    _figure(curves, problem, out / f"error-against-time-{problem}.png")


def trunkfirst_curve(preset: str, problem: str, seconds: float) -> tuple[Curve, Any]:
    """Runs from scratch, each with more iterations (twice, or what fits), compiled anew; and the encoder used.

    Choosing the encoder is on the clock, evaluation is not.
    """
    config = _config(preset, problem, {})
    split = (prepared := prepare(config)).split
    blind = Prepared(prepared.data, Split(split.train, split.validation, split.test[:0]), 0.0)
    counts, curve, encoder = [config.trunk.iterations // 32], Curve(), None
    while len(counts) > len(curve):
        branch = counts[-1] if preset == "paper" else config.branch.iterations
        values = {"trunk": {"iterations": counts[-1]}, "branch": {"iterations": branch}}
        jax.clear_caches()
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            result = run(_config(preset, problem, values), folder, prepared=blind).result
            taken = time.perf_counter() - start
        errors = trunkfirst.evaluate(result.operator, prepared.data.take(split.test)).errors
        curve, encoder = [*curve, (taken, float(errors.mean()))], result.operator.encoder
        before = curve[-2][0] if curve[1:] else 0.0
        cost = max(taken - before, 1e-3) / (counts[-1] - (counts[-2] if counts[1:] else 0))
        following = int(min(2.0 * counts[-1], counts[-1] + (0.95 * seconds - taken) / cost))
        has_stagnated = result.diagnostics["trunk"]["iterations"] < counts[-1]
        counts += [following] if following > 1.15 * counts[-1] and not has_stagnated else []
    return curve, encoder


def deepxde_curve(
    config: RunConfig, prepared: Prepared, seconds: float, encoder: Any = None, *, lbfgs: bool = False
) -> Curve:
    """Adam in single precision, or Adam for half of the time, then L-BFGS, in double, as DeepXDE advises.

    With the `encoder` that trunkfirst chose come its relative sample weights. Evaluation is off the clock.
    """
    dtype, split, flat = "float64" if lbfgs else "float32", prepared.split, prepared.data.flat_inputs
    with jax.enable_x64(True):
        inputs = flat if encoder is None else np.asarray(encoder(jnp.asarray(flat)))
    train, test = prepared.data.take(split.train), prepared.data.take(split.test)
    test_inputs = inputs[split.test].astype(dtype), test.points.astype(dtype)
    curve, away, limit = Curve(), [time.perf_counter()], seconds / 2 if lbfgs else seconds

    def watch(model: Any) -> None:
        now = (begin := time.perf_counter()) - sum(away)
        model.stop_training = now >= limit
        if model.stop_training or now >= (curve[-1][0] if curve else 0.0) + seconds / 20:
            fields = model.predict(test_inputs)
            errors = relative_errors(fields, test.outputs, point_weights=test.point_weights)
            curve.append((now, float(errors.mean())))
            away.append(time.perf_counter() - begin)

    model = deepxde_model(config, inputs[split.train], train, dtype)
    loss = "MSE" if encoder is None else _relative_square
    model.compile("adam", lr=1e-3, loss=loss, verbose=0)
    batch = MOST_SAMPLES if train.samples > MOST_SAMPLES else None
    _train(model, watch, 10**9, batch_size=batch)
    if lbfgs:
        limit = seconds
        dde.optimizers.config.LBFGS_options.update(iter_per_step=20, fun_per_step=25)  # to look at the clock
        model.compile("L-BFGS", loss=loss, verbose=0)
        _train(model, watch)
    return curve


def _relative_square(truth: Any, fields: Any) -> Any:
    return torch.mean(torch.mean((fields - truth) ** 2, dim=1) / torch.mean(truth**2, dim=1))


def _config(preset: str, problem: str, values: dict[str, Any]) -> RunConfig:
    return make_config(merge(preset_values(preset, problem), values))


def _table(curves: dict[str, Curve], problem: str, seconds: float) -> str:
    """Within the limit: the last run of trunkfirst; of DeepXDE the best moment, which only the test set knows."""
    rows, fast = [f"{problem + f', {seconds:g} s':42s}{'seconds':>10s}{'test error':>12s}{'/ fast':>9s}"], 0.0
    for name, curve in curves.items():
        within = [point for point in curve if point[0] <= 1.02 * seconds] or [(np.nan, np.nan)]
        taken, error = min(within, key=lambda point: point[1]) if "DeepXDE" in name else within[-1]
        fast = fast or error
        rows.append(f"{name:42s}{taken:10.1f}{error:12.2e}{error / fast:9.1f}")
    return "\n".join(rows)


def _figure(curves: dict[str, Curve], problem: str, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for (name, curve), marker in zip(curves.items(), "osD^vX", strict=True):
        axes.semilogy(*zip(*curve, strict=True), marker=marker, markersize=4, label=name)
    axes.set(xlabel="wall time [s]", ylabel="mean relative l2 test error", title=problem)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
