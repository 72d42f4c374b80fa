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
from .encoders import AutoInputs
from .errors import DataError, SettingError
from .leaderboard import Chosen, Trials
from .memory import memory_in_words
from .method import AbstractMethod
from .modes import ModesTrunk, has_modes
from .network_trunk import NetworkTrunk
from .progress import Reporter, Silent
from .regressors.network import AutoBranch
from .run_data import RunData
from .search import Search
from .sizing import with_sizes, within_minutes
from .trials import FOLDS, MAX_SAMPLES, Folds, TrainedTrunk
from .trunks import AutoTrunk
from .two_step import TwoStep

_FEWEST = 3
# With fewer samples than this every fold has one of them.
_LEAVE_ONE_OUT = 10
# From this number on a tenth that is left out is enough where nothing is measured.
_ONE_SPLIT, _TENTH = 500, 10


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
    on_better: Callable[[Chosen], None] | None = None,
) -> Chosen:
    """The method with sizes, iterations and choices filled in; test samples are never looked at.

    With `measured` the error of the whole operator decides and is reported. Otherwise principal modes stand in for
    a trunk that is a network, and no error is reported. `on_better` is called with every operator to save.
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
    trials = _trials(method, data, seed=seed, reporter=reporter, measured=measured)
    if trials is None:
        return Chosen(method)
    search = Search(
        method, trials, clock, reporter, measured=measured, is_trunk_open=is_trunk_open, on_better=on_better
    )
    return search.run()


def _with_trunk(method: AbstractMethod, data: AnyData) -> AbstractMethod:
    """An open trunk becomes modes, where the points allow it, else a network."""
    if isinstance(method, TwoStep) and isinstance(method.trunk, AutoTrunk):
        return dc.replace(method, trunk=ModesTrunk() if has_modes(data) else NetworkTrunk())
    return method


def _trials(
    method: AbstractMethod, data: RunData, *, seed: int, reporter: Reporter, measured: bool
) -> Trials | None:
    """What candidates are compared on; None where a given method would have to be trained once more for that."""
    samples = data.train
    rng = np.random.default_rng(data.split_seed)
    has_network = isinstance(method, TwoStep) and not isinstance(method.trunk, ModesTrunk)
    if isinstance(samples, OperatorData) and not (has_network and measured):
        if samples.samples > MAX_SAMPLES:
            reporter.say(f"comparing on {MAX_SAMPLES:,} random samples of {samples.samples:,}")
            samples = samples.take(np.sort(rng.permutation(samples.samples)[:MAX_SAMPLES]))
        return Folds(samples, method.output, _parts(rng.permutation(samples.exchangeable), measured), seed=seed)
    if not isinstance(method, TwoStep):
        raise SettingError("samples at points of their own need the two-step method")
    if not is_open(method):
        return None
    rows = rng.permutation(samples.exchangeable)
    part = np.sort(rows[: max(len(rows) // FOLDS, 1)])
    return TrainedTrunk(samples, method, part, seed=seed, on_step=reporter.on_step)


def _parts(order: np.ndarray, measured: bool) -> list[np.ndarray]:
    if not measured and len(order) >= _ONE_SPLIT:
        return [np.sort(order[: len(order) // _TENTH])]
    folds = len(order) if len(order) < _LEAVE_ONE_OUT else FOLDS
    return [np.sort(part) for part in np.array_split(order, folds)]
