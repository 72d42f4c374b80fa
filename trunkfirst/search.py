"""The search for what a method leaves open: closed forms first, then what is trained by iterations."""

import dataclasses as dc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from .candidates import (
    anisotropic_encodings,
    branch_of,
    brief,
    encoding_candidates,
    kernel_encodings,
    kind_of_branch,
    settings_of,
    special_branches,
    with_decays,
    with_iterations,
)
from .checkpoints import remember
from .clock import Clock
from .comparison import Comparison
from .data.fixed_functions import fixed_functions
from .data.operator_data import OperatorData
from .data.sample_weights import channel_weights
from .data.scattered_data import AnyData
from .encode import is_relative, make_fields
from .encoders import AbstractInputs, AutoInputs, Identity, RawInputs, StandardisedInputs
from .errors import SolveError
from .intervals import HeldOut
from .method import AbstractMethod
from .modes import ModesTrunk, principal_modes
from .moving_trunk import MovingTrunk, moving_inputs
from .network_trunk import NetworkTrunk
from .progress import Reporter
from .records import BASELINES, Baseline, CandidateSettings, Choice
from .regressors.base import AbstractRegressor
from .regressors.fourier import FourierBranch
from .regressors.input_grid import find_grid
from .regressors.network import AutoBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .sizing import TRUNK_SHARE, fourier_within, seconds_of_branch, with_sizes, within_minutes
from .trials import Candidate, Folds, TrainedTrunk
from .trunks import AbstractTrunk, AutoTrunk
from .two_step import TwoStep

# Networks are tried with the best encoders; the longer trials are for decays.
_BEST_ENCODERS, _LONGER = 2, 2.5
# Among encoders nearly as good as the best, the first in the list: the simplest.
_NEARLY = 1.2
_NETWORKS = ("network", "active-neurons", "fourier")
# Below this error nothing that is trained by iterations does better. If the errors with and without a sample in
# training have this ratio, what is left is noise.
_ACCURATE, _NOISE = 1e-6, 0.7
# A trial of a network takes at most this share of the time left, the training in the end that one.
_TRIAL_SHARE, _WHOLE_SHARE = 0.06, 0.2
_FOURIER_SHARE, _MOST_FOURIER_SECONDS, _FEWEST_FOURIER_SAMPLES = 0.35, 300.0, 100
_MIN_TRIAL, _MIN_SECONDS, _MIN_TRUNK_SECONDS = 20, 20.0, 60.0
# A moving trunk is trained for this share of the time left, and as long again on all samples.
_MOVING_SHARE, _MAX_MOVING_SECONDS = 0.3, 600.0
# The trunk is the limit where the best coefficients still have this share of the error.
_TRUNK_LIMITS = 0.5
# What the modes that are left out may add, as a share of the error.
_MODES_SHARE = 0.02
# An operator is handed over again if it is this much better.
_CLEARLY = 0.9
RIDGE, KERNEL_RIDGE = BASELINES.values()

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


class Search:
    """Candidates that were tried, and the errors of every sample."""

    def __init__(
        self,
        method: AbstractMethod,
        trials: Trials,
        clock: Clock,
        reporter: Reporter,
        *,
        measured: bool,
        is_trunk_open: bool = False,
        on_better: Callable[[Chosen], None] | None = None,
    ) -> None:
        self._method, self._trials, self._clock = method, trials, clock
        self._reporter, self._measured, self._on_better = reporter, measured, on_better
        self._is_trunk_open = is_trunk_open
        self._branch, self._data = branch_of(method), trials.data
        trunk = getattr(method, "trunk", None)
        self._width = trunk.width if isinstance(trunk, ModesTrunk) else None
        self._is_auto = isinstance(self._branch, AutoBranch)
        self._weights, *self._other_weights = (
            ("relative", "none") if method.weights == "auto" else (method.weights,)
        )
        self._tried: dict[str, Candidate] = {}
        tolerance = 1.0 if self._is_auto else _NEARLY
        self._errors = Comparison(trials.parts, trials.data.samples, measured=measured, tolerance=tolerance)
        self._seconds: dict[str, float] = {}
        self._better_modes: dict[str, list[int]] = {}
        self._settings: dict[str, CandidateSettings] = {}
        self._handed_over = np.inf

    # -- stages

    def run(self) -> Chosen:
        """Closed forms, then what is trained by iterations, as long as it can pay."""
        if self._measured:
            self._reporter.say("comparing on samples that are left out; mean relative errors there:")
            self._baselines()
            self._hand_over()
        if self._is_auto:
            self._closed_forms()
            self._fewer_modes()
            if not self._is_finished():
                self._moving_trunk()
                self._fourier()
                if not isinstance(self._tried[self._best()].branch, FourierBranch):
                    self._trained()
                    self._network_trunk()
        else:
            self._encoders_for(self._branch)
            self._fewer_modes()
        self._try_weights()
        chosen = self._chosen()
        name = self._best()
        self._reporter.say(f"chosen: {name} ({self._mean(name):.2e})")
        if chosen.validation_error is not None:
            self._reporter.say(f"error on samples that did not choose: {chosen.validation_error:.2e}")
        return chosen

    def _baselines(self) -> None:
        """Principal components and ridge, which every choice has to beat."""
        if not isinstance(self._trials, Folds):
            return
        raw = StandardisedInputs()
        baselines = {RIDGE: Candidate(raw, Linear(), "none"), KERNEL_RIDGE: Candidate(raw, Kernel(), "none")}
        is_free = isinstance(self._method.inputs, AutoInputs) and self._method.weights == "auto"
        if self._is_auto and is_free and self._width is None:
            self._try(baselines)
            self._fewer_modes()
        else:
            self._measure(baselines)

    def _closed_forms(self) -> None:
        """One length first, then a length for every feature; what was found so far is handed over in between."""
        encoders = self._encoders(kernel_encodings)
        self._try(self._options(Linear(), encoders[:1]))
        self._try(self._options(Kernel(), encoders))
        self._try(self._options(Kernel(smoothness="inf"), self._ranked("kernel, ")[:1]))
        self._hand_over()
        if self._best_error() <= _ACCURATE:
            return
        ranked = self._ranked("kernel, ")
        encodings = self._encoders(lambda data: anisotropic_encodings(data, ranked))
        self._try(self._options(Kernel(lengths="each"), encodings))
        self._try(self._options(Kernel(lengths="each", linear_factor=True), encodings))
        best = self._best()
        if isinstance(kernel := self._tried[best].branch, Kernel) and kernel.lengths == "each":
            smooth = dc.replace(self._tried[best], branch=dc.replace(kernel, smoothness="inf"))
            self._try({f"Gaussian {best}": smooth})
        self._hand_over()

    def _fewer_modes(self) -> None:
        """Modes that hold more noise than signal are left out, where that pays."""
        best = self._best()
        counts = self._better_modes.get(best, [])
        self._try({f"{best}, {count} modes": dc.replace(self._tried[best], modes=count) for count in counts})

    def _is_finished(self) -> bool:
        """Whether nothing that takes longer can pay: the error is at rounding or at the noise of the outputs."""
        best = self._best()
        error = self._mean(best)
        if error <= _ACCURATE:
            self._reporter.say(f"{best} is at {error:.1e}, below what networks reach: done")
            return True
        if isinstance(self._trials, Folds) and isinstance(self._tried[best].branch, Kernel) and self._measured:
            with_them = self._remembered("noise", lambda: self._trials_folds.training_error(self._tried[best]))
            if with_them >= _NOISE * error:
                self._reporter.say(
                    f"{best} has the same error on samples that it was fitted to ({with_them:.1e}): what is left "
                    "is noise of the outputs, or not in the inputs: done"
                )
                return True
        return False

    def _fourier(self) -> None:
        """Fourier layers where the inputs lie on a grid; the training in the end takes as long."""
        method = self._method
        is_open = isinstance(self._trials, Folds) and self._measured and isinstance(method.inputs, AutoInputs)
        has_enough = self._data.samples >= _FEWEST_FOURIER_SAMPLES and find_grid(self._data) is not None
        if not (is_open and has_enough and isinstance(method, TwoStep)):
            return
        if not self._clock.allows("fourier", _MIN_TRUNK_SECONDS):
            return
        seconds = self._clock.share("fourier", _FOURIER_SHARE, most=_MOST_FOURIER_SECONDS)
        branch = fourier_within(FourierBranch(), self._data, seconds)
        if branch is None:
            self._reporter.say(f"Fourier layers would not learn anything in {seconds:.0f} s: not tried")
            return
        self._try(self._options(branch, [RawInputs()]))
        self._hand_over()

    def _trained(self) -> None:
        """Networks, with the encoders that were best for kernels; then other decays and special branches."""
        assert isinstance(self._branch, AutoBranch)
        if not self._clock.allows("networks", _MIN_SECONDS):
            return
        network = self._within_time(self._branch)
        encoders = self._ranked("kernel, ")[:_BEST_ENCODERS] or [StandardisedInputs()]
        self._try(self._options(network, encoders))
        self._try(special_branches(network, self._data, self._weights))
        best = self._best_network()
        if best is not None and kind_of_branch(self._tried[best].branch) == "network":
            self._try(with_decays(best, self._tried[best]), _LONGER)

        if (best := self._best_network()) is not None and best == self._best():
            self._measure({best: self._tried[best]})  # as long as it will be trained in the end

    def _network_trunk(self) -> None:
        """A network as trunk, where the modes of few samples do not represent new ones."""
        if not isinstance(self._trials, Folds) or not self._measured or not isinstance(self._method, TwoStep):
            return
        best = self._best()
        optimum = self._remembered("projection", lambda: float(self._trials_folds.projection_errors().mean()))
        if optimum < _TRUNK_LIMITS * self._mean(best):
            return
        self._reporter.say(
            f"the trunk is the limit: with the best coefficients, modes leave an error of {optimum:.1e}, "
            f"{optimum / self._mean(best):.0%} of the whole"
        )
        if not self._is_trunk_open or not self._clock.allows("network trunk", _MIN_TRUNK_SECONDS):
            return
        minutes = self._clock.share("network trunk", _WHOLE_SHARE) / 60
        base = self._tried[best]
        method = dc.replace(self._method, trunk=NetworkTrunk(), branch=base.branch, inputs=base.inputs)
        method = within_minutes(with_sizes(method, self._data), self._data, minutes / TRUNK_SHARE)
        assert isinstance(method, TwoStep)
        self._try({f"{best}, network trunk": dc.replace(base, trunk=method.trunk)})

    def _moving_trunk(self) -> None:
        """Functions that move with the input, where the errors of fixed ones fall like a power of their number."""
        if not (self._is_trunk_open and self._measured and isinstance(self._data, OperatorData)):
            return
        fixed = fixed_functions(self._data)
        if fixed is None or not fixed.features_move:
            return
        self._reporter.say(fixed.in_words())
        if not self._clock.allows("moving trunk", _MIN_TRUNK_SECONDS):
            return
        minutes = self._clock.share("moving trunk", _MOVING_SHARE, most=_MAX_MOVING_SECONDS) / 60
        base = Candidate(moving_inputs(self._data), Kernel(), self._weights)
        method = dc.replace(self._method_of(base, None), trunk=MovingTrunk())
        method = within_minutes(method, self._data, minutes / TRUNK_SHARE)
        assert isinstance(method, TwoStep)
        self._try({f"moving trunk, {base.inputs}": dc.replace(base, trunk=method.trunk)})
        self._hand_over()

    @property
    def _trials_folds(self) -> Folds:
        assert isinstance(self._trials, Folds)
        return self._trials

    def _within_time(self, branch: AutoBranch) -> NetworkBranch:
        """Trials, and the whole training, that fit into the time left."""
        seconds = seconds_of_branch(branch, self._data)
        trial = self._clock.share("trial", _TRIAL_SHARE) / seconds
        whole = self._clock.share("whole", _WHOLE_SHARE) / seconds
        self._trial_iterations = int(max(_MIN_TRIAL, min(branch.trial_iterations, trial)))
        return dc.replace(branch.network, iterations=int(max(_MIN_TRIAL, min(branch.network.iterations, whole))))

    def _encoders_for(self, branch: AbstractRegressor) -> None:
        """A given branch, with the encoders that are open."""
        encoders: Sequence[AbstractInputs] = self._encoders(encoding_candidates)
        if isinstance(branch, FourierBranch) and isinstance(self._method.inputs, AutoInputs):
            encoders = [RawInputs()]  # it needs the values at the sensors
        encoders = self._promising(branch, encoders)
        self._try(self._options(branch, encoders))

    def _promising(
        self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs]
    ) -> Sequence[AbstractInputs]:
        """The encoders to train a network with: the best with hidden layers as they are drawn."""
        if not isinstance(branch, NetworkBranch) or len(encoders) <= _BEST_ENCODERS:
            return encoders
        options = self._options(branch, encoders)
        looks = {f"{name}, untrained": with_iterations(each, 0) for name, each in options.items()}
        self._measure(looks)
        errors = np.nan_to_num([self._mean(name) for name in looks], nan=np.inf)
        return [encoders[place] for place in sorted(np.argsort(errors, kind="stable")[:_BEST_ENCODERS])]

    def _try_weights(self) -> None:
        best = self._best()
        is_long = isinstance(self._tried[best].branch, FourierBranch)
        if self._tried[best].weights == self._weights and not is_long:
            others = {
                f"{best}, weights {w}": dc.replace(self._tried[best], weights=w) for w in self._other_weights
            }
            self._try(others)

    # -- trying

    _trial_iterations = 80

    def _options(self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs]) -> dict[str, Candidate]:
        """One branch after each encoder, by name, with the kind of branch where it is to be chosen."""
        prefix = f"{kind_of_branch(branch)}, " if self._is_auto else ""
        trunk = self._trunk_for(branch)
        return {f"{prefix}{encoder}": Candidate(encoder, branch, self._weights, trunk) for encoder in encoders}

    def _trunk_for(self, branch: AbstractRegressor) -> AbstractTrunk | None:
        """The trunk that a branch needs to know: Fourier layers are projected onto it."""
        if not isinstance(branch, FourierBranch) or not isinstance(self._method, TwoStep):
            return None
        errors = [self._mean(name) for name in self._errors.errors]
        return self._with_modes(self._method, min(errors, default=0.0)).trunk

    def _encoders(self, candidates: Callable[[AnyData], list[AbstractInputs]]) -> list[AbstractInputs]:
        if not isinstance(self._method.inputs, AutoInputs):
            return [self._method.inputs]
        # A trunk that sees the inputs would have to be trained anew with every encoder.
        sees_inputs = isinstance(self._method, TwoStep) and self._method.trunk.sees_inputs
        return [moving_inputs(self._data)] if sees_inputs else candidates(self._data)

    def _try(self, options: Mapping[str, Candidate], longer: float = 1.0) -> None:
        most = int(longer * self._trial_iterations)
        for name, given in options.items():
            candidate = self._with_best_modes(given)
            # The first is always tried, so that there is something to choose.
            if name not in self._tried and (
                not self._tried or self._clock.allows(name, self._expected(candidate))
            ):
                self._measure({name: brief(candidate, most, is_auto=self._is_auto)})
                self._tried[name] = candidate

    def _with_best_modes(self, candidate: Candidate) -> Candidate:
        """With as many modes as are asked for, or as the best candidate has."""
        modes = self._tried[self._best()].modes if self._tried else self._width
        return candidate if candidate.modes or candidate.trunk else dc.replace(candidate, modes=modes)

    def _expected(self, candidate: Candidate) -> float:
        """Seconds of the last candidate of the same kind."""
        kind = kind_of_branch(candidate.branch)
        same = [self._seconds[n] for n, each in self._tried.items() if kind_of_branch(each.branch) == kind]
        return same[-1] if same else 0.0

    def _measure(self, candidates: Mapping[str, Candidate]) -> None:
        for name, candidate in candidates.items():
            self._settings[name] = settings_of(candidate)
            found = self._measured_errors(name, candidate)
            self._errors.errors[name], self._seconds[name] = found["errors"], float(found["seconds"][0])
            self._better_modes[name] = found["better modes"].tolist()
            self._reporter.say(f"  {name}: {self._mean(name):.2e}")

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

    def _remembered(self, name: str, compute: Callable[[], float]) -> float:
        return float(remember(name, lambda: {"value": np.array([compute()])})["value"][0])

    # -- comparing

    def _mean(self, name: str) -> float:
        return self._errors.mean(name)

    def _best(self) -> str:
        return self._errors.best(list(self._tried))

    def _best_error(self) -> float:
        return self._mean(self._best())

    def _best_network(self) -> str | None:
        names = [name for name, each in self._tried.items() if kind_of_branch(each.branch) in _NETWORKS]
        return self._errors.least(names, self._errors.first) if names else None

    def _ranked(self, prefix: str) -> list[AbstractInputs]:
        names = [name for name in self._tried if name.startswith(prefix) and name.count(",") == 1]
        return [self._tried[name].inputs for name in sorted(names, key=self._mean)]

    # -- results

    def _hand_over(self) -> None:
        """Report the best so far, if it is clearly better than what was reported before."""
        if not self._tried or not self._measured or not self._best_error() < _CLEARLY * self._handed_over:
            return
        self._handed_over = self._best_error()
        if self._on_better is not None:
            self._on_better(self._chosen())
        baselines = ", ".join(
            f"{name} {self._mean(name):.1e}" for name in (RIDGE, KERNEL_RIDGE) if name in self._errors.errors
        )
        left = f"; {self._clock.left:.0f} s left" if self._clock.minutes is not None else ""
        self._reporter.say(f"best so far: {self._best()}, {self._handed_over:.1e} ({baselines}){left}")

    def _chosen(self) -> Chosen:
        name = self._best()
        candidate = self._tried[name]
        error = self._errors.validation_error(name, list(self._tried)) if self._measured else None
        baseline = [
            Baseline(kind, min(map(self._mean, names)), sum(map(self._seconds.__getitem__, names)))
            for kind, key in BASELINES.items()
            if (names := [each for each in self._errors.errors if each == key or each.startswith(f"{key}, ")])
        ]
        means = {each: self._mean(each) for each in self._errors.errors}
        choice = Choice(name, means, self._best_network(), self._settings, baseline)
        held_out = (lambda: self._held_out(candidate)) if self._measured else None
        return Chosen(self._method_of(candidate, error), choice, error, held_out)

    def _held_out(self, candidate: Candidate) -> HeldOut:
        is_complete = candidate.is_closed_form and isinstance(self._trials, Folds)
        rows = slice(None) if is_complete else self._errors.second
        predictions = self._trials.predictions(candidate, self._parts(candidate))
        return HeldOut(self._data.outputs[rows], predictions[rows])

    def _method_of(self, candidate: Candidate, error: float | None) -> AbstractMethod:
        """The method with a candidate filled in, and as many modes as its error asks for."""
        changes: dict[str, Any] = {"inputs": candidate.inputs, "weights": candidate.weights}
        if not isinstance(self._method, TwoStep):
            return dc.replace(self._method, **changes)
        method = dc.replace(self._method, branch=candidate.branch, **changes)
        method = dc.replace(method, trunk=candidate.trunk or method.trunk)
        return self._with_modes(method, error or 0.0, candidate.modes)

    def _with_modes(self, method: TwoStep, error: float, count: int | None = None) -> TwoStep:
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
