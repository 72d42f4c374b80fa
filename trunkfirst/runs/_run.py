"""One run: data, split, fit, evaluation, files."""

import dataclasses as dc
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..data import AnyData, OperatorData
from ..distributed.mesh import use_devices
from ..evaluation import Evaluation, Intervals, conformal_intervals, evaluate, kernel_baseline
from ..files import read_json, to_json, write_json, write_manifest, write_npz, write_text
from ..networks import save
from ..selection import Choice
from ..training import FitResult, Method, TrunkResult, TwoStep, fit, reuse_trunk
from ..training import prepare as make_ready
from ._arrays import evaluation_arrays
from ._choose import Chosen, settle
from ._config import RunConfig, config_values, to_toml
from ._environment import environment
from ._memory import remember, write_memory
from ._method import build_method
from ._needs import check_memory, stream_bytes
from ._prepare import Prepared, prepare
from ._reporter import Reporter, Silent
from ._warnings import precision_warnings
from ._watch import KeptBranches
from .directory import check_same_data, run_directory


@dc.dataclass(frozen=True, eq=False)
class Outcome:
    """A finished run: its folder, its numbers, and what made them."""

    folder: Path
    config: RunConfig
    metrics: dict[str, Any]
    result: FitResult
    test_data: AnyData | None
    evaluation: Evaluation | None


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    prepared: Prepared | None = None,
    trunk_result: TrunkResult | None = None,
    chosen: Chosen | None = None,
    reporter: Reporter | None = None,
    throw: bool = True,
    resumes: bool = False,
) -> Outcome:
    """Carry out a configuration and write a run folder.

    `prepared` data, a finished `trunk_result` and what was `chosen` are taken over where given, so that a
    comparison does not do the same work twice. With `throw=False` a fit that diverges is written like any
    other, with the status "diverged". What was broken off goes on with `resumes=True` and the same arguments.
    """
    request = {"command": "run", "config": config_values(config)}
    with (
        use_devices(config.devices),
        run_directory(folder, request, interval=config.checkpoint_seconds, resumes=resumes) as place,
    ):
        return _carry_out(config, place, prepared, trunk_result, chosen, reporter or Silent(), throw)


def _carry_out(
    config: RunConfig,
    folder: Path,
    prepared: Prepared | None,
    trunk_result: TrunkResult | None,
    chosen: Chosen | None,
    reporter: Reporter,
    throw: bool,
) -> Outcome:
    start = time.perf_counter()
    prepared = prepared or prepare(config, reporter=reporter)
    check_same_data(prepared.whole or prepared.data)
    numbers = (prepared.data.flat_inputs.size + prepared.data.outputs.size) // prepared.data.samples
    beside = 0 if prepared.whole is None else stream_bytes(prepared.whole)
    check_memory(prepared.data.samples, numbers, is_loaded=True, beside=beside)
    chosen = chosen or settle(config, prepared, reporter=reporter)
    config = chosen.config
    if not prepared.holds_validation:  # a trunk that choosing needed has seen the samples for choosing
        trunk_result = trunk_result or chosen.trunk_result
    # Nothing is chosen any more: what served for choosing now serves for training, unless it is held back.
    train = prepared.for_training
    branches = KeptBranches()
    method = branches.watch(build_method(config, train))
    reporter.say(describe(config))
    _note_environment(folder / "environment.json", reporter)
    write_text(folder / "config.toml", to_toml(config))
    result = fit(
        prepared.whole or train,
        method,
        key=config.seed,
        trunk_result=trunk_result,
        on_step=reporter.on_step,
        throw=throw,
    )
    warnings = precision_warnings(config, result, train)
    for warning in warnings:
        reporter.say(f"warning: {warning}")
    test = prepared.test
    evaluation = None if test is None else _judged(result, train, test)
    if isinstance(test, OperatorData):
        branches.write(folder / "anls.npz", result, test)
    memory = remember(train, _intervals(config, train, method, result))
    write_memory(folder, memory)
    seconds = {"data": prepared.seconds, "total": time.perf_counter() - start}
    metrics = _metrics(chosen, prepared, result, evaluation, seconds) | {"warnings": warnings}
    outcome = Outcome(folder, config, metrics, result, test, evaluation)
    _write(outcome)
    return outcome


def _judged(result: FitResult, train: AnyData, test: AnyData) -> Evaluation:
    """With a kernel beside it, fitted to the same training samples."""
    evaluation = evaluate(result.operator, test)
    if not isinstance(train, OperatorData) or not isinstance(test, OperatorData):
        return evaluation
    return dc.replace(evaluation, kernel_error=kernel_baseline(train, test, result.operator.encoder))


def _note_environment(path: Path, reporter: Reporter) -> None:
    now = environment()
    if path.exists() and read_json(path) != now:
        reporter.say("warning: versions or flags are not those that this run began with; its bits may differ")
    write_json(path, now)


def _intervals(config: RunConfig, train: AnyData, method: Method, result: FitResult) -> Intervals | None:
    if not config.output.intervals or result.status != "finished":
        return None
    if not isinstance(train, OperatorData) or not isinstance(method, TwoStep):
        return None
    return conformal_intervals(train, method, _seen_by(train, method, result), seed=config.seed)


def _seen_by(train: OperatorData, method: TwoStep, result: FitResult) -> FitResult:
    """The result as if its trunk had been trained on the samples in memory alone: with coefficients for them."""
    step1 = result.trunk_result
    if step1 is None or len(step1.coefficients) == train.samples * train.channels:
        return result
    with jax.enable_x64(True):
        fields = make_ready(train, method, np.dtype(np.float64)).fields
        return dc.replace(result, trunk_result=reuse_trunk(step1.trunk, fields))


def describe(config: RunConfig) -> str:
    """What is about to happen, in a line: iterations are printed because nobody should have to guess them."""
    steps = f"{config.trunk.iterations:,} iterations"
    if config.method.startswith("two-step"):
        steps += f" for the trunk, {config.branch.iterations:,} for the branch"
    return f"{config.name}, {config.method}, preset {config.preset}, seed {config.seed}: {steps}"


def _validation_error(prepared: Prepared, result: FitResult, choice: Choice | None) -> float | None:
    """The operator's own on samples that were held back, else that of the best candidate."""
    if prepared.holds_validation and len(prepared.split.validation):
        return float(evaluate(result.operator, prepared.validation).errors.mean())
    return None if choice is None else choice.error


def _metrics(
    chosen: Chosen,
    prepared: Prepared,
    result: FitResult,
    evaluation: Evaluation | None,
    seconds: dict[str, float],
) -> dict[str, Any]:
    config = chosen.config
    own = None if evaluation is None or evaluation.own_errors is None else float(evaluation.own_errors.mean())
    return {
        "problem": config.name,
        "method": config.method,
        "preset": config.preset,
        "seed": config.seed,
        "split_seed": config.data.split_seed,
        "status": result.status,
        "chosen": chosen.summary(),
        "samples": prepared.counts,
        **result.diagnostics,
        "validation": {"mean_relative_l2": _validation_error(prepared, result, chosen.choice)},
        "test": None if evaluation is None else evaluation.summary(),
        "data": {"own_error": own},
        "seconds": seconds,
    }


def _write(outcome: Outcome) -> None:
    folder = outcome.folder
    lines = [to_json(dc.asdict(step), indent=None) for step in outcome.result.history]
    write_text(folder / "history.jsonl", "\n".join(lines) + "\n")
    save(outcome.result.operator, folder / "model")
    if outcome.evaluation is not None and outcome.test_data is not None:
        arrays = evaluation_arrays(outcome.config.problem, outcome.evaluation, outcome.test_data)
        write_npz(folder / "evaluation.npz", arrays)
    write_json(folder / "metrics.json", outcome.metrics)
    write_manifest(folder)
