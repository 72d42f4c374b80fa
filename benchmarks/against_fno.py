"""Against a Fourier neural operator (neuraloperator): mean relative l2 error on unseen samples, for equal time.

    taskset -c 1 python benchmarks/against_fno.py --data binary-darcy burgers.npz --seconds 60 --clock processor

Needs `pip install trunkfirst[bench]`. DATA are binary-darcy (on --cells x --cells cells), random-conductivity,
fine-darcy and obstacles (_hard_grids.py), or files. The last `--unseen` samples are for the test, unless `--test`
names another file; every method is trained once on the others. FNO: 4 layers, 32 channels, AdamW, one cycle up to
--rate, batches of 32, relative loss. Both
networks are trained for as many iterations as fit into the time by a few that are timed before, or for as many as
are given. Seconds are those of everything: timing, compiling and the search for symmetries too.

With several numbers of --samples the table shows the error against them.
With --validate the last fifth of the training samples takes the place of the test, to choose --modes and --rate.
"""

import argparse
import dataclasses as dc
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from _common import CLOCKS, IMAGES, Table, draw_curves, options_for, publish
from _hard_grids import HARD_SETS

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.networks.grids import grid_order, is_grid
from trunkfirst.problems.conductivity import BinaryDarcy
from trunkfirst.regressors.input_grid import find_grid, resample
from trunkfirst.sizing import seconds_of_fourier

BATCH, CHANNELS = 32, 32
ERROR = "mean relative l2 error, unseen samples"
IMAGES_OF_SAMPLES = 4000
NAMES = ["PCA + kernel", "Fourier branch", "FNO", "fit", "PCA + kernel, images", "Fourier branch, no symmetries"]


@dc.dataclass(frozen=True)
class Trained:
    """What predicts the outputs of unseen inputs, and the iterations it took."""

    predict: Callable[[np.ndarray], np.ndarray]
    iterations: int | None = None
    chosen: str | None = None


def main(argv: Sequence[str] | None = None) -> None:
    """For all data a table with error and seconds of every method, and a picture of an unseen sample."""
    options = options_for(__doc__, add_options, argv)
    options.iterations = 5 if options.quick else options.iterations
    for name in options.data:
        (compare if len(options.samples) < 2 else against_samples)(name, options)


def compare(name: str, options: argparse.Namespace) -> None:
    """All methods on the same data."""
    train, test = load(name, options, *options.samples)
    rows: list[list[Any]] = []
    fields: dict[str, np.ndarray] = {}
    for method in options.methods:
        trained, seconds = timed(method, train, options)
        shown = method if trained.chosen is None else f"{method}: {trained.chosen}"
        fields[shown] = trained.predict(test.flat_inputs)
        rows.append([shown, error(fields[shown], test), round(seconds), trained.iterations])
        print(name, *rows[-1], flush=True)
    if options.validate:
        return
    notes = [
        f"Mean relative l2 error on {test.samples} unseen samples, trained on {train.samples:,}; {how(options)}"
    ]
    title = f"Fourier layers and a Fourier neural operator: {word(name, options)}"
    table = Table(title, ("method", "error", "seconds", "iterations"), rows, notes)
    stem, details = f"against-fno-{word(name, options)}", {"samples": train.samples}
    publish(stem, options, table, details, lambda axes: draw(axes, rows))
    if options.out or not options.quick:
        draw_sample((options.out or IMAGES) / f"{stem}-sample.png", test, fields)


def against_samples(name: str, options: argparse.Namespace) -> None:
    """The error of all methods for several numbers of samples."""
    rows: list[list[Any]] = []
    curves: dict[str, list[tuple[float, float]]] = {method: [] for method in options.methods}
    for count, method in itertools.product(options.samples, options.methods):
        train, test = load(name, options, count)
        trained, seconds = timed(method, train, options)
        found = error(trained.predict(test.flat_inputs), test)
        shown = method if trained.chosen is None else f"{method}: {trained.chosen}"
        rows.append([train.samples, shown, found, round(seconds), trained.iterations])
        curves[method].append((train.samples, found))
        print(name, *rows[-1], flush=True)

    def draw(axes: Any) -> None:
        draw_curves(axes, curves)
        axes.set(xscale="log", yscale="log", xlabel="training samples", ylabel=ERROR)

    title = f"Error against samples: {word(name, options)}"
    table = Table(
        title,
        ("samples", "method", "error", "seconds", "iterations"),
        rows,
        [f"Mean relative l2 error on {options.unseen} unseen samples; {how(options)}"],
    )
    publish(f"against-fno-{word(name, options)}-samples", options, table, {}, draw)


def word(name: str, options: argparse.Namespace) -> str:
    """What data are called in tables and files."""
    return f"binary-darcy-{options.cells}" if name == "binary-darcy" else Path(name).stem.removesuffix("_train")


def how(options: argparse.Namespace) -> str:
    """What a note says of the networks."""
    fno = f"FNO with at most {options.modes} waves and rates up to {options.rate:g}"
    return f"one training of every network, seed {options.seed}; {fno}."


def timed(method: str, train: OperatorData, options: argparse.Namespace) -> tuple[Trained, float]:
    """A method trained, and the seconds of that; what it needs is imported before."""
    if method == "FNO":
        importlib.import_module("neuralop.models")
    trainings: dict[str, Callable[[], Trained]] = {
        "PCA + kernel": lambda: fitted(trunkfirst.Kernel(), train, trunkfirst.StandardisedInputs()),
        "PCA + kernel, images": lambda: fitted(
            trunkfirst.Kernel(), train, trunkfirst.StandardisedInputs(), images=IMAGES_OF_SAMPLES
        ),
        "Fourier branch": lambda: fourier(trunkfirst.FourierBranch(), train, options),
        "Fourier branch, no symmetries": lambda: fourier(
            trunkfirst.FourierBranch(symmetries=False), train, options
        ),
        "FNO": lambda: fno(train, options),
        "fit": lambda: chosen(train, options.minutes),
    }
    begin = CLOCKS[options.clock]()
    trained = trainings[method]()
    return trained, CLOCKS[options.clock]() - begin


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared, on which data, for how long."""
    parser.add_argument("--data", nargs="+", default=["binary-darcy"], help="problems or files")
    parser.add_argument("--test", help="another file with the test samples")
    parser.add_argument("--cells", type=int, default=32, help="of binary-darcy, in each direction")
    parser.add_argument(
        "--samples", type=int, nargs="+", default=[], help="of training, one or several numbers; all if left out"
    )
    parser.add_argument("--unseen", type=int, default=200, help="how many for the test")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the iterations of one training")
    parser.add_argument("--iterations", type=int, help="of both networks, instead of seconds")
    parser.add_argument("--minutes", type=float, default=15.0, help="of fit")
    parser.add_argument("--modes", type=int, default=12, help="waves of FNO in every direction, at most")
    parser.add_argument("--rate", type=float, default=5e-3, help="the highest rate of FNO")
    parser.add_argument("--validate", action="store_true", help="compare on a fifth of the training samples")
    parser.add_argument("--seed", type=int, default=0, help="of the networks")
    parser.add_argument("--methods", nargs="+", choices=NAMES, default=NAMES[:3], help="which")


def load(name: str, options: argparse.Namespace, samples: int | None = None) -> tuple[OperatorData, OperatorData]:
    """Training samples, so many or all, and test samples."""
    problems: dict[str, Any] = {
        "binary-darcy": dc.replace(BinaryDarcy(), cells=options.cells),
        "random-conductivity": "random-conductivity",
    }
    data: Any
    if name in HARD_SETS:
        data = HARD_SETS[name]()
    else:
        data = trunkfirst.make_data(problems[name]) if name in problems else trunkfirst.read_data(name)
    test = trunkfirst.read_data(options.test) if options.test else data.take(slice(-options.unseen, None))
    train = data if options.test else data.take(slice(0, -options.unseen))
    train = train.take(slice(0, samples))
    if options.validate:
        kept = train.samples * 4 // 5
        train, test = train.take(slice(0, kept)), train.take(slice(kept, None))
    return train, test  # pyright: ignore[reportReturnType]


def error(predicted: np.ndarray, data: OperatorData) -> float:
    """The mean relative l2 error."""
    return float(errors(predicted, data).mean())


def errors(predicted: np.ndarray, data: OperatorData) -> np.ndarray:
    """The relative l2 error of every sample."""
    missed = (predicted - data.outputs).reshape(data.samples, -1)
    return np.linalg.norm(missed, axis=1) / np.linalg.norm(data.outputs.reshape(missed.shape), axis=1)


# -- ours


def fourier(branch: Any, data: OperatorData, options: argparse.Namespace) -> Trained:
    """Modes as trunk and Fourier layers as branch."""
    count = options.iterations
    if count is None:
        count = int(options.seconds / seconds_of_fourier(branch, data, CLOCKS[options.clock]))
    return fitted(dc.replace(branch, iterations=count), data, trunkfirst.RawInputs(), options.seed)


def fitted(branch: Any, data: OperatorData, inputs: Any, seed: int = 0, images: int | None = None) -> Trained:
    """The two-step method with modes as trunk."""
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), branch, inputs=inputs, weights="relative", images=images)
    with jax.enable_x64(True):
        operator = method.fit(data, key=jr.key(seed)).operator
    return Trained(lambda unseen: operator.predict(unseen, data.points), getattr(branch, "iterations", None))


def chosen(data: OperatorData, minutes: float) -> Trained:
    """`fit` by itself."""
    result = trunkfirst.fit(data, minutes=minutes)
    kind = getattr(getattr(result.method, "branch", None), "kind", "")
    return Trained(lambda unseen: result.operator.predict(unseen, data.points), chosen=kind)


# -- FNO


def fno(data: OperatorData, options: argparse.Namespace) -> Trained:
    """`neuralop.models.FNO` on the grid of the outputs, to which inputs are interpolated."""
    import torch
    from neuralop.models import FNO

    torch.manual_seed(options.seed)
    axes, order = grid_order(data.points)
    shape = tuple(map(len, axes))
    outputs = data.outputs.reshape(data.samples, len(order), -1).swapaxes(1, 2)
    x, y = (
        torch.tensor(a[..., order], dtype=torch.float32).reshape(*a.shape[:2], *shape)
        for a in (on_points(data, data.flat_inputs), outputs)
    )
    others = (0, *range(2, x.ndim))
    (x_mean, x_std), (y_mean, y_std) = (
        (a.mean(others, keepdim=True), a.std(others, keepdim=True)) for a in (x, y)
    )
    modes = tuple(min(2 * options.modes, n) for n in shape)
    model = FNO(modes, in_channels=x.shape[1], out_channels=y.shape[1], hidden_channels=CHANNELS, n_layers=4)

    def fields(rows: Any) -> Any:
        return model((rows - x_mean) / x_std) * y_std + y_mean

    iterations = train_fno(model, fields, x, y, options)

    def predict(unseen: np.ndarray) -> np.ndarray:
        rows = torch.tensor(on_points(data, unseen)[..., order], dtype=torch.float32)
        rows = rows.reshape(*rows.shape[:2], *shape)
        with torch.no_grad():
            found = torch.cat([fields(block) for block in rows.split(BATCH)]).numpy()
        values = np.empty((len(unseen), len(order), found.shape[1]))
        values[:, order] = found.reshape(len(unseen), found.shape[1], -1).swapaxes(1, 2)
        return values.reshape(len(unseen), *data.outputs.shape[1:])

    return Trained(predict, iterations)


def train_fno(model: Any, fields: Callable[[Any], Any], x: Any, y: Any, budget: argparse.Namespace) -> int:
    """AdamW with one cycle on the relative error; the first iterations measure how many fit into the time."""
    import torch

    def step(rows: Any, optimiser: Any) -> None:
        optimiser.zero_grad()
        missed = (fields(x[rows]) - y[rows]).flatten(1).norm(dim=1) / y[rows].flatten(1).norm(dim=1)
        missed.mean().backward()
        optimiser.step()

    def batch() -> Any:
        return torch.randperm(len(x))[:BATCH]

    clock = CLOCKS[budget.clock]
    trial, begin = torch.optim.AdamW(model.parameters(), 0.0), 0.0  # the rate 0 changes nothing
    for count in range(5):
        step(batch(), trial)
        begin = clock() if count == 1 else begin
    iterations = budget.iterations or max(5, int(budget.seconds / (clock() - begin) * 3))
    optimiser = torch.optim.AdamW(model.parameters(), budget.rate, weight_decay=1e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, budget.rate, iterations)
    epochs = range(math.ceil(iterations * BATCH / len(x)) + 1)
    batches = (rows for _ in epochs for rows in torch.randperm(len(x)).split(BATCH))
    for _, rows in zip(range(iterations), batches, strict=False):
        step(rows, optimiser)
        cycle.step()
    return iterations


def on_points(data: OperatorData, inputs: np.ndarray) -> np.ndarray:
    """The input functions at the output points: constant along coordinates that they lack."""
    assert is_grid(data.points)
    grid = find_grid(data)
    assert grid is not None
    assert grid.columns is not None
    sensors = np.stack(np.meshgrid(*grid.axes, indexing="ij"), axis=-1).reshape(-1, len(grid.axes))
    at = data.points[:, list(grid.columns)]
    return np.stack([resample(inputs[:, places], sensors, at) for places in grid.places], axis=1)


# -- figures


def draw(axes: Any, rows: Sequence[Sequence[Any]]) -> None:
    """The error of every method against its seconds."""
    from matplotlib.ticker import LogLocator

    draw_curves(axes, {row[0]: [(max(row[2], 1), row[1])] for row in rows})
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel=ERROR)
    for axis in (axes.xaxis, axes.yaxis):  # both may be shorter than a decade
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")


def last_channel(field: np.ndarray) -> np.ndarray:
    """Of a field at the points, of one or several channels."""
    return field.reshape(len(field), -1)[:, -1]


def draw_sample(path: Path, test: OperatorData, fields: dict[str, np.ndarray]) -> None:
    """The unseen sample of median error of the last method: the output, and what every method misses."""
    from matplotlib.figure import Figure

    found = errors(list(fields.values())[-1], test)
    sample = int(np.argsort(found)[len(found) // 2])
    axes, order = grid_order(test.points)
    shape, u = tuple(map(len, axes)), last_channel(test.outputs[sample])
    missed = {f"{name}: {errors(v, test)[sample]:.1%}": last_channel(v[sample]) - u for name, v in fields.items()}
    largest = max(np.abs(e).max() for e in missed.values())
    figure = Figure(figsize=(2.4 * (1 + len(missed)), 2.6), layout="constrained")
    panels = figure.subplots(1, 1 + len(missed))
    for panel, (name, values) in zip(panels, {"output": u, **missed}.items(), strict=True):
        limits = {} if name == "output" else {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r"}
        image = panel.imshow(values[order].reshape(shape), origin="lower", **limits)
        panel.set(xticks=[], yticks=[])
        panel.set_title(name, fontsize=9)
        if panel in (panels[0], panels[-1]):
            figure.colorbar(image, ax=panel, shrink=0.8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
