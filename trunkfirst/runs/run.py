"""One run: a configuration carried out in a folder."""

import dataclasses as dc
import time
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..chosen import Chosen
from ..data.operator_data import OperatorData
from ..data.read_write import write_data
from ..data.scattered_data import AnyData
from ..distributed.mesh import use_devices
from ..evaluation import evaluate, evaluation_arrays
from ..fields import TrunkResult
from ..files.integrity import write_manifest
from ..files.npz import write_npz
from ..files.text_files import read_json, to_json, write_json, write_text
from ..fitting import FitResult, train
from ..method import AbstractMethod
from ..networks.branches import Branch
from ..networks.operator import Operator, save
from ..progress import Reporter, Silent
from ..records import BASELINES
from ..regressors.active_neurons import ActiveNeurons
from ..run_data import RunData, load_run_data
from ..settings import to_toml
from ..training_summary import write_summary
from ..two_step import TwoStep
from .config import RunConfig, config_values, with_whole_path
from .directory import check_same_data, environment, run_directory


@dc.dataclass(frozen=True, eq=False)
class Outcome:
    """A finished run: its folder, its resolved configuration, its numbers, and the fit."""

    folder: Path
    config: RunConfig
    metrics: dict[str, Any]
    result: FitResult
    test_data: AnyData | None


def run(
    config: RunConfig,
    folder: Path | str,
    *,
    data: RunData | None = None,
    save_data: AnyData | None = None,
    trunk_result: TrunkResult | None = None,
    chosen: Chosen | None = None,
    reporter: Reporter | None = None,
    throw: bool = True,
    resumes: bool = False,
) -> Outcome:
    """Carry out a configuration and write a run folder.

    Data, a finished step 1 and a choice made before are used where given, so that a comparison does not do the
    same work twice. `save_data` from memory are written into the folder. With `throw=False` a fit that diverges is
    written like any other, with the status "diverged". An interrupted run continues with `resumes=True` and the
    same arguments.
    """
    config = with_whole_path(config)  # as after `resume`, which may be called in another folder
    request = {"command": "run", "config": config_values(config)}
    reporter = reporter or Silent()
    with (
        use_devices(config.devices),
        run_directory(folder, request, interval=config.checkpoint_seconds, resumes=resumes) as place,
    ):
        start = time.perf_counter()
        data = (data or load_run_data(config.data, config.problem, reporter=reporter)).without_references()
        if save_data is not None and not (place / "data.npz").exists():
            write_data(save_data, place / "data.npz")
        check_same_data(data.whole or data.data)
        data = data.in_order()
        _write_environment(place / "environment.json", reporter)
        recorder, interim = BranchRecorder(), _Interim(place, config, data, start, reporter)
        result = train(
            config.method,
            data,
            seed=config.seed,
            minutes=config.minutes,
            intervals=config.intervals,
            chosen=chosen,
            trunk_result=trunk_result,
            measured=config.is_measured,
            on_chosen=lambda found: recorder.watch(interim.begin(found.method)),
            on_operator=interim.save,
            reporter=reporter,
            throw=throw,
        )
        if isinstance(data.test, OperatorData):
            recorder.write(place / "anls.npz", result, data.test)
        config = dc.replace(config, method=result.method)
        seconds = {"data": data.seconds, **interim.seconds, "total": time.perf_counter() - start}
        return _write(place, config, result, seconds, data.test)


@dc.dataclass(eq=False)
class _Interim:
    """Saves operators that are usable while better ones are looked for, with the status "interrupted"."""

    folder: Path
    config: RunConfig
    data: RunData
    start: float
    reporter: Reporter
    seconds: dict[str, float] = dc.field(default_factory=dict[str, float])

    def begin(self, method: AbstractMethod) -> AbstractMethod:
        """Say and write what is about to be trained."""
        self.reporter.say(describe(dc.replace(self.config, method=method)))
        self._write_config(method)
        return method

    def _write_config(self, method: AbstractMethod) -> None:
        write_text(self.folder / "config.toml", to_toml(dc.replace(self.config, method=method)))

    def save(self, found: FitResult) -> None:
        self._write_config(found.method)
        now = time.perf_counter() - self.start
        seconds = {"data": self.data.seconds, "total": now}
        _write(self.folder, self.config, dc.replace(found, status="interrupted"), seconds, self.data.test)
        self.reporter.say(f"saved: an operator with error {found.validation_error:.1e} after {now:.0f} s")
        self.seconds.setdefault("first_operator", now)


def describe(config: RunConfig) -> str:
    """What is about to happen, with the iterations, in a line."""
    method: Any = config.method
    steps = [getattr(part, "iterations", None) for part in (method, method.trunk, method.branch)]
    names = ("iterations", "iterations for the trunk", "for the branch")
    counts = ", ".join(f"{n:,} {name}" for n, name in zip(steps, names, strict=True) if n is not None)
    start = f"{config.name}, {method.name}, preset {config.preset}, seed {config.seed}"
    return f"{start}: {counts}" if counts else start


def _write_environment(path: Path, reporter: Reporter) -> None:
    now = environment()
    if path.exists() and read_json(path) != now:
        reporter.say("warning: versions or flags differ from those that this run began with; its bits may differ")
    write_json(path, now)


def _metrics(config: RunConfig, result: FitResult, seconds: dict[str, float]) -> dict[str, Any]:
    evaluation = result.evaluation
    own = None if evaluation is None or evaluation.own_errors is None else float(evaluation.own_errors.mean())
    return {
        "problem": config.name,
        "method": config.method.name,
        "preset": config.preset,
        "seed": config.seed,
        "split_seed": config.data.split_seed,
        "status": result.status,
        "chosen": result.chosen.summary(),
        "samples": dict(result.samples),
        **result.diagnostics,
        "validation": {"mean_relative_l2": result.validation_error},
        "baseline": [dc.asdict(each) for each in choice.baseline] if (choice := result.chosen.choice) else [],
        "test": None if evaluation is None else evaluation.summary(),
        "data": {"own_error": own},
        "seconds": seconds,
        "warnings": list(result.warnings),
    }


def _measured(result: FitResult) -> dict[str, float | int]:
    """The numbers for the model card."""
    choice, evaluation, error = result.chosen.choice, result.evaluation, "mean relative l2 error"
    found = {
        "training samples": result.samples["train"],
        f"{error} on samples that were left out": result.validation_error,
        f"{error} on {result.samples['test']:,} test samples": evaluation and float(evaluation.errors.mean()),
        **{
            f"{error} of {BASELINES[each.kind]}": each.mean_relative_l2
            for each in (choice.baseline if choice else ())
        },
    }
    return {name: number for name, number in found.items() if number is not None}


def _write(
    folder: Path, config: RunConfig, result: FitResult, seconds: dict[str, float], test: AnyData | None
) -> Outcome:
    metrics = _metrics(config, result, seconds)
    lines = [to_json(dc.asdict(step), indent=None) for step in result.history]
    write_text(folder / "history.jsonl", "\n".join(lines) + "\n")
    save(result.operator, folder / "model", measured=_measured(result))
    write_summary(folder, result.training)
    if result.evaluation is not None and test is not None:
        write_npz(folder / "evaluation.npz", evaluation_arrays(config.problem, result.evaluation, test))
    write_json(folder / "metrics.json", metrics)
    write_manifest(folder)
    return Outcome(folder, config, metrics, result, test)


class BranchRecorder:
    """Keeps branches of active-neuron least squares during a fit, and evaluates them on test samples after it."""

    def __init__(self) -> None:
        self._kept: dict[int, Branch] = {}
        self._is_watching = False

    def watch(self, method: AbstractMethod) -> AbstractMethod:
        """The same method, recorded if its branch is fitted by active-neuron least squares."""
        if not isinstance(method, TwoStep) or not isinstance(method.branch, ActiveNeurons):
            return method
        self._is_watching = True
        return dc.replace(method, branch=dc.replace(method.branch, on_branch=self._kept.__setitem__))

    def write(self, path: Path, result: FitResult, test: OperatorData) -> None:
        """Write iterations, branch losses and mean test errors; nothing where nothing was recorded."""
        losses = {step.iteration: step.loss for step in result.history if step.stage == "branch"}
        if not self._is_watching or not losses:
            return
        branches = self._kept | {max(losses): result.operator.branch}
        arrays = {
            "iterations": np.array(list(branches)),
            "branch_losses": np.array([losses[iteration] for iteration in branches]),
            "test_errors": _errors(list(branches.values()), result.operator, test),
        }
        write_npz(path, arrays)


def _errors(branches: list[Branch], operator: Operator, test: OperatorData) -> Float[np.ndarray, " branches"]:
    """Mean relative test error of the operator with each of the branches in turn."""
    operators = (dc.replace(operator, branch=branch) for branch in branches)
    return np.array([evaluate(each, test).errors.mean() for each in operators])
