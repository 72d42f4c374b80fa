"""Marks of inputs out of distribution: the rate of false alarms, and the share of shifted inputs that is found.

    python benchmarks/outlier_marks.py

Each row: operators' checks learned from several draws of n training inputs, applied to 500 new ones of each kind.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from _common import Table, draw_curves, options_for, publish

from trunkfirst.intervals import fit_novelty

Draw = Callable[[np.random.Generator, int], np.ndarray]
NEW = 500
SHIFTS = ("one sensor at twice its maximum", "times 1.5", "times 2", "half the length scale")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all kinds of inputs and print the table."""
    options = options_for(__doc__, _add_options, argv)
    draws, sizes = (2, (30,)) if options.quick else (options.draws, options.samples)
    rows: list[tuple[Any, ...]] = []
    for sensors in (20, 100):
        for name, (draw, rougher) in _kinds(sensors).items():
            for samples in sizes:
                seeds = np.random.SeedSequence(samples).spawn(draws)
                found = [_shares(draw, rougher, samples, np.random.default_rng(seed)) for seed in seeds]
                shares = [float(share) for share in np.mean(found, axis=0)]
                rows.append((name, sensors, samples, max(0.01, 1 / (samples + 1)), *shares))
                print(rows[-1], flush=True)
    head = ("inputs", "sensors", "n", "promised rate", "false alarms", *SHIFTS)
    cells = [tuple("-" if isinstance(c, float) and np.isnan(c) else c for c in row) for row in rows]
    curves = {name: [(row[3], row[4]) for row in rows if row[:2] == (name, 100)] for name in _kinds(100)}

    def figure(axes: Any) -> None:
        draw_curves(axes, curves)
        axes.axline((0, 0), slope=1, color="0.6", linewidth=1)
        axes.set(xlabel="promised rate", ylabel="false alarms", title="inputs marked as outliers, 100 sensors")

    note = f"Mean over {draws} draws of the training inputs."
    publish("outlier-marks", options, Table("Marks of outliers", head, cells, [note]), {}, figure)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=40, help="draws of the training inputs")
    parser.add_argument("--samples", type=int, nargs="+", default=[30, 100, 300, 1000], help="training inputs")


def _kinds(sensors: int) -> dict[str, tuple[Draw, Draw | None]]:
    """How inputs are drawn, and the same with half the length scale."""
    smooth, rough = _process(sensors, 0.2), _process(sensors, 0.05)
    return {
        "smooth functions": (smooth, _process(sensors, 0.1)),
        "rough functions": (rough, _process(sensors, 0.025)),
        "independent, normal": (lambda rng, count: rng.normal(size=(count, sensors)), None),
        "independent, uniform": (lambda rng, count: rng.uniform(-1, 1, (count, sensors)), None),
        "positive, heavy tail": (lambda rng, count: np.exp(smooth(rng, count)), None),
    }


def _process(sensors: int, length: float) -> Draw:
    """A Gaussian process on [0, 1] with a squared exponential covariance."""
    x = np.linspace(0, 1, sensors)
    values, vectors = np.linalg.eigh(np.exp(-0.5 * ((x[:, None] - x) / length) ** 2))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return lambda rng, count: rng.normal(size=(count, sensors)) @ root.T


def _shares(draw: Draw, rougher: Draw | None, samples: int, rng: np.random.Generator) -> list[float]:
    """The shares of new and of shifted inputs that are marked."""
    train, new = draw(rng, samples), draw(rng, NEW)
    known = fit_novelty(train)
    spiked, sensors = new.copy(), rng.integers(0, new.shape[1], NEW)
    spiked[np.arange(NEW), sensors] = 2 * train.max(axis=0)[sensors]
    marked = [known.is_outlier(inputs).mean() for inputs in (new, spiked, 1.5 * new, 2 * new)]
    return [*marked, np.nan if rougher is None else known.is_outlier(rougher(rng, NEW)).mean()]


if __name__ == "__main__":
    main()
