"""Default `fit` against PCA with ridge, kernel ridge, a random forest and a Gaussian process.

    python benchmarks/against_scikit_learn.py --minutes 5

Needs `pip install trunkfirst[bench]`. For every set of strangers.py: mean relative l2 error on the test samples
(with several channels its mean over them), seconds with all choices, and the error of trunkfirst over that of the
best other, with two standard errors of the paired difference. Inputs are standardised; rank, ridge and length come
from a grid on a fifth of the training rows, then all rows are fitted again. Lengths are chosen on at most 1,000
rows, those of the Gaussian process on at most 1,400 / sqrt(inputs); prediction uses all rows. Functions at more
than 32 sensors reach the forest through 32 and the Gaussian process through 16 principal coordinates. Where
neither ridge nor kernel ridge reaches what is known of a public set, the table says that it does not count.
"""

import argparse
import dataclasses as dc
import json
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _baselines import AbstractRegression, Forest, GaussianProcess, KernelRidge, Ridge, predict
from _common import Stopwatch, Table, options_for, publish
from strangers import OWN, add_sets, load_set

import trunkfirst

OURS = "trunkfirst"
REGRESSIONS: dict[str, Callable[[], AbstractRegression]] = {
    "ridge": Ridge,
    "kernel-ridge": KernelRidge,
    "forest": Forest,
    "gaussian-process": GaussianProcess,
}
# What thirty lines of NumPy reach on the public sets; ridge or kernel ridge must come within a tenth of it.
KNOWN = {"antiderivative": 3.5e-3, "burgers": 1.4e-3, "backstep": 5.3e-8, "diffusion": 2.4e-2}
LIMIT, EQUAL = 1.05, 1e-9  # ratio that is no loss; errors below which all are equal
Data = trunkfirst.OperatorData


@dc.dataclass(frozen=True, eq=False)
class Outcome:
    """One contender on one set."""

    errors: np.ndarray
    """Relative l2 of every test sample."""
    seconds: float
    chosen: str
    first_seconds: float | None = None
    """From the start to the first saved operator, where the run says it."""

    @property
    def mean(self) -> float:
        """What the table shows."""
        return float(self.errors.mean())

    def summary(self) -> dict[str, Any]:
        """All but the single errors."""
        shown = {"error": self.mean, "median": float(np.median(self.errors)), "max": float(self.errors.max())}
        return shown | {"seconds": self.seconds, "first_seconds": self.first_seconds, "chosen": self.chosen}


def main(argv: Sequence[str] | None = None) -> None:
    """All contenders on all sets, one after the other."""
    options = options_for(__doc__, _add_options, argv)
    options.command = options.command.replace(f" --shared {options.shared}", "")  # a folder of one machine
    found = {name: outcomes for name in options.sets if (outcomes := compare(name, options))}
    rows = [_row(name, outcomes, options.contenders) for name, outcomes in found.items()]
    head = ("set", *options.contenders, f"{OURS} / best other", "2 standard errors", "verdict")
    failed = [message for name, outcomes in found.items() if (message := unmet(name, outcomes))]
    notes = ["Mean relative l2 on test samples; in brackets seconds with all choices.", *failed]
    details = {name: {who: each.summary() for who, each in outcomes.items()} for name, outcomes in found.items()}
    table = Table("Against scikit-learn", head, rows, notes)
    publish("against-scikit-learn", options, table, details, lambda axes: _draw(axes, details))


def _add_options(parser: argparse.ArgumentParser) -> None:
    names = [*REGRESSIONS, OURS]
    add_sets(parser)
    parser.add_argument("--minutes", type=float, default=5.0, help="time for trunkfirst")
    parser.add_argument("--contenders", nargs="+", choices=names, default=names, help="who")


def compare(name: str, options: argparse.Namespace) -> dict[str, Outcome]:
    """The outcomes by contender, printed; none where the set is absent. A contender that fails is left out."""
    try:
        parts = _quick(name) if options.quick else load_set(name, options.shared)
    except FileNotFoundError as error:
        print(f"{name}: skipped, {error.filename} is absent; say --shared FOLDER\n", flush=True)
        return {}
    train, test = (trunkfirst.read_data(parts[part]) for part in ("train", "test"))
    outcomes: dict[str, Outcome] = {}
    for contender in options.contenders:
        try:
            outcomes[contender] = run(contender, train, test, options)
        except Exception:  # hours of other results must not be lost
            print(f"{name}: {contender} failed\n{traceback.format_exc()}", flush=True)
    print(_table(name, train, test, outcomes).markdown() + "\n", flush=True)
    return outcomes


def _quick(name: str) -> Any:
    if name not in OWN:
        raise FileNotFoundError(0, "not in a smoke test", name)
    return OWN[name](40, 10)


def run(contender: str, train: Data, test: Data, options: argparse.Namespace) -> Outcome:
    """Fit, predict the test inputs, and compare with the test outputs, which nothing else sees."""
    watch = Stopwatch(options.clock)
    if contender == OURS:
        minutes = 0.05 if options.quick else options.minutes
        predictions, chosen, first = fit_ours(train, test, minutes)
    else:
        arrays = (np.asarray(a, float) for a in (train.flat_inputs, _channels(train.outputs), test.flat_inputs))
        predictions, chosen = predict(REGRESSIONS[contender](), *arrays)
        first = None
    seconds = watch.read()
    return Outcome(relative_errors(_channels(predictions), _channels(test.outputs)), seconds, chosen, first)


def fit_ours(train: Data, test: Data, minutes: float) -> tuple[np.ndarray, str, float | None]:
    """Predictions of the default `fit`, what it chose, and seconds to its first saved operator."""
    inputs = {name: function.values for name, function in test.inputs.items()}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = trunkfirst.fit(train, minutes=minutes, out=out, progress=False)
        metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    predictions = result.operator.predict(inputs if len(inputs) > 1 else test.flat_inputs, test.points)
    branch = getattr(result.method, "branch", None)
    return np.asarray(predictions), f"branch {type(branch).__name__}", metrics["seconds"].get("first_operator")


def _channels(outputs: np.ndarray) -> np.ndarray:
    """(samples, points, channels), in double precision."""
    return np.asarray(outputs, float).reshape(*outputs.shape[:2], -1)


def relative_errors(predictions: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """Of every sample: relative l2 of every channel, and their mean, as `trunkfirst.evaluate` has it."""
    return np.mean(np.linalg.norm(predictions - outputs, axis=1) / np.linalg.norm(outputs, axis=1), axis=1)


# -- what it means


def ratio(outcomes: dict[str, Outcome]) -> tuple[float, float, str] | None:
    """trunkfirst over the best other, two standard errors of it from the paired differences, and a verdict."""
    others = [each for name, each in outcomes.items() if name != OURS]
    if OURS not in outcomes or not others:
        return None
    ours, other = outcomes[OURS], min(others, key=lambda each: each.mean)
    differences = ours.errors - other.errors
    doubt = 2 * float(differences.std(ddof=1)) / np.sqrt(len(differences))
    is_equal = max(ours.mean, other.mean) < EQUAL
    holds = is_equal or ours.mean <= LIMIT * other.mean or differences.mean() <= doubt
    return ours.mean / other.mean, float(doubt / other.mean), "equal" if is_equal else "ok" if holds else "LOSES"


def unmet(name: str, outcomes: dict[str, Outcome]) -> str | None:
    """A sentence where ridge and kernel ridge miss what is known of a public set."""
    plain = [outcomes[who].mean for who in ("ridge", "kernel-ridge") if who in outcomes]
    if name not in KNOWN or not plain or min(plain) <= 1.1 * KNOWN[name]:
        return None
    found = f"{min(plain):.2g} of ridge or kernel ridge on {name}, {KNOWN[name]:.2g} is known"
    return f"THIS TABLE DOES NOT COUNT: {found}."


def _table(name: str, train: Data, test: Data, outcomes: dict[str, Outcome]) -> Table:
    rows = [(who, each.mean, each.seconds, each.first_seconds, each.chosen) for who, each in outcomes.items()]
    head = ("contender", "mean relative l2", "seconds", "first operator, s", "chosen")
    compared, notes = ratio(outcomes), [] if (message := unmet(name, outcomes)) is None else [message]
    if compared is not None:
        notes.append(f"{OURS} / best other: {compared[0]:.3g} +- {compared[1]:.2g}, {compared[2]}")
    return Table(f"{name}: {train.samples:,} train, {test.samples:,} test", head, rows, notes)


def _row(name: str, outcomes: dict[str, Outcome], contenders: Sequence[str]) -> tuple[Any, ...]:
    cells = [f"{o.mean:.2e} ({o.seconds:.1f})" if (o := outcomes.get(who)) else None for who in contenders]
    return (name, *cells, *(ratio(outcomes) or (None, None, None)))


def _draw(axes: Any, details: dict[str, Any]) -> None:
    """The errors of all contenders, a row for every set."""
    for who, marker in zip([*REGRESSIONS, OURS], "osD^*", strict=True):
        places = [(each[who]["error"], place) for place, each in enumerate(details.values()) if who in each]
        if places:
            axes.plot(*zip(*places, strict=True), marker, label=who)
    axes.set(xscale="log", xlabel="mean relative l2 on test samples", yticks=range(len(details)))
    axes.set_yticklabels(list(details))
    axes.invert_yaxis()


if __name__ == "__main__":
    main()
