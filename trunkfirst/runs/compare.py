"""Several methods, over several seeds, on the same data and split."""

import contextlib
import dataclasses as dc
from collections.abc import Sequence
from pathlib import Path

from ..auto import choose
from ..checkpoints import keep_checkpoints
from ..clock import Clock
from ..data.scattered_data import AnyData
from ..distributed.mesh import use_devices
from ..distributed.pools import Lost, on_processes
from ..distributed.processes import is_distributed
from ..errors import LostProcessError
from ..fields import TrunkResult
from ..files.integrity import CHECKPOINTS, write_manifest
from ..files.text_files import write_json
from ..leaderboard import Chosen
from ..networks.operator import load
from ..progress import Reporter, Silent
from ..records import Claim
from ..run_data import RunData, load_run_data
from ..two_step import TwoStep
from .claims import check_claims
from .config import RunConfig, config_values
from .directory import run_directory, sigterm_raises
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
    workers: int = 1,
    reporter: Reporter | None = None,
    resumes: bool = False,
) -> Comparison:
    """Run each configuration with `seeds` seeds, starting with its own; they share problem, data and split.

    Configurations with the same step 1 share it: the trunk is fitted once a seed. What shares nothing is trained
    side by side in `workers` processes, to the same bits. A fit that diverges is recorded as such and the others
    continue; it does not count for the claims. An interrupted comparison continues with `resumes=True` and the
    same arguments.
    """
    values = [config_values(config) for config in configs]
    request = {"command": "compare", "configs": values, "seeds": seeds, "workers": workers}
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
        parts = _parts([dc.replace(each, seed=each.seed + seed) for each in configs for seed in range(seeds)])
        tasks = [Part(number, part, place.resolve(), chosen) for number, part in enumerate(parts)]
        if min(workers, len(tasks)) > 1 and not is_distributed():
            outcomes = _side_by_side(tasks, workers, data, reporter)
        else:
            outcomes = {name: each for task in tasks for name, each in _run_part(task, data, reporter).items()}
        names = [_name(config, seed) for config in configs for seed in range(config.seed, config.seed + seeds)]
        return _finish(place, [outcomes[name] for name in names], data.data)


@dc.dataclass(frozen=True, eq=False)
class Part:
    """Runs of a comparison that share step 1."""

    number: int
    configs: Sequence[RunConfig]
    folder: Path
    chosen: Chosen


def _name(config: RunConfig, seed: int) -> str:
    return f"{config.method.name}-seed{seed}"


def _parts(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """The configurations by their step 1."""
    parts: dict[str, list[RunConfig]] = {}
    for config in configs:
        parts.setdefault(_step1(config), []).append(config)
    return list(parts.values())


def _run_part(part: Part, data: RunData, reporter: Reporter) -> dict[str, Outcome]:
    """The outcomes by name."""
    outcomes: dict[str, Outcome] = {}
    trunk: TrunkResult | None = None
    for config in part.configs:
        name = _name(config, config.seed)
        if trunk is not None:
            reporter.say(f"{name}: step 1 is the same as before and is reused")
        outcomes[name] = outcome = run(
            config,
            part.folder / name,
            data=data,
            trunk_result=trunk,
            chosen=part.chosen.applied_to(config.method),
            reporter=reporter,
            throw=False,
        )
        if outcome.result.status == "diverged":
            reporter.say(f"{name}: diverged (a number is not finite); the others continue")
        trunk = outcome.result.trunk_result
    return outcomes


def _side_by_side(parts: Sequence[Part], workers: int, data: RunData, reporter: Reporter) -> dict[str, Outcome]:
    tasks = [dc.replace(part, chosen=dc.replace(part.chosen, held_out=None)) for part in parts]
    reporter.say(f"training in {min(workers, len(parts))} processes")
    outcomes: dict[str, Outcome] = {}
    with contextlib.closing(on_processes(carry_out, tasks, workers=workers)) as done:
        for part, found in done:
            if isinstance(found, Lost):
                names = ", ".join(_name(config, config.seed) for config in part.configs)
                raise LostProcessError(f"{names}: {found.reason}; continue with: trunkfirst resume {part.folder}")
            for name, outcome in found.items():
                reporter.say(f"{name}: {outcome.result.status} after {outcome.metrics['seconds']['total']:.0f} s")
                # JAX rounds to single precision what comes from another process.
                result = dc.replace(outcome.result, operator=load(outcome.folder))
                outcomes[name] = dc.replace(outcome, result=result, test_data=data.test)
    return outcomes


def carry_out(part: Part) -> dict[str, Outcome]:
    """In a worker: carry out or resume a part, with checkpoints of its own."""
    first, checkpoints = part.configs[0], part.folder / CHECKPOINTS / f"part-{part.number}"
    with (
        use_devices(first.devices),
        sigterm_raises(),
        keep_checkpoints(checkpoints, interval=first.checkpoint_seconds),
    ):
        data = load_run_data(first.data, first.problem, workers=1)
        outcomes = _run_part(part, data, Silent())
    return {name: _to_send(outcome) for name, outcome in outcomes.items()}


def _to_send(outcome: Outcome) -> Outcome:
    """Without what the other process has, or reads from the folder."""
    return dc.replace(outcome, result=dc.replace(outcome.result, trunk_result=None), test_data=None)


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
