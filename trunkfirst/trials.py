"""What candidates are compared on: every sample is predicted by an operator that was fitted without it.

Trunk, scales of channels, weights and encoders are fitted anew for each part that is left out. `Folds` has fast
formulas for principal modes of samples at the same points, `TrainedTrunk` takes any trunk and any points.
"""

import dataclasses as dc
import functools as ft
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from .candidates import Candidate, ModeCounts
from .comparison import smallness, with_shares
from .data.operator_data import OperatorData
from .data.repeated_samples import parts_apart
from .data.scattered_data import AnyData, channel_weights
from .device_arrays import seed_key
from .encode import encoded, input_layout
from .evaluation import ROUNDING, OutputCoordinates, evaluate, prediction_errors
from .fields import TrunkResult
from .linear.blocked_qr import one_blas_thread
from .linear.low_rank import principal_rows
from .minimisers.loop import OnStep, raise_if_interrupted
from .networks.operator import Operator
from .outputs import Output
from .regressors.base import AbstractRegressor, values_in_blocks
from .trunks import ModesTrunk
from .two_step import TwoStep

# This many folds are kept: all but those of the last, finer comparison.
_MOST_FOLDS = 9
# What the modes that a network learns may leave out in a comparison.
_NETWORK_MODES = 1e-6
# The numbers of modes that are looked at grow by this factor.
_LADDER = 1.25

Rows = Int[np.ndarray, " rows"]
Coordinates = Float[np.ndarray, "samples channels rank"]


class Folds:
    """Samples at the same points, of which one part after the other is left out and predicted.

    Args:
        data: Samples for training and choosing; test samples are not among them.
        output: What is known about the outputs.
        parts: Rows that are left out, one array for each fold.
        seed: Of networks.
    """

    def __init__(self, data: OperatorData, output: Output, parts: Sequence[Rows], *, seed: int = 0) -> None:
        self.data, self.parts, self._output, self._seed = data, list(parts), output, seed
        self._coordinates = OutputCoordinates.of(data, output)
        self._known: dict[str, Coordinates] = {}
        self._counted: dict[str, ModeCounts] = {}
        self._best = np.inf, "", list[Coordinates]()
        self._folds: dict[int, _Fold] = {}
        self._mode_sizes: dict[str, np.ndarray] = {}

    @one_blas_thread()
    def errors(self, candidate: Candidate, parts: Sequence[int] | None = None) -> Float[np.ndarray, " samples"]:
        """The relative error of every sample that is left out once; NaN for the others."""
        if candidate.trunk is not None:
            return self._trained.errors(candidate, parts)
        wanted = range(len(self.parts)) if parts is None else parts
        counts = self._counts(candidate, wanted)
        found = np.full((self.data.samples, len(counts)), np.nan)
        predicted: list[Coordinates] = []
        for part in wanted:
            predicted.append(self._predicted(candidate, part))
            found[self.parts[part]] = self._errors_by_count(candidate, part, predicted[-1], counts)
        if len(counts) > 1:
            numbers = [count or self._coordinates.values.shape[2] for count in counts]
            self._counted[str(candidate)] = ModeCounts.of(with_shares(found, self._smallness), numbers, self.parts)
        errors = found[:, 0]
        if parts is None and (mean := float(np.nanmean(errors))) < self._best[0]:
            self._best = mean, str(candidate), predicted
        return errors

    def better_modes(self, candidate: Candidate) -> dict[int, float]:
        """Numbers of modes with which a candidate was better than with all, but for one part each; the errors."""
        return self._counted[str(candidate)].better if str(candidate) in self._counted else {}

    def enough_modes(self, candidate: Candidate) -> int | None:
        """The fewest modes with which a candidate is as good as with all, where that was measured."""
        return self._counted[str(candidate)].enough if str(candidate) in self._counted else None

    def with_parts(self, count: int) -> "Folds | None":
        """The same samples in more parts; None if there are as many already."""
        rows = np.random.default_rng(self._seed).permutation(np.concatenate(self.parts))
        parts = parts_apart(self.data, rows, lambda each: np.array_split(each, min(count, len(each))))
        return None if len(parts) <= len(self.parts) else Folds(self.data, self._output, parts, seed=self._seed)

    @ft.cached_property
    def _smallness(self) -> Float[np.ndarray, " samples"]:
        return smallness(self.data)

    def _counts(self, candidate: Candidate, parts: Sequence[int]) -> list[int | None]:
        """That of the candidate; where it has all modes and several parts choose, fewer of them too."""
        if candidate.modes is not None or len(parts) < 2 or self._output.positive:
            return [candidate.modes]
        most = len(self._fold(0).modes(candidate))
        ladder = {int(_LADDER**k) for k in range(1, 40)}
        return [None, *sorted((count for count in ladder if count < most), reverse=True)]

    def _errors_by_count(
        self, candidate: Candidate, part: int, predicted: Coordinates, counts: Sequence[int | None]
    ) -> Float[np.ndarray, "rows counts"]:
        """The errors of the samples of a part with each number of modes."""
        fold, rows = self._fold(part), self.parts[part]
        if self._output.positive:
            coordinates = fold.coordinates_of(candidate, predicted)
            return self._coordinates.errors(rows, coordinates).mean(axis=1)[:, None]
        modes = fold.modes(candidate)
        exact = self._coordinates.values[rows] / fold.scale
        best = _times(exact, modes.T)
        beyond = np.sum((exact - _times(best, modes)) ** 2, axis=2)
        missed, left_out = np.cumsum((predicted - best) ** 2, axis=2), np.cumsum(best[..., ::-1] ** 2, axis=2)
        places = [min(count or len(modes), len(modes)) for count in counts]
        tails = [left_out[..., len(modes) - n - 1] if n < len(modes) else 0.0 for n in places]
        squares = np.stack([missed[..., n - 1] + tail + beyond for n, tail in zip(places, tails, strict=True)])
        sizes = self._coordinates.sizes[rows] / fold.scale[:, 0]
        return np.sqrt(squares / sizes**2).mean(axis=2).T

    def is_complete(self, candidate: Candidate) -> bool:
        """Whether a candidate is measured on all parts: closed forms are."""
        return candidate.is_closed_form

    @one_blas_thread()
    def projection_error(self, candidate: Candidate) -> float:
        """The mean error with the best coefficients on the samples left out: what the trunk alone costs."""
        if candidate.trunk is not None:
            return self._trained.projection_error(candidate)
        found = np.full(self.data.samples, np.nan)
        for part, rows in enumerate(self.parts):
            fold = self._fold(part)
            _, modes, _ = principal_rows(fold.targets.reshape(-1, fold.targets.shape[-1]), ROUNDING)
            best = _times(self._coordinates.values[rows], modes.T @ modes)
            found[rows] = self._coordinates.errors(rows, best).mean(axis=1)
        return float(np.nanmean(found))

    def mode_sizes(self, weights: str) -> Float[np.ndarray, " modes"]:
        """The singular values of the outputs of all samples with these weights, as they are modes of a trunk."""
        if weights not in self._mode_sizes:
            whole = _Fold(self.data, self._output, self._coordinates.values)
            self._mode_sizes[weights] = whole.principal(weights == "relative")[0]
        return self._mode_sizes[weights]

    @one_blas_thread()
    def training_error(self, candidate: Candidate) -> float:
        """The mean relative error of the samples that the first fold was fitted to."""
        if candidate.trunk is not None:
            return self._trained.training_error(candidate)
        fold = self._fold(0)
        rows = np.setdiff1d(np.arange(self.data.samples), self.parts[0])
        predicted = fold.fit(candidate, self._seed)(fold.train.flat_inputs)
        return float(self._coordinates.errors(rows, fold.coordinates_of(candidate, predicted)).mean())

    @one_blas_thread()
    def predictions(
        self, candidate: Candidate, parts: Sequence[int] | None = None, modes: int | None = None
    ) -> Float[np.ndarray, "samples points ..."]:
        """Physical outputs of every sample that is left out once, with at most this many modes; NaN for others."""
        if candidate.trunk is not None:
            return self._trained.predictions(candidate, parts)
        found = np.full(self.data.outputs.shape, np.nan)
        for part in range(len(self.parts)) if parts is None else parts:
            coordinates = self._fold(part).coordinates_of(candidate, self._predicted(candidate, part), modes)
            found[self.parts[part]] = self._coordinates.fields(coordinates)
        return found

    @ft.cached_property
    def _trained(self) -> "TrainedTrunk":
        """For candidates with another trunk."""
        return TrainedTrunk(self.data, TwoStep(output=self._output), self.parts, seed=self._seed)

    def _predicted(self, candidate: Candidate, part: int) -> Coordinates:
        """Coefficients of the modes of a fold.

        What was trained is kept, and of the closed forms the best: all of them would take too much memory.
        """
        if self._best[1] == str(candidate):
            return self._best[2][part]
        key = f"{part} {candidate}"
        if key in self._known:
            return self._known[key]
        found = self._fold(part).fit(candidate, self._seed)(self.data.flat_inputs[self.parts[part]])
        if not candidate.is_closed_form:
            self._known[key] = found
        return found

    def _fold(self, part: int) -> "_Fold":
        """The latest are kept; each has a copy of nearly all samples."""
        if part not in self._folds:
            if len(self._folds) == _MOST_FOLDS:
                del self._folds[next(iter(self._folds))]
            rows = np.setdiff1d(np.arange(self.data.samples), self.parts[part])
            self._folds[part] = _Fold(self.data.take(rows), self._output, self._coordinates.values[rows])
        return self._folds[part]


@dc.dataclass(frozen=True, eq=False)
class _Fold:
    """The samples that operators are fitted to while a part is left out."""

    train: OperatorData
    output: Output
    coordinates: Coordinates
    known: dict[bool, tuple[Float[np.ndarray, "modes rank"], Coordinates]] = dc.field(default_factory=dict)
    """Modes and coefficients by whether weights are relative."""

    @ft.cached_property
    def scale(self) -> Float[np.ndarray, "channels 1"]:
        """The size of every channel."""
        fitted = self.output.fit(self.train)
        return np.ones((1, 1)) if fitted is None else np.asarray(fitted.scale).reshape(-1, 1)

    @ft.cached_property
    def targets(self) -> Coordinates:
        return self.coordinates / self.scale

    def modes(self, candidate: Candidate) -> Float[np.ndarray, "modes rank"]:
        """Principal modes of these samples, with the weights and the number of a candidate."""
        return self._principal(candidate.weights == "relative")[0][: candidate.modes]

    def coordinates_of(self, candidate: Candidate, predicted: Coordinates, most: int | None = None) -> Coordinates:
        """Coefficients of the outputs from coefficients of the modes, of the first `most` of them."""
        return _times(predicted[..., :most], self.modes(candidate)[:most]) * self.scale

    def fit(self, candidate: Candidate, seed: int) -> Callable[[np.ndarray], Coordinates]:
        """Fit a candidate; the function returned predicts coefficients of the modes."""
        encoder = candidate.inputs.fit(self.train)
        targets = self._principal(candidate.weights == "relative")[1][..., : candidate.modes]
        learn = ft.partial(_closed_form if candidate.is_closed_form else _trained, candidate.branch)
        branch = learn(
            np.asarray(encoded(encoder, self.train.flat_inputs)),
            targets,
            self._weights(candidate.weights == "relative"),
            layout=input_layout(self.train, encoder),
            key=seed_key(seed),
        )

        def predict(inputs: np.ndarray) -> Coordinates:
            return branch(np.asarray(encoded(encoder, inputs))).reshape(len(inputs), *targets.shape[1:])

        return predict

    def _weights(self, relative: bool) -> Float[np.ndarray, " samples"] | None:
        rows = self._channel_weights(relative)
        return None if rows is None else rows.mean(axis=1)

    def _channel_weights(self, relative: bool) -> Float[np.ndarray, "samples channels"] | None:
        return channel_weights(self.train, relative and not self.output.positive)

    def _principal(self, relative: bool) -> tuple[Float[np.ndarray, "modes rank"], Coordinates]:
        """Modes and the coefficients of all samples."""
        if relative not in self.known:
            _, modes = self.principal(relative)
            self.known[relative] = modes, _times(self.targets, modes.T)
        return self.known[relative]

    def principal(self, relative: bool) -> tuple[Float[np.ndarray, " modes"], Float[np.ndarray, "modes rank"]]:
        """The singular values of all samples with their weights, and their principal modes."""
        rows = self._channel_weights(relative)
        weighted = self.targets if rows is None else self.targets * np.sqrt(rows / rows.mean())[..., None]
        return principal_rows(weighted.reshape(-1, weighted.shape[2]), ROUNDING)[:2]


def _times(coordinates: Coordinates, matrix: Float[np.ndarray, "rank others"]) -> Coordinates:
    """The same as `@`, which would multiply the channels of one sample after the other."""
    samples, channels, rank = coordinates.shape
    return (coordinates.reshape(samples * channels, rank) @ matrix).reshape(samples, channels, -1)


def _closed_form(
    branch: AbstractRegressor, inputs: np.ndarray, targets: Coordinates, weights: np.ndarray | None, **options: Any
) -> Callable[[np.ndarray], Any]:
    return branch.fit(inputs, targets.reshape(len(targets), -1), weights, **options).branch


def _trained(
    branch: AbstractRegressor, inputs: np.ndarray, targets: Coordinates, weights: np.ndarray | None, **options: Any
) -> Callable[[np.ndarray], np.ndarray]:
    """Networks learn the coefficients of the leading modes."""
    samples, channels, modes = targets.shape
    sizes = np.sqrt(np.mean(targets**2, axis=(0, 1)))
    count = max(int((sizes > _NETWORK_MODES * np.linalg.norm(sizes)).sum()), 1)
    coefficients = targets[..., :count].reshape(samples, -1)
    with jax.enable_x64(True):
        found = branch.fit(inputs, coefficients, weights, **options)
    raise_if_interrupted(found.status)  # a trial that was cut short says nothing

    def predict(others: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            leading = values_in_blocks(found.branch, others).reshape(-1, channels, count)
        return np.concatenate([leading, np.zeros((*leading.shape[:2], modes - count))], axis=2)

    return predict


class TrainedTrunk:
    """Parts are left out one after the other, and operators are trained on the rest by the method itself.

    Answers the same questions as `Folds`. Candidates that share a trunk share its training.
    """

    def __init__(
        self,
        data: AnyData,
        method: TwoStep,
        parts: Sequence[Rows],
        *,
        seed: int = 0,
        on_step: OnStep | None = None,
    ) -> None:
        self.data, self.parts, self._method = data, list(parts), method
        self._seed, self._on_step = seed, on_step
        self._step1: dict[str, TrunkResult] = {}
        self._known: dict[str, Operator] = {}

    def errors(self, candidate: Candidate, parts: Sequence[int] | None = None) -> Float[np.ndarray, " samples"]:
        """The relative error of every sample that is left out once; NaN for the others."""
        found = np.full(self.data.samples, np.nan)
        for part in range(len(self.parts)) if parts is None else parts:
            found[self.parts[part]] = self._predicted(candidate, part)[1]
        return found

    def predictions(
        self, candidate: Candidate, parts: Sequence[int] | None = None, modes: int | None = None
    ) -> np.ndarray:
        """Physical outputs of every sample that is left out once, with the modes of the trunk; NaN for others."""
        del modes
        found = np.full(self.data.outputs.shape, np.nan)
        for part in range(len(self.parts)) if parts is None else parts:
            found[self.parts[part]] = self._predicted(candidate, part)[0]
        return found

    def better_modes(self, candidate: Candidate) -> dict[int, float]:
        """None: the trunk is given."""
        del candidate
        return {}

    def enough_modes(self, candidate: Candidate) -> None:
        """Not known: the trunk is given."""
        del candidate

    def is_complete(self, candidate: Candidate) -> bool:
        """Whether a candidate is measured on all parts: closed forms are."""
        is_closed_form = dc.replace(candidate, trunk=None).is_closed_form
        return is_closed_form and isinstance(candidate.trunk or self._method.trunk, ModesTrunk)

    def projection_error(self, candidate: Candidate) -> float:
        """The mean error with the best coefficients on the samples left out: what the trunk alone costs."""
        parts = range(len(self.parts)) if self.is_complete(candidate) else [0]
        every = [evaluate(self._operator(candidate, part), self._left_out(part)).optimal_errors for part in parts]
        return float(np.mean(np.concatenate(every)))

    def training_error(self, candidate: Candidate) -> float:
        """The mean relative error of the samples that the operator without the first part was fitted to."""
        return float(prediction_errors(self._operator(candidate, 0), self._rest(0))[1].mean())

    def _predicted(self, candidate: Candidate, part: int) -> tuple[np.ndarray, np.ndarray]:
        """Predictions of the samples left out, and their errors."""
        return prediction_errors(self._operator(candidate, part), self._left_out(part))

    def _left_out(self, part: int) -> AnyData:
        return self.data.take(self.parts[part])

    def _rest(self, part: int) -> AnyData:
        return self.data.take(np.setdiff1d(np.arange(self.data.samples), self.parts[part]))

    def _operator(self, candidate: Candidate, part: int) -> Operator:
        """The operators of the last candidate are kept."""
        self._known = {key: each for key, each in self._known.items() if key.endswith(str(candidate))}
        key = f"{part} {candidate}"
        if key not in self._known:
            self._known[key] = self._trained(candidate, part)
        return self._known[key]

    def _trained(self, candidate: Candidate, part: int) -> Operator:
        changes = {"inputs": candidate.inputs, "branch": candidate.branch, "weights": candidate.weights}
        others = {"trunk": candidate.trunk, "coordinates": candidate.coordinates, "images": candidate.images}
        method = dc.replace(self._method, **changes, **{k: v for k, v in others.items() if v is not None})
        seen = f"{part} {method.weights} {method.trunk} {method.coordinates}"
        seen += f" {method.inputs}" if method.trunk.sees_inputs else ""
        on_step = None if self.is_complete(candidate) else self._on_step
        with jax.enable_x64(True):
            known = self._step1.get(seen)
            found = method.fit(self._rest(part), key=seed_key(self._seed), on_step=on_step, trunk_result=known)
        raise_if_interrupted(found.status)
        assert found.trunk_result is not None
        self._step1[seen] = found.trunk_result
        return found.operator
