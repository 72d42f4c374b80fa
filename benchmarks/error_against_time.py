"""Test error against time: this package, the paper's two-step Adam, and DeepXDE's DeepONet, on one problem.

    taskset -c 1 python benchmarks/error_against_time.py nonlinear-conductivity --seconds 100

Presets fast and paper: complete runs from scratch with more and more iterations; choosing the encoder and
compiling are timed. DeepXDE: Adam, and Adam for half of the time, then L-BFGS; raw inputs, and the encoder
that trunkfirst chose with relative weights, at no cost of time. Of DeepXDE the best moment counts, though
only the test set knows it. Reading data and evaluation are not timed. Needs: pip install trunkfirst[bench]

With --contenders only those are measured; the others keep the curves that were published before.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _common import (
    PAPER_PROBLEMS,
    Stopwatch,
    Table,
    draw_curves,
    make_run_config,
    notes_of_kept,
    options_for,
    publish,
    published,
    source_of,
)
from _two_step import prepared_data, run_share

from trunkfirst.linear.orthonormalise import relative_errors

GOALS = {"nonlinear-conductivity": 100, "discontinuous-conductivity": 8000, "multiple-inputs": 2000}  # at 100 s
MOST_SAMPLES = 1000  # where there are more, DeepXDE's Adam takes batches of this size
FIRST_ITERATIONS, GROWTH = 60, 4.0  # of the trunk, in the first run; the most that the next run may be longer
CONTENDERS = {
    "fast": "trunkfirst, preset fast",
    "paper": "the paper's two-step Adam",
    "adam-raw": "DeepXDE, Adam, raw inputs",
    "lbfgs-raw": "DeepXDE, Adam then L-BFGS, raw inputs",
    "adam": "DeepXDE, Adam, our encoder",
    "lbfgs": "DeepXDE, Adam then L-BFGS, our encoder",
}
Curve = list[tuple[float, float]]  # (seconds of training, mean relative l2 test error)


def main(argv: Sequence[str] | None = None) -> None:
    """All contenders on one problem, one after the other."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.seconds = min(options.seconds, 5.0)
    samples, name = 100 if options.quick else None, f"error-against-time-{PAPER_PROBLEMS[options.problem]}"
    if {"adam", "lbfgs"} & {*options.contenders} and "fast" not in options.contenders:
        sys.exit("DeepXDE gets the encoder that preset fast chooses: add fast to --contenders")
    kept, encoder = published(name, options), None
    curves: dict[str, Curve] = kept.get("curves", {})
    measured = kept.get("measured", {}) | {CONTENDERS[each]: source_of(options) for each in options.contenders}
    for contender in sorted(options.contenders, key=list(CONTENDERS).index):
        if contender in ("fast", "paper"):
            curves[CONTENDERS[contender]], used = two_step_curve(contender, options, samples)
            encoder = used if contender == "fast" else encoder
        else:
            chosen = None if contender.endswith("-raw") else encoder
            is_both = contender.startswith("lbfgs")
            curves[CONTENDERS[contender]] = deepxde_curve(options, samples, chosen, has_lbfgs=is_both)

    def draw(axes: Any) -> None:
        axes.set(xlabel="seconds", ylabel="mean relative l2 test error", yscale="log", title=options.problem)
        draw_curves(axes, curves)

    curves = {label: curves[label] for label in CONTENDERS.values() if label in curves}
    table = make_table(curves, options, notes_of_kept(measured, options))
    publish(name, options, table, {"curves": curves, "measured": measured}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", choices=list(PAPER_PROBLEMS), metavar="PROBLEM", help=", ".join(PAPER_PROBLEMS))
    parser.add_argument("--seconds", type=float, default=100.0, help="training time of a contender")
    names = list(CONTENDERS)
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, help="those that are measured")


def two_step_curve(preset: str, options: argparse.Namespace, samples: int | None) -> tuple[Curve, Any]:
    """Runs with more and more iterations, the last as many as fit into the time; and the encoder used."""
    values = {"data": {"samples": samples}}
    share, runs = FIRST_ITERATIONS / make_run_config(preset, options.problem, values).method.trunk.iterations, []
    while share:
        runs.append(run_share(preset, options.problem, share, options.clock, values))
        # Most of the first run may be choosing and compiling, which stay the same: its cost is too high a guess.
        begin, before = (runs[-2].share, runs[-2].seconds) if runs[1:] else (0.0, 0.0)
        cost = max(runs[-1].seconds - before, 1e-3) / (share - begin)
        following = min(GROWTH * share, share + (0.95 * options.seconds - runs[-1].seconds) / cost)
        share = following if following > 1.15 * share and not runs[-1].has_stagnated else 0.0
    return [(run.seconds, run.test_error) for run in runs], runs[-1].encoder


def deepxde_curve(options: argparse.Namespace, samples: int | None, encoder: Any, *, has_lbfgs: bool) -> Curve:
    """Adam in single precision, or Adam for half of the time, then L-BFGS, in double, as DeepXDE advises."""
    import _deepxde

    prepared = prepared_data("paper", options.problem, samples)
    dtype, split, flat = "float64" if has_lbfgs else "float32", prepared.split, prepared.data.flat_inputs
    with jax.enable_x64(True):
        inputs = flat if encoder is None else np.asarray(encoder(jnp.asarray(flat)))
    training, test = prepared.data.take(split.train), prepared.data.take(split.test)
    places = inputs[split.test].astype(dtype), test.points.astype(dtype)
    curve, limit, stopwatch = Curve(), options.seconds / (2 if has_lbfgs else 1), Stopwatch(options.clock)

    def watch(model: Any) -> None:
        now = stopwatch.read()
        model.stop_training = now >= limit
        if model.stop_training or now >= (curve[-1][0] if curve else 0.0) + options.seconds / 20:
            with stopwatch.paused():
                errors = relative_errors(model.predict(places), test.outputs, point_weights=test.point_weights)
                curve.append((now, float(errors.mean())))

    method = make_run_config("paper", options.problem, {"method": "monolithic"}).method
    model = _deepxde.make_model(method, inputs[split.train], training, dtype)
    _deepxde.compile_adam(model, is_relative=encoder is not None)
    _deepxde.train(model, watch, 10**9, batch_size=MOST_SAMPLES if training.samples > MOST_SAMPLES else None)
    if has_lbfgs:
        limit = options.seconds
        _deepxde.compile_lbfgs(model, is_relative=encoder is not None)
        _deepxde.train(model, watch)
    return curve


def make_table(curves: dict[str, Curve], options: argparse.Namespace, notes: Sequence[str]) -> Table:
    """Within the limit: the last run of trunkfirst; of DeepXDE the best moment. If there is none: the first."""
    rows: list[tuple[str, float, float, float]] = []
    for name, curve in curves.items():
        within = [point for point in curve if point[0] <= 1.02 * options.seconds] or curve[:1]
        taken, error = min(within, key=lambda point: point[1]) if "DeepXDE" in name else within[-1]
        rows.append((name, taken, error, error / rows[0][2] if rows else 1.0))
    said = ["A contender with no result within the time is listed with its first."]
    if others := [row for row in rows if "DeepXDE" in row[0]]:
        best = min(others, key=lambda row: row[2])
        note = f"DeepXDE at its best ({best[0]}) has {best[3]:.3g} times the error of preset fast"
        said.insert(0, f"{note}; goal at 100 s: {GOALS[options.problem]}.")
    head = ("contender", "seconds", "test error", "/ preset fast")
    return Table(f"{options.problem}: test error after {options.seconds:g} s", head, rows, [*said, *notes])


if __name__ == "__main__":
    main()
