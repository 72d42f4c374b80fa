"""Many runs that differ in some settings: in processes or on a cluster, resumable, in one table."""

import contextlib
import csv
import dataclasses as dc
import io
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import threadpoolctl

from ..errors import (
    CorruptFileError,
    MemoryNeedError,
    OutputExistsError,
    SolveError,
    TrunkfirstError,
    ValueRangeError,
)
from ..files import MANIFEST, read_json, verify_run, write_json, write_manifest, write_text
from ..workers import Lost, on_cluster, on_processes
from ._config import RunConfig, config_values, make_config
from ._environment import environment
from ._grid import Grid, setting_text
from ._prepare import prepare
from ._reporter import Reporter, Silent
from ._run import run
from ._workplace import workplace

CONFIGS = "configs.json"
_NUMBERS = ("validation", "test", "trunk_loss", "seconds")
Status = Literal["finished", "interrupted", "diverged", "failed"]


@dc.dataclass(frozen=True)
class Row:
    """A run of a sweep: its folder, what it has that others have not, and its numbers or why there are none."""

    name: str
    settings: Mapping[str, Any]
    status: Status
    reason: str | None = None
    validation: float | None = None
    test: float | None = None
    trunk_loss: float | None = None
    seconds: float | None = None

    @property
    def is_sound(self) -> bool:
        """Whether its numbers count."""
        return self.status == "finished"


@dc.dataclass(frozen=True, eq=False)
class Progress:
    """A run that is done, how many are, and about how long the others will take."""

    row: Row
    done: int
    total: int
    remaining_seconds: float


@dc.dataclass(frozen=True, eq=False)
class Sweep:
    """All runs of a sweep, the best first; those without a validation error stand in the order of the grid."""

    folder: Path
    rows: tuple[Row, ...]

    @property
    def failures(self) -> tuple[Row, ...]:
        """The runs that have no result."""
        return tuple(row for row in self.rows if not row.is_sound)

    def explain_failures(self) -> tuple[str, ...]:
        """Each reason once, with a run that has it and how many others do."""
        names: dict[str, list[str]] = {}
        for row in self.failures:
            names.setdefault(f"{row.status}: {row.reason}", []).append(row.name)
        return tuple(
            f"{first} {f'and {len(others)} more ' if others else ''}{why}"
            for why, (first, *others) in names.items()
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """What was varied."""
        return tuple(self.rows[0].settings)

    def best(self) -> dict[str, Any] | None:
        """The settings with the smallest validation error, its mean over the seeds; None where there is none."""
        if set(self.keys) == {"seed"}:
            return None

        def others(row: Row) -> str:
            return repr([(key, value) for key, value in row.settings.items() if key != "seed"])

        groups = [list(group) for _, group in groupby(sorted(self.rows, key=others), key=others)]
        means = [(_mean([row.validation if row.is_sound else None for row in group]), group) for group in groups]
        known = [(mean, group) for mean, group in means if mean is not None]
        if not known:
            return None
        mean, (first, *more) = min(known, key=lambda pair: pair[0])
        settings = {key: value for key, value in first.settings.items() if key != "seed" or not more}
        return {"settings": settings, "validation": mean, "runs": 1 + len(more)}

    def summary(self) -> dict[str, Any]:
        """What `sweep.json` holds."""
        return {
            "settings": list(self.keys),
            "best": self.best(),
            "failures": list(self.explain_failures()),
            "rows": [dc.asdict(row) for row in self.rows],
        }


def _mean(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(values) else None


def sweep(
    grid: Grid,
    folder: Path | str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_run: Callable[[Progress], None] | None = None,
    reporter: Reporter | None = None,
) -> Sweep:
    """Carry out every configuration of a grid in a folder of its own, and write `sweep.json` and `sweep.csv`.

    In so many `workers`, processes of this machine (all cores if left out), or by those of a Dask `scheduler`,
    which must see the folder, and the data file, under the same path. A run that fails is a row with the reason.

    In a folder where the same sweep was broken off it goes on: runs that are finished, and sound by their
    manifests, are kept, one that was under way goes on from its checkpoint, those that failed are tried again.
    """
    folder = Path(folder)
    if workers is not None and (workers < 1 or scheduler is not None):
        raise ValueRangeError(f"workers is {workers}; expected 1 or more, or a scheduler with workers of its own")
    request = {"command": "sweep", "workers": workers, "scheduler": scheduler}
    resumes = _is_begun(folder, grid)
    interval = min(config.checkpoint_seconds for config in grid.configs.values())
    with workplace(folder, request, interval=interval, resumes=resumes) as place:
        (place / MANIFEST).unlink(missing_ok=True)
        _write_grid(place, grid)
        return _carry_out(grid, place, workers, scheduler, on_run, reporter or Silent())


def read_grid(folder: Path) -> Grid:
    """What was asked for in a folder."""
    match read_json(folder / CONFIGS):
        case {"configs": dict(configs), "settings": dict(settings)} if set(configs) == set(settings):
            return Grid({name: make_config(values) for name, values in configs.items()}, settings)
        case _:
            raise CorruptFileError(f"{folder / CONFIGS} does not say what was asked for")


def _write_grid(folder: Path, grid: Grid) -> None:
    configs = {name: config_values(config) for name, config in grid.configs.items()}
    write_json(folder / CONFIGS, {"settings": grid.settings, "configs": configs})


def _is_begun(folder: Path, grid: Grid) -> bool:
    """Whether the folder holds a sweep whose runs are what they would be in this one."""
    if not (folder / CONFIGS).is_file():
        return False
    before = read_grid(folder).configs
    for name, config in grid.configs.items():
        if name in before and config_values(before[name]) != config_values(config):
            raise OutputExistsError(
                f"{folder / name} is a run with other settings than those asked for now; choose another folder "
                "with --out"
            )
    return True


def _carry_out(
    grid: Grid,
    folder: Path,
    workers: int | None,
    scheduler: str | None,
    on_run: Callable[[Progress], None] | None,
    reporter: Reporter,
) -> Sweep:
    rows = {name: _read_row(folder, name, grid.settings[name]) for name in grid.configs if _is_done(folder / name)}
    tasks = [
        RunTask(name, config_values(c), folder.resolve()) for name, c in grid.configs.items() if name not in rows
    ]
    if rows:
        reporter.say(f"{len(rows)} of {len(grid.configs)} runs are done already and kept")
    if tasks:
        _make_data([grid.configs[task.name] for task in tasks], scheduler, reporter)
    start, kept = time.monotonic(), len(rows)
    with contextlib.closing(_done(tasks, workers, scheduler)) as done:
        for task, reason in done:
            rows[task.name] = _row(folder, task.name, grid.settings[task.name], reason)
            if on_run is not None:
                seconds = (time.monotonic() - start) / (len(rows) - kept) * (len(grid.configs) - len(rows))
                on_run(Progress(rows[task.name], len(rows), len(grid.configs), seconds))
    return _finish(folder, [rows[name] for name in grid.configs])


def _make_data(configs: list[RunConfig], scheduler: str | None, reporter: Reporter) -> None:
    """Make each set of data once, so that the runs find it; what cannot be made, the runs themselves will tell."""
    distinct = {repr((c.problem, c.data.samples, c.data.points)): c for c in configs if c.problem is not None}
    for config in distinct.values():
        with contextlib.suppress(SolveError, MemoryNeedError):
            prepare(config, scheduler=scheduler, reporter=reporter)


@dc.dataclass(frozen=True, eq=False)
class RunTask:
    """A run as it is sent to a worker: plain values."""

    name: str
    values: dict[str, Any]
    folder: Path


def _done(
    tasks: list[RunTask], workers: int | None, scheduler: str | None
) -> Generator[tuple[RunTask, str | Lost | None]]:
    if scheduler is not None:
        return on_cluster(carry_out, tasks, address=scheduler)
    return on_processes(carry_out, tasks, workers=workers or os.cpu_count() or 1)


def carry_out(task: RunTask) -> str | None:
    """In a worker: carry out a run, or go on with it; None, or the reason why it failed."""
    if not (task.folder / CONFIGS).is_file():
        return f"the worker does not see {task.folder}: it must be shared with it, under the same path"
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")
    folder = task.folder / task.name
    try:
        folder.mkdir(exist_ok=True)
        config = make_config(task.values)
        run(config, folder, prepared=prepare(config, workers=1), throw=False, resumes=True)
    except TrunkfirstError as error:
        return str(error)
    except Exception as error:  # nothing that one run meets may end the others
        return f"{type(error).__name__}: {error}"
    return None


def _is_done(folder: Path) -> bool:
    """Whether a run is finished and sound; one that is damaged is removed, for it will be made again."""
    if not (folder / MANIFEST).is_file():
        return False
    try:
        verify_run(folder)
    except CorruptFileError as error:
        warnings.warn(f"{error}; this run is made again", RuntimeWarning, stacklevel=4)
        shutil.rmtree(folder)
        return False
    return True


def _row(folder: Path, name: str, settings: Mapping[str, Any], reason: str | Lost | None) -> Row:
    if reason is None:
        return _read_row(folder, name, settings)
    return Row(name, settings, "failed", reason.reason if isinstance(reason, Lost) else reason)


def _read_row(folder: Path, name: str, settings: Mapping[str, Any]) -> Row:
    metrics = read_json(folder / name / "metrics.json")
    status = metrics["status"]
    reason = None if status == "finished" else "training met a number that is not finite"
    test = metrics["test"] or {}
    return Row(
        name,
        settings,
        status,
        reason,
        metrics["validation"]["mean_relative_l2"],
        test.get("mean_relative_l2"),
        metrics["trunk"]["loss"],
        metrics["seconds"]["total"],
    )


def _finish(folder: Path, rows: list[Row]) -> Sweep:
    found = Sweep(folder, tuple(sorted(rows, key=_rank)))
    write_json(folder / "sweep.json", found.summary())
    write_text(folder / "sweep.csv", _to_csv(found))
    write_json(folder / "environment.json", environment())
    # The runs have manifests of their own, and may be reported on or diagnosed later.
    write_manifest(folder, ["sweep.json", "sweep.csv", "environment.json", CONFIGS])
    return found


def _rank(row: Row) -> tuple[bool, float]:
    return not row.is_sound, math.inf if row.validation is None else row.validation


def _to_csv(found: Sweep) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["name", *found.keys, "status", *_NUMBERS, "reason"])
    for row in found.rows:
        numbers = ["" if getattr(row, name) is None else repr(getattr(row, name)) for name in _NUMBERS]
        settings = [setting_text(value) for value in row.settings.values()]
        table.writerow([row.name, *settings, row.status, *numbers, row.reason or ""])
    return text.getvalue()
