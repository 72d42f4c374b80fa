"""Complete runs of a preset with a share of its iterations, from scratch, judged off the clock."""

import dataclasses as dc
import functools as ft
import tempfile
from typing import Any

import jax
from _common import Stopwatch, make_run_config

import trunkfirst
from trunkfirst.data import Split
from trunkfirst.run_data import RunData
from trunkfirst.runs.config import RunConfig
from trunkfirst.runs.run import run
from trunkfirst.settings import merge


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

    On the clock: choosing the encoder, compiling, both steps, writing. Off it: the data and judging.
    """
    config = make_run_config(preset, problem, values)
    prepared = prepared_data(preset, problem, config.data.samples)
    split = prepared.split
    blind = RunData(prepared.data, Split(split.train, split.validation, split.test[:0]), 0.0)
    shared = shorten(config, share)
    jax.clear_caches()
    watch = Stopwatch(clock)
    with tempfile.TemporaryDirectory() as folder:
        result = run(shared, folder, prepared=blind).result
    seconds = watch.read()
    errors = trunkfirst.evaluate(result.operator, prepared.data.take(split.test)).errors
    # With fewer iterations than the preset has, a search that came to an end early may just have begun badly.
    has_stagnated = share >= 1 and result.diagnostics["trunk"]["iterations"] < shared.trunk.iterations
    return Finished(share, seconds, float(errors.mean()), has_stagnated, result.operator.encoder)


def shorten(config: RunConfig, share: float) -> RunConfig:
    """A share of the trunk's iterations, and of the branch's where Adam trains it.

    Other branches come to their end sooner: they get the root of the share, and not more than the preset's.
    """
    is_adam = config.branch.minimiser == "adam" and config.branch.kind == "network"
    branch_share = share if is_adam else min(share, 1.0) ** 0.5
    counts = {
        "trunk": {"iterations": max(int(config.trunk.iterations * share), 1)},
        "branch": {"iterations": max(int(config.branch.iterations * branch_share), 1)},
    }
    return RunConfig.model_validate(merge(config.model_dump(), counts))


@ft.cache
def prepared_data(preset: str, problem: str, samples: int | None = None) -> RunData:
    """The data of a problem, split as the preset says."""
    return prepare(make_run_config(preset, problem, {"data": {"samples": samples}}))
