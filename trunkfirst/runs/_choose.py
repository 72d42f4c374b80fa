"""Choices that a configuration leaves open, made on validation samples."""

import dataclasses as dc
from collections.abc import Mapping
from typing import Any, overload

import jax
import jax.random as jr
import numpy as np

from ..data import AnyData, OperatorData, ScatteredData, Split
from ..errors import SettingError
from ..records import CandidateSettings, Choice
from ..selection import Candidate, Trial, aligned_trial, best_of, choose, encoding_candidates
from ..training import (
    TrunkResult,
    TwoStep,
    make_fields,
    make_targets,
    named_key,
    parse_encoding,
    prepare,
)
from ._config import BranchSection, RunConfig, Updates, updated
from ._method import BRIEF_ITERATIONS, NETWORK_KINDS, branch_settings, build_method, build_regressor
from ._own_data import CONVOLUTION
from ._prepare import Prepared
from ._reporter import Reporter

# With fewer samples than this, one split says little: every sample takes its turn.
CROSS_VALIDATED = 500
FOLDS = 5
# A network is given more iterations while its decay is looked for, because overfitting must show.
_LONGER_LOOK = 2.5
_DECAYS = (1e-4, 1e-6, 1e-8)
_MOST_FOR_KERNEL = 4000
# Encoders, best for a kernel or at first look, that networks are tried with.
_BEST_ENCODERS = 2


@dc.dataclass(frozen=True)
class Chosen:
    """The configuration with nothing left open, and how it came to be so."""

    config: RunConfig
    choice: Choice | None
    trunk_result: TrunkResult | None = None
    """Step 1, where choosing needed it already."""

    def applied_to(self, config: RunConfig) -> "Chosen":
        """The same choice for another configuration, which differs in method or seed."""
        branch = {"encoder": self.config.branch.encoder, "kind": self.config.branch.kind}
        updates = {"branch": branch, "loss": {"weights": self.config.loss.weights}}
        return dc.replace(self, config=updated(config, updates))

    def summary(self) -> dict[str, Any] | None:
        """The part `chosen` of `metrics.json`."""
        if self.choice is None:
            return None
        return {
            "encoder": self.config.branch.encoder,
            "branch": self.config.branch.kind,
            "weights": self.config.loss.weights,
            "candidate": self.choice.name,
            "validation_errors": dict(self.choice.errors),
            "best_network": self.choice.best_network,
            "candidates": {name: dc.asdict(each) for name, each in self.choice.candidates.items()},
        }


def settle(config: RunConfig, prepared: Prepared, *, reporter: Reporter) -> Chosen:
    """Choose encoder, branch and weights where the configuration says auto."""
    section = config.branch
    if section.encoder != "auto" and section.kind != "auto" and config.loss.weights != "auto":
        return Chosen(config, None)
    if not len(prepared.split.validation):
        raise SettingError("auto needs validation samples: set data.validation_share above 0")
    reporter.say("choosing on validation samples; errors there:")
    trials, step1 = _trials(config, prepared, reporter)
    search = _Search(config, prepared.data, trials, reporter)
    weights = ("relative", "none") if config.loss.weights == "auto" else (config.loss.weights,)
    encoders = _encoders(config, prepared.data) if section.encoder == "auto" else (section.encoder,)
    if section.kind != "auto":
        encoders = search.promising(section.kind, encoders, weights[0])
        search.try_all(search.options(section.kind, encoders, weights[0]))
        if section.decay == 0:
            name = search.best(nearly=1.2)
            return _chosen(config, search, name, None, step1)
    else:
        _try_kinds(search, encoders, weights[0])
    best_network = search.best(NETWORK_KINDS)
    if best_network is not None and search.kind(best_network) == "network":
        search.try_all(_with_decays(best_network, search.tried[best_network]), _LONGER_LOOK)
        best_network = search.best(NETWORK_KINDS)
    search.try_all(_with_weights(search.best(), search.tried[search.best()], weights[1:]))
    name = search.best()
    reporter.say(f"chosen: {name} ({search.errors[name]:.2e})")
    if best_network not in (None, name):
        reporter.say(f"best network: {best_network} ({search.errors[str(best_network)]:.2e})")
    return _chosen(config, search, name, best_network, step1)


def _try_kinds(search: "_Search", encoders: tuple[str, ...], weight: str) -> None:
    """Closed forms first, for they are cheap; networks then only with the encoders that were best for them."""
    few = search.data.samples <= _MOST_FOR_KERNEL
    search.try_all(search.options("linear", encoders[:2], weight))
    if few:
        kernels = search.options("kernel", encoders, weight)
        search.try_all(kernels)
        ranked = sorted(kernels, key=lambda name: search.errors[name])
        encoders = tuple(kernels[name]["branch"]["encoder"] for name in ranked[:_BEST_ENCODERS])
    encoders = search.promising("network", encoders, weight)
    search.try_all(search.options("network", encoders, weight))
    search.try_all(_special(search.config.branch, search.data, weight))


class _Search:
    """Candidates that were tried, as changes of the configuration, and their validation errors."""

    def __init__(self, config: RunConfig, data: AnyData, trials: list[Trial], reporter: Reporter) -> None:
        self.config, self.data, self._trials, self._reporter = config, data, trials, reporter
        self.tried: dict[str, Updates] = {}
        self.errors: dict[str, float] = {}
        self.settings: dict[str, CandidateSettings] = {}

    def try_all(self, options: Mapping[str, Updates], longer: float = 1.0) -> None:
        """Try candidates, if there are any; networks with so many times the usual iterations."""
        most = int(longer * self.config.branch.trial_iterations)
        self._measure({name: updated(self.config, updates) for name, updates in options.items()}, most)
        self.tried |= options

    def _measure(self, configs: Mapping[str, RunConfig], most: int) -> None:
        candidates = {name: _candidate(config, self.data, most) for name, config in configs.items()}
        self.settings |= {name: _settings(config, is_trained=most > 0) for name, config in configs.items()}
        if candidates:
            self.errors |= choose(self._trials, candidates, key=self.config.seed, on_error=self._say).errors

    def promising(self, kind: str, encoders: tuple[str, ...], weight: str) -> tuple[str, ...]:
        """The encoders worth training a network behind: the best with hidden layers as they are drawn."""
        if kind != "network" or not self.config.branch.projected or len(encoders) <= _BEST_ENCODERS:
            return encoders
        options = self.options(kind, encoders, weight)
        looks = {f"{name}, untrained": updated(self.config, updates) for name, updates in options.items()}
        self._measure(looks, 0)
        errors = np.nan_to_num([self.errors[name] for name in looks], nan=np.inf)
        return tuple(encoders[place] for place in sorted(np.argsort(errors, kind="stable")[:_BEST_ENCODERS]))

    def _say(self, name: str, error: float) -> None:
        self._reporter.say(f"  {name}: {error:.2e}")

    def options(self, kind: str, encoders: tuple[str, ...], weight: str) -> dict[str, Updates]:
        """One kind of branch behind each encoder, by name; the kind is told where it is to be chosen."""
        prefix = f"{kind}, " if self.config.branch.kind == "auto" else ""
        return {
            f"{prefix}{encoder}": {"branch": {"kind": kind, "encoder": encoder}, "loss": {"weights": weight}}
            for encoder in encoders
        }

    def kind(self, name: str) -> str:
        """What stands as the branch of a candidate."""
        return self.tried[name]["branch"]["kind"]

    @overload
    def best(self, kinds: None = None, *, nearly: float = 1.0) -> str: ...
    @overload
    def best(self, kinds: tuple[str, ...], *, nearly: float = 1.0) -> str | None: ...
    def best(self, kinds: tuple[str, ...] | None = None, *, nearly: float = 1.0) -> str | None:
        """The best candidate so far, of some kinds or of all."""
        names = [name for name in self.tried if kinds is None or self.kind(name) in kinds]
        return best_of(self.errors, names, nearly) if names else None


def _settings(config: RunConfig, *, is_trained: bool) -> CandidateSettings:
    branch = config.branch
    return CandidateSettings(branch.kind, branch.encoder, config.loss.weights, branch.decay, is_trained)


def _chosen(
    config: RunConfig, search: _Search, name: str, best_network: str | None, step1: TrunkResult | None
) -> Chosen:
    """With step 1, if it was carried out with the weights that were chosen: config.toml must give it again."""
    settled = updated(config, search.tried[name])
    is_same = _bare_weights(config) == settled.loss.weights
    choice = Choice(name, search.errors, best_network, search.settings)
    return Chosen(settled, choice, step1 if is_same else None)


def _encoders(config: RunConfig, data: AnyData) -> tuple[str, ...]:
    """Encoders worth trying; beside other kinds of branches, those that keep enough of a function."""
    names = encoding_candidates(data)
    if config.branch.kind != "auto" or len(data.inputs) > 1 or data.flat_inputs.shape[1] <= 8:
        return names
    counts = [count for count in (4, 8, 16, 32, 64) if count < min(data.samples, data.flat_inputs.shape[1])]
    return ("standardise", *(f"principal:{count}" for count in counts))


def _special(section: BranchSection, data: AnyData, weight: str) -> dict[str, Updates]:
    """Branches for special inputs: convolutions on a grid, active neurons in few coordinates."""
    (function, *others) = data.inputs.values()
    options: dict[str, Updates] = {}
    loss = {"weights": weight}
    if not others and function.grid_shape is not None and max(function.grid_shape) > 3:
        layers = (section.architecture[0], *CONVOLUTION, section.architecture[-1])
        branch = {"kind": "convolution", "encoder": "standardise", "architecture": layers}
        options["convolution, standardise"] = {"branch": branch, "loss": loss}
    if data.samples <= 2000:
        encoder = "principal:2" if data.flat_inputs.shape[1] > 8 else "standardise"
        branch = {"kind": "active-neurons", "encoder": encoder, "activation": "relu", "iterations": 100}
        options[f"active-neurons, {encoder}"] = {"branch": branch, "loss": loss}
    return options


def _with_decays(name: str, base: Updates) -> dict[str, Updates]:
    return {
        f"{name}, decay {decay:.0e}": {**base, "branch": {**base["branch"], "decay": decay}} for decay in _DECAYS
    }


def _with_weights(name: str, base: Updates, weights: tuple[str, ...]) -> dict[str, Updates]:
    return {f"{name}, weights {weight}": {**base, "loss": {"weights": weight}} for weight in weights}


def _candidate(config: RunConfig, data: AnyData, most: int) -> Candidate:
    section = config.branch
    return Candidate(
        parse_encoding(section.encoder),
        build_regressor(_brief(section, most), branch_settings(section, data)),
        config.loss.weights == "relative",
    )


def _brief(section: BranchSection, most: int) -> BranchSection:
    """The branch with a short training, for comparing."""
    most = most if section.decay > 0 else min(most, BRIEF_ITERATIONS)
    return section.model_copy(update={"iterations": min(section.iterations, most)})


def _trials(config: RunConfig, prepared: Prepared, reporter: Reporter) -> tuple[list[Trial], TrunkResult | None]:
    """What candidates are tried on; for scattered data step 1 comes first, and is returned."""
    if isinstance(prepared.data, ScatteredData):
        trial, step1 = _scattered_trial(config, prepared, prepared.data, reporter)
        return [trial], step1
    split = prepared.split
    rest = np.union1d(split.train, split.validation)
    if config.branch.kind != "auto" or len(rest) >= CROSS_VALIDATED:
        return [_aligned_trial(config, prepared.data, split)], None
    parts = np.array_split(np.random.default_rng(config.data.split_seed).permutation(rest), FOLDS)
    splits = [Split(np.setdiff1d(rest, part), np.sort(part), split.test) for part in parts]
    return [_aligned_trial(config, prepared.data, each) for each in splits], None


def _aligned_trial(config: RunConfig, data: OperatorData, split: Split) -> Trial:
    train, validation = data.take(split.train), data.take(split.validation)
    with jax.enable_x64(True):
        ready = prepare(train, _bare_method(config, train), np.dtype(np.float64))
        fields, others = (make_fields(part, ready.coordinates, ready.output, None) for part in (train, validation))
    return aligned_trial(train, validation, fields, others)


def _scattered_trial(
    config: RunConfig, prepared: Prepared, data: ScatteredData, reporter: Reporter
) -> tuple[Trial, TrunkResult]:
    """Coefficients in the basis of a trunk; nothing is chosen about the trunk, so it may see all but the test."""
    split = prepared.split
    rest = np.union1d(split.train, split.validation)
    samples = data.take(rest)
    method = _bare_method(config, samples)
    with jax.enable_x64(True):
        ready = prepare(samples, method, np.dtype(np.float64))
        key = named_key(jr.key(config.seed), "trunk")
        step1 = method.trunk.fit(ready.fields, dtype=ready.dtype, key=key, on_step=reporter.on_step)
        values = make_targets(ready.fields, step1, method.orthonormalise).values.reshape(len(rest), -1)
    train, validation = (values[np.searchsorted(rest, part)] for part in (split.train, split.validation))
    nothing = np.zeros(len(validation))
    sizes = np.linalg.norm(validation, axis=1)
    return Trial(prepared.train, prepared.validation, train, validation, nothing, sizes), step1


def _bare_method(config: RunConfig, data: AnyData) -> TwoStep:
    """The method without what is still open."""
    updates: Updates = {
        "branch": {"encoder": "none", "kind": "linear"},
        "loss": {"weights": _bare_weights(config)},
    }
    method = build_method(updated(config, updates).model_copy(update={"method": "two-step"}), data)
    assert isinstance(method, TwoStep)
    return method


def _bare_weights(config: RunConfig) -> str:
    return "relative" if config.loss.weights == "auto" else config.loss.weights
