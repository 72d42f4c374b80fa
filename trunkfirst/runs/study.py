"""The error bound observed: errors on ladders of N, K, m_x and m_y, their slopes, and the terms of thm:main."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float, Int

from ..data.array_checks import evenly
from ..data.operator_data import OperatorData
from ..errors import DataError, ValueRangeError
from ..networks.operator import load
from ..problems.generate import get_problem, make_data
from ..progress import Reporter, Silent
from ..regressors.ridge import Kernel
from ..theory.assumptions import fill_distances, generalisation_errors, operator_lipschitz
from ..theory.known_rates import KnownRates, known_rates_ladders, known_rates_together
from ..theory.optimal_sensors import christoffel, excess_ladder, uniform_sensors
from ..theory.rates import (
    Constants,
    Decay,
    Observed,
    RateLadder,
    Rates,
    best_basis,
    bound_terms,
    n_term_decay,
    truncate,
)
from .place_sensors import measured_functions, measured_outputs

KNOWN_RATES = "known-rates"
_COUNTS = (8, 16, 32, 64, 128, 256)
# N where sensors are varied; and the N, K of whole operators.
_WIDTH = 4
_TOGETHER = ((1, 16), (2, 32), (3, 64), (4, 128))
# Inputs of at most this many numbers fill their space with the rate 1 over that number.
_MAX_PARAMETERS = 3
_TEST_EVERY = 5
# Samples on which length scale and ridge of the kernel are chosen.
_SELECTION_SAMPLES = 128


@dc.dataclass(frozen=True, eq=False)
class Study:
    """Ladders with their slopes, and the errors of whole operators with the terms of thm:main."""

    name: str
    title: str
    task: str
    ladders: tuple[RateLadder, ...]
    together: tuple[Observed, ...]
    notes: tuple[str, ...]
    settings: dict[str, Any]

    def summary(self) -> dict[str, Any]:
        """The content of `study.json`."""
        return {
            "study": self.name,
            "settings": self.settings,
            "holds": all(ladder.holds is not False for ladder in self.ladders),
            "ladders": [_ladder_summary(ladder) for ladder in self.ladders],
            "bound": [_observed_summary(row) for row in self.together],
            "notes": list(self.notes),
        }


def study(
    name: str = KNOWN_RATES,
    *,
    samples: int | None = None,
    run: Path | None = None,
    seed: int = 0,
    reporter: Reporter | None = None,
) -> Study:
    """Observe the bound on the operator with known rates, or on a problem by its name.

    For a problem the basis is the best one of the training samples; with `run` also that of its trunk.
    """
    if seed < 0:
        raise ValueRangeError(f"seed is {seed}; expected a number from 0")
    if name == KNOWN_RATES:
        return _known_rates_study(seed)
    return _problem_study(name, samples=samples, run=run, seed=seed, reporter=reporter or Silent())


def _known_rates_study(seed: int) -> Study:
    known = KnownRates()
    together = known_rates_together(known, seed=seed)
    whole = RateLadder(
        "N",
        "mean squared error of whole operators, K, m_x and m_y growing with N",
        np.asarray([row.width for row in together]),
        np.asarray([row.measured for row in together]),
        -2 * known.rates.width,
    )
    return Study(
        KNOWN_RATES,
        "The bound, observed: an operator with known rates",
        "from a combination of Legendre polynomials to a sum of cosines whose coefficients fall like "
        f"j^-{known.decay + 0.5:g}",
        (*known_rates_ladders(known, seed=seed), whole),
        together,
        (
            "The trunk is fixed before sensors are drawn, as in thm:main: cosines, orthonormal in L2.",
            "Errors in K: the theory is an upper bound, attained by the nearest training input; a branch that is "
            "linear between training inputs is faster.",
            "Errors in m_x: a branch with exact integrals is used on m_x sensors, where they become sums. Trained "
            "on these sensors it would lose nothing here, since they determine the parameters.",
        ),
        {"decay": known.decay, "dimension": known.dimension, "seed": seed, **dc.asdict(known.rates)},
    )


# -- a problem


@dc.dataclass(frozen=True, eq=False)
class _Case:
    """Samples of a problem, split; `encoded` are the inputs of the branch."""

    data: OperatorData
    encoded: Float[np.ndarray, "samples numbers"]
    train: Int[np.ndarray, " train"]
    test: Int[np.ndarray, " test"]
    basis: Float[np.ndarray, "points functions"]

    @property
    def outputs(self) -> Float[np.ndarray, "samples points"]:
        return self.data.outputs

    @property
    def weights(self) -> Float[np.ndarray, " points"] | None:
        return self.data.point_weights

    @property
    def counts(self) -> list[int]:
        return [count for count in _COUNTS if count <= len(self.train)]

    def some(self, count: int) -> Int[np.ndarray, " some"]:
        """`count` training samples, evenly chosen in the order of the data."""
        return self.train[evenly(len(self.train), count)]


def _problem_study(name: str, *, samples: int | None, run: Path | None, seed: int, reporter: Reporter) -> Study:
    problem = get_problem(name)
    case = _case(make_data(name, samples=samples, progress=reporter.on_samples))
    decay = n_term_decay(case.outputs[case.test], case.basis, weights=case.weights)
    best = _width_ladder(decay, "best N-term error of the best basis, root mean square")
    fill, error = _fill_ladder(case), _sample_ladder(case)
    ladders = [best, fill, dc.replace(error, theory=fill.slope.value), _point_ladder(case, decay, seed)]
    if run is not None:
        ladders.insert(1, _width_ladder(_trunk_decay(case, run), "the same of a run's trunk"))
    numbers = case.data.flat_inputs.shape[1]
    notes = (
        "No power describes errors that fall faster than every power: the interval of the slope in N shows how "
        "well one does, and the bound below uses the measured error in place of N^-r.",
        f"m_x is not varied: an input is {numbers} number{'s' * (numbers > 1)}. The branch is a kernel regression "
        "in closed form; its error in K is compared with the fill distance.",
        "The points are those of the mesh; sensors are drawn from them.",
    )
    return Study(
        name,
        f"The bound, observed: {problem.title.lower()}",
        f"of section {problem.section}: {problem.equation}",
        tuple(ladders),
        _problem_together(case, decay, fill, seed),
        notes,
        {"samples": case.data.samples, "run": None if run is None else str(run), "seed": seed},
    )


def _case(data: OperatorData) -> _Case:
    if data.outputs.ndim != 2:
        raise DataError("outputs: a study needs one channel")
    # Every fifth sample, not random ones: problems with one parameter are sorted by it, and a random choice would
    # leave gaps that more training samples do not close.
    is_test = np.arange(data.samples) % _TEST_EVERY == _TEST_EVERY // 2
    values = data.flat_inputs
    values = np.log(values) if (values > 0).all() else values
    spread = values.std(axis=0)
    encoded = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    basis = best_basis(data.outputs[~is_test], weights=data.point_weights)
    return _Case(data, encoded, np.flatnonzero(~is_test), np.flatnonzero(is_test), basis)


def _width_ladder(decay: Decay, what: str) -> RateLadder:
    widths = decay.ladder
    if len(widths) < 4:  # then every N instead of powers of 2
        widths = np.arange(1, 1 + max(2, int((decay.root_mean_square > 1e-12 * decay.size).sum()) - 1))
    # A trunk has an error of its own, where the curve becomes flat; the slope is that of the part before.
    is_falling = decay.root_mean_square[widths] > 1.1 * decay.root_mean_square[-1]
    widths = widths[: max(3, int(is_falling.sum()) + 1)]
    return RateLadder("N", what, widths, decay.root_mean_square[widths])


def _trunk_decay(case: _Case, run: Path) -> Decay:
    operator = load(run)
    trunk = christoffel(measured_functions(operator, case.data.points), weights=case.weights).basis
    outputs = measured_outputs(operator, case.outputs)
    basis = best_basis(outputs[case.train], weights=case.weights, within=trunk)
    return n_term_decay(outputs[case.test], basis, weights=case.weights)


def _fill_ladder(case: _Case) -> RateLadder:
    inputs = case.data.flat_inputs
    found = [fill_distances(inputs[case.some(count)], inputs[case.test], levels=1) for count in case.counts]
    distances = np.concatenate([each.errors for each in found])
    theory = -1 / inputs.shape[1] if inputs.shape[1] <= _MAX_PARAMETERS else None
    return RateLadder("K", "fill distance of the training inputs", np.asarray(case.counts), distances, theory)


def _sample_ladder(case: _Case) -> RateLadder:
    exact = case.outputs * (1 / len(case.basis) if case.weights is None else case.weights) @ case.basis
    errors = [_branch(case, chosen, exact[chosen]) - exact[case.test] for chosen in map(case.some, case.counts)]
    rms = np.asarray([np.sqrt(np.mean(np.sum(e**2, axis=1))) for e in errors])
    what = "error of the coefficients, kernel branch, root mean square"
    return RateLadder("K", what, np.asarray(case.counts), rms, None, "not slower")


def _branch(case: _Case, chosen: np.ndarray, targets: np.ndarray) -> Float[np.ndarray, "test coefficients"]:
    """A kernel regression on the chosen samples, at the test inputs."""
    with jax.enable_x64(True):
        inputs, others = jnp.asarray(case.encoded[chosen]), jnp.asarray(case.encoded[case.test])
        regressor = Kernel(selection_samples=_SELECTION_SAMPLES)
        return np.asarray(regressor.fit(inputs, jnp.asarray(targets), key=jr.key(0)).branch(others))


def _point_ladder(case: _Case, decay: Decay, seed: int) -> RateLadder:
    width = min(_WIDTH, int(decay.ladder[-1]))
    found = christoffel(case.basis[:, : width + 1], weights=case.weights)
    points, fewest = len(case.basis), 10 * (width + 1)
    counts = np.unique(np.geomspace(fewest, max(points, 4 * fewest), 6).round().astype(int))
    ladder = excess_ladder(found, case.outputs[case.test], counts.tolist(), draws=60, seed=seed)
    return dc.replace(ladder, what=f"{ladder.what}, N = {width}")


def _problem_together(case: _Case, decay: Decay, fill: RateLadder, seed: int) -> tuple[Observed, ...]:
    inputs, points = case.data.flat_inputs, len(case.basis)
    steepness = operator_lipschitz(inputs, case.outputs, point_weights=case.weights)
    size = float(np.abs(case.outputs).max())
    rows: list[Observed] = []
    for width, samples in _TOGETHER:
        if width >= len(decay.root_mean_square) or samples > len(case.train):
            break
        constants = Constants(
            width=float(decay.root_mean_square[width]) * width, samples=steepness * fill.slope.constant, size=size
        )
        found = christoffel(case.basis[:, : width + 1], weights=case.weights)
        counts = {"width": width, "samples": samples, "sensors": inputs.shape[1], "points": points}
        terms = bound_terms(Rates(1.0, -fill.slope.value), constants, **counts, largest=found.largest)
        sensors, chosen = uniform_sensors(found, points, seed=seed).indices, case.some(samples)
        targets = np.linalg.lstsq(found.basis[sensors], case.outputs[chosen][:, sensors].T, rcond=None)[0].T
        predicted = truncate(_branch(case, chosen, targets) @ found.basis.T, size)
        errors = generalisation_errors(predicted, case.outputs[case.test], weights=case.weights)
        rows.append(Observed(**counts, terms=terms, measured=float(np.mean(errors**2))))
    return tuple(rows)


# -- study.json


def _ladder_summary(ladder: RateLadder) -> dict[str, Any]:
    slope = ladder.slope
    return dc.asdict(ladder) | {
        "slope": slope.value,
        "interval": [slope.lower, slope.upper] if np.isfinite(slope.lower) else None,
        "constant": slope.constant,
        "holds": ladder.holds,
    }


def _observed_summary(row: Observed) -> dict[str, Any]:
    terms = row.terms
    return {
        "N": row.width,
        "K": row.samples,
        "m_x": row.sensors,
        "m_y": row.points,
        "terms": {"N": terms.width, "K": terms.samples, "m_x": terms.sensors, "m_y": terms.points},
        "sum": terms.total,
        "exponent": terms.exponent,
        "is_vacuous": terms.is_vacuous,
        "measured": row.measured,
        "ratio": row.ratio,
    }
