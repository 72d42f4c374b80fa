"""Going on with what was broken off."""

from pathlib import Path
from typing import Any

from ..errors import CorruptFileError
from ._compare import Comparison, compare
from ._config import RunConfig, make_config
from ._fit_own import add_samples
from ._reporter import Reporter
from ._run import Outcome, run
from ._workplace import read_request


def resume(folder: Path | str, *, reporter: Reporter | None = None) -> Outcome | Comparison | None:
    """Carry on a run, fit or comparison to the same bits as if it had not been broken off.

    At most one interval of work (`checkpoint_seconds`) is done again. None if the folder is finished already.
    """
    folder = Path(folder)
    request = read_request(folder)
    if request is None:
        return None
    match request:
        case {"command": "run", "config": values}:
            return run(_config(values), folder, reporter=reporter, resumes=True)
        case {"command": "compare", "configs": list(several), "seeds": int(seeds)}:
            return compare([_config(v) for v in several], folder, seeds=seeds, reporter=reporter, resumes=True)
        case {"command": "fit", "config": values, "earlier": str(earlier), "keeps_trunk": bool(keeps)}:
            return add_samples(
                _config(values), folder, Path(earlier), keeps_trunk=keeps, reporter=reporter, resumes=True
            )
        case _:
            raise CorruptFileError(f"{folder}: its checkpoints do not say what was asked for")


def _config(values: Any) -> RunConfig:
    if not isinstance(values, dict):
        raise CorruptFileError("the checkpoints name no configuration")
    return make_config(values)
