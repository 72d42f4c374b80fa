"""A sweep: many runs that differ in some settings, in processes or on a cluster, resumable, in one table."""

import contextlib
import dataclasses as dc
import math
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import threadpoolctl

from ..distributed.pools import Lost, on_cluster, on_processes
from ..errors import (
    CorruptFileError,
    MemoryNeedError,
    OutputExistsError,
    SolveError,
    TrunkfirstError,
    UsageError,
    ValueRangeError,
)
from ..files.integrity import MANIFEST, verify_run, write_manifest
from ..files.text_files import read_json, write_csv, write_json
from ..progress import Reporter, Silent
from ..run_data import load_run_data
from ..settings import setting_text
from .config import Grid, config_values, make_config, nested
from .directory import environment, is_finished, run_directory
from .run import run

CONFIGS = "configs.json"
_NUMBERS = ("validation", "test", "trunk_loss", "seconds")

Status = Literal["finished", "interrupted", "diverged", "failed"]
Values = dict[str, Any]

# -- results


@dc.dataclass(frozen=True)
class Row:
    """A run of a sweep: its folder, the settings that vary, and its errors or the reason why it has none."""

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
        """Whether its errors count."""
        return self.status == "finished"

    @property
    def rank(self) -> float:
        """The validation error; infinite where it does not count."""
        return math.inf if self.validation is None or not self.is_sound else self.validation


@dc.dataclass(frozen=True, eq=False)
class Progress:
    """A finished run, the number of finished runs, and an estimate of the time for the others."""

    row: Row
    done: int
    total: int
    remaining_seconds: float


@dc.dataclass(frozen=True, eq=False)
class Sweep:
    """The runs of a sweep, best first; those without a validation error are in the order of the grid."""

    folder: Path
    rows: tuple[Row, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The settings that vary."""
        return tuple(self.rows[0].settings)

    @property
    def failures(self) -> tuple[Row, ...]:
        """The runs without a result."""
        return tuple(row for row in self.rows if not row.is_sound)

    def explain_failures(self) -> tuple[str, ...]:
        """One sentence for each reason, with the name of the first run and the number of the others."""
        names: dict[str, list[str]] = {}
        for row in self.failures:
            names.setdefault(f"{row.status}: {row.reason}", []).append(row.name)
        return tuple(
            f"{first} {f'and {len(others)} more ' if others else ''}{why}"
            for why, (first, *others) in names.items()
        )

    def best(self) -> dict[str, Any] | None:
        """The settings with the smallest validation error, averaged over seeds; None if only the seed varies.

        A combination counts if the runs of all its seeds are finished.
        """
        if set(self.keys) == {"seed"}:
            return None
        groups: dict[str, list[Row]] = {}
        for row in self.rows:
            others = [(key, value) for key, value in row.settings.items() if key != "seed"]
            groups.setdefault(repr(others), []).append(row)
        means = [(sum(row.rank for row in rows) / len(rows), rows) for _, rows in sorted(groups.items())]
        mean, (first, *more) = min(means, key=lambda pair: pair[0])
        if mean == math.inf:
            return None
        settings = {key: value for key, value in first.settings.items() if key != "seed" or not more}
        return {"settings": settings, "validation": mean, "runs": 1 + len(more)}

    def summary(self) -> dict[str, Any]:
        """The content of `sweep.json`."""
        return {
            "settings": list(self.keys),
            "best": self.best(),
            "failures": list(self.explain_failures()),
            "rows": [dc.asdict(row) for row in self.rows],
        }


# -- running


def sweep(
    grid: Grid,
    folder: Path | str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_run: Callable[[Progress], None] | None = None,
    reporter: Reporter | None = None,
) -> Sweep:
    """Run every configuration of a grid in a folder of its own, and write `sweep.json` and `sweep.csv`.

    A run that fails is a row with the reason. In the folder of an interrupted sweep finished runs that match their
    manifests are kept, one under way continues from its checkpoint, and failed ones are tried again.

    Args:
        grid: The configurations.
        folder: The folder of the sweep.
        workers: The number of processes of this machine; all cores if left out.
        scheduler: The address of a Dask scheduler whose workers carry out the runs instead. They must see the
            folder and the data file under the same paths.
        on_run: Called after each run.
        reporter: Listens to the making of data.
    """
    folder = Path(folder)
    if workers is not None and (workers < 1 or scheduler is not None):
        raise ValueRangeError(f"workers is {workers}; expected 1 or more, or a scheduler with workers of its own")
    request = {"command": "sweep", "workers": workers, "scheduler": scheduler}
    resumes = _is_begun(folder, grid)
    interval = min(config.checkpoint_seconds for config in grid.configs.values())
    with run_directory(folder, request, interval=interval, resumes=resumes) as folder:
        (folder / MANIFEST).unlink(missing_ok=True)
        configs = {name: config_values(config) for name, config in grid.configs.items()}
        write_json(folder / CONFIGS, {"settings": grid.settings, "configs": configs})
        rows = _run_all(grid, folder, workers, scheduler, on_run, reporter or Silent())
        return _write(folder, [rows[name] for name in grid.configs])


def read_grid(folder: Path) -> Grid:
    """The grid of the sweep in a folder."""
    if not (folder / CONFIGS).is_file():
        raise UsageError(f"{folder} has nothing to resume: {CONFIGS} is missing; start the sweep with its command")
    match read_json(folder / CONFIGS):
        case {"configs": dict(configs), "settings": dict(settings)} if set(configs) == set(settings):
            return Grid({name: make_config(nested(values)) for name, values in configs.items()}, settings)
        case _:
            raise CorruptFileError(f"{folder / CONFIGS} is not the list of a sweep's configurations")


def _is_begun(folder: Path, grid: Grid) -> bool:
    """Whether the folder holds a sweep whose runs have the same settings as in this one."""
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


def _run_all(
    grid: Grid,
    folder: Path,
    workers: int | None,
    scheduler: str | None,
    on_run: Callable[[Progress], None] | None,
    reporter: Reporter,
) -> dict[str, Row]:
    rows = {name: _read_row(folder, name, grid) for name in grid.configs if is_sound(folder / name)}
    missing = [name for name in grid.configs if name not in rows]
    kept, total, start = len(rows), len(grid.configs), time.monotonic()
    if rows:
        reporter.say(f"{kept} of {total} runs are done already and kept")
    _make_data(grid, missing, scheduler, reporter)
    tasks = [RunTask(name, config_values(grid.configs[name]), folder.resolve()) for name in missing]
    results = (
        on_processes(carry_out, tasks, workers=workers or os.cpu_count() or 1)
        if scheduler is None
        else on_cluster(carry_out, tasks, address=scheduler)
    )
    with contextlib.closing(results) as done:
        for task, reason in done:
            why = reason.reason if isinstance(reason, Lost) else reason
            row = (
                Row(task.name, grid.settings[task.name], "failed", why)
                if why
                else _read_row(folder, task.name, grid)
            )
            rows[task.name] = row
            if on_run is not None:
                seconds = (time.monotonic() - start) / (len(rows) - kept) * (total - len(rows))
                on_run(Progress(row, len(rows), total, seconds))
    return rows


def _make_data(grid: Grid, names: list[str], scheduler: str | None, reporter: Reporter) -> None:
    """Make the data of each problem once; what cannot be made is reported by the runs."""
    configs = [grid.configs[name] for name in names]
    distinct = {repr((c.problem, c.data.samples, c.data.points)): c for c in configs if c.problem is not None}
    for config in distinct.values():
        with contextlib.suppress(SolveError, MemoryNeedError):
            load_run_data(config.data, config.problem, scheduler=scheduler, reporter=reporter)


@dc.dataclass(frozen=True, eq=False)
class RunTask:
    """A run as it is sent to a worker: plain values."""

    name: str
    values: dict[str, Any]
    folder: Path


def carry_out(task: RunTask) -> str | None:
    """In a worker: carry out or resume a run; None, or the reason why it failed."""
    if not (task.folder / CONFIGS).is_file():
        return f"the worker does not see {task.folder}: it must be shared with it, under the same path"
    threadpoolctl.threadpool_limits(limits=1, user_api="blas")
    folder = task.folder / task.name
    try:
        folder.mkdir(exist_ok=True)
        config = make_config(task.values)
        data = load_run_data(config.data, config.problem, workers=1)
        run(config, folder, data=data, throw=False, resumes=True)
    except TrunkfirstError as error:
        return str(error)
    except Exception as error:  # one run must not end the others
        return f"{type(error).__name__}: {error}"
    return None


def is_sound(folder: Path) -> bool:
    """Whether a run is finished and matches its manifest; a damaged one is removed and will run again."""
    if not is_finished(folder):
        return False
    try:
        verify_run(folder)
    except CorruptFileError as error:
        warnings.warn(f"{error}; this run is made again", RuntimeWarning, stacklevel=4)
        shutil.rmtree(folder)
        return False
    return True


def _read_row(folder: Path, name: str, grid: Grid) -> Row:
    metrics = read_json(folder / name / "metrics.json")
    return Row(
        name,
        grid.settings[name],
        metrics["status"],
        reason=None if metrics["status"] == "finished" else "training met a number that is not finite",
        validation=metrics["validation"]["mean_relative_l2"],
        test=(metrics["test"] or {}).get("mean_relative_l2"),
        trunk_loss=metrics["trunk"]["loss"],
        seconds=metrics["seconds"]["total"],
    )


def _write(folder: Path, rows: list[Row]) -> Sweep:
    found = Sweep(folder, tuple(sorted(rows, key=lambda row: (not row.is_sound, row.rank))))
    write_json(folder / "sweep.json", found.summary())
    write_csv(folder / "sweep.csv", _table(found))
    write_json(folder / "environment.json", environment())
    # The runs have their own manifests, and reports may be added to them later.
    write_manifest(folder, ["sweep.json", "sweep.csv", "environment.json", CONFIGS])
    return found


def _table(found: Sweep) -> Iterator[Sequence[object]]:
    yield ("name", *found.keys, "status", *_NUMBERS, "reason")
    for row in found.rows:
        settings, numbers = map(setting_text, row.settings.values()), (getattr(row, name) for name in _NUMBERS)
        yield (row.name, *settings, row.status, *numbers, row.reason)
