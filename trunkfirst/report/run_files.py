"""Read the files of a run or a comparison into frozen records. Nothing is trained and JAX is not imported."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from ..errors import CorruptFileError, DataError
from ..files.npz import read_npz
from ..files.text_files import parse_json, read_json, read_text, read_toml
from ..records import Baseline, Claim, EvaluationRecord, LogEntry, mapping_at, number_at
from .figures import method_label, method_rank

Steps = Float[np.ndarray, " steps"]
History = Mapping[str, Sequence[LogEntry]]
MOST_POINTS = 600  # drawn per line: more cannot be seen and makes the page heavy
_ANLS = ("iterations", "branch_losses", "test_errors")

# -- curves


@dataclass(frozen=True, eq=False)
class Curve:
    """A loss, and the smallest one logged up to there in its stage, against iterations or seconds."""

    places: Steps
    losses: Steps
    best_losses: Steps
    stages: tuple[str, ...] = ()
    """The stage of every step; empty where there is only one. Each stage minimises its own loss."""

    def at(self, steps: np.ndarray) -> "Curve":
        """The curve at some of its steps, by index or mask."""
        stages = tuple(np.array(self.stages, object)[steps]) if self.stages else ()
        return Curve(self.places[steps], self.losses[steps], self.best_losses[steps], stages)

    def parts(self) -> "list[Curve]":
        """The curve of every stage on its own."""
        starts = [i for i in range(1, len(self.stages)) if self.stages[i] != self.stages[i - 1]]
        edges = [0, *starts, len(self.places)]
        return [self.at(np.arange(a, b)) for a, b in itertools.pairwise(edges)]

    def finite(self) -> "Curve | None":
        """The part that a logarithmic axis can show, in order; None when nothing is left."""
        found = self.at(np.isfinite(self.best_losses) & (self.best_losses > 0) & np.isfinite(self.places))
        return found.at(np.argsort(found.places, kind="stable")) if len(found.places) else None

    def thinned(self) -> "Curve":
        """At most `MOST_POINTS` evenly chosen steps, first and last included."""
        return self.at(_evenly(len(self.places)))


def best_on_common_steps(curves: Sequence[Curve]) -> tuple[Steps, Float[np.ndarray, "seeds steps"]]:
    """Smallest losses of several curves at the iterations they share, up to the end of the shortest one."""
    first, last = max(curve.places[0] for curve in curves), min(curve.places[-1] for curve in curves)
    steps = np.unique(np.concatenate([curve.places for curve in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    steps = steps[_evenly(len(steps))]
    places = [np.searchsorted(curve.places, steps, side="right") - 1 for curve in curves]
    return steps, np.stack([curve.best_losses[place] for curve, place in zip(curves, places, strict=True)])


def _evenly(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))


# -- histories


def read_history(path: Path) -> History:
    """Log entries by step: trunk, branch or monolithic. The last line may be incomplete (a killed run)."""
    steps: dict[str, list[LogEntry]] = {}
    lines = read_text(path).splitlines() if path.is_file() else []
    for place, line in enumerate(lines, start=1):
        entry = _parse_line(path, line, place, is_last=place == len(lines))
        if entry is not None:
            steps.setdefault(entry.step, []).append(entry)
    return steps


def _parse_line(path: Path, line: str, place: int, *, is_last: bool) -> LogEntry | None:
    try:
        entry: object = parse_json(line, "it") if line.strip() else None
    except CorruptFileError as error:
        if is_last:
            return None
        raise CorruptFileError(f"{path}, line {place}: not JSON ({error}). Run again.") from error
    return LogEntry.from_json(cast("Mapping[str, object]", entry)) if isinstance(entry, Mapping) else None


def _curve(entries: Sequence[LogEntry], places: Steps) -> Curve:
    losses, best = (np.array([getattr(entry, name) for entry in entries]) for name in ("loss", "best_loss"))
    smallest = np.fmin.accumulate(np.where(np.isfinite(losses), losses, np.nan))
    stages = tuple(entry.stage for entry in entries)
    return Curve(places, losses, np.where(np.isfinite(best), best, smallest), stages)


def _over_iterations(history: History) -> dict[str, Curve]:
    return {
        step: _curve(entries, np.array([entry.iteration for entry in entries], float))
        for step, entries in history.items()
    }


def _over_seconds(history: History, metrics: Mapping[str, object]) -> dict[str, Curve]:
    """Losses against the seconds since training began, by step.

    A step may have begun before its first entry, as a trunk does with its several starts: what `metrics` count
    beyond the last entry was spent before the first.
    """
    curves: dict[str, Curve] = {}
    done = 0.0
    for step, section in (("trunk", "trunk"), ("monolithic", "trunk"), ("branch", "branch")):
        if step in history:
            seconds = _seconds(history[step])
            spent = max(number_at(metrics, section, "seconds") or 0.0, seconds[-1])
            curves[step] = _curve(history[step], seconds + done + spent - seconds[-1])
            done += spent
    return curves


def _seconds(entries: Sequence[LogEntry]) -> Steps:
    """Seconds since the first stage began; in the file every stage starts at 0."""
    seconds = np.array([entry.seconds for entry in entries])
    for place in range(1, len(entries)):
        if entries[place].stage != entries[place - 1].stage:
            seconds[place:] += seconds[place - 1]
    return seconds


def _read_anls(path: Path) -> dict[str, Curve]:
    """Branch loss and test error against iterations of active-neuron least squares; empty where not recorded."""
    if not path.is_file():
        return {}
    arrays = read_npz(path)
    iterations, losses, errors = (np.asarray(arrays.get(name, np.empty(0)), np.float64) for name in _ANLS)
    if not iterations.shape == losses.shape == errors.shape or iterations.ndim != 1 or not iterations.size:
        raise CorruptFileError(f"{path}: expected {', '.join(_ANLS)} of one length. Run again.")
    return {"loss": Curve(iterations, losses, losses), "error": Curve(iterations, errors, errors)}


# -- runs

_NAMES = ("operator", "fields", "domain", "fields")  # of model.json


def _empty() -> Any:
    return field(default_factory=dict[str, Any])


@dataclass(frozen=True, eq=False)
class Run:
    """One method with one seed."""

    metrics: Mapping[str, object]
    # Losses by step (trunk, branch, monolithic) against iterations and seconds; active-neuron least squares
    history: Mapping[str, Curve] = _empty()
    clock: Mapping[str, Curve] = _empty()
    anls: Mapping[str, Curve] = _empty()
    # Everything else that was written
    evaluation: EvaluationRecord | None = None
    config_text: str = ""
    config: Mapping[str, object] = _empty()
    environment: Mapping[str, object] = _empty()
    # Written by `trunkfirst diagnose`: the error budget, and the squared parts of every test sample's error
    diagnosis: Mapping[str, object] = _empty()
    # Names of coordinates and channels, and units, as the model knows them
    names: Mapping[str, object] = _empty()
    budget: Mapping[str, np.ndarray] = _empty()

    @property
    def problem(self) -> str:
        return str(self.metrics.get("problem") or "unnamed data")

    @property
    def method(self) -> str:
        return str(self.metrics.get("method") or "unnamed method")

    @property
    def seed(self) -> int:
        seed = self.metrics.get("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def name(self) -> str:
        """Method and seed: `two-step, seed 0`."""
        return f"{method_label(self.method)}, seed {self.seed}"

    @property
    def status(self) -> str:
        return str(self.metrics.get("status") or "finished")

    @property
    def tested(self) -> EvaluationRecord | None:
        """The evaluation if all its errors are finite: others have no place on a logarithmic axis."""
        is_finite = self.evaluation is not None and np.isfinite(self.evaluation.errors).all()
        return self.evaluation if is_finite else None

    @property
    def training_seconds(self) -> float | None:
        """Seconds of all training steps, without data, model selection and evaluation."""
        trunk = self.number("trunk", "seconds")
        return None if trunk is None else trunk + (self.number("branch", "seconds") or 0.0)

    @property
    def baseline(self) -> dict[str, Baseline]:
        """Simple methods on the samples left out, by kind; empty where they were not measured."""
        found = map(Baseline.from_json, _mappings(self.metrics.get("baseline")))
        return {each.kind: each for each in found}

    def number(self, *keys: str) -> float | None:
        """The metric at the end of `keys`, or None when any key is missing, null or no number."""
        return number_at(self.metrics, *keys)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything a report is made of: runs sorted by method and seed, claims, and unfinished run directories."""

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


def read_run(directory: Path) -> Run:
    """Read one run directory; only `metrics.json` is required."""
    config, budget = directory / "config.toml", directory / "diagnosis.npz"
    metrics = _read_mapping(directory / "metrics.json")
    history = read_history(directory / "history.jsonl")
    return Run(
        metrics=metrics,
        history=_over_iterations(history),
        clock=_over_seconds(history, metrics),
        anls=_read_anls(directory / "anls.npz"),
        evaluation=EvaluationRecord.read(directory / "evaluation.npz"),
        config_text=read_text(config) if config.is_file() else "",
        config=read_toml(config) if config.is_file() else {},
        environment=_read_mapping(directory / "environment.json"),
        diagnosis=_read_mapping(directory / "diagnosis.json"),
        names=mapping_at(_read_mapping(directory / "model" / "model.json"), *_NAMES),
        budget=read_npz(budget) if budget.is_file() else {},
    )


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
        runs = runs or [Run(metrics=entry) for entry in _mappings(content)]
    if not runs:
        raise DataError(
            f"{directory} has neither metrics.json of a run nor run folders; "
            "give the --out folder of `trunkfirst run` or `trunkfirst compare`."
        )
    runs.sort(key=lambda run: (method_rank(run.method), run.method, run.seed))
    claims = directory / "claims.json"
    entries = _mappings(read_json(claims)) if claims.is_file() else []
    return Experiment(tuple(runs), tuple(map(Claim.from_json, entries)), tuple(skipped))


def _read_runs_below(directory: Path) -> tuple[list[Run], list[str]]:
    """Complete runs, and the names of run directories that were started and never finished."""
    runs: list[Run] = []
    skipped: list[str] = []
    for folder in sorted(path for path in directory.glob("*") if path.is_dir()):
        if (folder / "metrics.json").is_file():
            runs.append(read_run(folder))
        elif (folder / "config.toml").is_file() or (folder / "history.jsonl").is_file():
            skipped.append(folder.name)
    return runs, skipped


def _read_mapping(path: Path) -> Mapping[str, object]:
    """A JSON object, or an empty one when there is no such file."""
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, Mapping):
        raise CorruptFileError(f"{path} has a {type(content).__name__}; expected a JSON object. Run again.")
    return cast("Mapping[str, object]", content)


def _mappings(content: object) -> list[Mapping[str, object]]:
    entries = cast("Iterable[object]", content) if isinstance(content, Sequence) else ()
    return [cast("Mapping[str, object]", entry) for entry in entries if isinstance(entry, Mapping)]


def is_limited_by_network(run: Run) -> bool | None:
    """Whether more functions in the trunk could not help; None where it was not recorded."""
    found = mapping_at(run.metrics, "trunk").get("is_limited_by_network")
    return found if isinstance(found, bool) else None


def loss_over_limit(run: Run) -> float | None:
    """Trunk loss over the lowest possible, where that is known (p = 2) and above rounding level."""
    loss, limit = run.number("trunk", "loss"), run.number("trunk", "limit")
    is_known = is_limited_by_network(run) is False and run.number("trunk", "limit_upper") is None
    return loss / limit if is_known and loss is not None and limit else None
