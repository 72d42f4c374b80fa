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
from ..minimisers.loop import Status
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
# Iterations shown to `on_branch`: with thousands of sensors each branch takes megabytes.
_MAX_KEPT = 50


@dc.dataclass(frozen=True, eq=False)
class NeuronState:
    """Neurons, and the best output layer for them."""

    neurons: Neurons
    fit: OutputFit


@dc.dataclass(eq=False)
class SearchProgress:
    """The search between two iterations: what a checkpoint holds."""

    state: NeuronState
    rng: np.random.Generator
    begin: float = dc.field(default_factory=time.perf_counter)
    idle: int = 0
    """Iterations since the last change."""
    history: list[LogEntry] = dc.field(default_factory=list)
    kept: dict[int, Neurons] = dc.field(default_factory=dict)
    """The neurons after some of the iterations, for `on_branch`."""

    def snapshot(self) -> Snapshot:
        """All that is needed to continue."""
        note = {
            "idle": self.idle,
            "random": self.rng.bit_generator.state,
            "seconds": time.perf_counter() - self.begin,
            "history": [dc.astuple(entry) for entry in self.history],
            "kept": list(self.kept),
        }
        stacked = [vars(neurons) for neurons in (*self.kept.values(), self.state.neurons)]
        return Snapshot({name: np.stack([each[name] for each in stacked]) for name in stacked[0]}, note)

    def restore(self, saved: Snapshot, state_of: Callable[[Neurons], NeuronState]) -> None:
        """Continue from a snapshot."""
        note = saved.note
        *kept, last = map(Neurons, saved.arrays["directions"], saved.arrays["biases"])
        self.kept = dict(zip(note["kept"], kept, strict=True))
        self.state, self.idle = state_of(last), note["idle"]
        self.rng.bit_generator.state = note["random"]
        self.history = [LogEntry(*line) for line in note["history"]]
        self.begin = time.perf_counter() - note["seconds"]


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
    exact, more keeps the network from reacting to small directions. `on_branch` is called at the end, with some
    fifty of the iterations and the branches they ended with.
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

            def state_of(neurons: Neurons) -> NeuronState:
                return NeuronState(neurons, fit_output(samples, neurons, ridge=self.ridge))

            def branch_of(state: NeuronState) -> Perceptron:
                return reduction.branch(state.neurons, state.fit.weights, dtype=dtype)

            status, progress = self._search(samples, state_of, task)
            branch, history = branch_of(progress.state), tuple(progress.history)
            if self.on_branch is not None:
                for iteration, neurons in progress.kept.items():
                    self.on_branch(iteration, branch_of(state_of(neurons)))
        loss = float(mean_square(branch(task.inputs) - task.targets))
        seconds = history[-1].seconds if history else 0.0
        return Regression(branch, loss, status, len(history), seconds, history)

    def _search(
        self, samples: Samples, state_of: Callable[[Neurons], NeuronState], task: Task
    ) -> tuple[Status, SearchProgress]:
        step, rng = checkpointed_step(f"active neurons, {self.iterations} iterations"), generator(task.key)
        progress = SearchProgress(state_of(random_neurons(samples, self.width, rng=rng)), rng)
        if step.saved is not None:
            progress.restore(step.saved, state_of)
        with step.interruptible(progress.snapshot):
            while len(progress.history) < self.iterations and progress.idle < _PATIENCE[self.mode]:
                changed, progress.state = self._iterate(samples, progress.state, rng)
                progress.idle = 0 if changed else progress.idle + 1
                self._log(progress, changed, task)
                step.save(progress.snapshot)
        if step.is_interrupted:
            return "interrupted", progress
        step.finish(progress.snapshot)
        return "finished", progress

    def _log(self, progress: SearchProgress, changed: int, task: Task) -> None:
        """Add a line to the log; its rate is the share of neurons that changed."""
        loss = progress.state.fit.loss * (task.loss_unit / task.targets.size)
        seconds, iteration = time.perf_counter() - progress.begin, len(progress.history) + 1
        entry = LogEntry("branch", iteration, self.iterations, loss, loss, changed / self.width, seconds)
        progress.history.append(entry)
        if self.on_branch is not None and iteration % -(-self.iterations // _MAX_KEPT) == 0:
            progress.kept[iteration] = progress.state.neurons
        if task.on_step is not None:
            task.on_step(entry)

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
