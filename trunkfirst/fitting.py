"""From data and a method to an operator with its errors: choose, train, evaluate. No files are written here."""

import dataclasses as dc
import functools as ft
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .auto import choose
from .cache import cached_programs
from .checkpoints import is_keeping_checkpoints
from .clock import Clock
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .data.sharded_data import ShardedData
from .device_arrays import seed_key
from .distributed.mesh import use_devices
from .errors import DivergedError
from .evaluation import Evaluation, evaluate, kernel_baseline, predict_at
from .fields import TrunkResult
from .intervals import HeldOut, Intervals, conformal_intervals
from .leaderboard import Chosen
from .linear.orthonormalise import SVD
from .memory import check_memory, memory_in_words
from .method import AbstractMethod, Trained
from .minimisers.loop import OnStep, Status
from .modes import ModesTrunk
from .monolithic import Monolithic
from .networks.branches import KernelBranch
from .networks.operator import Operator
from .progress import Reporter, Silent
from .run_data import RunData
from .stream import stream_bytes
from .training_summary import TrainingSummary, summarise, training_domain

# Beyond this condition number, single precision leaves a projected gradient fewer than three digits.
_MAX_CONDITION_SINGLE = 1e4
_DIGITS_SINGLE = 7.2


@dc.dataclass(frozen=True, eq=False)
class FitResult(Trained):
    """An operator, how it was chosen and trained, and how good it is.

    `status` is "finished", "interrupted" or "diverged"; `history` the log of all stages; `diagnostics` the parts
    `trunk`, `branch` and `parameters` of `metrics.json`; `method` the method with nothing left open; `evaluation`
    the errors on the test samples, if any were held back; `validation_error` the mean relative l2 error of
    operators on samples that they were not fitted to and that did not choose the method, or of the operator itself
    where validation samples are kept out of training. `chosen.choice.baseline` has PCA + ridge and PCA + kernel
    ridge.
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
            rows[each.kind] = f"{each.mean_relative_l2:.2e}"
        if self.evaluation is not None:
            rows["test error"] = f"{self.evaluation.errors.mean():.2e}"
        return rows | {"size": f"{self.megabytes:.2g} MB", "seconds": f"{self.seconds:.1f}"}

    @property
    def megabytes(self) -> float:
        """The size of the operator, in memory and as it is saved."""
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
    check_data_memory(data)
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
    remarks = precision_warnings(chosen.method, trained, samples)
    for warning in remarks:
        reporter.say(f"warning: {warning}")
    found = prediction_intervals(samples, chosen, trained, seed=seed) if intervals else None
    training = dc.replace(summary(), intervals=found)
    operator = dc.replace(trained.operator, domain=training_domain(samples, training))
    trained = dc.replace(trained, operator=operator)
    reporter.say(_size_in_words(operator, data.counts["train"]))
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


def check_data_memory(data: RunData) -> None:
    """Raise `MemoryNeedError` where training on the data needs more memory than is free."""
    floats = (data.data.flat_inputs.size + data.data.outputs.size) // data.data.samples
    beside = 0 if data.whole is None else stream_bytes(data.whole)
    check_memory(data.data.samples, floats, is_loaded=True, beside=beside)


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
    rows = samples.exchangeable
    left_out = np.sort(np.random.default_rng(seed).permutation(rows)[: max(len(rows) // 5, 1)])
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
