"""Text of the report: names of a problem's quantities, the result in two sentences, notices and remarks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from ..records import mapping_at
from .figures import method_label
from .run_files import Experiment, Run, is_limited_by_network, loss_over_limit
from .tables import BASELINES, LIMITED_BY_NETWORK, TEST, TRUNK, VALIDATION, Path, mean_of, scientific

# -- names of quantities


@dataclass(frozen=True)
class Wording:
    """Names for one problem: its input, its output, and the numbers that label its samples."""

    title: str
    task: str
    output: str = "output"
    unit: str = "in the data's units"
    input: str = "input"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    coordinates: tuple[str, str] = ("x (dimensionless)", "y (dimensionless)")
    channels: tuple[str, ...] = ()

    def label(self, name: str) -> str:
        """Axis label of a number that labels the samples."""
        return self.labels.get(name, name)

    @property
    def output_axis(self) -> str:
        """Axis label of the output."""
        return f"{self.output} ({self.unit})"

    def channel(self, number: int) -> str:
        """Axis label of an output channel."""
        return self.channels[number] if number < len(self.channels) else self.output_axis


_PRESSURE, _NO_UNIT = "pressure p", "dimensionless"
_WORDINGS = {
    "nonlinear-conductivity": Wording(
        "Nonlinear conductivity",
        "from the constant conductivity factor β of a porous square to the pressure inside it",
        output=_PRESSURE,
        unit=_NO_UNIT,
        input="conductivity factor β",
        labels={"beta": "conductivity factor β (dimensionless)"},
    ),
    "discontinuous-conductivity": Wording(
        "Discontinuous conductivity",
        "from the pressure in a porous square back to its conductivity, which jumps to β inside a disk",
        output="conductivity κ",
        unit=_NO_UNIT,
        input=_PRESSURE,
        labels={"beta": "conductivity of the disk β (dimensionless)"},
    ),
    "multiple-inputs": Wording(
        "Multiple inputs",
        "from source f, conductivity factor κ and boundary value g to the pressure in a porous square",
        output=_PRESSURE,
        unit=_NO_UNIT,
        input="source, conductivity factor and boundary value",
        labels={
            "f": "source f (dimensionless)",
            "kappa": "conductivity factor κ (dimensionless)",
            "g": "boundary value g (dimensionless)",
        },
    ),
}


def wording_for(problem: str, names: Mapping[str, object] | None = None) -> Wording:
    """Wording of a known problem, or one made from the names and units that a model knows."""
    if problem in _WORDINGS:
        return _WORDINGS[problem]
    wording = Wording(problem, "from the inputs to the outputs of your data")
    if not names:
        return wording
    units = {str(key): str(unit) for key, unit in mapping_at(names, "units", "mapping").items()}
    axes, channels = _words(names, "coordinate_names"), _words(names, "channel_names")
    output = channels[0] if len(channels) == 1 else "output"
    first, second, *_ = (*(_with_unit(name, units) for name in axes), "", "")
    return replace(
        wording,
        output=output,
        unit=units.get(output) or wording.unit,
        coordinates=(first, second),
        channels=tuple(_with_unit(name, units) for name in channels) if len(channels) > 1 else (),
    )


def _words(names: Mapping[str, object], key: str) -> tuple[str, ...]:
    found = names.get(key)
    return tuple(map(str, cast("list[object]", found))) if isinstance(found, list) else ()


def _with_unit(name: str, units: Mapping[str, str]) -> str:
    return f"{name} ({units[name]})" if name in units else name


# -- the result


def summarise(experiment: Experiment) -> tuple[str, str]:
    """Two sentences: test errors, then claims or training losses."""
    has_claims = any(claim.holds is not None for claim in experiment.claims)
    return _accuracy(experiment), _claims(experiment) if has_claims else _training(experiment)


def _accuracy(experiment: Experiment) -> str:
    means = _means(experiment, TEST)
    if not means:
        return _left_out(experiment) or "No finite error on test samples was recorded, so the accuracy is unknown."
    count = experiment.runs[0].number("samples", "test")
    samples = f"{int(count):,} unseen test samples" if count else "unseen test samples"
    first, *others = experiment.methods
    if others:
        return f"On {samples} the mean relative error is {_listed(means)}{_ratio(means)}."
    mean, median, largest = (
        scientific(mean_of(experiment.runs, "test", f"{name}_relative_l2")) for name in ("mean", "median", "max")
    )
    left_out = _left_out(experiment)
    text = f"on {samples} it is {mean} (median {median}, largest {largest})."
    if not left_out:
        text = f"On {samples}, {method_label(first)} has a mean relative error of {text.partition(' it is ')[2]}"
    return f"{left_out[:-1]}; {text}" if left_out else text


def _left_out(experiment: Experiment) -> str:
    """The error on samples left out of training, and those of the baselines, where there is one method."""
    ours = mean_of(experiment.runs, *VALIDATION)
    found = {name: mean_of(experiment.runs, "baseline", kind) for kind, name in BASELINES.items()}
    others = [f"{name} {scientific(error)}" for name, error in found.items() if error is not None]
    if ours is None or len(experiment.methods) > 1:
        return ""
    baselines = f" ({', '.join(others)})" if others else ""
    return f"On samples left out of training the mean relative error is {scientific(ours)}{baselines}."


def _training(experiment: Experiment) -> str:
    means = _means(experiment, TRUNK)
    if not means:
        return "No finite training loss was recorded."
    best = mean_of(experiment.runs, "test", "optimal_mean_relative_l2")
    if len(experiment.methods) == 1 and best is not None:
        (loss,) = means.values()
        return f"With a perfect branch it would be {scientific(best)}; the training loss is {scientific(loss)}."
    return f"The training loss is {_listed(means)}{_ratio(means)}."


def _claims(experiment: Experiment) -> str:
    tested = [claim for claim in experiment.claims if claim.holds is not None]
    held = sum(claim.holds is True for claim in tested)
    means = _means(experiment, TRUNK)
    text = f"Of the paper's {len(tested)} claims that could be tested here, {held} hold{'s' if held == 1 else ''}"
    return text + (f"; the training loss is {_listed(means)}." if means else ".")


def _means(experiment: Experiment, path: Path) -> dict[str, float]:
    found = {method: mean_of(experiment.of(method), *path) for method in experiment.methods}
    return {method: value for method, value in found.items() if value is not None}


def _listed(means: dict[str, float]) -> str:
    return ", ".join(f"{scientific(value)} with {method_label(method)}" for method, value in means.items())


def _ratio(means: dict[str, float]) -> str:
    ours, other = means.get("two-step"), means.get("monolithic")
    return f"; the monolithic one is {_factor(other / ours)} times as large" if ours and other else ""


def _factor(ratio: float) -> str:
    """Three digits, with an exponent only where needed: 3.9, 120, 4.56e5."""
    return f"{ratio:.3g}" if 0.01 <= ratio < 1000 else scientific(ratio)


# -- notices and remarks

_STATUS = {
    "interrupted": "it was interrupted or is not finished yet; this page shows the best operator so far.",
    "diverged": "its training produced a number that is not finite; this page shows the best result before that.",
}


def conditions(experiment: Experiment) -> str:
    """Preset, samples and seeds in one line."""
    run = experiment.runs[0]
    parts = [f"preset {run.metrics['preset']}"] if run.metrics.get("preset") else []
    counts = {name: run.number("samples", name) for name in ("train", "validation", "test")}
    if known := [f"{int(count):,} {name}" for name, count in counts.items() if count]:
        parts.append("samples: " + ", ".join(known))
    parts.append("seed" + ("s " if len(experiment.seeds) > 1 else " ") + ", ".join(map(str, experiment.seeds)))
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def notices(experiment: Experiment) -> tuple[str, ...]:
    """Warnings of the runs, and runs that are missing from figures or means, each with its reason."""
    unfinished = [f"{name} was started but not finished; it is left out." for name in experiment.skipped]
    return (*unfinished, *(f"{run.name}: {text}" for run in experiment.runs for text in _notices_of(run)))


def _notices_of(run: Run) -> list[str]:
    warnings = run.metrics.get("warnings")
    found = [f"{text}." for text in cast("list[object]", warnings)] if isinstance(warnings, list) else []
    found += [_STATUS[run.status]] if run.status in _STATUS else []
    if run.evaluation is not None and not np.isfinite(run.evaluation.errors).all():
        found.append("not all test errors are finite; they are left out of figures and means.")
    return found


def remarks(experiment: Experiment) -> tuple[str, ...]:
    """What the trunk's loss limit and the numbers of parameters mean, for the first run that has them."""
    found = ([(run, text) for run in experiment.runs if (text := of(run))] for of in (_limit, _sizes))
    return tuple(f"{run.name}: {text}" for texts in found for run, text in texts[:1])


def _limit(run: Run) -> str | None:
    """How far the trunk is from the best that any trunk of its width could be."""
    if is_limited_by_network(run):
        return (
            f"the loss is {LIMITED_BY_NETWORK}: the same number of functions could represent the training outputs "
            "to rounding, so more functions would not reduce it."
        )
    upper, ratio = run.number("trunk", "limit_upper"), loss_over_limit(run)
    if upper is not None:
        low, high = scientific(run.number("trunk", "limit")), scientific(upper)
        return f"the lowest loss that any trunk of this width allows for p = 1 lies between {low} and {high}."
    if ratio is None:
        return None
    if ratio == 1:
        return "no trunk of this width has a lower loss, with these weights."
    return f"the loss is {_factor(ratio)} times the lowest that any trunk of this width allows."


def _sizes(run: Run) -> str | None:
    """Whether the free coefficients are fewer than the branch's parameters, (N+1)K < |θ|."""
    free, branch = run.number("parameters", "coefficients"), run.number("parameters", "branch")
    has_modes = mapping_at(run.config, "method", "trunk").get("kind") == "modes"
    if free is None or branch is None or has_modes:  # modes are found without training
        return None
    sizes = f"step 1 has {int(free):,} free coefficients, (N+1)K, and the branch {int(branch):,} parameters, |θ|"
    if free < branch:
        return f"{sizes}: step 1 is a smaller problem than monolithic training, as in the paper's remark."
    return f"{sizes}: step 1 is not a smaller problem than monolithic training (it is when (N+1)K < |θ|)."
