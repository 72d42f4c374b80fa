"""Against DeepXDE's DeepONet (PyTorch): seconds per Adam iteration, both networks at once.

    taskset -c 1 python benchmarks/against_deepxde.py

Needs `pip install trunkfirst[bench]`. The contenders share one process; pin it to a core.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from _common import environment, make_run_config

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.fields import Fields
from trunkfirst.fitting import fit_method
from trunkfirst.losses import BranchCoefficients, OutputLoss
from trunkfirst.minimisers.loop import minimise
from trunkfirst.regressors.base import InputLayout
from trunkfirst.run_data import load_run_data

GOAL = 1.5
Watch = Callable[[Any], None]  # called at every iteration


def main(argv: Sequence[str] | None = None) -> None:
    """Single, then double precision."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=5, help="blocks whose median counts")
    parser.add_argument("--iterations", type=int, default=20, help="Adam iterations in a block")
    options = parser.parse_args(argv)
    print(environment())
    for dtype in ("float32", "float64"):
        seconds_per_iteration(dtype, options.blocks, options.iterations)


def seconds_per_iteration(dtype: str, blocks: int, iterations: int) -> None:
    """The monolithic method, full batch: one block each in turn, the first round dropped."""
    import _deepxde

    precision = {"float32": "single", "float64": "double"}[dtype]
    values = {"method": "monolithic", "precision": precision, "iterations": iterations + 1}
    config = make_run_config("paper", "nonlinear-conductivity", values)
    method: Any = config.method
    data = load_run_data(config.data, config.problem).train
    model = _deepxde.make_model(method, data.flat_inputs, data, dtype)
    _deepxde.compile_adam(model)
    contenders: dict[str, Callable[[Watch], Any]] = {
        "DeepXDE": lambda clock: _deepxde.train(model, clock, method.iterations),
        # for p = 2 and full batch `fit` compresses the outputs, without loss, at the start
        "trunkfirst": lambda clock: fit_method(data, method, on_step=clock),
        "trunkfirst, loss not compressed": lambda clock: fit_uncompressed(method, data, dtype, clock),
    }
    rounds = np.array([[timed(train) for train in contenders.values()] for _ in range(blocks + 1)])
    (wall, cpu, _), start_up = np.median(rounds[1:], axis=0).T, rounds[0, :, 2]
    print(f"\n{data.samples} x {len(data.points)}, {dtype}, full batch; {blocks} blocks x {iterations}")
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


def fit_uncompressed(method: Any, data: OperatorData, dtype: str, clock: Watch) -> None:
    """The loop of `fit` on the sum over all samples and points, which is what DeepXDE computes."""
    with jax.enable_x64(True):
        keys = jr.split(jr.key(0), 3)
        trunk = method.trunk.make(Fields(data.points, data.outputs), dtype=np.dtype(dtype), key=keys[0])
        branch = method.branch.make(1, trunk.width + 1, InputLayout((1,)), dtype=np.dtype(dtype), key=keys[1])
        ones = np.ones(len(data.points)), np.ones(data.samples)
        loss = OutputLoss(*(jnp.asarray(a, dtype) for a in (data.points, data.flat_inputs, data.outputs, *ones)))
        start, count = BranchCoefficients(trunk, branch), method.iterations
        minimise(loss, start, method.minimiser, iterations=count, key=keys[2], on_step=clock)


if __name__ == "__main__":
    main()
