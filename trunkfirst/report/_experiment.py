"""Read a run or a compare directory: all runs in a fixed order, and the claims that were tested."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..errors import DataError
from ..files import read_json
from ._run import Run, read_run
from ._style import method_rank


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, its figure and ours; `holds` is None when it was not tested."""

    claim: str
    paper: str
    ours: str
    holds: bool | None


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything a report is made of: runs sorted by method and seed, claims, and what was skipped."""

    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    skipped: tuple[str, ...]

    @property
    def problem(self) -> str:
        return self.runs[0].problem

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.method for run in self.runs))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({run.seed for run in self.runs}))

    def of(self, method: str) -> tuple[Run, ...]:
        """The runs of one method, by seed."""
        return tuple(run for run in self.runs if run.method == method)


def read_experiment(directory: Path) -> Experiment:
    """Read `directory`, a run directory or a compare directory.

    Raises `DataError` when it is neither.
    """
    metrics = directory / "metrics.json"
    content = read_json(metrics) if metrics.is_file() else None
    if isinstance(content, Mapping):
        runs, skipped = [read_run(directory)], []
    else:
        runs, skipped = _read_runs_below(directory)
        if not runs and isinstance(content, Sequence):
            runs = [Run(metrics=entry) for entry in _mappings(cast("Sequence[object]", content))]
    if not runs:
        raise DataError(
            f"{directory} holds no metrics.json of a run, nor run directories; "
            "give the --out directory of `trunkfirst run` or `trunkfirst compare`."
        )
    runs.sort(key=lambda run: (method_rank(run.method), run.method, run.seed))
    return Experiment(tuple(runs), _read_claims(directory / "claims.json"), tuple(skipped))


def _read_runs_below(directory: Path) -> tuple[list[Run], list[str]]:
    """Complete runs, and the names of run directories that were begun and never finished."""
    runs: list[Run] = []
    skipped: list[str] = []
    for folder in sorted(path for path in directory.glob("*") if path.is_dir()):
        if (folder / "metrics.json").is_file():
            runs.append(read_run(folder))
        elif (folder / "config.toml").is_file() or (folder / "history.jsonl").is_file():
            skipped.append(folder.name)
    return runs, skipped


def _mappings(entries: Iterable[object]) -> list[Mapping[str, object]]:
    return [cast("Mapping[str, object]", entry) for entry in entries if isinstance(entry, Mapping)]


def _read_claims(path: Path) -> tuple[Claim, ...]:
    content = read_json(path) if path.is_file() else []
    if not isinstance(content, Sequence):
        return ()
    return tuple(_claim(entry) for entry in _mappings(cast("Sequence[object]", content)))


def _claim(entry: Mapping[str, object]) -> Claim:
    holds = entry.get("holds")
    return Claim(
        claim=str(entry.get("claim", "")),
        paper=str(entry.get("paper", "")),
        ours=str(entry.get("ours", "")),
        holds=holds if isinstance(holds, bool) else None,
    )
