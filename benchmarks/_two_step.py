"""Complete runs of a preset with a share of its iterations, from scratch; evaluation is not timed."""

import dataclasses as dc
import functools as ft
import tempfile
from typing import Any

import jax
from _common import Stopwatch, make_run_config

import trunkfirst
from trunkfirst.regressors.network import JointBranch
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.run_data import RunData, Split, load_run_data
from trunkfirst.runs.config import RunConfig
from trunkfirst.runs.run import run


@dc.dataclass(frozen=True)
class Finished:
    """What a run took, what it reached, and the encoder it used."""

    share: float
    seconds: float
    test_error: float
    has_stagnated: bool
    """More iterations would change nothing."""
    encoder: Any


def run_share(preset: str, problem: str, share: float, clock: str, values: dict[str, Any]) -> Finished:
    """Run with `share` of the preset's iterations, compiled anew.

    Timed: choosing the encoder, compiling, both steps, writing. Not timed: making the data, evaluation.
    """
    config = make_run_config(preset, problem, values)
    prepared = prepared_data(preset, problem, config.data.samples)
    split = prepared.split
    blind = RunData(prepared.data, Split(split.train, split.validation, split.test[:0]), 0.0)
    shared = shorten(config, share)
    jax.clear_caches()
    watch = Stopwatch(clock)
    with tempfile.TemporaryDirectory() as folder:
        result = run(shared, folder, data=blind).result
    seconds = watch.read()
    errors = trunkfirst.evaluate(result.operator, prepared.data.take(split.test)).errors
    # With fewer iterations than the preset has, a search that stopped early may only have had a bad start.
    has_stagnated = share >= 1 and result.diagnostics["trunk"]["iterations"] < shared.method.trunk.iterations
    return Finished(share, seconds, float(errors.mean()), has_stagnated, result.operator.encoder)


def shorten(config: RunConfig, share: float) -> RunConfig:
    """A share of the trunk's iterations, and of the branch's where Adam trains it.

    Others finish sooner: they get the root of the share, and not more than the preset's. Kernels have none.
    """
    method: Any = config.method
    branch_share = share if isinstance(method.branch, JointBranch) else min(share, 1.0) ** 0.5
    trunk = dc.replace(method.trunk, iterations=max(int(method.trunk.iterations * share), 1))
    branch = method.branch
    if not isinstance(branch, Kernel):
        branch = dc.replace(branch, iterations=max(int(branch.iterations * branch_share), 1))
    return dc.replace(config, method=dc.replace(method, trunk=trunk, branch=branch))


@ft.cache
def prepared_data(preset: str, problem: str, samples: int | None = None) -> RunData:
    """The data of a problem, split as the preset says."""
    config = make_run_config(preset, problem, {"data": {"samples": samples}})
    return load_run_data(config.data, config.problem)
