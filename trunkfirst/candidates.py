"""What a search tries: encoders of the inputs, branches, and how they are named."""

import dataclasses as dc
from collections.abc import Sequence

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
)
from .records import CandidateSettings
from .regressors.active_neurons import ActiveNeurons
from .regressors.base import AbstractRegressor
from .regressors.network import JointBranch, NetworkBranch
from .regressors.ridge import Kernel, Linear
from .trunks import AbstractTrunk

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
    if (inputs > 0).all(axis=0).any():
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
    is_positive = (data.flat_inputs > 0).all(axis=0).any()
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
