"""Continuing: what was interrupted, and an earlier fit with more samples."""

import dataclasses as dc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ..clock import Clock
from ..data.scattered_data import AnyData, joined
from ..distributed.mesh import use_devices
from ..errors import CorruptFileError, UsageError
from ..evaluation import evaluate
from ..fields import TrunkResult
from ..files.text_files import read_json
from ..fitting import choose
from ..interface import run_cross_validated
from ..networks.operator import Operator, load
from ..progress import Reporter, Silent
from ..run_data import RunData, load_run_data
from ..settings import merge
from ..trunks import reuse_trunk
from ..two_step import TwoStep
from .compare import Comparison, compare
from .config import RunConfig, config_values, load_config, make_config, nested, with_whole_path
from .directory import read_request, run_directory
from .run import Outcome, run
from .sweeps import Progress, Sweep, read_grid, sweep

# A trunk made for other samples is kept if it represents the new ones within this factor as well.
_STILL_GOOD = 1.5
# Errors below this are rounding.
_EXACT = 1e-12


def fit_more(
    given: dict[str, Any], folder: Path | str, earlier: Path, *, reporter: Reporter | None = None
) -> Outcome:
    """Train on the file that `given` names together with the data of an `earlier` fit.

    `given` are nested values of a configuration. Where the earlier trunk is kept, they change earlier settings.
    """
    reporter = reporter or Silent()
    config = make_config(given)
    old_config, operator = load_config(earlier / "config.toml"), load(earlier)
    if old_config.problem is not None:
        raise UsageError(f"{earlier} was trained on a problem of this library, to which you cannot add a file")
    old, new = load_run_data(old_config.data).data, load_run_data(config.data).data
    joined(old, new)  # raises where they do not belong together
    keeps_trunk = is_still_good(operator, old, new, earlier, reporter)
    is_suggested = config.data.suggested
    if keeps_trunk:
        values = config_values(old_config)
        method = {
            key: value for key, value in given.get("method", {}).items() if key in ("branch", "inputs", "weights")
        }
        config = make_config(merge(values, given | {"method": method}))
    data = dc.replace(config.data, earlier=with_whole_path(old_config).data, suggested=is_suggested)
    config = dc.replace(config, data=data)
    return add_samples(config, folder, earlier, keeps_trunk=keeps_trunk, reporter=reporter)


def add_samples(
    config: RunConfig,
    folder: Path | str,
    earlier: Path,
    *,
    keeps_trunk: bool,
    reporter: Reporter | None = None,
    resumes: bool = False,
) -> Outcome:
    """Train on the data of `config` together with those of an `earlier` fit, whose trunk may be kept."""
    reporter = reporter or Silent()
    request = {
        "command": "fit",
        "config": config_values(config),
        "earlier": str(earlier.resolve()),
        "keeps_trunk": keeps_trunk,
    }
    with (
        use_devices(config.devices),
        run_directory(folder, request, interval=config.checkpoint_seconds, resumes=resumes) as place,
    ):
        data = load_run_data(config.data)
        if not keeps_trunk:
            return run(config, place, data=data, reporter=reporter)
        chosen = choose(config.method, data, seed=config.seed, clock=Clock(config.minutes), reporter=reporter)
        trunk = _kept_trunk(chosen.method, load(earlier), data)
        return run(config, place, data=data, chosen=chosen, trunk_result=trunk, reporter=reporter)


def _kept_trunk(method: Any, operator: Operator, data: RunData) -> TrunkResult:
    if not isinstance(method, TwoStep):
        raise UsageError(f"{method.name} has no separate trunk to keep; use the two-step method")
    if operator.trunk.depends_on_input:
        raise UsageError("a trunk that moves belongs to the encoder it was trained with; fit all samples again")
    with jax.enable_x64(True):
        return reuse_trunk(operator.trunk, method.encode(data.train).fields)


def is_still_good(operator: Operator, old: AnyData, new: AnyData, earlier: Path, reporter: Reporter) -> bool:
    """Whether the earlier trunk represents the new outputs about as well as it did its own."""
    match read_json(earlier / "metrics.json"):
        case {"test": {"optimal_mean_relative_l2": float(before)}}:
            pass
        case _:  # without test samples, those it was trained on must do
            before = float(evaluate(operator, old).optimal_errors.mean())
    now = float(evaluate(operator, new).optimal_errors.mean())
    is_good = now <= max(_STILL_GOOD * before, _EXACT)
    verdict = "kept; only the branch is trained" if is_good else "trained anew"
    reporter.say(
        f"the earlier trunk represents the new samples with error {now:.1e} (before {before:.1e}): it is {verdict}"
    )
    return is_good


def resume(
    folder: Path | str, *, reporter: Reporter | None = None, on_run: Callable[[Progress], None] | None = None
) -> Outcome | Comparison | Sweep | None:
    """Continue a run, fit, comparison or sweep, to the same bits as without the interruption.

    At most one interval of work (`checkpoint_seconds`) is done again. None if the folder is finished already.
    `on_run` is called after each run of a sweep.
    """
    folder = Path(folder)
    request = read_request(folder)
    if request is None:
        return None
    match request:
        case {"command": "run", "config": values, "last": _}:
            reports = reporter or Silent()
            return run_cross_validated(_config(values), folder, reporter=reports, resumes=True)[0]
        case {"command": "run", "config": values}:
            return run(_config(values), folder, reporter=reporter, resumes=True)
        case {"command": "compare", "configs": list(several), "seeds": int(seeds)}:
            configs, workers = [_config(values) for values in several], request.get("workers", 1)
            return compare(configs, folder, seeds=seeds, workers=workers, reporter=reporter, resumes=True)
        case {"command": "sweep", "workers": int() | None as workers, "scheduler": str() | None as scheduler}:
            grid = read_grid(folder)
            return sweep(grid, folder, workers=workers, scheduler=scheduler, on_run=on_run, reporter=reporter)
        case {"command": "fit", "config": values, "earlier": str(earlier), "keeps_trunk": bool(keeps)}:
            return add_samples(
                _config(values), folder, Path(earlier), keeps_trunk=keeps, reporter=reporter, resumes=True
            )
        case _:
            raise CorruptFileError(f"{folder}: its checkpoints do not have the command")


def _config(values: Any) -> RunConfig:
    if not isinstance(values, dict):
        raise CorruptFileError("the checkpoints have no configuration")
    return make_config(nested(values))
