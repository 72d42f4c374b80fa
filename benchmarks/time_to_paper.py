"""Time to the paper's own error: this package against the paper's two-step Adam in the same run.

    taskset -c 1 python benchmarks/time_to_paper.py --cap 300

nonlinear-conductivity: step 1 until its trunk loss is 2.11e-7. discontinuous-conductivity and multiple-inputs:
complete runs until the test error is 4.14e-4 and 2.9e-4.
Adam on the trunk loss is one run, stopped when it is there. Everything else is run from scratch with more and more
iterations (--growth), and the first run that is there counts: its time, not that of the runs before it.

Every run compiles anew. With TRUNKFIRST_PROGRAM_CACHE=on and a second call compiled programs are read.
With --contenders fast only the preset is measured; Adam keeps what was published before.
"""

import argparse
import dataclasses as dc
import functools as ft
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np
from _common import (
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
from _two_step import prepared_data, run_share, shorten

from trunkfirst.cache import cached_programs
from trunkfirst.encode import encode
from trunkfirst.method import named_key
from trunkfirst.records import LogEntry

TARGETS = {"nonlinear-conductivity": 2.11e-7, "discontinuous-conductivity": 4.14e-4, "multiple-inputs": 2.9e-4}
FIRST_SHARES = {"fast": 1 / 64, "paper": 1 / 256}  # 39 iterations of Adam on 90,000 samples take minutes
CONTENDERS = {"fast": "preset fast", "paper": "two-step Adam"}
ENDLESS = 1e4  # share of the preset's iterations that no cap lets come to its end
DTYPE = np.dtype(np.float64)


@dc.dataclass(frozen=True)
class Attempt:
    """What was reached in how many seconds."""

    seconds: float
    error: float
    is_last: bool = False
    """More iterations would change nothing."""


def main(argv: Sequence[str] | None = None) -> None:
    """Every problem, both contenders."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.problems, options.cap = options.problems[:1], 5.0
    kept = published("time-to-paper", options)
    measured = kept.get("measured", {}) | {CONTENDERS[each]: source_of(options) for each in options.contenders}
    attempts: dict[str, dict[str, list[Attempt]]] = {}
    for problem in options.problems:
        before = kept.get("attempts", {}).get(problem, {})
        if not {*options.contenders} | {*before} >= {*CONTENDERS}:
            sys.exit(f"{problem}: there are no earlier rows to keep; leave out --contenders")
        attempts[problem] = {
            preset: approach(problem, preset, options)
            if preset in options.contenders
            else [Attempt(**each) for each in before[preset]]
            for preset in CONTENDERS
        }

    def draw(axes: Any) -> None:
        axes.set(xlabel="seconds of a run", ylabel="error / the paper's error", xscale="log", yscale="log")
        axes.axhline(1.0, color="black", linewidth=0.8)
        curves = {
            f"{problem}, {CONTENDERS[preset]}": [(each.seconds, each.error / TARGETS[problem]) for each in tried]
            for problem, both in attempts.items()
            for preset, tried in both.items()
        }
        draw_curves(axes, curves)

    head = (
        "problem",
        "the paper's error",
        "preset fast, s",
        "two-step Adam, s",
        "its error there",
        "ratio of times",
    )
    rows = [make_row(problem, both) for problem, both in attempts.items()]
    note = f"'>' means not reached within the cap of {options.cap:g} s. nonlinear-conductivity: trunk loss; "
    note += "the others: test error."
    table = Table("Time to the paper's own error", head, rows, [note, *notes_of_kept(measured, options)])
    tried = {p: {k: [dc.asdict(a) for a in each] for k, each in both.items()} for p, both in attempts.items()}
    publish("time-to-paper", options, table, {"attempts": tried, "measured": measured}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="which")
    names = list(CONTENDERS)
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, help="those that are measured")
    parser.add_argument("--cap", type=float, default=300.0, help="seconds after which a contender has not made it")
    parser.add_argument(
        "--growth", type=float, default=1.5, help="iterations of a run over those of the one before"
    )


def make_row(problem: str, attempts: dict[str, list[Attempt]]) -> tuple[Any, ...]:
    """The last attempt of both, with a sign where it did not get there."""
    fast, adam = attempts["fast"][-1], attempts["paper"][-1]
    target = TARGETS[problem]
    words = [f"{'' if each.error <= target else '> '}{each.seconds:.3g}" for each in (fast, adam)]
    ratio = f"{'' if adam.error <= target else '> '}{adam.seconds / fast.seconds:.3g}"
    return problem, target, *words, adam.error, ratio if fast.error <= target else None


def approach(problem: str, preset: str, options: argparse.Namespace) -> list[Attempt]:
    """Attempts until one is there or the time is over."""
    if problem != "nonlinear-conductivity":
        return climb(ft.partial(attempt_run, preset, problem, options.clock), problem, preset, options)
    if preset == "fast":
        return climb(ft.partial(attempt_trunk, preset, problem, options), problem, preset, options)
    return watch_trunk(preset, problem, options)


def climb(
    attempt: Callable[[float], Attempt], problem: str, preset: str, options: argparse.Namespace
) -> list[Attempt]:
    """Runs with more and more iterations; the last one takes what the cap leaves."""
    share, tried = FIRST_SHARES[preset], [attempt(FIRST_SHARES[preset])]
    while tried[-1].error > TARGETS[problem] and not tried[-1].is_last and tried[-1].seconds < 0.9 * options.cap:
        # As if all the time went into iterations, which is not so: the run will be shorter than the cap.
        share *= min(options.growth, options.cap / tried[-1].seconds)
        tried.append(attempt(share))
    return tried


def attempt_run(preset: str, problem: str, clock: str, share: float) -> Attempt:
    """A complete run and its test error."""
    finished = run_share(preset, problem, share, clock, {})
    return Attempt(finished.seconds, finished.test_error, finished.has_stagnated)


def attempt_trunk(preset: str, problem: str, options: argparse.Namespace, share: float) -> Attempt:
    """Step 1 alone and its trunk loss."""
    history: list[Attempt] = []
    result, seconds = fit_trunk(preset, problem, options, share, history)
    return Attempt(seconds, result.loss, result.iterations < result.history[-1].iterations)


def watch_trunk(preset: str, problem: str, options: argparse.Namespace) -> list[Attempt]:
    """Step 1 alone, one run, whose logged loss is the trunk loss; some thirty moments of it."""
    history: list[Attempt] = []
    fit_trunk(preset, problem, options, ENDLESS, history)
    places = np.unique(np.geomspace(1, len(history), 30).round().astype(int)) - 1
    return [history[place] for place in places]


def fit_trunk(
    preset: str, problem: str, options: argparse.Namespace, share: float, history: list[Attempt]
) -> tuple[Any, float]:
    """Step 1, ended as by Ctrl-C when the cap or the target is met; every logged loss goes into `history`."""
    watch, target = Stopwatch(options.clock), TARGETS[problem]

    def on_step(step: LogEntry) -> None:
        history.append(Attempt(watch.read(), step.best_loss))
        is_there = preset == "paper" and step.best_loss <= target  # else the loss has weights and a ridge
        if is_there or history[-1].seconds > options.cap:
            raise KeyboardInterrupt

    config = shorten(make_run_config(preset, problem, {"inputs": "standardise"}), share)
    data = prepared_data(preset, problem).train
    method: Any = config.method
    jax.clear_caches()
    with jax.enable_x64(True), cached_programs():
        fields = encode(data, method, DTYPE).fields
        watch = Stopwatch(options.clock)
        key = named_key(jr.key(0), "trunk")
        result = method.trunk.fit(fields, dtype=DTYPE, key=key, on_step=on_step)
    return result, watch.read()


if __name__ == "__main__":
    main()
