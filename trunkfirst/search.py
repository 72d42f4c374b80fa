"""The search for what a method leaves open: closed forms first, then what is trained by iterations."""

import dataclasses as dc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .candidates import (
    Candidate,
    anisotropic_encodings,
    coordinate_candidates,
    encoding_candidates,
    kernel_encodings,
    kind_of_branch,
    special_branches,
    with_decays,
    with_iterations,
    with_weights,
)
from .checkpoints import remember_number
from .chosen import Chosen, branch_of
from .clock import Clock
from .data.fixed_functions import fixed_functions
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData, ScatteredData
from .inputs import AbstractInputs, AutoInputs, RawInputs, StandardisedInputs
from .leaderboard import Leaderboard, Trials
from .method import AbstractMethod
from .moving_trunk import MovingTrunk, moving_inputs
from .network_trunk import NetworkTrunk
from .progress import Reporter
from .records import BASELINES
from .regressors.base import AbstractRegressor
from .regressors.fourier import FourierBranch
from .regressors.input_grid import find_grid
from .regressors.network import AutoBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .sizing import (
    MIN_ITERATIONS,
    TRUNK_SHARE,
    fourier_within,
    samples_within,
    seconds_of_branch,
    with_sizes,
    within_minutes,
)
from .trials import Folds
from .trunks import AbstractTrunk, ModesTrunk, has_modes
from .two_step import TwoStep

# Networks are tried with the best encoders; the longer trials are for decays.
_BEST_ENCODERS, _LONGER = 2, 2.5
# At the first error nothing does better, at the second nothing that is trained by iterations. If the errors with
# and without a sample in training have this ratio, what is left is noise.
_ROUNDING, _ACCURATE, _NOISE, _AS_GOOD = 1e-12, 1e-6, 0.7, 1.03
# A trial of a network takes at most this share of the time left, the training in the end that one.
_TRIAL_SHARE, _WHOLE_SHARE, _IMAGES_SHARE = 0.06, 0.2, 0.1
_FOURIER_SHARE, _MOST_FOURIER_SECONDS, _FEWEST_FOURIER_SAMPLES = 0.3, 300.0, 100
# Below this share of the error of others, the samples that Fourier layers are fitted to are fitted too well.
_FITTED = 0.5
_MIN_TRIAL, _MIN_SECONDS, _MIN_TRUNK_SECONDS = 20, 20.0, 60.0
# A moving trunk is trained for this share of the time left, and as long again on all samples.
_MOVING_SHARE, _MAX_MOVING_SECONDS = 0.3, 600.0
# The trunk is the limit where the best coefficients still have this share of the error.
_TRUNK_LIMITS = 0.5
RIDGE, KERNEL_RIDGE = BASELINES.values()


class Search:
    """What is tried, in which order, and when it ends."""

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
        all_samples: int | None = None,
    ) -> None:
        self._method, self._trials, self._clock = method, trials, clock
        self._reporter, self._measured, self._is_trunk_open = reporter, measured, is_trunk_open
        self._branch, self._data = branch_of(method), trials.data
        self._is_auto = isinstance(self._branch, AutoBranch)
        self._has_modes = isinstance(method, TwoStep) and isinstance(method.trunk, ModesTrunk)
        weights = ("relative", "none") if method.weights == "auto" else (method.weights,)
        self._weights, *self._other_weights = weights
        self._board = Leaderboard(
            method, trials, clock, reporter, measured=measured, on_better=on_better, all_samples=all_samples
        )

    def run(self) -> Chosen:
        """Closed forms, then what is trained by iterations, as long as it can pay."""
        if self._measured:
            self._reporter.say("comparing on samples that are left out; mean relative errors there:")
            self._baselines()
            self._board.hand_over()
        if self._is_auto:
            self._closed_forms()
            self._images()
            if not self._is_finished():
                self._moving_trunk()
                self._fourier()
                if not isinstance(self._board.tried[self._board.best()].branch, FourierBranch):
                    self._trained()
                    self._network_trunk()
                    self._coordinates()
        else:
            self._encoders_for(self._branch)
            self._trunk_limits()
        self._try_weights()
        self._board.measure_finely(_ACCURATE)
        chosen, name = self._board.chosen(), self._board.best()
        self._reporter.say(f"chosen: {name} ({self._board.mean(name):.2e})")
        if chosen.validation_error is not None:
            self._reporter.say(
                f"error on samples that did not choose: {chosen.validation_error:.2e}{self._board.remark()}"
            )
        return chosen

    def _baselines(self) -> None:
        """Principal components and ridge, which every choice has to beat."""
        if not has_modes(self._data):
            self._reporter.say("no PCA baselines: there are too many points to interpolate modes between them")
            return
        raw, modes = StandardisedInputs(), None if self._has_modes else ModesTrunk()
        branches = {RIDGE: Linear(), KERNEL_RIDGE: self._kernel()}
        baselines = {name: Candidate(raw, branch, "none", modes) for name, branch in branches.items()}
        is_free = isinstance(self._method.inputs, AutoInputs) and self._method.weights == "auto"
        if self._is_auto and is_free and self._has_modes and self._board.width is None:
            self._board.try_first(RIDGE, baselines[RIDGE])
            self._board.try_all(baselines)
        else:
            self._board.measure(baselines)

    def _closed_forms(self) -> None:
        """One length first, then a length for every feature; what was found so far is handed over in between."""
        encoders = self._encoders(kernel_encodings)
        self._board.try_all(self._options(Linear(), encoders[:1]))
        if self._board.best_error() <= _ROUNDING:
            return
        self._board.try_all(self._options(self._kernel(), encoders[:1]))
        self._order_weights(f"kernel, {StandardisedInputs()}")
        self._board.try_all(self._options(self._kernel(), encoders))
        self._smoothness(self._options(self._kernel(), encoders))
        self._board.hand_over()
        if self._board.best_error() <= _ACCURATE:
            return
        ranked = self._board.ranked("kernel, ")
        encodings = self._encoders(lambda data: anisotropic_encodings(data, ranked))
        with_lengths = self._options(self._kernel(lengths="each"), encodings)
        with_lengths |= self._options(self._kernel(lengths="each", linear_factor=True), encodings)
        self._board.try_all(with_lengths)
        self._smoothness(with_lengths)
        self._board.hand_over()

    def _order_weights(self, plain: str) -> None:
        """Weights with which this kernel is better; the others are tried for the best of all."""
        tried = self._board.tried
        can_say = self._other_weights and {KERNEL_RIDGE, plain} <= tried.keys()
        if can_say and self._board.score(KERNEL_RIDGE) < self._board.score(plain):
            self._weights, self._other_weights = tried[KERNEL_RIDGE].weights, [self._weights]
            del tried[plain]

    def _smoothness(self, kernels: Mapping[str, Candidate]) -> None:
        """The best of these kernels rougher, and rougher again if that pays; if it does not, smooth."""
        tried = [name for name in kernels if name in self._board.tried]
        if tried:
            best = min(tried, key=self._board.score)
            self._is_better(best, "1/2" if self._is_better(best, "3/2") else "inf")

    def _is_better(self, name: str, smoothness: str) -> bool:
        base = self._board.tried[name]
        options = self._options(dc.replace(base.branch, smoothness=smoothness), [base.inputs])
        self._board.try_all(options)
        return any(
            each in self._board.tried and self._board.score(each) < self._board.score(name) for each in options
        )

    def _kernel(self, **options: Any) -> Kernel:
        """With as many centres as there is time for, where it is compared on a part of the samples."""
        return Kernel(**options, max_centres=self._board.centres) if self._board.is_part else Kernel(**options)

    def _images(self) -> None:
        """The best closed form, fitted to images of the samples too, where these show symmetries on a grid."""
        best = self._board.tried[self._board.best()]
        grid = find_grid(self._data) if self._has_modes and self._measured else None
        if grid is None or grid.columns is None or not isinstance(self._method, TwoStep):
            return
        if self._board.best_error() <= _ACCURATE or not isinstance(best.branch, Kernel):
            return
        most = samples_within(self._clock.share("images", _IMAGES_SHARE))
        trunk = self._board.with_modes(self._method, self._board.least_error(), best.modes).trunk
        if most > 1.5 * self._data.samples:
            name = f"{self._board.best()}, {most:,} samples and images"
            self._board.try_all({name: dc.replace(best, trunk=trunk, images=most)})
            self._board.hand_over()

    def _is_finished(self) -> bool:
        """Whether nothing that takes longer can pay: the error is at rounding or at the noise of the outputs."""
        best = self._board.best()
        if (error := self._board.mean(best)) <= _ACCURATE:
            self._reporter.say(f"{best} is at {error:.1e}, below what networks reach: done")
            return True
        return isinstance(self._trials, Folds) and self._is_noise("done")

    def _is_noise(self, conclusion: str) -> bool:
        """Whether a kernel as good as any does not predict the samples better that it was fitted to; says so."""
        kernels = [name for name, each in self._board.tried.items() if isinstance(each.branch, Kernel)]
        best = min(kernels, key=self._board.score, default=None)
        if best is None or not self._measured or self._board.score(best) > _AS_GOOD * self._board.best_error():
            return False
        # With all modes: what few of them leave out, as of a shock that moves, is no noise.
        kernel = dc.replace(self._board.tried[best], modes=None)
        with_them = remember_number("noise", lambda: self._trials.training_error(kernel))
        if with_them < _NOISE * self._board.mean(best):
            return False
        self._reporter.say(
            f"{best} has the same error on samples that it was fitted to ({with_them:.1e}): what is left "
            f"is noise of the outputs, or not in the inputs: {conclusion}"
        )
        return True

    def _moving_trunk(self) -> None:
        """Functions that move with the input, where the errors of fixed ones fall like a power of their number."""
        if not (self._is_trunk_open and self._measured and isinstance(self._data, OperatorData)):
            return
        if (grid := find_grid(self._data)) is not None and len(grid.shape) > 1:
            return  # a field is too much for a few numbers
        if not self._clock.allows("moving trunk", _MIN_TRUNK_SECONDS):
            return
        fixed = fixed_functions(self._data)
        if fixed is None or not fixed.features_move:
            return
        self._reporter.say(fixed.in_words())
        minutes = self._clock.share("moving trunk", _MOVING_SHARE, most=_MAX_MOVING_SECONDS) / 60
        base = Candidate(moving_inputs(self._data), self._kernel(), self._weights)
        method = dc.replace(self._board.method_of(base, None), trunk=MovingTrunk())
        method = within_minutes(method, self._data, minutes / TRUNK_SHARE)
        assert isinstance(method, TwoStep)
        self._board.try_all({f"moving trunk, {base.inputs}": dc.replace(base, trunk=method.trunk)})
        self._board.hand_over()

    def _fourier(self) -> None:
        """Fourier layers where the inputs lie on a grid; if they win, the time left goes to their training."""
        is_open = self._has_modes and self._measured and isinstance(self._method.inputs, AutoInputs)
        has_grid = self._data.samples >= _FEWEST_FOURIER_SAMPLES and find_grid(self._data) is not None
        if not (is_open and has_grid and self._clock.allows("fourier", _MIN_TRUNK_SECONDS)):
            return
        seconds = self._clock.share("fourier", _FOURIER_SHARE, most=_MOST_FOURIER_SECONDS)
        branch = fourier_within(FourierBranch(), self._data, seconds)
        if branch is None:
            self._reporter.say(f"Fourier layers would not learn anything in {seconds:.0f} s: not tried")
            return
        self._board.try_all(self._options(branch, [RawInputs()]))
        found = self._board.tried[best := self._board.best()]
        is_timed, error = found.branch == branch and self._clock.minutes is not None, self._board.mean(best)
        if is_timed and remember_number("fitted", lambda: self._trials.training_error(found)) > _FITTED * error:
            self._board.train_longer(best)
        self._board.hand_over()

    def _trained(self) -> None:
        """Networks, with the encoders that were best for kernels; then other decays and special branches."""
        assert isinstance(self._branch, AutoBranch)
        if not self._clock.allows("networks", _MIN_SECONDS):
            return
        if not isinstance(self._trials, Folds) and self._is_noise("another branch would not help"):
            return
        network = self._within_time(self._branch)
        encoders = self._board.ranked("kernel, ")[:_BEST_ENCODERS] or [StandardisedInputs()]
        self._board.try_all(self._options(network, encoders))
        self._board.try_all(special_branches(network, self._data, self._weights))
        best = self._board.best_network()
        if best is not None and kind_of_branch(self._board.tried[best].branch) == "network":
            self._board.try_all(with_decays(best, self._board.tried[best]), _LONGER)
        self._board.last_training = 0.0
        if (best := self._board.best_network()) is not None and best == self._board.best():
            self._lengthen(best, getattr(self._board.tried[best].branch, "iterations", 0))

    def _lengthen(self, name: str, iterations: int) -> None:
        """Train the best with more iterations than in its trial, and with twice as many while that pays."""
        if not self._measured:
            return
        short, candidate = name, self._board.tried[name]
        self._board.tried[name] = with_iterations(candidate, self._board.iterations[name])
        while name == self._board.best() and self._board.allows_iterations(name, iterations):
            name = f"{short}, {iterations:,} iterations"
            self._board.add(name, with_iterations(candidate, iterations))
            if self._clock.minutes is None:
                return
            iterations *= 2

    def _trunk_limits(self) -> bool:
        """Whether the trunk is the limit of the best candidate, which is then said with its share of the error."""
        error = self._board.mean(best := self._board.best())
        if not self._measured or error <= _ACCURATE or not self._clock.allows("error of the trunk"):
            return False
        optimum = remember_number("projection", lambda: self._trials.projection_error(self._board.tried[best]))
        if optimum < _TRUNK_LIMITS * error:
            return False
        self._reporter.say(
            f"the trunk is the limit: with the best coefficients it leaves an error of {optimum:.1e}, "
            f"{optimum / error:.0%} of the whole"
        )
        return True

    def _network_trunk(self) -> None:
        """A network as trunk, where the modes of few samples do not represent new ones.

        At the few points of a scattered sample the best coefficients say little, so that it is always tried there.
        """
        if not (self._trunk_limits() or isinstance(self._data, ScatteredData)):
            return
        is_open = self._is_trunk_open and self._has_modes and self._measured
        if not is_open or not self._clock.allows("network trunk", _MIN_TRUNK_SECONDS):
            return
        minutes = self._clock.share("network trunk", _WHOLE_SHARE) / 60
        base = self._board.tried[best := self._board.best()]
        method = dc.replace(self._method, trunk=NetworkTrunk(), branch=base.branch, inputs=base.inputs)
        method = within_minutes(with_sizes(method, self._data), self._data, minutes / TRUNK_SHARE)
        assert isinstance(method, TwoStep)
        assert isinstance(method.trunk, NetworkTrunk)
        if method.trunk.max_iterations <= MIN_ITERATIONS:
            self._reporter.say("a network trunk would learn little in the time left: not tried")
            return
        trained = dc.replace(base, trunk=method.trunk, coordinates=method.coordinates)
        self._board.try_all({f"{best}, network trunk": trained})

    def _coordinates(self) -> None:
        """Periods and waves that are found in the outputs, for a trunk that is a network."""
        if not self._measured or not isinstance(self._data, OperatorData) or not isinstance(self._method, TwoStep):
            return
        for name, changes in coordinate_candidates(self._method.coordinates, self._data).items():
            best = self._board.best()
            base = self._board.tried[best]
            is_network = isinstance(base.trunk or self._method.trunk, NetworkTrunk)
            # It is trained once more in the end.
            if is_network and self._clock.allows(name, 2 * self._board.longest):
                coordinates = dc.replace(base.coordinates or self._method.coordinates, **changes)
                self._board.try_all({f"{best}, {name}": dc.replace(base, coordinates=coordinates)})

    def _encoders_for(self, branch: AbstractRegressor) -> None:
        """A given branch, with the encoders that are open."""
        encoders: Sequence[AbstractInputs] = self._encoders(encoding_candidates)
        if isinstance(branch, FourierBranch) and isinstance(self._method.inputs, AutoInputs):
            encoders = [RawInputs()]  # it needs the values at the sensors
        encoders = self._promising(branch, encoders)
        self._board.try_all(self._options(branch, encoders))

    def _promising(
        self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs]
    ) -> Sequence[AbstractInputs]:
        """The encoders to train a network with: the best with hidden layers as they are drawn."""
        if not isinstance(branch, NetworkBranch) or len(encoders) <= _BEST_ENCODERS:
            return encoders
        options = self._options(branch, encoders)
        looks = {f"{name}, untrained": with_iterations(each, 0) for name, each in options.items()}
        self._board.measure(looks)
        errors = np.nan_to_num([self._board.score(name) for name in looks], nan=np.inf)
        return [encoders[place] for place in sorted(np.argsort(errors, kind="stable")[:_BEST_ENCODERS])]

    def _try_weights(self) -> None:
        best = self._board.best()
        base = self._board.tried[best]
        if base.weights == self._weights and not isinstance(base.branch, FourierBranch):
            self._board.try_all(with_weights(best, base, self._other_weights))

    def _options(self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs]) -> dict[str, Candidate]:
        """One branch after each encoder, by name, with the kind of branch where it is to be chosen."""
        prefix = f"{kind_of_branch(branch)}, " if self._is_auto else ""
        trunk = self._trunk_for(branch)
        return {f"{prefix}{encoder}": Candidate(encoder, branch, self._weights, trunk) for encoder in encoders}

    def _trunk_for(self, branch: AbstractRegressor) -> AbstractTrunk | None:
        """The trunk that a branch needs to know: Fourier layers, and images, are projected onto it."""
        method = self._method
        if not isinstance(method, TwoStep) or not (isinstance(branch, FourierBranch) or method.images):
            return None
        return self._board.with_modes(method, self._board.least_error()).trunk

    def _encoders(self, candidates: Callable[[AnyData], list[AbstractInputs]]) -> list[AbstractInputs]:
        if not isinstance(self._method.inputs, AutoInputs):
            return [self._method.inputs]
        # A trunk that sees the inputs would have to be trained anew with every encoder.
        sees_inputs = isinstance(self._method, TwoStep) and self._method.trunk.sees_inputs
        return [moving_inputs(self._data)] if sees_inputs else candidates(self._data)

    def _within_time(self, branch: AutoBranch) -> NetworkBranch:
        """Trials, and the whole training, that fit into the time left."""
        seconds, growth = seconds_of_branch(branch, self._data), self._board.growth(branch.network)
        trial = self._clock.share("trial", _TRIAL_SHARE) / seconds
        whole = self._clock.share("whole", _WHOLE_SHARE) / seconds / growth
        self._board.trial_iterations = int(max(_MIN_TRIAL, min(branch.trial_iterations, trial)))
        iterations = int(max(_MIN_TRIAL, min(branch.network.iterations, whole)))
        self._board.last_training = iterations * seconds * growth
        return dc.replace(branch.network, iterations=iterations)
