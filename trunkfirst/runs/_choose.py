"""Choices that a configuration leaves open, made on validation samples."""

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr
import numpy as np

from ..data import AnyData, OperatorData, ScatteredData, Split
from ..errors import SettingError
from ..selection import Candidate, Choice, Trial, aligned_trial, best_of, choose, encoding_candidates
from ..training import (
    TrunkResult,
    TwoStep,
    make_fields,
    make_targets,
    named_key,
    parse_encoding,
    prepare,
)
from ._config import BranchSection, RunConfig
from ._method import BRIEF_ITERATIONS, branch_settings, build_method, build_regressor
from ._own_data import CONVOLUTION
from ._prepare import Prepared
from ._reporter import Reporter

# With fewer samples than this, one split says little: every sample takes its turn.
_CROSS_VALIDATED = 500
_FOLDS = 5
# Iterations of a network while its encoder is looked for, and then its decay, where overfitting must show.
_FIRST_LOOK, _SECOND_LOOK = 80, 200
_DECAYS = (1e-4, 1e-6, 1e-7, 1e-8, 1e-9)
_MOST_FOR_KERNEL = 4000

Updates = dict[str, dict[str, Any]]


@dc.dataclass(frozen=True)
class Chosen:
    """The configuration with nothing left open, and how it came to be so."""

    config: RunConfig
    choice: Choice | None
    best_network: str | None = None
    trunk_result: TrunkResult | None = None
    """Step 1, where choosing needed it already."""

    def applied_to(self, config: RunConfig) -> "Chosen":
        """The same choice for another configuration, which differs in method or seed."""
        branch = {"encoder": self.config.branch.encoder, "kind": self.config.branch.kind}
        updates = {"branch": branch, "loss": {"weights": self.config.loss.weights}}
        return dc.replace(self, config=_updated(config, updates))

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
            "best_network": self.best_network,
        }


def settle(config: RunConfig, prepared: Prepared, *, reporter: Reporter) -> Chosen:
    """Choose encoder, branch and weights where the configuration says auto."""
    section = config.branch
    if section.encoder != "auto" and section.kind != "auto" and config.loss.weights != "auto":
        return Chosen(config, None)
    if not len(prepared.split.validation):
        raise SettingError("auto needs validation samples: set data.validation_share above 0")
    options = _options(config, prepared.data)
    reporter.say(f"choosing among {len(options)} candidates on validation samples")
    trials, step1 = _trials(config, prepared, reporter)

    def try_all(options: Mapping[str, Updates], nearly: float, most: int = _FIRST_LOOK) -> Choice:
        candidates = {
            name: _candidate(_updated(config, updates), prepared.data, most) for name, updates in options.items()
        }
        return choose(
            trials,
            candidates,
            key=config.seed,
            nearly=nearly,
            on_error=lambda name, error: reporter.say(f"  {name}: {error:.2e}"),
        )

    is_encoder_only = section.kind != "auto"
    choice = try_all(options, 1.2 if is_encoder_only else 1.0)
    if is_encoder_only and section.decay == 0:
        return _chosen(config, options[choice.name], choice, None, step1)
    networks = [name for name in options if options[name]["branch"]["kind"] == "network"]
    if networks:
        more = _with_decays(best_of(choice.errors, networks), options)
        options |= more
        choice = Choice(choice.name, {**choice.errors, **try_all(more, 1.0, _SECOND_LOOK).errors})
    name = best_of(choice.errors, list(options))
    networks = [name for name in options if options[name]["branch"]["kind"] == "network"]
    best_network = best_of(choice.errors, networks) if networks else None
    reporter.say(f"chosen: {name} ({choice.errors[name]:.2e})")
    if best_network not in (None, name):
        reporter.say(f"best network: {best_network} ({choice.errors[str(best_network)]:.2e})")
    return _chosen(config, options[name], Choice(name, choice.errors), best_network, step1)


def _chosen(
    config: RunConfig, updates: Updates, choice: Choice, best_network: str | None, step1: TrunkResult | None
) -> Chosen:
    """With step 1, if it was carried out with the weights that were chosen: config.toml must give it again."""
    settled = _updated(config, updates)
    is_same = _bare_weights(config) == settled.loss.weights
    return Chosen(settled, choice, best_network, step1 if is_same else None)


def _options(config: RunConfig, data: AnyData) -> dict[str, Updates]:
    """All candidates by name, as changes of the configuration; simple ones first."""
    section = config.branch
    encoders = (section.encoder,) if section.encoder != "auto" else _encoders(config, data)
    weights = ("relative", "none") if config.loss.weights == "auto" else (config.loss.weights,)
    if section.kind != "auto":
        kinds: tuple[str, ...] = (section.kind,)
    else:
        kinds = ("linear", "kernel", "network")
        if data.samples > _MOST_FOR_KERNEL:
            kinds = ("linear", "network")
    options: dict[str, Updates] = {}
    for kind in kinds:
        for encoder in encoders if kind != "linear" or len(encoders) == 1 else encoders[:2]:
            for weight in weights if kind != "network" else weights[:1]:
                words = [kind if section.kind == "auto" else "", encoder, weight if len(weights) > 1 else ""]
                name = ", ".join(word for word in words if word)
                options[name] = {"branch": {"kind": kind, "encoder": encoder}, "loss": {"weights": weight}}
    if section.kind == "auto":
        options |= _special(section, data, weights[0])
    return options


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


def _with_decays(name: str, options: Mapping[str, Updates]) -> dict[str, Updates]:
    base = options[name]
    return {
        f"{name}, decay {decay:.0e}": {**base, "branch": {**base["branch"], "decay": decay}} for decay in _DECAYS
    }


def _updated(config: RunConfig, updates: Updates) -> RunConfig:
    sections = {name: getattr(config, name).model_copy(update=values) for name, values in updates.items()}
    return config.model_copy(update=sections)


def _candidate(config: RunConfig, data: AnyData, most: int) -> Candidate:
    section = config.branch
    return Candidate(
        parse_encoding(section.encoder),
        build_regressor(_brief(section, most), branch_settings(section, data)),
        config.loss.weights == "relative",
    )


def _brief(section: BranchSection, most: int) -> BranchSection:
    """The branch with a short training, for comparing."""
    most = most if section.decay > 0 else BRIEF_ITERATIONS
    return section.model_copy(update={"iterations": min(section.iterations, most)})


def _trials(config: RunConfig, prepared: Prepared, reporter: Reporter) -> tuple[list[Trial], TrunkResult | None]:
    """What candidates are tried on; for scattered data step 1 comes first, and is returned."""
    if isinstance(prepared.data, ScatteredData):
        trial, step1 = _scattered_trial(config, prepared, prepared.data, reporter)
        return [trial], step1
    split = prepared.split
    rest = np.union1d(split.train, split.validation)
    if config.branch.kind != "auto" or len(rest) >= _CROSS_VALIDATED:
        return [_aligned_trial(config, prepared.data, split)], None
    parts = np.array_split(np.random.default_rng(config.data.split_seed).permutation(rest), _FOLDS)
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
    method = build_method(_updated(config, updates).model_copy(update={"method": "two-step"}), data)
    assert isinstance(method, TwoStep)
    return method


def _bare_weights(config: RunConfig) -> str:
    return "relative" if config.loss.weights == "auto" else config.loss.weights
