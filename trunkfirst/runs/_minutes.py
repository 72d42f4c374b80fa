"""A time budget, turned once into iteration counts: nothing in a fit reads the clock."""

import dataclasses as dc
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..data import AnyData, evenly
from ..distributed.processes import broadcast_value
from ..minimisers import minimise
from ..training import (
    ProjectedTrunk,
    SeparateTrunks,
    StandardisedInputs,
    TwoStep,
    prepare,
    trunk_problems,
)
from ._choose import CROSS_VALIDATED, FOLDS
from ._config import BranchSection, RunConfig, Updates, updated
from ._method import branch_settings, build_method, build_regressor

# Shares of the time; the rest is for what has no iterations: closed forms, compiling, the report.
_TRUNK_SHARE, _TRIALS_SHARE, _BRANCH_SHARE = 0.4, 0.15, 0.15
# Starts and their halving cost about half as much again as the iterations asked for.
_WITH_STARTS = 1.5
_FEWEST, _MOST = 200, 6000
_WARM_UP, _TIMED = 5, 20
# Trials of networks while choosing, of `trial_iterations` each, and fits of the branch, with those for intervals.
_TRIALS, _BRANCH_FITS = 10, 6
_FEWEST_TRIAL, _FEWEST_BRANCH = 20, 50
_MOST_ROWS = 4000


def within_minutes(config: RunConfig, data: AnyData, minutes: float) -> RunConfig:
    """The configuration with as many iterations as fit into the time, measured on a few of them."""
    branch = config.branch.model_copy(update={"encoder": "none", "kind": "linear"})
    method = build_method(config.model_copy(update={"branch": branch}), data)
    trunk = method.trunk
    times = data.channels if isinstance(trunk, SeparateTrunks) else 1
    trunk = trunk.each if isinstance(trunk, SeparateTrunks) else trunk
    if not isinstance(method, TwoStep) or not isinstance(trunk, ProjectedTrunk):
        return config
    seconds = broadcast_value(_seconds_an_iteration(method, trunk, data))
    count = int(_TRUNK_SHARE * 60 * minutes / seconds / _WITH_STARTS / times)
    updates: Updates = {"trunk": {"iterations": max(_FEWEST, min(_MOST, _two_digits(count)))}}
    if config.branch.kind == "auto" and config.branch.projected:
        updates["branch"] = _branch_counts(config.branch, data, minutes)
    return updated(config, updates)


def _branch_counts(section: BranchSection, data: AnyData, minutes: float) -> dict[str, int]:
    """Iterations of trials and of the branch itself; fewer than usual only where time is short."""
    seconds = broadcast_value(_seconds_of_branch(section, data))
    folds = FOLDS if data.samples < CROSS_VALIDATED else 1
    trial = int(_TRIALS_SHARE * 60 * minutes / seconds / _TRIALS / folds)
    whole = int(_BRANCH_SHARE * 60 * minutes / seconds / _BRANCH_FITS)
    return {
        "trial_iterations": min(section.trial_iterations, max(_FEWEST_TRIAL, _two_digits(trial))),
        "iterations": min(section.iterations, max(_FEWEST_BRANCH, _two_digits(whole))),
    }


def _seconds_of_branch(section: BranchSection, data: AnyData) -> float:
    """Of an iteration of the network on standardised inputs, for random targets."""
    rows = min(data.samples, _MOST_ROWS)
    network = section.model_copy(update={"kind": "network", "iterations": _WARM_UP + _TIMED})
    regressor = build_regressor(network, branch_settings(network, data))
    targets = np.random.default_rng(0).normal(size=(rows, section.architecture[-1] * data.channels))
    with jax.enable_x64(True):
        inputs = StandardisedInputs().fit(data)(jnp.asarray(data.flat_inputs[:rows], jnp.float64))
        fitted = regressor.with_groups((inputs.shape[1],)).fit(inputs, jnp.asarray(targets), key=jr.key(0))
    first, last = fitted.history[min(_WARM_UP, len(fitted.history) - 2)], fitted.history[-1]
    return (last.seconds - first.seconds) / max(last.iteration - first.iteration, 1)


def _seconds_an_iteration(method: TwoStep, trunk_fit: ProjectedTrunk, data: AnyData) -> float:
    dtype, some = np.dtype(np.float64), evenly(data.samples, _MOST_ROWS)  # an iteration costs the same for all
    with jax.enable_x64(True):
        fields = prepare(data.take(some), dc.replace(method, precision="double"), dtype).fields
        numbers = sum(trunk_fit.network.architecture)
        problem = trunk_problems(fields, dtype, numbers=numbers)(trunk_fit.ridge)
        start = trunk_fit.start(dtype=dtype, key=jr.key(0))
        warm = minimise(problem, start, trunk_fit.minimiser, iterations=_WARM_UP, key=jr.key(0))
        begin = time.perf_counter()
        minimise(
            problem,
            warm.parameters,
            trunk_fit.minimiser,
            iterations=_WARM_UP + _TIMED,
            state=warm.state,
            key=jr.key(0),
        )
    return (time.perf_counter() - begin) / _TIMED


def _two_digits(count: int) -> int:
    """Rounded down to two digits, so that small differences of speed do not show."""
    unit = 10 ** max(len(str(count)) - 2, 0)
    return count // unit * unit
