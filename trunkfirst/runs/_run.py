"""One run: data, split, fit, evaluation, files."""

import dataclasses as dc
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..data import OperatorData, Split
from ..errors import SettingError
from ..evaluation import Evaluation, evaluate, kernel_baseline
from ..files import prepare_directory, to_json, write_json, write_manifest, write_npz, write_text
from ..networks import save
from ..problems import make_data
from ..selection import Choice, choose_encoding
from ..training import FitResult, TrunkResult, fit
from ._config import RunConfig, to_toml
from ._environment import environment
from ._method import brief_regressor, build_method
from ._reporter import Reporter, Silent

# The test sample shown as a map: the one whose label is nearest to this.
_EXAMPLES = {"nonlinear-conductivity": ("beta", 0.0), "discontinuous-conductivity": ("beta", 2.02)}


@dc.dataclass(frozen=True, eq=False)
class Outcome:
    """A finished run: its folder, its numbers, and what made them."""

    folder: Path
    config: RunConfig
    metrics: dict[str, Any]
    result: FitResult
    test_data: OperatorData | None
    evaluation: Evaluation | None


@dc.dataclass(frozen=True, eq=False)
class Prepared:
    """Data with the split, and the seconds it took to get them."""

    data: OperatorData
    split: Split
    seconds: float


def prepare(config: RunConfig, *, reporter: Reporter | None = None) -> Prepared:
    """Make or find the data of a configuration, and split them."""
    reporter = reporter or Silent()
    start = time.perf_counter()
    section = config.data
    data = make_data(config.problem, samples=section.samples, points=section.points, progress=reporter.on_samples)
    split = Split.random(
        data.samples,
        validation_share=section.validation_share,
        test_share=section.test_share,
        seed=section.split_seed,
    )
    return Prepared(data, split, time.perf_counter() - start)


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    prepared: Prepared | None = None,
    trunk_result: TrunkResult | None = None,
    choice: Choice | None = None,
    reporter: Reporter | None = None,
) -> Outcome:
    """Carry out a configuration and write a run folder.

    `prepared` data, a finished `trunk_result` and a `choice` of encoder are taken over where given, so that a
    comparison does not do the same work twice.
    """
    folder = prepare_directory(folder)
    reporter = reporter or Silent()
    start = time.perf_counter()
    prepared = prepared or prepare(config, reporter=reporter)
    choice = choice or choose(config, prepared, reporter=reporter)
    config = with_choice(config, choice)
    # Nothing is chosen any more: what served for choosing now serves for training.
    train = prepared.data.take(np.union1d(prepared.split.train, prepared.split.validation))
    method = build_method(config, train)
    reporter.say(describe(config))
    write_json(folder / "environment.json", environment())
    write_text(folder / "config.toml", to_toml(config))
    result = fit(train, method, key=config.seed, trunk_result=trunk_result, on_step=reporter.on_step)
    test, evaluation = None, None
    if len(prepared.split.test):
        test = prepared.data.take(prepared.split.test)
        evaluation = evaluate(result.operator, test)
        evaluation = dc.replace(evaluation, kernel_error=kernel_baseline(train, test, result.operator.encoder))
    seconds = {"data": prepared.seconds, "total": time.perf_counter() - start}
    metrics = _metrics(config, prepared.split, result, evaluation, choice, seconds)
    outcome = Outcome(folder, config, metrics, result, test, evaluation)
    _write(outcome)
    return outcome


def describe(config: RunConfig) -> str:
    """What is about to happen, in a line: iterations are printed because nobody should have to guess them."""
    steps = f"{config.trunk.iterations:,} iterations"
    if config.method.startswith("two-step"):
        steps += f" for the trunk, {config.branch.iterations:,} for the branch"
    return f"{config.problem}, {config.method}, preset {config.preset}, seed {config.seed}: {steps}"


def choose(config: RunConfig, prepared: Prepared, *, reporter: Reporter) -> Choice | None:
    """The choice of encoder on validation samples, where the configuration leaves it open."""
    if config.branch.encoder != "auto":
        return None
    if not len(prepared.split.validation):
        raise SettingError('branch.encoder = "auto" needs validation samples: set data.validation_share above 0')
    train, validation = (prepared.data.take(part) for part in (prepared.split.train, prepared.split.validation))
    reporter.say("choosing an encoder on validation samples")
    choice = choose_encoding(train, validation, brief_regressor(config.branch), key=config.seed)
    errors = ", ".join(f"{name} {error:.1e}" for name, error in choice.errors.items())
    reporter.say(f"encoder {choice.name} (validation errors: {errors})")
    return choice


def with_choice(config: RunConfig, choice: Choice | None) -> RunConfig:
    """The configuration with the chosen encoder in place of `auto`."""
    if choice is None:
        return config
    return config.model_copy(update={"branch": config.branch.model_copy(update={"encoder": choice.name})})


def _metrics(
    config: RunConfig,
    split: Split,
    result: FitResult,
    evaluation: Evaluation | None,
    choice: Choice | None,
    seconds: dict[str, float],
) -> dict[str, Any]:
    own = None if evaluation is None or evaluation.own_errors is None else float(evaluation.own_errors.mean())
    return {
        "problem": config.problem,
        "method": config.method,
        "preset": config.preset,
        "seed": config.seed,
        "split_seed": config.data.split_seed,
        "status": result.status,
        "chosen": None if choice is None else {"encoder": choice.name, "validation_errors": choice.errors},
        "samples": {"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        **result.diagnostics,
        "validation": {"mean_relative_l2": None if choice is None else choice.error},
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
        write_npz(folder / "evaluation.npz", _arrays(outcome.config, outcome.evaluation, outcome.test_data))
    write_json(folder / "metrics.json", outcome.metrics)
    write_manifest(folder)


def _arrays(config: RunConfig, evaluation: Evaluation, test: OperatorData) -> dict[str, np.ndarray]:
    example = _example(config.problem, evaluation, test)
    arrays = {
        "errors": evaluation.errors,
        "optimal_errors": evaluation.optimal_errors,
        "points": test.points,
        "example_index": np.asarray(example),
        "example_target": test.outputs[example],
        "example_prediction": evaluation.predictions[example],
        "example_input": test.flat_inputs[example],
        **{f"labels.{name}": label for name, label in test.labels.items()},
    }
    if evaluation.reference_errors is not None:
        arrays["reference_errors"] = evaluation.reference_errors
    if test.triangles is not None:
        arrays["triangles"] = test.triangles
    return arrays


def _example(problem: str, evaluation: Evaluation, test: OperatorData) -> int:
    """The sample to show: the paper's where it has one, else the one of median error."""
    if problem in _EXAMPLES:
        name, value = _EXAMPLES[problem]
        return int(np.argmin(np.abs(test.labels[name] - value)))
    return int(np.argsort(evaluation.errors)[len(evaluation.errors) // 2])
