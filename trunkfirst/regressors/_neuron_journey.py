"""Active-neuron least squares on its way: the neurons, the log, and both as a snapshot that can be taken up."""

import dataclasses as dc
import time
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ..checkpoints import Snapshot
from ..minimisers import OnStep, Step
from ..networks import Perceptron
from ._exchange import Neurons, OutputFit

OnBranch: TypeAlias = Callable[[int, Perceptron], None]

# Branches shown to `on_branch`: with thousands of sensors each takes megabytes.
_MOST_SHOWN = 50


@dc.dataclass(frozen=True, eq=False)
class NeuronState:
    """Neurons, and the best output layer for them."""

    neurons: Neurons
    fit: OutputFit


class NeuronJourney:
    """Where the search stands. `state_of` solves for the output layer, `branch_of` makes the network."""

    def __init__(
        self,
        iterations: int,
        rng: np.random.Generator,
        state_of: Callable[[Neurons], NeuronState],
        branch_of: Callable[[NeuronState], Perceptron],
        loss_unit: float,
        *,
        on_step: OnStep | None,
        on_branch: OnBranch | None,
    ):
        self.iterations, self.rng, self.loss_unit = iterations, rng, loss_unit
        self._state_of, self._branch_of = state_of, branch_of
        self._on_step, self._on_branch = on_step, on_branch
        self._shown: dict[int, Neurons] = {}
        self._begin = time.perf_counter()
        self.state: NeuronState
        self.idle = 0
        """Iterations since the last change."""
        self.history: list[Step] = []

    @property
    def branch(self) -> Perceptron:
        """The network as it is now."""
        return self._branch_of(self.state)

    def start(self, neurons: Neurons) -> None:
        """Begin with these neurons."""
        self.state = self._state_of(neurons)
        self._show(0, self.state)

    def add(self, state: NeuronState, changed: float) -> None:
        """An iteration, and the share of neurons that it changed."""
        self.state, self.idle = state, 0 if changed else self.idle + 1
        iteration, loss = len(self.history) + 1, state.fit.loss * self.loss_unit
        seconds = time.perf_counter() - self._begin
        self.history.append(Step("branch", iteration, self.iterations, loss, loss, changed, seconds))
        if iteration % -(-self.iterations // _MOST_SHOWN) == 0:
            self._show(iteration, state)
        if self._on_step is not None:
            self._on_step(self.history[-1])

    def snapshot(self) -> Snapshot:
        """All that is needed to go on, and to show again what was shown."""
        kept = [*self._shown.values(), self.state.neurons]
        arrays = {
            "directions": np.stack([neurons.directions for neurons in kept]),
            "biases": np.stack([neurons.biases for neurons in kept]),
        }
        note = {
            "idle": self.idle,
            "random": self.rng.bit_generator.state,
            "seconds": time.perf_counter() - self._begin,
            "history": [dc.astuple(step) for step in self.history],
            "shown": list(self._shown),
        }
        return Snapshot(arrays, note)

    def restore(self, saved: Snapshot) -> None:
        """Stand where the snapshot was taken."""
        note, arrays = saved.note, saved.arrays
        *shown, last = map(Neurons, arrays["directions"], arrays["biases"])
        for iteration, neurons in zip(note["shown"], shown, strict=True):
            self._show(iteration, self._state_of(neurons))
        self.state, self.idle = self._state_of(last), note["idle"]
        self.rng.bit_generator.state = note["random"]
        self.history = [Step(*line) for line in note["history"]]
        self._begin = time.perf_counter() - note["seconds"]

    def _show(self, iteration: int, state: NeuronState) -> None:
        if self._on_branch is not None:
            self._shown[iteration] = state.neurons
            self._on_branch(iteration, self._branch_of(state))
