"""What a search tries: encoders of the inputs, branches, and how they are named."""

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .data.array_checks import evenly
from .data.operator_data import InputFunction, OperatorData
from .data.scattered_data import AnyData
from .inputs import (
    AbstractInputs,
    Coordinates,
    PerInput,
    PowerInputs,
    PredictiveInputs,
    PrincipalInputs,
    StandardisedInputs,
    input_modes,
    positive_sensors,
)
from .linear.low_rank import principal_rows
from .networks.grids import grid_order, is_grid
from .records import CandidateSettings
from .regressors.active_neurons import ActiveNeurons
from .regressors.base import AbstractRegressor
from .regressors.network import JointBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .trunks import AbstractTrunk

# With fewer samples than this every fold has one of them.
_LEAVE_ONE_OUT = 10
# From this number on a tenth that is left out is enough where nothing is measured.
_ONE_SPLIT, _TENTH = 500, 10
# Samples left out of which one half gives intervals at 0.9.
_ENOUGH = 20

FOLDS = 5
# Of more samples, a random part is looked at.
MAX_SAMPLES = 4000

# Iterations of a network in a comparison; more while its decay is chosen, because overfitting must show.
BRIEF_ITERATIONS = 30
_DECAYS = (1e-4, 1e-6, 1e-8)
_MAX_SENSORS, _FEW_SENSORS = 1000, 32
_COUNTS = (4, 8, 16, 32, 64)
_SMOOTHNESS = {"inf": "Gaussian ", "5/2": "", "3/2": "Matern 3/2 ", "1/2": "Matern 1/2 "}
_MAX_FOR_NEURONS, _NEURON_ITERATIONS = 2000, 100


@dc.dataclass(frozen=True)
class Candidate:
    """A branch with the encoder of its inputs, and whether samples count by their relative errors."""

    inputs: AbstractInputs
    branch: AbstractRegressor
    weights: str = "relative"
    trunk: AbstractTrunk | None = None
    """Another trunk than that of the comparison."""
    modes: int | None = None
    """The number of modes; None for all."""
    coordinates: Coordinates | None = None
    """How this trunk sees the points; as the method says if left out."""
    images: int | None = None
    """Samples and images under symmetries that the branch learns from; the samples alone if left out."""

    @property
    def is_closed_form(self) -> bool:
        """Whether it is fitted without iterations, in NumPy."""
        return isinstance(self.branch, Linear | Kernel) and self.trunk is None


# -- encoders


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
    if positive_sensors(inputs).any():
        return [StandardisedInputs(), *(StandardisedInputs(f) for f in ("log", "inverse", "inverse-root"))]
    return [StandardisedInputs()]


def kernel_encodings(data: AnyData) -> list[AbstractInputs]:
    """Encoders for kernels with one length: those that keep enough of a function."""
    sensors = data.flat_inputs.shape[1]
    if len(data.inputs) not in (1, sensors) or sensors <= 8:
        return encoding_candidates(data)
    # More coordinates than the inputs have are the same for all counts.
    most = next((count for count in _COUNTS if count >= len(input_modes(data).sizes)), _COUNTS[-1])
    return [StandardisedInputs(), *(PrincipalInputs(count) for count in _COUNTS if count <= most)]


def anisotropic_encodings(data: AnyData, best: Sequence[AbstractInputs]) -> list[AbstractInputs]:
    """Encoders for kernels with a length for every feature: few features, or those `best` for one length."""
    sensors = data.flat_inputs.shape[1]
    if sensors > _FEW_SENSORS:
        return [each for each in best if _features(each, data) <= _FEW_SENSORS][:2]
    is_positive = positive_sensors(data.flat_inputs).any()
    is_plain = isinstance(data, OperatorData) and (len(data.inputs) == 1 or sensors == len(data.inputs))
    return [StandardisedInputs(), *([PowerInputs()] if is_positive and is_plain else [])]


def _features(encoding: AbstractInputs, data: AnyData) -> int:
    match encoding:
        case PrincipalInputs(count=count):
            return count
        case PerInput(encodings=parts):
            return sum(_features(each, dc.replace(data, inputs={n: data.inputs[n]})) for n, each in parts.items())
        case _:
            return data.flat_inputs.shape[1]


# -- branches


def with_decays(name: str, base: Candidate) -> dict[str, Candidate]:
    """A network with other weight decays."""
    return {
        f"{name}, decay {decay:.0e}": dc.replace(base, branch=dc.replace(base.branch, decay=decay))
        for decay in _DECAYS
    }


def with_weights(name: str, base: Candidate, others: Sequence[str]) -> dict[str, Candidate]:
    """A candidate with other sample weights."""
    return {f"{name}, weights {each}": dc.replace(base, weights=each) for each in others}


def special_branches(network: NetworkBranch, data: AnyData, weights: str) -> dict[str, Candidate]:
    """Branches for special inputs: active neurons in few coordinates."""
    if data.samples > _MAX_FOR_NEURONS:
        return {}
    encoder = PrincipalInputs(2) if data.flat_inputs.shape[1] > 8 else StandardisedInputs()
    neurons = ActiveNeurons(width=network.hidden[0], iterations=_NEURON_ITERATIONS)
    return {f"active-neurons, {encoder}": Candidate(encoder, neurons, weights)}


def brief(candidate: Candidate, most: int, *, is_auto: bool) -> Candidate:
    """The candidate with a short training, for comparing; where decay acts it takes longer to show."""
    branch = candidate.branch
    if not isinstance(branch, NetworkBranch | JointBranch | ActiveNeurons):
        return candidate
    has_decay = branch.decay > 0 if isinstance(branch, NetworkBranch) else is_auto
    return with_iterations(candidate, min(branch.iterations, most if has_decay else min(most, BRIEF_ITERATIONS)))


def with_iterations(candidate: Candidate, iterations: int) -> Candidate:
    """The candidate with this number of iterations of its branch."""
    return dc.replace(candidate, branch=dc.replace(candidate.branch, iterations=iterations))


# -- names


def kind_of_branch(branch: AbstractRegressor) -> str:
    """The kind of a branch as candidates are named."""
    if isinstance(branch, NetworkBranch) and branch.convolution:
        return "convolution"
    if isinstance(branch, Kernel):
        factor = " x linear" if branch.linear_factor else ""
        return f"{_SMOOTHNESS[branch.smoothness]}{'ARD ' * (branch.lengths == 'each')}kernel{factor}"
    return getattr(branch, "kind", type(branch).__name__)


def settings_of(candidate: Candidate) -> CandidateSettings:
    """The settings of a candidate for `metrics.json`."""
    branch = candidate.branch
    is_trained = getattr(branch, "iterations", 1) > 0
    decay = getattr(branch, "decay", 0.0)
    return CandidateSettings(kind_of_branch(branch), str(candidate.inputs), candidate.weights, decay, is_trained)


# Fewer values say little about a period. At the seam, second differences may be this much larger than elsewhere.
_FEWEST, _SEAM = 8, 1.5
# Modes with this share of the squares of the outputs oscillate if they have this many waves; frequencies to try.
_MODES_SHARE, _WAVES, _FREQUENCIES = 0.99, 4.0, 32
_MAX_ROWS = 500


def coordinate_candidates(given: Coordinates, data: OperatorData) -> dict[str, dict[str, Any]]:
    """Settings to try for a network trunk, by name: periods and waves on a grid, where none are given."""
    if not is_grid(data.points):
        return {}
    found: dict[str, dict[str, Any]] = {}
    if not given.periods and (periods := periods_on_grid(data)):
        found[f"periodic in {', '.join(periods)}"] = {"periods": periods}
    if not given.fourier and (waves := waves_on_grid(data)) >= _WAVES:
        found[f"{_FREQUENCIES} waves"] = {"fourier": _FREQUENCIES, "cycles": round(1.5 * waves, 1)}
    return found


def periods_on_grid(data: OperatorData) -> dict[str, float]:
    """Periods of evenly spaced coordinates where values and slopes at both ends match, in all samples.

    The last point may be the first one of the next period or the one before it.
    """
    axes, fields = _on_grid(data)
    found: dict[str, float] = {}
    for number, (name, x) in enumerate(zip(data.coordinate_names, axes, strict=True)):
        steps, values = np.diff(x), np.moveaxis(fields, number + 1, 0)
        if len(x) < _FEWEST or np.ptp(steps) > 1e-6 * steps[0]:
            continue
        if _is_cyclic(values[:-1], values[-1] - values[0]):
            found[name] = float(x[-1] - x[0])
        elif _is_cyclic(values):
            found[name] = float(x[-1] - x[0] + steps.mean())
    return found


def _is_cyclic(values: Float[np.ndarray, "n ..."], apart: np.ndarray | float = 0.0) -> bool:
    """Whether a sequence continues with its first value: its second differences there are like all others."""
    bends = np.abs(np.roll(values, -1, axis=0) - 2 * values + np.roll(values, 1, axis=0))
    inside = bends[1:-1].max()
    seam = max(bends[0].max(), bends[-1].max(), float(np.abs(apart).max()))
    return bool(1e-12 * np.abs(values).max() < inside and seam <= _SEAM * inside)


def waves_on_grid(data: OperatorData) -> float:
    """Waves across the box in the leading modes of the outputs, along the coordinate that has the most."""
    axes, fields = _on_grid(data)
    rows = np.moveaxis(fields, -1, 1).reshape(-1, len(data.points))
    sizes, modes, _ = principal_rows(rows[evenly(len(rows), _MAX_ROWS)], 1e-12)
    before = np.concatenate([[0.0], np.cumsum(sizes**2)[:-1]])
    leading = modes[before < _MODES_SHARE * np.sum(sizes**2)].reshape(-1, *map(len, axes))
    is_positive = leading > 0
    changes = [
        np.mean(np.sum(np.diff(is_positive, axis=axis + 1), axis=axis + 1), axis=tuple(range(1, len(axes))))
        for axis in range(len(axes))
    ]
    return float(np.max(changes)) / 2


def _on_grid(data: OperatorData) -> tuple[list[np.ndarray], Float[np.ndarray, "samples ..."]]:
    """The axes, and the outputs with an axis for each, then the channels."""
    axes, order = grid_order(data.points)
    outputs = data.outputs if data.is_multichannel else data.outputs[..., None]
    return axes, outputs[:, order].reshape(data.samples, *map(len, axes), -1)


def parts_of(order: Int[np.ndarray, " rows"], *, measured: bool) -> list[Int[np.ndarray, " part"]]:
    """Rows to leave out, a fold after the other, of rows in random order."""
    if not measured and len(order) >= _ONE_SPLIT:
        return [np.sort(order[: len(order) // _TENTH])]
    folds = len(order) if len(order) < _LEAVE_ONE_OUT else FOLDS
    return [np.sort(part) for part in np.array_split(order, folds)]


def one_part(order: Int[np.ndarray, " rows"]) -> list[Int[np.ndarray, " part"]]:
    """A fifth of the rows, more if half of it would be too few samples for intervals, but at most a third."""
    return [np.sort(order[: max(len(order) // FOLDS, min(len(order) // 3, _ENOUGH), 1)])]


# Fewer modes, which hold less noise, must be this much better; modes that are not needed may add this to an error.
_FEWER_MODES, _ENOUGH_MODES = 0.99, 1.005


@dc.dataclass(frozen=True)
class ModeCounts:
    """Numbers of modes that are better than all, with their mean errors; the fewest that are as good as all."""

    better: dict[int, float]
    enough: int

    @classmethod
    def of(
        cls, errors: Float[np.ndarray, "samples counts"], counts: Sequence[int], parts: Sequence[np.ndarray]
    ) -> "ModeCounts":
        """From errors with all modes, and with fewer and fewer of them; NaN for samples that were not left out."""
        means = np.nan_to_num(_means(errors), nan=np.inf)
        others = (np.setdiff1d(np.arange(len(errors)), rows) for rows in parts)
        best = {_best_column(errors[rows]) for rows in others}
        # One after the other, because a mean may be decided by the few worst samples.
        growth = _means(errors / np.maximum(errors[:, :1], np.finfo(float).tiny))
        enough = [count for count, each in zip(counts, growth, strict=True) if each <= _ENOUGH_MODES]
        better = {counts[k]: float(means[k]) for k in sorted(best - {0}, reverse=True)}
        return cls(better, enough[-1] if enough else counts[0])


def _best_column(errors: Float[np.ndarray, "samples counts"]) -> int:
    """The column with the least mean error; the first unless another is clearly better."""
    means = np.nan_to_num(_means(errors), nan=np.inf)
    best = int(np.argmin(means))
    return best if means[best] < _FEWER_MODES * means[0] else 0


def _means(errors: Float[np.ndarray, "samples counts"]) -> Float[np.ndarray, " counts"]:
    return np.nanmean(errors, axis=0) if np.isfinite(errors).any() else np.full(errors.shape[1], np.inf)
