"""Several methods, over several seeds, on the same data and split."""

import dataclasses as dc
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..clock import Clock
from ..data.scattered_data import AnyData
from ..distributed.mesh import use_devices
from ..fields import TrunkResult
from ..files.integrity import write_manifest
from ..files.text_files import write_json
from ..fitting import resolve
from ..progress import Reporter, Silent
from ..records import Claim
from ..run_data import RunData, load_run_data
from ..search import Chosen
from ..two_step import TwoStep
from .config import RunConfig, config_values
from .directory import run_directory
from .run import Outcome, run


@dc.dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several methods and seeds, the paper's claims about them, and the data they share."""

    folder: Path
    outcomes: tuple[Outcome, ...]
    claims: tuple[Claim, ...]
    data: AnyData


def compare(
    configs: Sequence[RunConfig],
    folder: Path | str,
    *,
    seeds: int = 1,
    reporter: Reporter | None = None,
    resumes: bool = False,
) -> Comparison:
    """Run each configuration with `seeds` seeds, starting with its own; they share problem, data and split.

    Configurations with the same step 1 share it: the trunk is fitted once a seed. A fit that diverges is recorded
    as such and the others continue; it does not count for the claims. An interrupted comparison continues with
    `resumes=True` and the same arguments.
    """
    request = {"command": "compare", "configs": [config_values(config) for config in configs], "seeds": seeds}
    first, reporter = configs[0], reporter or Silent()
    with (
        use_devices(first.devices),
        run_directory(folder, request, interval=first.checkpoint_seconds, resumes=resumes) as place,
    ):
        data = load_run_data(first.data, first.problem, reporter=reporter)
        chosen = resolve(
            first.method,
            data,
            seed=first.seed,
            clock=Clock(first.minutes),
            reporter=reporter,
            measured=first.is_measured,
        )
        return _run_all(configs, place, seeds, data, chosen, reporter)


def _run_all(
    configs: Sequence[RunConfig], folder: Path, seeds: int, data: RunData, chosen: Chosen, reporter: Reporter
) -> Comparison:
    trunks: dict[str, TrunkResult] = {}
    outcomes: list[Outcome] = []
    for config in configs:
        for seed in range(config.seed, config.seed + seeds):
            one = dc.replace(config, seed=seed)
            name = f"{one.method.name}-seed{seed}"
            step1 = _step1(one)
            shared = trunks.get(step1)
            if shared:
                reporter.say(f"{name}: step 1 is the same as before and is reused")
            outcome = run(
                one,
                folder / name,
                data=data,
                trunk_result=shared,
                chosen=chosen.applied_to(one.method),
                reporter=reporter,
                throw=False,
            )
            if outcome.result.status == "diverged":
                reporter.say(f"{name}: diverged (a number is not finite); the others continue")
            if outcome.result.trunk_result is not None:
                trunks[step1] = outcome.result.trunk_result
            outcomes.append(outcome)
    return _finish(folder, outcomes, data.data)


def _step1(config: RunConfig) -> str:
    """What decides step 1, as text: equal texts, equal trunks. Other methods have no step 1 to share."""
    method = config.method
    if not isinstance(method, TwoStep):
        return f"{method.name} {config.seed}"
    return f"two-step {config.seed} {method.precision} {method.weights} {method.trunk!r} {method.coordinates!r}"


def _finish(folder: Path, outcomes: list[Outcome], data: AnyData) -> Comparison:
    finite = [outcome for outcome in outcomes if outcome.result.status != "diverged"]
    claims = check_claims(outcomes[0].config.name, finite)
    write_json(folder / "metrics.json", [outcome.metrics for outcome in outcomes])
    write_json(folder / "claims.json", [dc.asdict(claim) for claim in claims])
    write_manifest(folder)
    return Comparison(folder, tuple(outcomes), tuple(claims), data)


# The paper's claims


class Outcomes:
    """Means over seeds, by method; NaN where a method was not run."""

    def __init__(self, outcomes: Sequence[Outcome]):
        self._by_method: dict[str, list[Outcome]] = {}
        for outcome in outcomes:
            self._by_method.setdefault(outcome.config.method.name, []).append(outcome)

    def mean(self, method: str, section: str, name: str) -> float:
        """Mean over seeds of `metrics[section][name]`."""
        sections = [outcome.metrics.get(section) for outcome in self._by_method.get(method, [])]
        values = [part[name] for part in sections if part is not None]
        return float(np.mean(values)) if values else float("nan")

    def ratio_to_optimum(self, method: str, label: str, low: float, high: float) -> float:
        """Median over test samples with the label in [low, high] of error over conditional optimum."""
        ratios: list[float] = []
        for outcome in self._by_method.get(method, []):
            if outcome.result.evaluation is None or outcome.test_data is None:
                continue
            label_values = outcome.test_data.labels[label]
            chosen = (label_values >= low) & (label_values <= high)
            ratios.extend(
                outcome.result.evaluation.errors[chosen] / outcome.result.evaluation.optimal_errors[chosen]
            )
        return float(np.median(ratios)) if ratios else float("nan")


def check_claims(problem: str, outcomes: Sequence[Outcome]) -> list[Claim]:
    """The paper's claims for one of its problems beside what was found."""
    check = {
        "nonlinear-conductivity": _nonlinear,
        "discontinuous-conductivity": _discontinuous,
        "multiple-inputs": _multiple,
    }.get(problem)
    return check(Outcomes(outcomes)) if check else []


def _claim(claim: str, paper: str, ours: str, holds: bool | None, *needed: float) -> Claim:
    is_known = all(np.isfinite(value) for value in needed)
    return Claim(claim, paper, ours if is_known else "not run", bool(holds) if is_known else None)


def _nonlinear(o: Outcomes) -> list[Claim]:
    return _nonlinear_losses(o) + _nonlinear_errors(o)


def _nonlinear_losses(o: Outcomes) -> list[Claim]:
    step1, overall = o.mean("two-step", "trunk", "loss"), o.mean("monolithic", "trunk", "loss")
    branch = o.mean("two-step", "branch", "loss")
    # The targets with and without QR differ in size; only losses relative to them can be compared.
    relative, plain = (o.mean(name, "branch", "relative_loss") for name in ("two-step", "two-step-without-qr"))
    return [
        _claim(
            "trunk loss two orders below the monolithic loss",
            "2.11e-07 against 1.84e-05 (87 times)",
            f"{step1:.2e} against {overall:.2e} ({overall / step1:.0f} times)",
            overall >= 50 * step1,
            step1,
            overall,
        ),
        _claim(
            "branch loss reaches 1e-9 with QR and not without",
            "1e-09 with QR",
            f"{branch:.2e} with QR; relative to the targets {relative:.1e} with, {plain:.1e} without",
            branch <= 3e-9 and plain >= 10 * relative,
            branch,
            plain,
        ),
    ]


def _nonlinear_errors(o: Outcomes) -> list[Claim]:
    error, best = (o.mean("two-step", "test", f"{kind}mean_relative_l2") for kind in ("", "optimal_"))
    plain_error = o.mean("two-step-without-qr", "test", "mean_relative_l2")
    van = o.mean("monolithic", "test", "mean_relative_l2")
    return [
        _claim(
            "without QR the errors are much higher and unstable",
            "see its figure",
            f"{plain_error:.2e} against {error:.2e}",
            plain_error >= 3 * error,
            plain_error,
            error,
        ),
        _claim(
            "two-step is close to its conditional optimum",
            "almost identical",
            f"{error:.2e} against {best:.2e}",
            error <= 2 * best,
            error,
            best,
        ),
        _claim(
            "monolithic is far from the optimum of two-step",
            "much higher",
            f"{van:.2e} against {best:.2e}",
            van >= 10 * best,
            van,
            best,
        ),
    ]


def _discontinuous(o: Outcomes) -> list[Claim]:
    step1, overall = o.mean("two-step", "trunk", "loss"), o.mean("monolithic", "trunk", "loss")
    best, van_best = (o.mean(method, "test", "optimal_mean_relative_l2") for method in ("two-step", "monolithic"))
    error, van = (o.mean(method, "test", "mean_relative_l2") for method in ("two-step", "monolithic"))
    ratio = o.ratio_to_optimum("two-step", "beta", 3.0, 10.0)
    return [
        _claim(
            "monolithic loss stagnates near 1e-1 where the trunk loss reaches 1e-6",
            "1e-06 against 1e-01 after 10,000 iterations",
            f"{step1:.2e} against {overall:.2e}",
            overall >= 1e-2 and step1 <= 1e-5,
            step1,
            overall,
        ),
        _claim(
            "optimal errors of two-step ten times below those of monolithic",
            "roughly one order",
            f"{best:.2e} against {van_best:.2e} ({van_best / best:.0f} times)",
            van_best >= 5 * best,
            best,
            van_best,
        ),
        _claim(
            "two-step is near its optimum for beta from 3 to 10",
            "almost identical",
            f"median ratio {ratio:.1f}",
            ratio <= 2,
            ratio,
        ),
        _claim(
            "mean test error",
            "4.14e-04 against 1.48e-01",
            f"{error:.2e} against {van:.2e}",
            error <= 4.14e-4 and van >= 10 * error,
            error,
            van,
        ),
    ]


def _multiple(o: Outcomes) -> list[Claim]:
    step1, overall = o.mean("two-step", "trunk", "loss"), o.mean("monolithic", "trunk", "loss")
    error, van = (o.mean(method, "test", "mean_relative_l2") for method in ("two-step", "monolithic"))
    return [
        _claim(
            "trunk loss reaches 1e-7 where the monolithic loss stagnates at 1e-4",
            "1e-07 against 1e-04",
            f"{step1:.2e} against {overall:.2e}",
            step1 <= 3e-7 and overall >= 100 * step1,
            step1,
            overall,
        ),
        _claim(
            "mean test error of two-step far below that of monolithic",
            "2.9e-04 against 2.5e-03",
            f"{error:.2e} against {van:.2e}",
            error <= van / 5,
            error,
            van,
        ),
    ]
