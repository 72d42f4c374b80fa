"""The result in two sentences, and what a reader should know before trusting a figure."""

from typing import cast

import numpy as np

from ._experiment import Experiment
from ._run import Run
from ._style import method_label
from ._tables import LIMITED_BY_NETWORK, is_limited_by_network, loss_over_limit, mean_of, scientific

_TEST = ("test", "mean_relative_l2")
_LOSS = ("trunk", "loss")
_STATUS = {
    "interrupted": "it was stopped before its end; shown is what it had.",
    "diverged": "its training met a number that is not finite; shown is the best before that.",
}


def summarise(experiment: Experiment) -> tuple[str, str]:
    """Two sentences: how accurate the methods are, and how that compares."""
    first = _accuracy(experiment)
    if any(claim.holds is not None for claim in experiment.claims):
        return first, _claims(experiment)
    return first, _training(experiment)


def notices(experiment: Experiment) -> tuple[str, ...]:
    """Warnings of the runs, and runs that are missing from figures or means, each with its reason."""
    unfinished = [f"{name} was begun and not finished; it is left out." for name in experiment.skipped]
    remarks = [
        f"{method_label(run.method)}, seed {run.seed}: {remark}"
        for run in experiment.runs
        for remark in _remarks(run)
    ]
    return (*unfinished, *remarks)


def _remarks(run: Run) -> list[str]:
    """What is to be said about one run: warnings, stopped, diverged, or without finite errors."""
    warnings = run.metrics.get("warnings")
    remarks = [f"{text}." for text in cast("list[object]", warnings)] if isinstance(warnings, list) else []
    remarks += [_STATUS[run.status]] if run.status in _STATUS else []
    if run.evaluation is not None and not np.isfinite(run.evaluation.errors).all():
        remarks.append("not all test errors are finite; they are left out of figures and means.")
    return remarks


def conditions(experiment: Experiment) -> str:
    """Preset, samples and seeds in one line."""
    run = experiment.runs[0]
    parts = [f"preset {run.metrics['preset']}"] if run.metrics.get("preset") else []
    counts = [
        f"{int(count):,} {name}"
        for name in ("train", "validation", "test")
        if (count := run.number("samples", name)) is not None
    ]
    if counts:
        parts.append("samples: " + ", ".join(counts))
    parts.append("seed" + ("s " if len(experiment.seeds) > 1 else " ") + ", ".join(map(str, experiment.seeds)))
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def remarks(experiment: Experiment) -> tuple[str, ...]:
    """What the numbers of the table mean, where it is not plain."""
    found = (limit_remark(experiment), size_remark(experiment))
    return tuple(remark for remark in found if remark is not None)


def limit_remark(experiment: Experiment) -> str | None:
    """How far the trunk is from the best that any trunk of its width could be."""
    for run in experiment.runs:
        if (told := _tell_limit(run)) is not None:
            return f"{method_label(run.method)}, seed {run.seed}: {told}"
    return None


def _tell_limit(run: Run) -> str | None:
    if is_limited_by_network(run):
        return (
            f"the loss is {LIMITED_BY_NETWORK}: as many functions as the trunk has could represent the training "
            "outputs to rounding, so that what is left of the loss is not for want of functions."
        )
    upper, ratio = run.number("trunk", "limit_upper"), loss_over_limit(run)
    if upper is not None:
        low, high = scientific(run.number("trunk", "limit")), scientific(upper)
        return f"the lowest loss that any trunk of this width allows for p = 1 lies between {low} and {high}."
    if ratio is None:
        return None
    return f"the loss is {_factor(ratio)} times the lowest that any trunk of this width allows."


def size_remark(experiment: Experiment) -> str | None:
    """Whether the free coefficients are fewer than the branch's parameters, (N+1)K < |θ|."""
    for run in experiment.runs:
        free, branch = run.number("parameters", "coefficients"), run.number("parameters", "branch")
        if free is not None and branch is not None:
            return f"{method_label(run.method)}, seed {run.seed}: {_compare_sizes(free, branch)}"
    return None


def _compare_sizes(free: float, branch: float) -> str:
    sizes = f"step 1 has {int(free):,} free coefficients, (N+1)K, and the branch {int(branch):,} parameters, |θ|"
    if free < branch:
        return f"{sizes}: step 1 is a smaller problem than the monolithic one, as in the paper's remark."
    return f"{sizes}: step 1 is not a smaller problem than the monolithic one (it is when (N+1)K < |θ|)."


def _accuracy(experiment: Experiment) -> str:
    means = _means(experiment, _TEST)
    if not means:
        return "No finite error on unseen test samples is recorded, so that accuracy cannot be judged."
    count = experiment.runs[0].number("samples", "test")
    samples = f"{int(count):,} unseen test samples" if count else "unseen test samples"
    if len(experiment.methods) == 1:
        return _accuracy_of_one(experiment.runs, next(iter(means)), samples)
    listed = ", ".join(f"{scientific(value)} with {method_label(method)}" for method, value in means.items())
    return f"On {samples} the mean relative error is {listed}{_ratio(means)}."


def _accuracy_of_one(runs: tuple[Run, ...], method: str, samples: str) -> str:
    mean, median, largest = (
        scientific(mean_of(runs, "test", f"{name}_relative_l2")) for name in ("mean", "median", "max")
    )
    return (
        f"On {samples}, {method_label(method)} has a mean relative error of {mean} "
        f"(median {median}, largest {largest})."
    )


def _training(experiment: Experiment) -> str:
    means = _means(experiment, _LOSS)
    if not means:
        return "No finite training loss is recorded."
    listed = ", ".join(f"{scientific(value)} with {method_label(method)}" for method, value in means.items())
    best = mean_of(experiment.runs, "test", "optimal_mean_relative_l2")
    if len(experiment.methods) == 1 and best is not None:
        return f"With a perfect branch it would be {scientific(best)}; the training loss is {listed}."
    return f"The training loss is {listed}{_ratio(means)}."


def _claims(experiment: Experiment) -> str:
    tested = [claim for claim in experiment.claims if claim.holds is not None]
    held = sum(claim.holds is True for claim in tested)
    verb = "holds" if held == 1 else "hold"
    text = f"Of the paper's {len(tested)} claims that could be tested here, {held} {verb}"
    means = _means(experiment, _LOSS)
    if not means:
        return text + "."
    listed = ", ".join(f"{scientific(value)} with {method_label(method)}" for method, value in means.items())
    return f"{text}; the training loss is {listed}."


def _means(experiment: Experiment, path: tuple[str, str]) -> dict[str, float]:
    found = {method: mean_of(experiment.of(method), *path) for method in experiment.methods}
    return {method: value for method, value in found.items() if value is not None}


def _ratio(means: dict[str, float]) -> str:
    ours, other = means.get("two-step"), means.get("monolithic")
    if not ours or not other:
        return ""
    return f"; monolithic's is {_factor(other / ours)} times two-step's"


def _factor(ratio: float) -> str:
    """A ratio as one says it: 3.9, 120, 4.56e5."""
    return f"{ratio:.3g}" if 0.01 <= ratio < 1000 else scientific(ratio)
