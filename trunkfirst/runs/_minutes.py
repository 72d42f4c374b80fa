"""A time budget, turned once into iteration counts: nothing in a fit reads the clock."""

import dataclasses as dc
import time

import jax
import jax.random as jr
import numpy as np

from ..data import AnyData
from ..minimisers import minimise
from ..training import ProjectedTrunk, SeparateTrunks, TwoStep, prepare, trunk_problems
from ._config import RunConfig
from ._method import build_method

# The trunk's share of the time; the rest is for choosing, the branch and the report.
_TRUNK_SHARE = 0.4
# Starts and their halving cost about half as much again as the iterations asked for.
_WITH_STARTS = 1.5
_FEWEST, _MOST = 200, 6000
_WARM_UP, _TIMED = 5, 20


def within_minutes(config: RunConfig, data: AnyData, minutes: float) -> RunConfig:
    """The configuration with as many trunk iterations as fit into the time, measured on a few of them."""
    branch = config.branch.model_copy(update={"encoder": "none", "kind": "linear"})
    method = build_method(config.model_copy(update={"branch": branch}), data)
    trunk = method.trunk
    times = data.channels if isinstance(trunk, SeparateTrunks) else 1
    trunk = trunk.each if isinstance(trunk, SeparateTrunks) else trunk
    if not isinstance(method, TwoStep) or not isinstance(trunk, ProjectedTrunk):
        return config
    seconds = _seconds_an_iteration(method, trunk, data)
    count = int(_TRUNK_SHARE * 60 * minutes / seconds / _WITH_STARTS / times)
    count = max(_FEWEST, min(_MOST, _two_digits(count)))
    return config.model_copy(update={"trunk": config.trunk.model_copy(update={"iterations": count})})


def _seconds_an_iteration(method: TwoStep, trunk_fit: ProjectedTrunk, data: AnyData) -> float:
    dtype = np.dtype(np.float64)
    with jax.enable_x64(True):
        fields = prepare(data, dc.replace(method, precision="double"), dtype).fields
        problem = trunk_problems(fields, dtype)(trunk_fit.ridge)
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
