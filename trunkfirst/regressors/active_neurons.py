"""Active-neuron least squares (ANLS) for one hidden ReLU layer.

A reconstruction from the published principles of M. Ainsworth and Y. Shin, "Plateau phenomenon in gradient
descent training of ReLU networks" (SIAM J. Sci. Comput. 43, 2021) and "Active neuron least squares" (SIAM J. Sci.
Comput. 44, 2022): for a fixed activation pattern the fit is linear least squares; stationary points of gradient
descent are local least-squares fits over the active samples; plateaus are left by changing the pattern
explicitly; the loss never rises. Candidates, the exchange gain and the order of work are this library's own.
"""

import dataclasses as dc
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..checkpoints import Snapshot, checkpointed_step
from ..linear.blocked_qr import one_blas_thread
from ..linear.low_rank import principal_directions
from ..minimisers.loop import OnStep, Status
from ..networks.layers import Perceptron
from ..records import LogEntry
from ..settings import Field, kind_field, record
from .base import AbstractRegressor, Regression, Task, generator, mean_square
from .neuron_exchange import (
    Neurons,
    OutputFit,
    Samples,
    Scores,
    fit_output,
    local_fits,
    pair_directions,
    random_neurons,
)

OnBranch: TypeAlias = Callable[[int, Perceptron], None]

# Exchanges tried, the most promising first, before an attempt is given up.
_TRIES = 4
# Pairs of samples that propose directions at each visit of a sweep; in an exchange they are `proposals`.
_SWEEP_PAIRS = 4
# Iterations without any change after which the search stops.
_PATIENCE = {"exchange": 10, "sweep": 1}
# Share of the loss below which a gain is ignored.
_MIN_GAIN = 1e-6


# Branches shown to `on_branch`: with thousands of sensors each takes megabytes.
_MAX_SHOWN = 50


@dc.dataclass(frozen=True, eq=False)
class NeuronState:
    """Neurons, and the best output layer for them."""

    neurons: Neurons
    fit: OutputFit


class NeuronSearch:
    """The search and its log; `state_of` solves for the output layer, `branch_of` makes the network."""

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
        self.history: list[LogEntry] = []

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
        self.history.append(LogEntry("branch", iteration, self.iterations, loss, loss, changed, seconds))
        if iteration % -(-self.iterations // _MAX_SHOWN) == 0:
            self._show(iteration, state)
        if self._on_step is not None:
            self._on_step(self.history[-1])

    def snapshot(self) -> Snapshot:
        """All that is needed to continue, and to show again what was shown."""
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
        """Continue from a snapshot."""
        note, arrays = saved.note, saved.arrays
        *shown, last = map(Neurons, arrays["directions"], arrays["biases"])
        for iteration, neurons in zip(note["shown"], shown, strict=True):
            self._show(iteration, self._state_of(neurons))
        self.state, self.idle = self._state_of(last), note["idle"]
        self.rng.bit_generator.state = note["random"]
        self.history = [LogEntry(*line) for line in note["history"]]
        self._begin = time.perf_counter() - note["seconds"]

    def _show(self, iteration: int, state: NeuronState) -> None:
        if self._on_branch is not None:
            self._shown[iteration] = state.neurons
            self._on_branch(iteration, self._branch_of(state))


@dc.dataclass(frozen=True, eq=False)
class Reduction:
    """coordinates = (inputs - centre) @ matrix; targets = reduced targets @ rows, with orthonormal rows."""

    centre: Float[np.ndarray, " features"]
    matrix: Float[np.ndarray, "features coordinates"]
    rows: Float[np.ndarray, "reduced coefficients"]

    def branch(
        self, neurons: Neurons, weights: Float[np.ndarray, "functions reduced"], *, dtype: np.dtype
    ) -> Perceptron:
        """The network of reduced neurons and output weights, for the original inputs and targets; |w_l| = 1."""
        W = neurons.directions @ self.matrix.T
        b = neurons.biases - W @ self.centre
        G = weights @ self.rows
        lengths = np.linalg.norm(W, axis=1)
        lengths = np.where(lengths > 0, lengths, 1.0)
        hidden, output = W / lengths[:, None], (G[1:] * lengths[:, None]).T
        return Perceptron(
            (jnp.asarray(hidden, dtype), jnp.asarray(output, dtype)),
            (jnp.asarray(b / lengths, dtype), jnp.asarray(G[0], dtype)),
            "relu",
        )


def reduce(
    inputs: Float[np.ndarray, "samples features"],
    targets: Float[np.ndarray, "samples coefficients"],
    weights: Float[np.ndarray, " samples"],
    *,
    tolerance: float,
) -> tuple[Reduction, Samples]:
    """Principal coordinates of the inputs above `tolerance`, with one scale, and of the targets, exactly."""
    centre, roots = inputs.mean(axis=0), np.sqrt(weights)
    s, V = _principal(inputs - centre, tolerance)
    scale = s[0] / np.sqrt(len(inputs)) if s[0] > 0 else 1.0
    matrix = V.T / scale
    rows = principal_directions(targets * roots[:, None], tolerance=1e-14)
    samples = Samples((inputs - centre) @ matrix, (targets * roots[:, None]) @ rows.T, roots)
    return Reduction(centre, matrix, rows), samples


def _principal(
    values: Float[np.ndarray, "samples columns"], tolerance: float
) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, "rank columns"]]:
    """Singular values above `tolerance` times the first, at least one, and their right singular vectors."""
    triangle = np.linalg.qr(values, mode="r") if len(values) > values.shape[1] else values
    _, s, V = np.linalg.svd(triangle, full_matrices=False)
    rank = max(1, int((s > tolerance * s[0]).sum()))
    return s[:rank], V[:rank]


@record
class ActiveNeurons(AbstractRegressor):
    """One hidden ReLU layer whose neurons are exchanged one by one, all output weights refitted each time.

    An iteration of mode "exchange" changes at most one neuron: `proposals` random neurons and as many pairs of
    samples propose directions, every breakpoint along them is scored against every neuron, and the best
    exchange is made if the loss really falls. An iteration of mode "sweep" visits all neurons, each of which
    proposes together with a random other one and four pairs. Dead neurons go first. Both end early where
    nothing changes any more.

    `ridge` acts on columns of unit length. `positions` limits the breakpoints tried along a direction,
    `scoring_samples` the samples that candidates are scored on; the loss always looks at all of them.
    Inputs are reduced to their principal coordinates above `input_tolerance`, relative to the first: 1e-14 is
    exact, more keeps the network from reacting to small directions. `on_branch` is called at some fifty of the
    iterations, and with 0 for the start, with the branch they ended with.
    """

    width: int = Field(default=100, ge=1, description="neurons")
    mode: Literal["exchange", "sweep"] = Field(
        default="exchange", description="one exchange an iteration, or a sweep"
    )
    iterations: int = Field(default=100, ge=1, description="iterations, at most")
    ridge: float = Field(default=1e-13, gt=0, description="ridge on columns of unit length")
    # the search
    proposals: int = Field(
        default=8, ge=1, description="random neurons, and pairs of samples, that propose directions"
    )
    positions: int = Field(default=1000, ge=1, description="breakpoints tried along a direction, at most")
    scoring_samples: int = Field(default=10_000, ge=1, description="samples that candidates are scored on")
    input_tolerance: float = Field(
        default=1e-14, ge=0, description="principal coordinates kept, relative to the first"
    )
    on_branch: OnBranch | None = Field(default=None, repr=False, exclude=True)
    kind: Literal["active-neurons"] = kind_field("active-neurons")

    def with_minimal_budget(self) -> AbstractRegressor:
        return dc.replace(self, mode="exchange", iterations=1)

    def learn(self, task: Task) -> Regression:
        """Fit on the host, in double precision; the logged loss is weighted, the returned one is not."""
        dtype = jnp.dtype(task.targets.dtype)
        with one_blas_thread():
            reduction, samples = reduce(*task.to_host(), tolerance=self.input_tolerance)
            search = NeuronSearch(
                self.iterations,
                generator(task.key),
                lambda neurons: NeuronState(neurons, fit_output(samples, neurons, ridge=self.ridge)),
                lambda state: reduction.branch(state.neurons, state.fit.weights, dtype=dtype),
                task.loss_unit / task.targets.size,
                on_step=task.on_step,
                on_branch=self.on_branch,
            )
            status = self._run(samples, search)
        branch, history = search.branch, tuple(search.history)
        loss = float(mean_square(branch(task.inputs) - task.targets))
        seconds = history[-1].seconds if history else 0.0
        return Regression(branch, loss, status, len(history), seconds, history)

    def _run(self, samples: Samples, search: NeuronSearch) -> Status:
        place = checkpointed_step(f"active neurons, {self.iterations} iterations")
        if place.saved is None:
            search.start(random_neurons(samples, self.width, rng=search.rng))
        else:
            search.restore(place.saved)
        try:
            while len(search.history) < self.iterations and search.idle < _PATIENCE[self.mode]:
                changed, state = self._iterate(samples, search.state, search.rng)
                search.add(state, changed / self.width)
                place.save(search.snapshot)
        except KeyboardInterrupt:
            if place.journal is not None:
                place.save(search.snapshot, at_once=True)
                raise
            return "interrupted"
        if not place.is_done:
            place.finish(search.snapshot)
        return "finished"

    def _iterate(self, samples: Samples, state: NeuronState, rng: np.random.Generator) -> tuple[int, NeuronState]:
        """One iteration: how many neurons changed, and the new state."""
        if self.mode == "exchange":
            sources = rng.choice(self.width, min(self.proposals, self.width), replace=False)
            new = self._attempt(samples, state, sources, self.proposals, rng)
            return int(new is not state), new
        changed = 0
        for source in rng.permutation(self.width):
            sources = np.array([source, rng.integers(self.width)])
            new = self._attempt(samples, state, sources, _SWEEP_PAIRS, rng)
            changed += new is not state
            state = new
        return changed, state

    def _attempt(
        self,
        samples: Samples,
        state: NeuronState,
        sources: Int[np.ndarray, " sources"],
        pairs: int,
        rng: np.random.Generator,
    ) -> NeuronState:
        """The state after the best exchange that lowers the loss, or the same state."""
        scores = self._scores(samples, state, rng)
        local, directions = self._proposals(scores, state, sources, pairs, rng)
        for exchange in scores.best(local, directions, _TRIES, floor=_MIN_GAIN * scores.fit.loss, rng=rng):
            best = scores.refine(exchange)
            neurons = state.neurons.replace(best.neuron, best.direction, best.bias)
            fit = fit_output(samples, neurons, ridge=self.ridge)
            if fit.loss < state.fit.loss:
                return NeuronState(neurons, fit)
        return state

    def _proposals(
        self,
        scores: Scores,
        state: NeuronState,
        sources: Int[np.ndarray, " sources"],
        pairs: int,
        rng: np.random.Generator,
    ) -> tuple[Neurons, Float[np.ndarray, "directions coordinates"]]:
        """Candidates as they are, and directions to try every breakpoint along."""
        local = local_fits(scores.samples, state.neurons, scores.fit, sources)
        if local.directions.shape[1] == 1:
            return local, np.array([[1.0], [-1.0]])
        pairwise = pair_directions(scores.samples, pairs, rng=rng)
        return local, np.vstack([state.neurons.directions[sources], local.directions[: len(sources)], pairwise])

    def _scores(self, samples: Samples, state: NeuronState, rng: np.random.Generator) -> Scores:
        """Scores on all samples, or on a random choice of them where there are many."""
        fit = state.fit
        if len(samples.roots) > self.scoring_samples:
            samples = samples.take(rng.choice(len(samples.roots), self.scoring_samples, replace=False))
            fit = fit_output(samples, state.neurons, ridge=self.ridge)
        neurons = np.flatnonzero(fit.is_dead) if fit.is_dead.any() else np.arange(self.width)
        return Scores(samples, fit, neurons, self.positions)
