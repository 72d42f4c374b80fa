"""Methods side by side, over several seeds, on the same data and split."""

import dataclasses as dc
from collections.abc import Sequence
from pathlib import Path

from ..data import AnyData
from ..distributed.mesh import use_devices
from ..files import write_json, write_manifest
from ..training import TrunkResult
from ._choose import settle
from ._claims import Claim, check_claims
from ._config import RunConfig, config_values
from ._prepare import prepare
from ._reporter import Reporter, Silent
from ._run import Outcome, run
from .directory import run_directory


@dc.dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several methods and seeds, the paper's claims beside them, and the data they all saw."""

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

    Configurations with the same step 1 share it: the trunk is fitted once a seed. A fit that diverges is
    written down as such and the others go on; it has no say about the claims. What was broken off goes on with
    `resumes=True` and the same arguments.
    """
    request = {"command": "compare", "configs": [config_values(config) for config in configs], "seeds": seeds}
    first = configs[0]
    with (
        use_devices(first.devices),
        run_directory(folder, request, interval=first.checkpoint_seconds, resumes=resumes) as place,
    ):
        return _carry_out(configs, place, seeds, reporter or Silent())


def _carry_out(configs: Sequence[RunConfig], folder: Path, seeds: int, reporter: Reporter) -> Comparison:
    prepared = prepare(configs[0], reporter=reporter)
    chosen = settle(configs[0], prepared, reporter=reporter)
    trunks: dict[str, TrunkResult] = {}
    outcomes: list[Outcome] = []
    for config in configs:
        for seed in range(config.seed, config.seed + seeds):
            one = config.model_copy(update={"seed": seed})
            name = f"{one.method}-seed{seed}"
            step1 = _step1(one)
            shared = trunks.get(step1)
            if shared:
                reporter.say(f"{name}: step 1 is the same as before and is taken over")
            outcome = run(
                one,
                folder / name,
                prepared=prepared,
                trunk_result=shared,
                chosen=chosen.applied_to(one),
                reporter=reporter,
                throw=False,
            )
            if outcome.result.status == "diverged":
                reporter.say(f"{name}: diverged, that is, met a number that is not finite; the others go on")
            if outcome.result.trunk_result is not None:
                trunks[step1] = outcome.result.trunk_result
            outcomes.append(outcome)
    return _finish(folder, outcomes, prepared.data)


def _step1(config: RunConfig) -> str:
    """What decides step 1, as text: equal texts, equal trunks. A monolithic fit has no step 1 to share."""
    kind = "monolithic" if config.method.startswith("monolithic") else "two-step"
    return f"{kind} {config.seed} {config.precision} {config.trunk!r} {config.loss!r}"


def _finish(folder: Path, outcomes: list[Outcome], data: AnyData) -> Comparison:
    sound = [outcome for outcome in outcomes if outcome.result.status != "diverged"]
    claims = check_claims(outcomes[0].config.name, sound)
    write_json(folder / "metrics.json", [outcome.metrics for outcome in outcomes])
    write_json(folder / "claims.json", [dc.asdict(claim) for claim in claims])
    write_manifest(folder)
    return Comparison(folder, tuple(outcomes), tuple(claims), data)
