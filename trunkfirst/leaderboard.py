"""Candidates that were tried, how they compare, and the method that the best of them makes."""

import dataclasses as dc
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from .candidates import branch_of, brief, kind_of_branch, settings_of
from .checkpoints import remember
from .clock import Clock
from .comparison import Comparison
from .data.operator_data import OperatorData
from .data.sample_weights import channel_weights
from .encode import is_relative, make_fields
from .encoders import AbstractInputs, Identity
from .errors import SolveError
from .intervals import HeldOut
from .method import AbstractMethod
from .modes import ModesTrunk, principal_modes
from .progress import Reporter
from .records import BASELINES, Baseline, CandidateSettings, Choice
from .regressors.network import AutoBranch
from .trials import Candidate, Folds, TrainedTrunk
from .trunks import AutoTrunk
from .two_step import TwoStep

# Among encoders nearly as good as the best, the first in the list: the simplest.
_NEARLY = 1.2
_NETWORKS = ("network", "active-neurons", "fourier")
# What the modes that are left out may add, as a share of the error.
_MODES_SHARE = 0.02
# An operator is handed over again if it is this much better.
_CLEARLY = 0.9

Trials: TypeAlias = Folds | TrainedTrunk


@dc.dataclass(frozen=True)
class Chosen:
    """The method with nothing left open, how it was chosen, and its error on samples that did not choose it."""

    method: AbstractMethod
    choice: Choice | None = None
    validation_error: float | None = None
    held_out: Callable[[], HeldOut] | None = None
    """Computes predictions for samples that were left out."""

    def applied_to(self, method: AbstractMethod) -> "Chosen":
        """The same choice for another method."""
        changes: dict[str, Any] = {"inputs": self.method.inputs, "weights": self.method.weights}
        if isinstance(method, TwoStep) and isinstance(self.method, TwoStep):
            changes |= {"branch": self.method.branch} if isinstance(method.branch, AutoBranch) else {}
            changes |= {"trunk": self.method.trunk} if isinstance(method.trunk, AutoTrunk) else {}
        return Chosen(dc.replace(method, **changes), self.choice)

    def summary(self) -> dict[str, Any] | None:
        """The part `chosen` of `metrics.json`."""
        if self.choice is None:
            return None
        return {
            "encoder": str(self.method.inputs),
            "branch": kind_of_branch(branch_of(self.method)),
            "trunk": getattr(getattr(self.method, "trunk", None), "kind", "network"),
            "weights": self.method.weights,
            "candidate": self.choice.name,
            "validation_errors": dict(self.choice.errors),
            "candidates": {name: dc.asdict(each) for name, each in self.choice.candidates.items()},
            "best_network": self.choice.best_network,
        }


class Leaderboard:
    """Tries candidates as long as there is time, and ranks them by the errors of every sample."""

    def __init__(
        self,
        method: AbstractMethod,
        trials: Trials,
        clock: Clock,
        reporter: Reporter,
        *,
        measured: bool,
        on_better: Callable[[Chosen], None] | None = None,
    ) -> None:
        self._method, self._trials, self._data = method, trials, trials.data
        self._clock, self._reporter, self._measured, self._on_better = clock, reporter, measured, on_better
        self._is_auto = isinstance(branch_of(method), AutoBranch)
        trunk = getattr(method, "trunk", None)
        self.width = trunk.width if isinstance(trunk, ModesTrunk) else None
        self.tried: dict[str, Candidate] = {}
        self.trial_iterations = 80
        tolerance = 1.0 if self._is_auto else _NEARLY
        self._errors = Comparison(trials.parts, trials.data.samples, measured=measured, tolerance=tolerance)
        self._seconds: dict[str, float] = {}
        self.better_modes: dict[str, list[int]] = {}
        self._settings: dict[str, CandidateSettings] = {}
        self._handed_over = np.inf

    # -- trying

    def try_all(self, options: Mapping[str, Candidate], longer: float = 1.0) -> None:
        """Measure what was not tried yet, as long as there is time; `longer` multiplies the iterations."""
        most = int(longer * self.trial_iterations)
        for name, given in options.items():
            candidate = self._with_best_modes(given)
            # The first is always tried, so that there is something to choose.
            if name not in self.tried and (not self.tried or self._clock.allows(name, self._expected(candidate))):
                self.measure({name: brief(candidate, most, is_auto=self._is_auto)})
                self.tried[name] = candidate

    def _with_best_modes(self, candidate: Candidate) -> Candidate:
        """With as many modes as are asked for, or as the best candidate has."""
        modes = self.tried[self.best()].modes if self.tried else self.width
        return candidate if candidate.modes or candidate.trunk else dc.replace(candidate, modes=modes)

    def _expected(self, candidate: Candidate) -> float:
        """Seconds of the last candidate of the same kind."""
        kind = kind_of_branch(candidate.branch)
        same = [self._seconds[n] for n, each in self.tried.items() if kind_of_branch(each.branch) == kind]
        return same[-1] if same else 0.0

    def measure(self, candidates: Mapping[str, Candidate]) -> None:
        """Measure candidates that are not to be chosen, or one again."""
        for name, candidate in candidates.items():
            self._settings[name] = settings_of(candidate)
            found = self._measured_errors(name, candidate)
            self._errors.errors[name], self._seconds[name] = found["errors"], float(found["seconds"][0])
            self.better_modes[name] = found["better modes"].tolist()
            self._reporter.say(f"  {name}: {self.mean(name):.2e}")

    def _measured_errors(self, name: str, candidate: Candidate) -> Mapping[str, np.ndarray]:
        def compute() -> dict[str, np.ndarray]:
            begin = time.perf_counter()
            try:
                errors = self._trials.errors(candidate, self._parts(candidate))
            except (SolveError, np.linalg.LinAlgError):
                errors = np.full(self._data.samples, np.inf)
            modes = np.array(self._trials.better_modes(candidate), int)
            return {"errors": errors, "seconds": np.array([time.perf_counter() - begin]), "better modes": modes}

        # What is trained by iterations has checkpoints of its own; a resumed search needs what it found.
        is_closed_form = candidate.is_closed_form and isinstance(self._trials, Folds)
        return remember(f"candidate {name}", compute) if is_closed_form else compute()

    def _parts(self, candidate: Candidate) -> list[int] | None:
        """What is trained by iterations is measured on the first part alone."""
        return [0] if self._measured and not candidate.is_closed_form else None

    # -- comparing

    def mean(self, name: str) -> float:
        """The mean relative error on the samples that choose."""
        return self._errors.mean(name)

    def best(self) -> str:
        """The name of the best candidate."""
        return self._errors.best(list(self.tried))

    def best_error(self) -> float:
        """Its error."""
        return self.mean(self.best())

    def least_error(self) -> float:
        """Of all that were measured; zero if there is none."""
        return min(map(self.mean, self._errors.errors), default=0.0)

    def best_network(self) -> str | None:
        """The best of those that are trained by iterations."""
        names = [name for name, each in self.tried.items() if kind_of_branch(each.branch) in _NETWORKS]
        return self._errors.least(names, self._errors.first) if names else None

    def ranked(self, prefix: str) -> list[AbstractInputs]:
        """The encoders of the candidates with this prefix, the best first."""
        names = [name for name in self.tried if name.startswith(prefix) and name.count(",") == 1]
        return [self.tried[name].inputs for name in sorted(names, key=self.mean)]

    # -- results

    def hand_over(self) -> None:
        """Report the best so far, if it is clearly better than what was reported before."""
        if not self.tried or not self._measured or not self.best_error() < _CLEARLY * self._handed_over:
            return
        self._handed_over = self.best_error()
        if self._on_better is not None:
            self._on_better(self.chosen())
        baselines = ", ".join(
            f"{name} {self.mean(name):.1e}" for name in BASELINES.values() if name in self._errors.errors
        )
        left = f"; {self._clock.left:.0f} s left" if self._clock.minutes is not None else ""
        self._reporter.say(f"best so far: {self.best()}, {self._handed_over:.1e} ({baselines}){left}")

    def chosen(self) -> Chosen:
        """The best candidate as a method, with its error on samples that did not choose it."""
        name = self.best()
        candidate = self.tried[name]
        error = self._errors.validation_error(name, list(self.tried)) if self._measured else None
        baseline = [
            Baseline(kind, min(map(self.mean, names)), sum(map(self._seconds.__getitem__, names)))
            for kind, key in BASELINES.items()
            if (names := [each for each in self._errors.errors if each == key or each.startswith(f"{key}, ")])
        ]
        means = {each: self.mean(each) for each in self._errors.errors}
        choice = Choice(name, means, self.best_network(), self._settings, baseline)
        held_out = (lambda: self._held_out(candidate)) if self._measured else None
        return Chosen(self.method_of(candidate, error), choice, error, held_out)

    def _held_out(self, candidate: Candidate) -> HeldOut:
        is_complete = candidate.is_closed_form and isinstance(self._trials, Folds)
        rows = self._errors.left_out if is_complete else self._errors.second
        predictions = self._trials.predictions(candidate, self._parts(candidate))
        return HeldOut(self._data.outputs[rows], predictions[rows])

    def method_of(self, candidate: Candidate, error: float | None) -> AbstractMethod:
        """The method with a candidate filled in, and as many modes as its error asks for."""
        changes: dict[str, Any] = {"inputs": candidate.inputs, "weights": candidate.weights}
        if not isinstance(self._method, TwoStep):
            return dc.replace(self._method, **changes)
        method = dc.replace(self._method, branch=candidate.branch, **changes)
        method = dc.replace(method, trunk=candidate.trunk or method.trunk)
        return self.with_modes(method, error or 0.0, candidate.modes)

    def with_modes(self, method: TwoStep, error: float, count: int | None = None) -> TwoStep:
        """The method with this number of modes, or as many as an error asks for, if their number is open."""
        trunk, data = method.trunk, self._data
        if not isinstance(trunk, ModesTrunk) or trunk.width is not None or not isinstance(data, OperatorData):
            return method
        width = count or suitable_modes(method, data, _MODES_SHARE * error)
        return dc.replace(method, trunk=dc.replace(trunk, width=width))


def suitable_modes(method: TwoStep, data: OperatorData, allowed: float) -> int:
    """The fewest modes that leave out at most the relative error `allowed`."""
    output = method.output.fit(data)
    weights = channel_weights(data, is_relative(method, output))
    squares = principal_modes(make_fields(data, Identity(), output, weights)).sizes ** 2
    tails = np.cumsum(squares[::-1])[::-1]
    return max(1, int((np.sqrt(tails / tails[0]) > allowed).sum()))
