"""Choices that a method leaves open: trunk, branch, encoder and weights, by the error of the whole operator.

Closed forms come first; they take seconds. Every sample is predicted by operators that were fitted without it
(`Folds`), and the mean relative error decides. What is trained by iterations is compared with them on one part
that is left out: one half of it chooses, the other half measures the error that is reported.
"""

import dataclasses as dc
from collections.abc import Callable

import numpy as np

from .clock import Clock
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .errors import DataError, SettingError
from .inputs import AutoInputs
from .leaderboard import Chosen, Trials
from .memory import memory_in_words
from .method import AbstractMethod
from .modes import ModesTrunk, has_modes
from .network_trunk import NetworkTrunk
from .progress import Reporter, Silent
from .regressors.network import AutoBranch
from .run_data import RunData
from .search import Search
from .sizing import samples_within, with_sizes, within_minutes
from .trials import FOLDS, MAX_SAMPLES, Folds, TrainedTrunk
from .trunks import AutoTrunk
from .two_step import TwoStep

_FEWEST = 3
# With fewer samples than this every fold has one of them.
_LEAVE_ONE_OUT = 10
# From this number on a tenth that is left out is enough where nothing is measured.
_ONE_SPLIT, _TENTH = 500, 10
# Samples left out of which one half gives intervals at 0.9.
_ENOUGH = 20
# The share of the time for comparing one kernel.
_KERNEL_SHARE = 0.08


def is_open(method: AbstractMethod) -> bool:
    """Whether something is left to be chosen."""
    is_auto = isinstance(method, TwoStep) and isinstance(method.branch, AutoBranch)
    has_trunk = not (isinstance(method, TwoStep) and isinstance(method.trunk, AutoTrunk))
    return is_auto or not has_trunk or isinstance(method.inputs, AutoInputs) or method.weights == "auto"


@memory_in_words()
def choose(
    method: AbstractMethod,
    data: RunData,
    *,
    seed: int,
    clock: Clock | None = None,
    reporter: Reporter | None = None,
    measured: bool = True,
    intervals: bool = False,
    on_better: Callable[[Chosen], None] | None = None,
) -> Chosen:
    """The method with sizes, iterations and choices filled in; test samples are never looked at.

    With `measured` the error of the whole operator decides and is reported. Otherwise principal modes stand in for
    a trunk that is a network, and no error is reported. A given method whose trunk is trained is measured only for
    `intervals`, which need another training. `on_better` is called with every operator to save.
    """
    samples, reporter, clock = data.train, reporter or Silent(), clock or Clock()
    if (count := len(samples.exchangeable)) < _FEWEST:
        words = "" if samples.is_suggested is None else " that were not suggested"
        raise DataError(f"samples: {count} for training{words}; choosing and measuring need {_FEWEST} or more")
    is_trunk_open = isinstance(method, TwoStep) and isinstance(method.trunk, AutoTrunk)
    method = with_sizes(_with_trunk(method, samples), samples)
    if clock.minutes is not None:
        # A network trunk is trained once to choose and measure, and once more on all samples.
        method = within_minutes(method, samples, clock.minutes / (2 if measured else 1))
    # Methods that train both networks at once have no closed forms to be measured with.
    measured = measured and isinstance(method, TwoStep)
    if not (measured or is_open(method)):
        return Chosen(method)
    if isinstance(method, TwoStep) and not (isinstance(method.trunk, ModesTrunk) or intervals or is_open(method)):
        return Chosen(method)
    trials = _trials(method, data, seed=seed, clock=clock, reporter=reporter, measured=measured)
    search = Search(
        method,
        trials,
        clock,
        reporter,
        measured=measured,
        is_trunk_open=is_trunk_open,
        on_better=on_better,
        all_samples=data.counts["train"],
    )
    return search.run()


def _with_trunk(method: AbstractMethod, data: AnyData) -> AbstractMethod:
    """An open trunk becomes modes, where the points allow it, else a network."""
    if isinstance(method, TwoStep) and isinstance(method.trunk, AutoTrunk):
        return dc.replace(method, trunk=ModesTrunk() if has_modes(data) else NetworkTrunk())
    return method


def _trials(
    method: AbstractMethod, data: RunData, *, seed: int, clock: Clock, reporter: Reporter, measured: bool
) -> Trials:
    """What candidates are compared on."""
    samples = data.train
    rng = np.random.default_rng(data.split_seed)
    seconds = clock.share("a comparison of kernels", _KERNEL_SHARE)
    most = MAX_SAMPLES if clock.minutes is None else samples_within(seconds)
    if samples.samples > most:
        reporter.say(f"comparing on {most:,} random samples of {data.counts['train']:,}")
        samples = samples.take(np.sort(rng.permutation(samples.samples)[:most]))
    order = rng.permutation(samples.exchangeable)
    has_network = isinstance(method, TwoStep) and not isinstance(method.trunk, ModesTrunk)
    if isinstance(samples, OperatorData) and not (has_network and measured):
        return Folds(samples, method.output, _parts(order, measured), seed=seed)
    if not isinstance(method, TwoStep):
        raise SettingError("samples at points of their own need the two-step method")
    parts = [np.sort(order[: _left_out(len(order))])] if has_network else _parts(order, measured)
    return TrainedTrunk(samples, method, parts, seed=seed, on_step=reporter.on_step)


def _left_out(samples: int) -> int:
    """A fifth, more if half of it would be too few samples for intervals, but at most a third."""
    return max(samples // FOLDS, min(samples // 3, _ENOUGH), 1)


def _parts(order: np.ndarray, measured: bool) -> list[np.ndarray]:
    if not measured and len(order) >= _ONE_SPLIT:
        return [np.sort(order[: len(order) // _TENTH])]
    folds = len(order) if len(order) < _LEAVE_ONE_OUT else FOLDS
    return [np.sort(part) for part in np.array_split(order, folds)]
