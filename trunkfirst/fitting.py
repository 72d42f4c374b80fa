"""Choices that a method leaves open: trunk, branch, encoder and weights, by the error of the whole operator.

Closed forms come first; they take seconds. Every sample is predicted by operators that were fitted without it
(`Folds`), and the mean relative error decides. What is trained by iterations is compared with them on one part
that is left out: one half of it chooses, the other half measures the error that is reported.
"""

import dataclasses as dc
import functools as ft
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .cache import cached_programs
from .candidates import MAX_SAMPLES, one_part, parts_of
from .checkpoints import is_keeping_checkpoints
from .chosen import Chosen
from .clock import Clock
from .data.data_check import input_warnings
from .data.operator_data import OperatorData
from .data.repeated_samples import parts_apart
from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .device_arrays import seed_key
from .distributed.mesh import use_devices
from .errors import DataError, DivergedError, SettingError
from .evaluation import Evaluation, evaluate, kernel_baseline, predict_at
from .fields import TrunkResult
from .inputs import AutoInputs
from .intervals import HeldOut, Intervals, conformal_intervals
from .leaderboard import Trials
from .linear.orthonormalise import SVD
from .memory import memory_in_words
from .method import AbstractMethod, Trained, plot_losses
from .minimisers.loop import OnStep, Status
from .monolithic import Monolithic
from .network_trunk import NetworkTrunk
from .networks.branches import KernelBranch
from .networks.operator import Operator
from .progress import Reporter, Silent
from .records import BASELINES
from .regressors.network import AutoBranch
from .run_data import RunData
from .search import Search
from .sizing import samples_within, with_sizes, within_minutes
from .training_summary import TrainingSummary, summarise, training_domain
from .trials import Folds, TrainedTrunk
from .trunks import AutoTrunk, ModesTrunk, has_modes
from .two_step import TwoStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FEWEST = 3
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
    several = ft.partial(parts_of, measured=measured)
    if isinstance(samples, OperatorData) and not (has_network and measured):
        return Folds(samples, method.output, parts_apart(samples, order, several), seed=seed)
    if not isinstance(method, TwoStep):
        raise SettingError("samples at points of their own need the two-step method")
    parts = parts_apart(samples, order, one_part if has_network else several)
    return TrainedTrunk(samples, method, parts, seed=seed, on_step=reporter.on_step)


# Beyond this condition number, single precision leaves a projected gradient fewer than three digits.
_MAX_CONDITION_SINGLE = 1e4
_DIGITS_SINGLE = 7.2


@dc.dataclass(frozen=True, eq=False)
class FitResult(Trained):
    """The result of `fit`: an operator, how it was chosen and trained, and its errors.

    `operator` is the trained `Operator`. `status` is "finished", "interrupted" or "diverged". `method` is the
    method with everything that was chosen, `history` the log of all stages, and `diagnostics` has the parts
    `trunk`, `branch` and `parameters` of `metrics.json`. `evaluation` has the errors on the test samples, if any
    were held back. `validation_error` is the mean relative l2 error on samples that neither trained nor chose the
    operator; `chosen.choice.baseline` has those of PCA + ridge and PCA + kernel ridge.
    """

    method: AbstractMethod = dc.field(kw_only=True)
    chosen: Chosen = dc.field(kw_only=True)
    samples: Mapping[str, int] = dc.field(kw_only=True)
    training: TrainingSummary = dc.field(kw_only=True)
    evaluation: Evaluation | None = None
    validation_error: float | None = None
    warnings: Sequence[str] = ()
    seconds: float = 0.0
    folder: Path | None = None

    def summary(self) -> dict[str, str]:
        rows = {"method": self.method.name, "inputs": str(self.method.inputs), **super().summary()}
        if self.validation_error is not None:
            rows["validation error"] = f"{self.validation_error:.2e}"
        for each in self.chosen.choice.baseline if self.chosen.choice is not None else ():
            rows[BASELINES[each.kind]] = f"{each.mean_relative_l2:.2e}"
        if self.evaluation is not None:
            rows["test error"] = f"{self.evaluation.errors.mean():.2e}"
        return rows | {"size": f"{self.megabytes:.2g} MB", "seconds": f"{self.seconds:.1f}"}

    def plot(self) -> list["Axes"]:
        """Draw the errors of what was compared, on samples left out, and the losses of what was iterated."""
        choice = self.chosen.choice
        return plot_losses(self.history, None if choice is None else choice.smallest())

    @property
    def megabytes(self) -> float:
        """The size of the operator in memory and on disk."""
        return _megabytes(self.operator)

    # A dataclass that inherits from another makes its own unless it is said here.
    __repr__ = Trained.__repr__


@cached_programs()
def train(
    method: AbstractMethod,
    data: RunData,
    *,
    seed: int = 0,
    minutes: float | None = None,
    intervals: bool = False,
    measured: bool = True,
    chosen: Chosen | None = None,
    trunk_result: TrunkResult | None = None,
    on_chosen: Callable[[Chosen], AbstractMethod] | None = None,
    on_operator: Callable[[FitResult], None] | None = None,
    reporter: Reporter | None = None,
    throw: bool = True,
) -> FitResult:
    """Choose what the method leaves open, train it, and evaluate the operator on the test samples.

    A choice and a finished step 1 made earlier may be given. `measured` says whether the error of the operator is
    measured on samples that are left out. `on_chosen` is called before training and returns the method to train;
    `on_operator` with operators that are usable while better ones are looked for. With `throw=False` a fit that
    diverges is returned with that status.
    """
    start, reporter = time.perf_counter(), reporter or Silent()
    clock = Clock(minutes, start=start - data.seconds)
    data.check_memory()
    summary = ft.cache(lambda: summarise(data.train, None))
    options: dict[str, Any] = {"summary": summary, "data": data, "seed": seed, "start": start}
    finish = ft.partial(_finish, reporter=reporter, throw=throw, **options)
    handed_over: list[Chosen] = []
    fitted: list[FitResult] = []

    def on_better(found: Chosen) -> None:
        handed_over.append(found)
        # A network as trunk is trained once, in the end.
        if on_operator is not None and isinstance(getattr(found.method, "trunk", None), ModesTrunk):
            fitted[:] = [finish(found, found.method, intervals=False)]
            on_operator(fitted[0])

    status: Status | None = None
    if chosen is None:
        try:
            chosen = choose(
                method,
                data,
                seed=seed,
                clock=clock,
                reporter=reporter,
                measured=measured,
                intervals=intervals,
                on_better=on_better,
            )
        except KeyboardInterrupt:
            if is_keeping_checkpoints() or not handed_over:
                raise
            warnings.warn("interrupted: this is the best operator found so far", UserWarning, stacklevel=4)
            chosen, status = handed_over[-1], "interrupted"
    final = chosen.method if on_chosen is None else on_chosen(chosen)
    same = fitted[0] if fitted and fitted[0].method == final and trunk_result is None else None
    result = finish(chosen, final, intervals=intervals, trunk_result=trunk_result, trained=same)
    reporter.say(_size_in_words(result.operator, data.counts["train"]))
    return result if status is None else dc.replace(result, status=status)


def _finish(
    chosen: Chosen,
    final: AbstractMethod,
    *,
    data: RunData,
    seed: int,
    reporter: Reporter,
    start: float,
    throw: bool,
    intervals: bool,
    summary: Callable[[], TrainingSummary],
    trunk_result: TrunkResult | None = None,
    trained: Trained | None = None,
) -> FitResult:
    """Train what was chosen on all samples but those held back, unless it is trained, and evaluate it."""
    samples = data.train
    trained = trained or fit_method(
        data.whole or samples, final, key=seed, trunk_result=trunk_result, on_step=reporter.on_step, throw=throw
    )
    remarks = [*precision_warnings(chosen.method, trained, samples), *data.remarks, *input_warnings(samples)]
    for warning in remarks:
        reporter.say(f"warning: {warning}")
    found = prediction_intervals(samples, chosen, trained, seed=seed) if intervals else None
    training = dc.replace(summary(), intervals=found)
    operator = dc.replace(trained.operator, domain=training_domain(samples, training))
    trained = dc.replace(trained, operator=operator)
    return FitResult(
        **{field.name: getattr(trained, field.name) for field in dc.fields(Trained)},
        method=chosen.method,
        chosen=dc.replace(chosen, held_out=None),  # which holds all samples of the search
        samples=data.counts,
        evaluation=None if data.test is None else _evaluated(trained, samples, data.test, chosen),
        validation_error=_validation_error(data, trained, chosen),
        training=training,
        warnings=remarks,
        seconds=time.perf_counter() - start,
    )


def _megabytes(operator: Operator) -> float:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(operator) if hasattr(leaf, "nbytes")) / 1e6


def _size_in_words(operator: Operator, samples: int) -> str:
    """The size of the model before it is written, and of how many samples a kernel has centres."""
    branch = operator.branch
    centres = (
        f", {branch.count:,} kernel centres of {samples:,} samples" if isinstance(branch, KernelBranch) else ""
    )
    return f"size of the model: {_megabytes(operator):.2g} MB{centres}"


@memory_in_words()
@cached_programs()
def fit_method(
    data: AnyData | ShardedData,
    method: AbstractMethod,
    *,
    key: PRNGKeyArray | int = 0,
    devices: int | Sequence[Any] | None = None,
    trunk_result: TrunkResult | None = None,
    on_step: OnStep | None = None,
    throw: bool = True,
) -> Trained:
    """Train a method with nothing left open on training samples, with double precision inside and nowhere else."""
    with use_devices(devices), jax.enable_x64(True):
        key = seed_key(int(key)) if isinstance(key, int | np.integer) else key
        trained = method.fit(data, key=key, on_step=on_step, trunk_result=trunk_result)
    if throw and trained.status == "diverged":
        bad = next(step for step in trained.history if not math.isfinite(step.loss))
        raise DivergedError(
            f"the {bad.stage} loss is no longer finite at iteration {bad.iteration} (rate {bad.rate:.1e}); "
            "try a smaller rate, or standardised inputs"
        )
    return trained


def _evaluated(trained: Trained, train_data: AnyData, test: AnyData, chosen: Chosen) -> Evaluation:
    """With a kernel baseline fitted to the same training samples, where there is no baseline yet."""
    evaluation = evaluate(trained.operator, test)
    has_baseline = chosen.choice is not None and chosen.choice.baseline
    if not isinstance(train_data, OperatorData) or not isinstance(test, OperatorData) or has_baseline:
        return evaluation
    return dc.replace(evaluation, kernel_error=kernel_baseline(train_data, test, trained.operator.encoder))


def _validation_error(data: RunData, trained: Trained, chosen: Chosen) -> float | None:
    """The operator's own on samples that were held back, else that of operators fitted without a part of them."""
    if data.validation is not None:
        return float(evaluate(trained.operator, data.validation).errors.mean())
    return chosen.validation_error


def prediction_intervals(samples: AnyData, chosen: Chosen, trained: Trained, *, seed: int = 0) -> Intervals | None:
    """From predictions of operators that saw neither inputs nor outputs of the samples they are compared with.

    They were made while choosing; else the method is trained once more without a fifth of the samples.
    """
    if trained.status != "finished":
        return None
    if chosen.held_out is not None:
        return conformal_intervals(chosen.held_out())
    order = np.random.default_rng(seed).permutation(samples.exchangeable)
    (left_out,) = parts_apart(samples, order, lambda rows: [rows[: max(len(rows) // 5, 1)]])
    rest = np.setdiff1d(np.arange(samples.samples), left_out)
    operator = fit_method(samples.take(rest), chosen.method, key=seed).operator
    held = samples.take(left_out)
    return conformal_intervals(HeldOut(held, predict_at(operator, held)))


def precision_warnings(method: AbstractMethod, trained: Trained, data: AnyData) -> list[str]:
    """A sentence where single precision meets a trunk whose condition number makes the result meaningless.

    A monolithic fit without projection solves no linear system and needs no warning.
    """
    if method.precision == "double" or isinstance(method, Monolithic):
        return []
    is_fixed = not trained.operator.trunk.depends_on_input
    condition = trained.diagnostics["trunk"]["condition"]
    if condition is None and is_fixed:
        points = data.points if isinstance(data, OperatorData) else data.pooled()[0]
        condition = SVD()(np.asarray(trained.operator.basis(points), np.float64)).condition
    if condition is None or condition < _MAX_CONDITION_SINGLE:
        return []
    lost = math.log10(condition) if math.isfinite(condition) else math.inf
    left = max(_DIGITS_SINGLE - lost, 0.0)
    return [
        f"the trunk's condition number is {condition:.1e}: of the 7 digits of single precision about {left:.0f} "
        "are left in what is solved for, so that small losses and errors mean nothing "
        f'(single precision serves up to {_MAX_CONDITION_SINGLE:.0e}); set precision = "double"'
    ]
