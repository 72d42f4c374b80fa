"""Read every hostile file below a folder and print the outcomes as JSON: python -m hostile FOLDER."""

import json
import os
import re
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

from trunkfirst import errors

from . import CASES, Case, canary_of, good_model, marker_of


def main() -> None:
    """For every case its refusal, seconds and traces outside; and how far the peak of memory grew, in MB."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    CASES["infinite_weights"].read(good_model(folder / "good"))  # JAX takes memory when it is first used
    before = _peak()
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        if (folder / f"{name}.path").is_file():
            found[name] = _read(case, Path((folder / f"{name}.path").read_text()), folder / name)
    sys.stdout.write(json.dumps({"grown": _peak() - before, "cases": found}))


def _read(case: Case, path: Path, folder: Path) -> dict[str, Any]:
    before, begin = _outside(folder), sum(os.times()[:4])
    try:
        case.read(path)
        kind, words = "nothing", "it was accepted"
    except BaseException as error:  # what must not come through is reported
        kind, words = type(error).__name__, str(error)
    return {
        "is_ours": isinstance(getattr(errors, kind, None), type),
        "words": f"{kind}: {words}",
        "seconds": sum(os.times()[:4]) - begin,
        "is_clean": _outside(folder) == before and not marker_of(folder).exists(),
    }


def _outside(folder: Path) -> tuple[set[str], int, str]:
    canary = canary_of(folder)
    return {path.name for path in folder.parent.iterdir()}, canary.stat().st_mtime_ns, canary.read_text()


def _peak() -> float:
    """What the system reports begins, on Linux, with the peak of the process that started this one."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s*(\d+)", status.read_text())[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


main()
