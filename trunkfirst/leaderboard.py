"""Candidates that were tried, how they compare, and the method that the best of them makes."""

import dataclasses as dc
import functools as ft
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from .candidates import FOLDS, MAX_SAMPLES, Candidate, brief, kind_of_branch, settings_of, with_iterations
from .checkpoints import remember, remember_number
from .chosen import Chosen, branch_of
from .clock import Clock
from .comparison import Comparison, Errors, Mask, smallness
from .distributed.processes import broadcast_value
from .errors import SolveError
from .inputs import AbstractInputs
from .intervals import HeldOut
from .method import AbstractMethod
from .progress import Reporter
from .records import BASELINES, Baseline, CandidateSettings, Choice
from .regressors.base import AbstractRegressor
from .regressors.network import AutoBranch, NetworkBranch
from .regressors.ridge import Kernel
from .sizing import seconds_of_kernel
from .trials import Folds, TrainedTrunk
from .trunks import ModesTrunk
from .two_step import TwoStep

# Among encoders nearly as good as the best, the first in the list: the simplest.
_NEARLY = 1.2
_NETWORKS = ("network", "active-neurons", "fourier")
# What the modes that are left out may add, as a share of the error.
_MODES_SHARE = 0.02
# Up to this number of samples the winner is measured once more, with this number of parts.
_FEW_SAMPLES, _FINE_PARTS = 500, 20
# A choice that was compared on one part is measured on the others too if fewer samples would measure it.
_MANY_MEASURING = 100
_BASELINES = tuple(BASELINES.values())
# Samples, at most a hundredth, with this share of all errors are named.
_MOSTLY = 0.5
# An operator is handed over again if it is this much better.
_CLEARLY = 0.9
# A kernel has this many times the samples of a comparison as centres in the end.
_MORE_CENTRES = 2
# Seconds of what comes after the last training; what of the rest it may use; times the iterations of its trial.
_LAST_SECONDS, _REST, _LONGER = 5.0, 0.9, 4.0

Trials: TypeAlias = Folds | TrainedTrunk


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
        all_samples: int | None = None,
    ) -> None:
        self._method, self._trials, self._data = method, trials, trials.data
        self._all_samples = all_samples or trials.data.samples
        self.centres = min(self._all_samples, _MORE_CENTRES * trials.data.samples, MAX_SAMPLES)
        """The most centres of a kernel in the end, where it takes about as long as a comparison of two."""
        self._clock, self._reporter, self._measured, self._on_better = clock, reporter, measured, on_better
        self._is_auto = isinstance(branch_of(method), AutoBranch)
        trunk = getattr(method, "trunk", None)
        self.width = trunk.width if isinstance(trunk, ModesTrunk) else None
        self.tried: dict[str, Candidate] = {}
        self.trial_iterations = 80
        near, small, count = 1.0 if self._is_auto else _NEARLY, smallness(trials.data), trials.data.samples
        self._errors = Comparison(trials.parts, count, measured=measured, tolerance=near, smallness=small)
        self._seconds: dict[str, float] = {}
        self.iterations: dict[str, int] = {}
        self._in_the_end: dict[str, Candidate] = {}
        self._modes: dict[str, dict[int, float]] = {}
        self._enough: dict[str, int] = {}
        self._measured_as: dict[str, Candidate] = {}
        self._finely: dict[str, tuple[Folds, float]] = {}
        self._later: dict[str, Errors] = {}
        self._settings: dict[str, CandidateSettings] = {}
        self._handed_over, self._handing_over = np.inf, 0.0
        self._methods: dict[str, AbstractMethod] = {}
        self.last_training = 0.0
        """Seconds that the training in the end may take, where that of the best does not say."""

    @property
    def is_part(self) -> bool:
        """Whether candidates are compared on a part of the samples."""
        return self._all_samples > self._data.samples

    # -- trying

    def try_all(self, options: Mapping[str, Candidate], longer: float = 1.0) -> None:
        """Measure what was not tried yet, as long as there is time; `longer` multiplies the iterations."""
        most = int(longer * self.trial_iterations)
        for name, given in options.items():
            candidate = self._with_best_modes(given)
            # The first is always tried, so that there is something to choose.
            expected = longer * self._expected(candidate)
            if candidate.is_closed_form and self.tried:  # to be trained in the end instead of the best so far
                later = _LAST_SECONDS + self._training_seconds(candidate, expected) - self._last_seconds()
                expected += max(later, 0.0)
            if name not in self.tried and (not self.tried or self._clock.allows(name, expected)):
                self.add(name, candidate, brief(candidate, most, is_auto=self._is_auto))
                better = [count for count, error in self._modes[name].items() if error < self.best_error()]
                self.try_all({f"{name}, {count} modes": dc.replace(candidate, modes=count) for count in better})

    def add(self, name: str, candidate: Candidate, trial: Candidate | None = None) -> None:
        """Measure a candidate, or a shorter trial of it, and let it be chosen."""
        self.measure({name: trial or candidate})
        self.tried[name], self.iterations[name] = candidate, getattr((trial or candidate).branch, "iterations", 1)
        self._clock.keep(self._last_seconds())

    def allows_iterations(self, name: str, iterations: int) -> bool:
        """Whether there is time for this number of iterations, now and in the end."""
        self._clock.keep(_LAST_SECONDS)
        seconds = self._seconds[name] * iterations / self.iterations[name]
        twice = (1 + self.growth(self.tried[name].branch)) * seconds
        is_allowed = self._clock.allows(f"{name}, {iterations} iterations", twice)
        self._clock.keep(self._last_seconds())
        return is_allowed

    def train_longer(self, name: str) -> None:
        """Use the time left for the training in the end, if it is longer than the trial."""
        self._clock.keep(_LAST_SECONDS)
        self.last_training = self._clock.share(f"training, {name}", _REST)
        ratio = remember_number("longer", lambda: broadcast_value(self.last_training / self._seconds[name]))
        longer = int(self.iterations[name] * np.clip(ratio, 1.0, _LONGER))
        self._in_the_end[name] = with_iterations(self.tried[name], longer)
        self._clock.keep(self._last_seconds())

    def try_first(self, name: str, candidate: Candidate) -> None:
        """Hand over an operator at once: measured on the first part alone, for now."""
        self.measure({name: candidate}, [0])
        self.tried[name] = candidate
        self.hand_over()
        del self.tried[name]
        self._methods.clear()  # how many modes it needs is not known yet

    def _with_best_modes(self, candidate: Candidate) -> Candidate:
        """With as many modes as are asked for; what is trained by iterations with as many as the best has."""
        modes = self.width if candidate.is_closed_form or not self.tried else self.tried[self.best()].modes
        return candidate if candidate.modes or candidate.trunk else dc.replace(candidate, modes=modes)

    def _expected(self, candidate: Candidate) -> float:
        """Seconds of the last candidate of the same kind; of a new kind of kernel twice the most of any kernel."""
        kind, tried = kind_of_branch(candidate.branch), self.tried.items()
        same = [self._seconds[name] for name, each in tried if kind_of_branch(each.branch) == kind]
        if same or not isinstance(candidate.branch, Kernel) or self._clock.minutes is None:
            return same[-1] if same else 0.0
        kernels = [self._seconds[name] for name, each in tried if isinstance(each.branch, Kernel)]
        return 2 * max(kernels) if kernels else seconds_of_kernel(self._data.samples)

    def _last_seconds(self) -> float:
        """Seconds of what follows in the end, if the best so far is chosen."""
        name = self.best()
        training = self._training_seconds(self.tried[name], self._seconds[name], self.iterations.get(name, 1))
        return _LAST_SECONDS + max(training, self.last_training)

    def _training_seconds(self, candidate: Candidate, trial: float, iterations: int = 1) -> float:
        """Seconds of training a candidate on all samples, if its trial with these iterations takes `trial`."""
        if str(candidate) in self._methods:
            return 0.0
        branch = candidate.branch
        if candidate.is_closed_form:
            more = self.centres / self._data.samples / (1 - 1 / FOLDS) if isinstance(branch, Kernel) else 1.0
            return self._handing_over + trial * more**3 / FOLDS
        return trial * max(getattr(branch, "iterations", 1) / max(iterations, 1), 1.0) * self.growth(branch)

    def growth(self, branch: AbstractRegressor) -> float:
        """How much longer the training of a branch takes on all samples; that in batches does not."""
        most = branch.max_samples if isinstance(branch, NetworkBranch) else 0
        return max(min(self._all_samples, most) / self._data.samples, 1.0)

    def measure(self, candidates: Mapping[str, Candidate], parts: list[int] | None = None) -> None:
        """Measure candidates that are not to be chosen, or one again; on these parts, if given."""
        for name, candidate in candidates.items():
            self._settings[name], self._measured_as[name] = settings_of(candidate), candidate
            found = self._measured_errors(name, candidate, parts or self._parts(candidate))
            self._errors.errors[name], self._seconds[name] = found["errors"], float(found["seconds"][0])
            self._modes[name] = dict(zip(found["modes"].tolist(), found["errors with them"].tolist(), strict=True))
            if found["enough modes"].size:
                self._enough[str(candidate)] = int(found["enough modes"][0])
            if parts is None:
                self._reporter.say(f"  {name}: {self.mean(name):.2e}")

    def _measured_errors(
        self, name: str, candidate: Candidate, parts: list[int] | None
    ) -> Mapping[str, np.ndarray]:
        def compute() -> dict[str, np.ndarray]:
            begin = time.perf_counter()
            try:
                errors = self._trials.errors(candidate, parts)
            except (SolveError, np.linalg.LinAlgError):
                errors = np.full(self._data.samples, np.inf)
            modes, enough = self._trials.better_modes(candidate), self._trials.enough_modes(candidate)
            return {
                "errors": errors,
                "seconds": np.array([time.perf_counter() - begin]),
                "modes": np.array([*modes], int),
                "errors with them": np.array([*modes.values()]),
                "enough modes": np.array([] if enough is None else [enough], int),
            }

        # What is trained by iterations has checkpoints of its own; a resumed search needs what it found.
        unit = f"candidate {name}" if parts is None else f"candidate {name}, parts {parts}"
        return remember(unit, compute) if self._trials.is_complete(candidate) else compute()

    def measure_finely(self, enough: float) -> None:
        """The best closed form, and the baselines, with more parts, where the error is not small `enough`.

        Where errors fall fast with the number of samples, those without a fifth of them are much larger.
        """
        best = self.best()
        if self.mean(best) <= enough:
            return
        if self._measured and not self._errors.is_complete(best):
            self._measure_others(best)
        if not (self._measured and isinstance(self._trials, Folds) and self._errors.is_complete(best)):
            return
        if self._data.samples > _FEW_SAMPLES or (finer := self._trials.with_parts(_FINE_PARTS)) is None:
            return
        names = dict.fromkeys([best, *(name for name in self._seconds if name.startswith(_BASELINES))])
        seconds = sum(map(self._seconds.__getitem__, names)) * _FINE_PARTS / FOLDS / (1 - 1 / FOLDS) ** 2
        if self._clock.allows("more parts", seconds):
            for name in names:
                compute = ft.partial(finer.errors, self._measured_as[name])
                errors = remember(f"more parts, {name}", lambda: {"errors": compute()})["errors"]  # noqa: B023
                self._finely[name] = finer, float(np.nanmean(errors))

    def _measure_others(self, name: str) -> None:
        """The winner on the other parts too, where few samples of the first one measure it."""
        others, candidate = list(range(1, len(self._trials.parts))), self.tried[name]
        if not others or self._errors.measuring(list(self.tried)).sum() >= _MANY_MEASURING:
            return
        longer = getattr(candidate.branch, "iterations", 1) / max(self.iterations[name], 1)
        if self._clock.allows("other parts", len(others) * longer * self._seconds[name]):
            errors = self._trials.errors(candidate, others)
            self._later[name] = np.where(np.isnan(errors), self._errors.errors[name], errors)

    def _measuring(self, name: str) -> Mask:
        """The samples that measure a choice that was compared on the first part."""
        rows = self._errors.measuring(list(self.tried))
        return rows | ~(np.isnan(self._later[name]) | self._errors.first) if name in self._later else rows

    def _parts(self, candidate: Candidate) -> list[int] | None:
        """What is trained by iterations is measured on the first part alone."""
        return [0] if self._measured and not self._trials.is_complete(candidate) else None

    # -- comparing

    def mean(self, name: str) -> float:
        """The mean relative error on the samples that choose."""
        return self._errors.mean(name)

    def score(self, name: str) -> float:
        """What decides: the same, but for small fields."""
        return self._errors.score(name)

    def best(self) -> str:
        """The name of the best candidate."""
        return self._errors.best(list(self.tried))

    def best_error(self) -> float:
        """What decided for it."""
        return self.score(self.best())

    def least_error(self) -> float:
        """Of all that were measured; zero if there is none."""
        return min(map(self.score, self._errors.errors), default=0.0)

    @property
    def longest(self) -> float:
        """The most seconds that a candidate took."""
        return max(self._seconds.values(), default=0.0)

    def best_network(self) -> str | None:
        """The best of those that are trained by iterations."""
        names = [name for name, each in self.tried.items() if kind_of_branch(each.branch) in _NETWORKS]
        return self._errors.least(names, self._errors.first) if names else None

    def ranked(self, prefix: str) -> list[AbstractInputs]:
        """The encoders of the candidates with this prefix, the best first."""
        names = [name for name in self.tried if name.startswith(prefix) and name.count(", ") == 1]
        return [self.tried[name].inputs for name in sorted(names, key=self.score)]

    # -- results

    def hand_over(self) -> None:
        """Report the best so far, if it is clearly better than what was reported before."""
        if not self.tried or not self._measured or not self.best_error() < _CLEARLY * self._handed_over:
            return
        if np.isfinite(self._handed_over) and not self._clock.allows(
            f"handing over {self.best()}", self._handing_over
        ):
            return
        self._handed_over, begin, found = self.best_error(), time.perf_counter(), self.chosen()
        self._methods[str(self.tried[self.best()])] = found.method
        if self._on_better is not None:
            self._on_better(found)
        self._handing_over = time.perf_counter() - begin
        self._clock.keep(self._last_seconds())
        baselines = ", ".join(
            f"{name} {self.mean(name):.1e}" for name in BASELINES.values() if name in self._errors.errors
        )
        left = f"; {max(self._clock.left, 0):.0f} s left" if self._clock.minutes is not None else ""
        self._reporter.say(f"best so far: {self.best()}, {self.mean(self.best()):.1e} ({baselines}){left}")

    def chosen(self) -> Chosen:
        """The best candidate as a method, with its error on samples that did not choose it."""
        name = self.best()
        candidate = self.tried[name]
        error = self._validation_error(name) if self._measured else None
        baseline = [
            Baseline(kind, min(map(self._baseline_error, names)), sum(map(self._seconds.__getitem__, names)))
            for kind, key in BASELINES.items()
            if (names := [each for each in self._errors.errors if each == key or each.startswith(f"{key}, ")])
        ]
        means = {each: self.mean(each) for each in self._errors.errors}
        choice = Choice(name, means, self.best_network(), self._settings, baseline)
        # What was handed over is not trained again for another number of modes.
        method = self._methods.get(str(candidate)) or self.method_of(self._in_the_end.get(name, candidate), error)
        held_out = (lambda: self._held_out(name, method)) if self._measured else None
        return Chosen(method, choice, error, held_out)

    def _validation_error(self, name: str) -> float:
        """With the share that choosing adds, where the winner was measured once more with more parts."""
        if name in self._later:
            return float(np.mean(self._later[name][self._measuring(name)]))
        error = self._errors.validation_error(name, list(self.tried))
        return error * self._finely[name][1] / self.mean(name) if name in self._finely else error

    def remark(self) -> str:
        """What to know of the error of the best: whether it is mostly that of a few samples."""
        errors = self._errors.errors[self.best()]
        order = np.argsort(np.where(np.isnan(errors), -1.0, errors))[::-1]
        order = order[: int(np.sum(~np.isnan(errors)))]
        few, rest = np.split(order, [max(len(order) // 100, 1)])
        if len(rest) == 0 or errors[few].sum() < _MOSTLY * errors[order].sum():
            return ""
        named = ", ".join(map(str, few[:3])) + ", ..." * (len(few) > 3)
        return f"; it is mostly that of training samples {named}: about {errors[rest].mean():.1e} without them"

    def _baseline_error(self, name: str) -> float:
        """As the winner is measured: with more parts, or on one part where only that was left out."""
        if name in self._finely:
            return self._finely[name][1]
        best = self.best()
        rows = None if self._errors.is_complete(best) else self._measuring(best)
        return self._errors.mean(name, rows)

    def _held_out(self, name: str, method: AbstractMethod) -> HeldOut:
        """Predictions with as many modes as the operator has: more would have smaller errors at some points."""
        candidate, trunk = self.tried[name], getattr(method, "trunk", None)
        modes = trunk.width if isinstance(trunk, ModesTrunk) else None
        if name in self._finely:
            predictions = self._finely[name][0].predictions(candidate, modes=modes)
            return HeldOut(self._data.take(self._errors.left_out), predictions[self._errors.left_out])
        is_complete = self._trials.is_complete(candidate)
        rows = self._errors.left_out if is_complete else self._measuring(name)
        parts = None if name in self._later else self._parts(candidate)
        predictions = self._trials.predictions(candidate, parts, modes)
        return HeldOut(self._data.take(rows), predictions[rows])

    def method_of(self, candidate: Candidate, error: float | None) -> AbstractMethod:
        """The method with a candidate filled in, and as many modes as its error asks for."""
        changes: dict[str, Any] = {"inputs": candidate.inputs, "weights": candidate.weights}
        if not isinstance(self._method, TwoStep):
            return dc.replace(self._method, **changes)
        method = dc.replace(
            self._method, branch=candidate.branch, images=candidate.images or self._method.images, **changes
        )
        method = dc.replace(
            method, trunk=candidate.trunk or method.trunk, coordinates=candidate.coordinates or method.coordinates
        )
        return self.with_modes(method, error or 0.0, candidate.modes or self._enough.get(str(candidate)))

    def with_modes(self, method: TwoStep, error: float, count: int | None = None) -> TwoStep:
        """The method with this number of modes, or as many as an error asks for, if their number is open."""
        trunk, trials = method.trunk, self._trials
        if not isinstance(trunk, ModesTrunk) or trunk.width is not None or not isinstance(trials, Folds):
            return method
        sizes = trials.mode_sizes(method.weights)
        width = min(count, len(sizes)) if count else suitable_modes(sizes, _MODES_SHARE * error)
        return dc.replace(method, trunk=dc.replace(trunk, width=width))


def suitable_modes(sizes: Float[np.ndarray, " modes"], allowed: float) -> int:
    """The fewest modes that leave out at most the relative error `allowed`."""
    tails = np.cumsum(sizes[::-1] ** 2)[::-1]
    return max(1, int((np.sqrt(tails) > allowed * np.sqrt(tails[0])).sum()))
