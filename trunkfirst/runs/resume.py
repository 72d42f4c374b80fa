"""Continuing what was interrupted."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..cross_validation import run_cross_validated
from ..errors import CorruptFileError
from ..progress import Reporter, Silent
from .compare import Comparison, compare
from .config import RunConfig, make_config, nested
from .directory import read_request
from .more_samples import add_samples
from .run import Outcome, run
from .sweeps import Progress, Sweep, read_grid, sweep


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
            raise CorruptFileError(f"{folder}: its checkpoints do not say what was asked for")


def _config(values: Any) -> RunConfig:
    if not isinstance(values, dict):
        raise CorruptFileError("the checkpoints name no configuration")
    return make_config(nested(values))
