"""Choices that a method leaves open, made on validation samples: encoder, branch, weights."""

import dataclasses as dc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.random as jr
import numpy as np

from .data.operator_data import InputFunction, OperatorData, Split
from .data.scattered_data import AnyData, ScatteredData
from .encode import encode, make_fields
from .encoders import (
    AbstractInputs,
    AutoInputs,
    PerInput,
    PredictiveInputs,
    PrincipalInputs,
    RawInputs,
    StandardisedInputs,
)
from .errors import SettingError
from .fields import TrunkResult
from .method import AbstractMethod, named_key
from .progress import Reporter
from .records import CandidateSettings, Choice
from .regressors.active_neurons import ActiveNeurons
from .regressors.base import AbstractRegressor
from .regressors.network import AutoBranch, JointBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .run_data import RunData
from .trials import CROSS_VALIDATED, FOLDS, Candidate, Trial, aligned_trial, best_of, measure
from .two_step import TwoStep

_MIN_TO_CHOOSE = 10
# Iterations of a network in a comparison; more while its decay is chosen, because overfitting must show.
BRIEF_ITERATIONS = 30
_LONGER = 2.5
_DECAYS = (1e-4, 1e-6, 1e-8)
_MAX_FOR_KERNEL = 4000
# Encoders, best for a kernel or untrained, that networks are tried with.
_BEST_ENCODERS = 2
# Among encoders nearly as good as the best, the first in the list: the simplest.
_NEARLY = 1.2
_MAX_SENSORS = 1000
# Channels of the convolutions and the width of the dense layer after them.
_CONVOLUTION = (16, 32, 128)
_NETWORKS = ("network", "convolution", "active-neurons")


@dc.dataclass(frozen=True)
class Chosen:
    """The method with nothing left open, and how it was chosen."""

    method: AbstractMethod
    choice: Choice | None = None
    trunk_result: TrunkResult | None = None
    """Step 1, where choosing needed it already."""

    def applied_to(self, method: AbstractMethod) -> "Chosen":
        """The same choice for another method."""
        changes: dict[str, Any] = {"inputs": self.method.inputs, "weights": self.method.weights}
        if (
            isinstance(method, TwoStep)
            and isinstance(method.branch, AutoBranch)
            and isinstance(self.method, TwoStep)
        ):
            changes["branch"] = self.method.branch
        return dc.replace(self, method=dc.replace(method, **changes))

    def summary(self) -> dict[str, Any] | None:
        """The part `chosen` of `metrics.json`."""
        if self.choice is None:
            return None
        return {
            "encoder": str(self.method.inputs),
            "branch": _kind(_branch_of(self.method)),
            "weights": self.method.weights,
            "candidate": self.choice.name,
            "validation_errors": dict(self.choice.errors),
            "candidates": {name: dc.asdict(each) for name, each in self.choice.candidates.items()},
            "best_network": self.choice.best_network,
        }


def is_open(method: AbstractMethod) -> bool:
    """Whether something is left to be chosen on validation samples."""
    is_auto = isinstance(method, TwoStep) and isinstance(method.branch, AutoBranch)
    return is_auto or isinstance(method.inputs, AutoInputs) or method.weights == "auto"


def choose(method: AbstractMethod, data: RunData, *, seed: int, reporter: Reporter) -> Chosen:
    """Choose encoder, branch and weights where the method leaves them open."""
    if not is_open(method):
        return Chosen(method)
    if data.all_but_test.samples < _MIN_TO_CHOOSE:
        reporter.say("too few samples to choose on: linear, with standardised inputs")
        return Chosen(_simplest(method))
    if not len(data.split.validation):
        raise SettingError("choosing needs validation samples: set data.validation_share above 0")
    reporter.say("choosing on validation samples; errors there:")
    trials, step1 = _trials(method, data, seed, reporter)
    search = _Search(method, data.data, trials, seed, reporter)
    name, best_network = search.run()
    chosen = search.method_of(name)
    # A step 1 carried out with other weights than those chosen must not be used: config.toml must give it again.
    is_same = _closed_weights(method) == chosen.weights
    choice = Choice(name, search.errors, best_network, search.settings)
    return Chosen(chosen, choice, step1 if is_same else None)


class _Search:
    """Candidates that were tried, and their validation errors."""

    def __init__(
        self, method: AbstractMethod, data: AnyData, trials: list[Trial], seed: int, reporter: Reporter
    ) -> None:
        self._method, self._data, self._trials = method, data, trials
        self._seed, self._reporter = seed, reporter
        self._branch = _branch_of(method)
        self._is_auto = isinstance(self._branch, AutoBranch)
        self._tried: dict[str, Candidate] = {}
        self.errors: dict[str, float] = {}
        self.settings: dict[str, CandidateSettings] = {}

    def run(self) -> tuple[str, str | None]:
        """The name of the best candidate, and that of the best network."""
        first, *other_weights = ("relative", "none") if self._method.weights == "auto" else (self._method.weights,)
        encoders = self._encoders()
        if self._is_auto:
            self._try_branches(encoders, first)
        else:
            encoders = self._promising(self._branch, encoders, first)
            self._try_all(self._options(self._branch, encoders, first))
            if not isinstance(self._branch, NetworkBranch) or self._branch.decay == 0:
                return self._best(tolerance=_NEARLY), None
        best_network = self._best_network()
        if best_network is not None and _kind(self._tried[best_network].branch) == "network":
            self._try_all(self._with_decays(best_network), _LONGER)
            best_network = self._best_network()
        best = self._best()
        self._try_all({f"{best}, weights {w}": dc.replace(self._tried[best], weights=w) for w in other_weights})
        name = self._best()
        self._reporter.say(f"chosen: {name} ({self.errors[name]:.2e})")
        if best_network not in (None, name):
            self._reporter.say(f"best network: {best_network} ({self.errors[str(best_network)]:.2e})")
        return name, best_network

    def method_of(self, name: str) -> AbstractMethod:
        """The method with a candidate filled in."""
        candidate = self._tried[name]
        changes: dict[str, Any] = {"inputs": candidate.inputs, "weights": candidate.weights}
        if isinstance(self._method, TwoStep):
            changes["branch"] = candidate.branch
        return dc.replace(self._method, **changes)

    def _try_branches(self, encoders: Sequence[AbstractInputs], weights: str) -> None:
        """Closed forms first, which are cheap; networks then only with the encoders that were best for them."""
        self._try_all(self._options(Linear(), encoders[:2], weights))
        if self._data.samples <= _MAX_FOR_KERNEL:
            kernels = self._options(Kernel(), encoders, weights)
            self._try_all(kernels)
            ranked = sorted(kernels, key=lambda name: self.errors[name])
            encoders = [kernels[name].inputs for name in ranked[:_BEST_ENCODERS]]
        network = self._network()
        encoders = self._promising(network, encoders, weights)
        self._try_all(self._options(network, encoders, weights))
        self._try_all(self._special(network, weights))

    def _try_all(self, options: Mapping[str, Candidate], longer: float = 1.0) -> None:
        auto = self._branch if isinstance(self._branch, AutoBranch) else AutoBranch()
        most = int(longer * auto.trial_iterations)
        self._measure({name: _brief(each, most, self._is_auto) for name, each in options.items()})
        self._tried |= options

    def _measure(self, candidates: Mapping[str, Candidate]) -> None:
        self.settings |= {name: _settings(each) for name, each in candidates.items()}
        if candidates:
            self.errors |= measure(self._trials, candidates, key=self._seed, on_error=self._say)

    def _promising(
        self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs], weights: str
    ) -> Sequence[AbstractInputs]:
        """The encoders to train a network with: the best with hidden layers as they are drawn."""
        if not isinstance(branch, NetworkBranch) or len(encoders) <= _BEST_ENCODERS:
            return encoders
        options = self._options(branch, encoders, weights)
        looks = {f"{name}, untrained": _with_iterations(each, 0) for name, each in options.items()}
        self._measure(looks)
        errors = np.nan_to_num([self.errors[name] for name in looks], nan=np.inf)
        return [encoders[place] for place in sorted(np.argsort(errors, kind="stable")[:_BEST_ENCODERS])]

    def _say(self, name: str, error: float) -> None:
        self._reporter.say(f"  {name}: {error:.2e}")

    def _options(
        self, branch: AbstractRegressor, encoders: Sequence[AbstractInputs], weights: str
    ) -> dict[str, Candidate]:
        """One branch after each encoder, by name, with the kind of branch where it is to be chosen."""
        prefix = f"{_kind(branch)}, " if self._is_auto else ""
        return {f"{prefix}{encoder}": Candidate(encoder, branch, weights) for encoder in encoders}

    def _with_decays(self, name: str) -> dict[str, Candidate]:
        base = self._tried[name]
        return {
            f"{name}, decay {decay:.0e}": dc.replace(base, branch=dc.replace(base.branch, decay=decay))
            for decay in _DECAYS
        }

    def _special(self, network: NetworkBranch, weights: str) -> dict[str, Candidate]:
        """Branches for special inputs: convolutions on a grid, active neurons in few coordinates."""
        (function, *others) = self._data.inputs.values()
        options: dict[str, Candidate] = {}
        if not others and function.grid_shape is not None and max(function.grid_shape) > 3:
            branch = dc.replace(network, hidden=_CONVOLUTION, convolution=True)
            options["convolution, standardise"] = Candidate(StandardisedInputs(), branch, weights)
        if self._data.samples <= 2000:
            encoder = PrincipalInputs(2) if self._data.flat_inputs.shape[1] > 8 else StandardisedInputs()
            branch = ActiveNeurons(width=network.hidden[0], iterations=100)
            options[f"active-neurons, {encoder}"] = Candidate(encoder, branch, weights)
        return options

    def _network(self) -> NetworkBranch:
        return self._branch.network if isinstance(self._branch, AutoBranch) else NetworkBranch()

    def _best_network(self) -> str | None:
        names = [name for name, each in self._tried.items() if _kind(each.branch) in _NETWORKS]
        return best_of(self.errors, names) if names else None

    def _best(self, *, tolerance: float = 1.0) -> str:
        return best_of(self.errors, list(self._tried), tolerance)

    def _encoders(self) -> Sequence[AbstractInputs]:
        """Encoders to try; when the branch is open too, those that keep enough of a function."""
        if not isinstance(self._method.inputs, AutoInputs):
            return [self._method.inputs]
        data = self._data
        if not self._is_auto or len(data.inputs) > 1 or data.flat_inputs.shape[1] <= 8:
            return encoding_candidates(data)
        counts = [n for n in (4, 8, 16, 32, 64) if n < min(data.samples, data.flat_inputs.shape[1])]
        return [StandardisedInputs(), *(PrincipalInputs(count) for count in counts)]


def encoding_candidates(data: AnyData) -> list[AbstractInputs]:
    """Encoders to try, simple ones first.

    A few numbers: as they are, or logarithms and powers where they are positive. A function at many sensors:
    principal coordinates, more and more of them, and linear predictions from them. Several functions: the same
    kind for each of them.
    """
    functions = data.inputs
    if len(functions) == 1 or all(f.values.shape[1] == 1 for f in functions.values()):
        found = _for_function(InputFunction(data.flat_inputs))
        return [each for each in found if isinstance(data, OperatorData) or not isinstance(each, PredictiveInputs)]
    lists = {
        name: [each for each in _for_function(f) if not isinstance(each, PredictiveInputs)]
        for name, f in functions.items()
    }
    longest = max(map(len, lists.values()))
    return [PerInput({name: each[min(i, len(each) - 1)] for name, each in lists.items()}) for i in range(longest)]


def _for_function(function: InputFunction) -> list[AbstractInputs]:
    inputs = function.values
    if inputs.shape[1] > 8:
        most = min(len(inputs), inputs.shape[1])
        principal = [PrincipalInputs(n) for n in (1, 4, 16) if n < most]
        predictive = [PredictiveInputs(n) for n in (8, 16) if n < most]
        # At very many sensors a network on all of them is slow, and no better than on their principal coordinates.
        whole = [StandardisedInputs()] if inputs.shape[1] <= _MAX_SENSORS else []
        return [*whole, *principal, *predictive]
    if (inputs > 0).all(axis=0).any():
        return [StandardisedInputs(), *(StandardisedInputs(f) for f in ("log", "inverse", "inverse-root"))]
    return [StandardisedInputs()]


def _kind(branch: AbstractRegressor) -> str:
    is_convolution = isinstance(branch, NetworkBranch) and branch.convolution
    return "convolution" if is_convolution else getattr(branch, "kind", type(branch).__name__)


def _settings(candidate: Candidate) -> CandidateSettings:
    branch = candidate.branch
    is_trained = getattr(branch, "iterations", 1) > 0
    decay = getattr(branch, "decay", 0.0)
    return CandidateSettings(_kind(branch), str(candidate.inputs), candidate.weights, decay, is_trained)


def _branch_of(method: AbstractMethod) -> AbstractRegressor:
    """The branch, or for methods that train both networks at once one of the same architecture."""
    if isinstance(method, TwoStep):
        return method.branch
    whole: Any = method
    network = whole.branch
    architecture = {f.name: getattr(network, f.name) for f in dc.fields(network) if f.name != "stacked"}
    return NetworkBranch(**architecture, iterations=whole.iterations, ridge=1e-5, decay=0.0)


def _brief(candidate: Candidate, most: int, is_auto: bool) -> Candidate:
    """The candidate with a short training, for comparing; where decay acts it takes longer to show."""
    branch = candidate.branch
    if not isinstance(branch, NetworkBranch | JointBranch | ActiveNeurons):
        return candidate
    has_decay = branch.decay > 0 if isinstance(branch, NetworkBranch) else is_auto
    return _with_iterations(candidate, min(branch.iterations, most if has_decay else min(most, BRIEF_ITERATIONS)))


def _with_iterations(candidate: Candidate, iterations: int) -> Candidate:
    return dc.replace(candidate, branch=dc.replace(candidate.branch, iterations=iterations))


# What candidates are tried on


def _trials(
    method: AbstractMethod, data: RunData, seed: int, reporter: Reporter
) -> tuple[list[Trial], TrunkResult | None]:
    """The trials; for scattered data step 1 comes first, and is returned."""
    if isinstance(data.data, ScatteredData):
        trial, step1 = _scattered_trial(method, data, data.data, seed, reporter)
        return [trial], step1
    split = data.split
    rest = np.union1d(split.train, split.validation)
    if not isinstance(_branch_of(method), AutoBranch) or len(rest) >= CROSS_VALIDATED:
        return [_aligned_trial(method, data.data, split)], None
    parts = np.array_split(np.random.default_rng(data.split_seed).permutation(rest), FOLDS)
    splits = [Split(np.setdiff1d(rest, part), np.sort(part), split.test) for part in parts]
    return [_aligned_trial(method, data.data, each) for each in splits], None


def _aligned_trial(method: AbstractMethod, data: OperatorData, split: Split) -> Trial:
    train, validation = data.take(split.train), data.take(split.validation)
    with jax.enable_x64(True):
        ready = encode(train, _closed(method), np.dtype(np.float64))
        fields, others = (make_fields(part, ready.coordinates, ready.output, None) for part in (train, validation))
    return aligned_trial(train, validation, fields, others)


def _scattered_trial(
    method: AbstractMethod, data: RunData, samples: ScatteredData, seed: int, reporter: Reporter
) -> tuple[Trial, TrunkResult]:
    """Coefficients in the basis of a trunk; nothing is chosen about the trunk, so it may see all but the test."""
    split = data.split
    rest = np.union1d(split.train, split.validation)
    closed = _closed(method)
    if not isinstance(closed, TwoStep):
        raise SettingError("samples at points of their own need the two-step method")
    with jax.enable_x64(True):
        ready = encode(samples.take(rest), closed, np.dtype(np.float64))
        key = named_key(jr.key(seed), "trunk")
        step1 = closed.trunk.fit(ready.fields, dtype=ready.dtype, key=key, on_step=reporter.on_step)
        values = ready.fields.basis(step1, closed.orthonormalise).targets.reshape(len(rest), -1)
    train, validation = (values[np.searchsorted(rest, part)] for part in (split.train, split.validation))
    nothing = np.zeros(len(validation))
    sizes = np.linalg.norm(validation, axis=1)
    return Trial(data.train, data.validation, train, validation, nothing, sizes), step1


def _closed(method: AbstractMethod) -> AbstractMethod:
    """The method with placeholders for what is still open."""
    changes: dict[str, Any] = {"inputs": RawInputs(), "weights": _closed_weights(method)}
    if isinstance(method, TwoStep):
        changes["branch"] = Linear()
    return dc.replace(method, **changes)


def _simplest(method: AbstractMethod) -> AbstractMethod:
    """What is open replaced by what needs no choice."""
    changes: dict[str, Any] = {"weights": _closed_weights(method)}
    if isinstance(method.inputs, AutoInputs):
        changes["inputs"] = StandardisedInputs()
    if isinstance(_branch_of(method), AutoBranch):
        changes["branch"] = Linear()
    return dc.replace(method, **changes)


def _closed_weights(method: AbstractMethod) -> str:
    return "relative" if method.weights == "auto" else method.weights
