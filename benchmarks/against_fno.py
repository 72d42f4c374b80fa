"""Against a Fourier neural operator (neuraloperator): mean relative l2 error on unseen samples, for equal time.

    taskset -c 1 python benchmarks/against_fno.py --data binary-darcy --seconds 60 --clock processor

Needs `pip install trunkfirst[bench]`. DATA is binary-darcy, random-conductivity, or a file. The last `--unseen`
samples are for the test, unless `--test` names another file; every method is trained once on the others. FNO: 4
layers, 32 channels, AdamW, one cycle up to 5e-3, batches of 32, relative loss. Both networks are trained for as
many iterations as fit into the time, or for as many as are given.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from _common import CLOCKS, environment, options_for

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.networks.grids import grid_order, is_grid
from trunkfirst.regressors.input_grid import find_grid, resample
from trunkfirst.sizing import fourier_within

BATCH, CHANNELS, RATE, MODES = 32, 32, 5e-3, 12
Predict = Callable[[np.ndarray], np.ndarray]


def main(argv: Sequence[str] | None = None) -> None:
    """One table: error and seconds of every method."""
    options = options_for(__doc__, add_options, argv)
    print(environment())
    train, test = load(options)
    options.iterations = 5 if options.quick else options.iterations
    methods: dict[str, Callable[[OperatorData], Predict]] = {
        "PCA + kernel": lambda data: fitted(trunkfirst.Kernel(), data, trunkfirst.StandardisedInputs()),
        "Fourier branch": lambda data: fourier(data, options),
        "FNO": lambda data: fno(data, options),
        "fit": lambda data: chosen(data, options.minutes),
    }
    print(f"{options.data}: {train.samples} samples, {test.samples} unseen; {options.clock} time")
    for name in options.methods:
        begin = CLOCKS[options.clock]()
        predict = methods[name](train)
        taken = CLOCKS[options.clock]() - begin
        print(f"{name:16s}{error(predict(test.flat_inputs), test):10.2e}{taken:8.0f} s", flush=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared, on which data, for how long."""
    names = ["PCA + kernel", "Fourier branch", "FNO", "fit"]
    parser.add_argument("--data", default="binary-darcy", help="a problem or a file")
    parser.add_argument("--test", help="another file with the test samples")
    parser.add_argument("--samples", type=int, help="how many for training; all if left out")
    parser.add_argument("--unseen", type=int, default=200, help="how many for the test")
    parser.add_argument("--seconds", type=float, default=300.0, help="of one training")
    parser.add_argument("--iterations", type=int, help="of both networks, instead of seconds")
    parser.add_argument("--minutes", type=float, default=15.0, help="of fit")
    parser.add_argument("--seed", type=int, default=0, help="of the networks")
    parser.add_argument("--methods", nargs="+", choices=names, default=names[:3], help="which")


def load(options: argparse.Namespace) -> tuple[OperatorData, OperatorData]:
    """Training and test samples."""
    is_problem = options.data in ("binary-darcy", "random-conductivity")
    data: Any = trunkfirst.make_data(options.data) if is_problem else trunkfirst.read_data(options.data)
    if options.test:
        return data.take(slice(0, options.samples)), trunkfirst.read_data(options.test)  # pyright: ignore[reportReturnType]
    seen = data.samples - options.unseen
    return data.take(slice(0, min(options.samples or seen, seen))), data.take(slice(seen, None))


def error(predicted: np.ndarray, data: OperatorData) -> float:
    """The mean relative l2 error."""
    missed = (predicted - data.outputs).reshape(data.samples, -1)
    return float(
        np.mean(np.linalg.norm(missed, axis=1) / np.linalg.norm(data.outputs.reshape(missed.shape), axis=1))
    )


# -- ours


def fourier(data: OperatorData, options: argparse.Namespace) -> Predict:
    """Modes as trunk and Fourier layers as branch."""
    given = trunkfirst.FourierBranch(iterations=options.iterations or 20)
    branch = None if options.iterations else fourier_within(given, data, options.seconds)
    return fitted(branch or given, data, trunkfirst.RawInputs(), options.seed)


def fitted(branch: Any, data: OperatorData, inputs: Any, seed: int = 0) -> Predict:
    """The two-step method with modes as trunk."""
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), branch, inputs=inputs, weights="relative")
    with jax.enable_x64(True):
        operator = method.fit(data, key=jr.key(seed)).operator
    return lambda unseen: operator.predict(unseen, data.points)


def chosen(data: OperatorData, minutes: float) -> Predict:
    """`fit` by itself."""
    operator = trunkfirst.fit(data, minutes=minutes).operator
    return lambda unseen: operator.predict(unseen, data.points)


# -- FNO


def fno(data: OperatorData, options: argparse.Namespace) -> Predict:
    """`neuralop.models.FNO` on the grid of the outputs, to which inputs are interpolated."""
    import torch
    from neuralop.models import FNO

    torch.manual_seed(options.seed)
    axes, order = grid_order(data.points)
    shape = tuple(map(len, axes))
    x, y = (torch.tensor(a, dtype=torch.float32) for a in (on_points(data, data.flat_inputs), data.outputs))
    x, y = x[:, order].reshape(-1, 1, *shape), y.reshape(len(y), len(order), -1)[:, order]
    y = y.swapaxes(1, 2).reshape(len(y), -1, *shape)
    scales = [(a.mean(), a.std()) for a in (x, y)]
    (x_mean, x_std), (y_mean, y_std) = scales
    modes = tuple(min(2 * MODES, n) for n in shape)
    model = FNO(modes, in_channels=1, out_channels=y.shape[1], hidden_channels=CHANNELS, n_layers=4)

    def fields(rows: Any) -> Any:
        return model((rows - x_mean) / x_std) * y_std + y_mean

    train_fno(model, fields, x, y, options)

    def predict(unseen: np.ndarray) -> np.ndarray:
        rows = torch.tensor(on_points(data, unseen)[:, order], dtype=torch.float32).reshape(-1, 1, *shape)
        with torch.no_grad():
            found = torch.cat([fields(block) for block in rows.split(BATCH)]).numpy()
        values = np.empty((len(unseen), len(order), found.shape[1]))
        values[:, order] = found.reshape(len(unseen), found.shape[1], -1).swapaxes(1, 2)
        return values.reshape(len(unseen), *data.outputs.shape[1:])

    return predict


def train_fno(model: Any, fields: Callable[[Any], Any], x: Any, y: Any, budget: argparse.Namespace) -> None:
    """AdamW with one cycle on the relative error; the first iterations measure how many fit into the time."""
    import torch

    def step(rows: Any, optimiser: Any) -> None:
        optimiser.zero_grad()
        missed = (fields(x[rows]) - y[rows]).flatten(1).norm(dim=1) / y[rows].flatten(1).norm(dim=1)
        missed.mean().backward()
        optimiser.step()

    def batch() -> Any:
        return torch.randperm(len(x))[:BATCH]

    trial, begin = torch.optim.AdamW(model.parameters(), 0.0), 0.0  # the rate 0 changes nothing
    for count in range(5):
        step(batch(), trial)
        begin = time.process_time() if count == 1 else begin
    iterations = budget.iterations or max(5, int(budget.seconds / (time.process_time() - begin) * 3))
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=1e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, iterations)
    epochs = range(math.ceil(iterations * BATCH / len(x)) + 1)
    batches = (rows for _ in epochs for rows in torch.randperm(len(x)).split(BATCH))
    for _, rows in zip(range(iterations), batches, strict=False):
        step(rows, optimiser)
        cycle.step()


def on_points(data: OperatorData, inputs: np.ndarray) -> np.ndarray:
    """The input function at the output points: constant along coordinates that it lacks."""
    assert is_grid(data.points)
    grid = find_grid(data)
    assert grid is not None
    assert grid.columns is not None
    sensors = np.stack(np.meshgrid(*grid.axes, indexing="ij"), axis=-1).reshape(-1, len(grid.axes))
    return resample(inputs[:, grid.places[0]], sensors, data.points[:, list(grid.columns)])


if __name__ == "__main__":
    main()
