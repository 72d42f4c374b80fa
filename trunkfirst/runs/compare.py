"""Several methods, over several seeds, on the same data and split."""

import dataclasses as dc
from collections.abc import Sequence
from pathlib import Path

from ..auto import choose
from ..clock import Clock
from ..data.scattered_data import AnyData
from ..distributed.mesh import use_devices
from ..fields import TrunkResult
from ..files.integrity import write_manifest
from ..files.text_files import write_json
from ..leaderboard import Chosen
from ..progress import Reporter, Silent
from ..records import Claim
from ..run_data import RunData, load_run_data
from ..two_step import TwoStep
from .claims import check_claims
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
        chosen = choose(
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
