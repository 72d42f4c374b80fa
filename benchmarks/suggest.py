"""How many samples are needed: those that `trunkfirst.suggest` asks for, Sobol points, and random ones.

    python benchmarks/suggest.py

An operator is fitted to a few random samples; then a batch of samples is added again and again: random ones, those
that are suggested, or (from the start) Sobol points. All fits have the same closed form; the error is the mean
relative l2 error of 500 random samples that nothing else sees.
"""

import argparse
import dataclasses as dc
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from _common import Table, draw_curves, options_for, publish
from scipy.stats import qmc

import trunkfirst
from trunkfirst.fitting import train
from trunkfirst.next_samples import on_host
from trunkfirst.problems.nonlinear_darcy import MultipleInputs, NonlinearConductivity
from trunkfirst.run_data import DataSettings, split_data

METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(), trunkfirst.Kernel(lengths="each"), inputs=trunkfirst.PowerInputs(), weights="relative"
)
DESIGNS = ("random", "Sobol", "suggested")
TESTS = 500
LINE = np.linspace(0, 1, 101)


@dc.dataclass(frozen=True)
class Case:
    """An operator of a few numbers in a box, and how many samples it is fitted to."""

    low: np.ndarray
    high: np.ndarray
    points: np.ndarray
    solve: Callable[[np.ndarray], np.ndarray]
    first: int
    batch: int
    most: int

    def scaled(self, unit: np.ndarray) -> np.ndarray:
        return self.low + unit * (self.high - self.low)


def cases() -> dict[str, Case]:
    """The paper's problems with numbers as inputs, and one with ten."""
    one, three = NonlinearConductivity(), MultipleInputs()
    low, high = np.full((2, 10), [[-1.0], [1.0]])
    wide_low, wide_high = low.copy(), high.copy()
    wide_low[:3], wide_high[:3] = 0.1, 10.0
    line = LINE[:, None]
    return {
        "nonlinear-conductivity": Case(low[:1] + 2, high[:1] + 999, one.mesh.points, one.closed_form, 6, 2, 24),
        "multiple-inputs": Case(wide_low[:3], wide_high[:3], three.mesh.points, three.closed_form, 20, 10, 120),
        "ten numbers, three dominate": Case(wide_low, wide_high, line, _dominated, 30, 15, 150),
        "ten numbers, all matter": Case(low, high, line, _diffusion, 30, 15, 150),
    }


def _dominated(parameters: np.ndarray) -> np.ndarray:
    """sqrt(g^2 + 2 f / kappa w), -w'' = 1, as in multiple-inputs; seven more numbers change w by a few percent."""
    f, kappa, g = parameters[:, :3].T
    shapes = np.cos(np.pi * np.outer(np.arange(1, 8), LINE))
    w = LINE * (1 - LINE) / 2 * (1 + 0.02 * parameters[:, 3:] @ shapes)
    return np.sqrt(g[:, None] ** 2 + 2 * (f / kappa)[:, None] * w)


def _diffusion(parameters: np.ndarray) -> np.ndarray:
    """-(exp(1.5 sum_k y_k cos(k pi x) / k^1.5) u')' = 1, u(0) = u(1) = 0, by quadrature."""
    k, middles = np.arange(1, 11), (LINE[1:] + LINE[:-1]) / 2
    resistance = np.exp(-1.5 * parameters @ (np.cos(np.pi * np.outer(k, middles)) / k[:, None] ** 1.5))
    flux = (resistance * middles).sum(axis=1) / resistance.sum(axis=1)  # the coefficient times u' is flux - x
    slopes = resistance * (flux[:, None] - middles)
    return np.concatenate([np.zeros((len(slopes), 1)), np.cumsum(slopes, axis=1) * LINE[1]], axis=1)


def curve(case: Case, design: str, seed: int) -> list[tuple[int, float]]:
    """Numbers of samples and test errors."""
    rng, dimensions = np.random.default_rng(seed), len(case.low)
    test = case.scaled(rng.random((TESTS, dimensions)))
    rows = case.scaled(rng.random((case.most, dimensions)))
    if design == "Sobol":
        sequence = qmc.Sobol(dimensions, seed=seed).random_base2(int(np.ceil(np.log2(case.most))))
        rows = case.scaled(sequence)[: case.most]
    exact, known = case.solve(test), rows[: case.first]
    found: list[tuple[int, float]] = []
    while True:
        operator = _fitted(case, known)
        missed = _predicted(operator, test, case.points) - exact
        found.append((len(known), float(np.mean(np.linalg.norm(missed, axis=1) / np.linalg.norm(exact, axis=1)))))
        if len(known) >= case.most:
            return found
        more = rows[len(known) : len(known) + case.batch]
        if design == "suggested":
            ranges = {f"p{i}": ends for i, ends in enumerate(zip(case.low, case.high, strict=True))}
            chosen = trunkfirst.suggest(operator, case.batch, ranges=ranges, seed=seed)
            more = np.concatenate([*chosen.inputs.values()], axis=1)
        known = np.concatenate([known, more])


def _fitted(case: Case, known: np.ndarray) -> trunkfirst.Operator:
    inputs = {f"p{i}": column[:, None] for i, column in enumerate(known.T)}
    data = trunkfirst.OperatorData(inputs, case.points, case.solve(known))
    return train(METHOD, split_data(data, DataSettings(test_share=0.0)), measured=False).operator


def _predicted(operator: trunkfirst.Operator, inputs: np.ndarray, points: np.ndarray) -> np.ndarray:
    """As `predict`, without compiling every operator."""
    with jax.enable_x64(True):
        bare = on_host(operator)
        return np.asarray(bare.branch(bare.encoder(inputs))) @ np.asarray(bare.basis(points)).T


def needed(curve: Sequence[tuple[int, float]], error: float) -> float | None:
    """From how many samples on the error is below this one, interpolated between logarithms; None if never."""
    counts, errors = np.log(np.array(curve)).T
    above = np.flatnonzero(errors > np.log(error))
    if not len(above):
        return float(np.exp(counts[0]))
    if (last := int(above[-1])) == len(counts) - 1:
        return None
    share = (errors[last] - np.log(error)) / (errors[last] - errors[last + 1])
    return float(np.exp(counts[last] + share * (counts[last + 1] - counts[last])))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all problems and designs and print the table."""
    options = options_for(__doc__, _add_options, argv)
    seeds = 1 if options.quick else options.seeds
    rows: list[list[Any]] = []
    details: dict[str, Any] = {}
    for name, case in cases().items():
        small = dc.replace(case, most=case.first + case.batch) if options.quick else case
        details[name] = {design: [curve(small, design, seed) for seed in range(seeds)] for design in DESIGNS}
        rows.append([name, len(case.low), *_row(details[name])])
        print(rows[-1], flush=True)
    head = ("problem", "numbers", "random samples", "their error", "share, Sobol", "share, suggested")
    head = (*head, "worst seed", "error, Sobol", "error, suggested")
    note = (
        "Share: samples of that design, as a share of the random ones, that reach the error of all random ones; "
        f"geometric means over {seeds} seeds. Worst seed: the largest share of suggested samples, each seed with "
        "its own random samples. The last columns: the error with as many samples as the random ones."
    )

    def figure(axes: Any) -> None:
        draw_curves(axes, _mean(details["multiple-inputs"]))
        axes.set(xscale="log", yscale="log", xlabel="samples", ylabel="relative l2 error", title="multiple-inputs")

    publish("suggest", options, Table("Where to simulate next", head, rows, [note]), details, figure)


def _mean(every: dict[str, list[list[tuple[int, float]]]]) -> dict[str, list[tuple[int, float]]]:
    """The geometric mean over the seeds, for every design."""
    tables = {design: np.array(curves) for design, curves in every.items()}
    means = {design: np.exp(np.mean(np.log(table[..., 1]), axis=0)) for design, table in tables.items()}
    return {
        design: [*zip(tables[design][0, :, 0].tolist(), means[design].tolist(), strict=True)] for design in means
    }


def _row(every: dict[str, list[list[tuple[int, float]]]]) -> list[Any]:
    mean = _mean(every)
    count, error = mean["random"][-1]
    found = [needed(mean[design], error) for design in DESIGNS[1:]]
    worst = [needed(one, other[-1][1]) for one, other in zip(every["suggested"], every["random"], strict=True)]
    found.append(None if None in worst else max(worst))
    shares = [None if each is None else each / count for each in found]
    return [int(count), error, *shares, *(mean[design][-1][1] for design in DESIGNS[1:])]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=5, help="draws of the random samples")


if __name__ == "__main__":
    main()
