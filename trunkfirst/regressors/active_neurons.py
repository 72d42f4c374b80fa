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


@dc.dataclass(frozen=True, eq=False)
class Reduction:
    """coordinates = (inputs - centre) @ matrix; targets = reduced targets @ rows, with orthonormal rows."""

    centre: Float[np.ndarray, " features"]
    matrix: Float[np.ndarray, "features coordinates"]
    rows: Float[np.ndarray, "reduced coefficients"]

    def branch(self, state: NeuronState, *, dtype: np.dtype) -> Perceptron:
        """The network for the original inputs and targets; |w_l| = 1."""
        W = state.neurons.directions @ self.matrix.T
        b = state.neurons.biases - W @ self.centre
        G = state.fit.weights @ self.rows
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

    An iteration of mode "exchange" changes at most one neuron. Directions come from `proposals` random neurons and
    as many pairs of samples. Every breakpoint along them is scored as a replacement of every neuron, and the best
    exchange is made if it reduces the loss. An iteration of mode "sweep" visits all neurons; the directions come
    from the neuron, a random other one and four pairs. Neurons that are never active are replaced first. Both end
    early if nothing changes any more.

    `ridge` acts on columns of unit length. `positions` limits the breakpoints tried along a direction,
    `scoring_samples` the samples on which candidates are scored; the loss always uses all samples.
    Inputs are reduced to their principal components above `input_tolerance`, relative to the first: 1e-14 is
    exact, a larger value keeps the network from reacting to small directions.

    >>> ActiveNeurons(width=50, iterations=20).iterations
    20
    """

    width: int = Field(default=100, ge=1, description="neurons")
    mode: Literal["exchange", "sweep"] = Field(
        default="exchange", description="exchange: one neuron in an iteration; sweep: all"
    )
    iterations: int = Field(default=100, ge=1, description="largest number of iterations")
    ridge: float = Field(default=1e-13, gt=0, description="ridge on columns of unit length")
    # the search
    proposals: int = Field(
        default=8, ge=1, description="random neurons, and pairs of samples, that propose directions"
    )
    positions: int = Field(default=1000, ge=1, description="largest number of breakpoints tried along a direction")
    scoring_samples: int = Field(default=10_000, ge=1, description="samples on which candidates are scored")
    input_tolerance: float = Field(
        default=1e-14, ge=0, description="smallest principal component that is kept, relative to the first"
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
            search = NeuronSearch(self, samples, task)
            status = search.run()
            branch = reduction.branch(search.state, dtype=dtype)
            if self.on_branch is not None:
                for iteration, neurons in search.kept.items():
                    self.on_branch(iteration, reduction.branch(search.state_of(neurons), dtype=dtype))
        loss, history = float(mean_square(branch(task.inputs) - task.targets)), tuple(search.history)
        seconds = history[-1].seconds if history else 0.0
        return Regression(branch, loss, status, len(history), seconds, history)


class NeuronSearch:
    """The search from random neurons on, and its log."""

    def __init__(self, method: ActiveNeurons, samples: Samples, task: Task):
        self.method, self.samples, self.task, self.rng = method, samples, task, generator(task.key)
        self.state = self.state_of(random_neurons(samples, method.width, rng=self.rng))
        self.history: list[LogEntry] = []
        self.kept: dict[int, Neurons] = {}
        """The neurons after some of the iterations, for `on_branch`."""
        self._idle, self._begin = 0, time.perf_counter()
        self._random = self.rng.bit_generator.state

    def run(self) -> Status:
        """Iterate until the end, or until nothing changes any more."""
        method, step = self.method, checkpointed_step(f"active neurons, {self.method.iterations} iterations")
        if step.saved is not None:
            self._restore(step.saved)
        with step.interruptible(self._snapshot):
            while len(self.history) < method.iterations and self._idle < _PATIENCE[method.mode]:
                changed, self.state = self.iterate()
                self._end_iteration(changed)
                step.save(self._snapshot)
        if step.is_interrupted:
            return "interrupted"
        step.finish(self._snapshot)
        return "finished"

    def state_of(self, neurons: Neurons) -> NeuronState:
        """The neurons with their output layer."""
        return NeuronState(neurons, fit_output(self.samples, neurons, ridge=self.method.ridge))

    def iterate(self) -> tuple[int, NeuronState]:
        """One iteration: how many neurons changed, and the new state."""
        method, rng, state, changed = self.method, self.rng, self.state, 0
        if method.mode == "exchange":
            sources = rng.choice(method.width, min(method.proposals, method.width), replace=False)
            new = self._attempt(state, sources, method.proposals)
            return int(new is not state), new
        for source in rng.permutation(method.width):
            new = self._attempt(state, np.array([source, rng.integers(method.width)]), _SWEEP_PAIRS)
            changed += new is not state
            state = new
        return changed, state

    def _attempt(self, state: NeuronState, sources: Int[np.ndarray, " sources"], pairs: int) -> NeuronState:
        """The state after the best exchange that lowers the loss, or the same state."""
        scores = self._scores(state)
        local = local_fits(scores.samples, state.neurons, scores.fit, sources)
        directions = np.array([[1.0], [-1.0]])
        if local.directions.shape[1] > 1:
            pairwise = pair_directions(scores.samples, pairs, rng=self.rng)
            own = state.neurons.directions[sources]
            directions = np.vstack([own, local.directions[: len(sources)], pairwise])
        for exchange in scores.best(local, directions, _TRIES, floor=_MIN_GAIN * scores.fit.loss, rng=self.rng):
            best = scores.refine(exchange)
            new = self.state_of(state.neurons.replace(best.neuron, best.direction, best.bias))
            if new.fit.loss < state.fit.loss:
                return new
        return state

    def _scores(self, state: NeuronState) -> Scores:
        """Scores on all samples, or on a random choice of them where there are many."""
        samples, fit, most = self.samples, state.fit, self.method.scoring_samples
        if len(samples.roots) > most:
            samples = samples.take(self.rng.choice(len(samples.roots), most, replace=False))
            fit = fit_output(samples, state.neurons, ridge=self.method.ridge)
        return Scores(samples, fit, self.method.positions)

    def _end_iteration(self, changed: int) -> None:
        """Add a line to the log; its rate is the share of neurons that changed."""
        method, task, iteration = self.method, self.task, len(self.history) + 1
        self._idle = 0 if changed else self._idle + 1
        self._random = self.rng.bit_generator.state
        loss = self.state.fit.loss * (task.loss_unit / task.targets.size)
        seconds = time.perf_counter() - self._begin
        entry = LogEntry("branch", iteration, method.iterations, loss, loss, changed / method.width, seconds)
        self.history.append(entry)
        if method.on_branch is not None and iteration % -(-method.iterations // _MAX_KEPT) == 0:
            self.kept[iteration] = self.state.neurons
        if task.on_step is not None:
            task.on_step(entry)

    def _snapshot(self) -> Snapshot:
        """All that is needed to continue after the last iteration."""
        note = {
            "idle": self._idle,
            "random": self._random,
            "seconds": time.perf_counter() - self._begin,
            "history": [dc.astuple(entry) for entry in self.history],
            "kept": list(self.kept),
        }
        stacked = [vars(neurons) for neurons in (*self.kept.values(), self.state.neurons)]
        return Snapshot({name: np.stack([each[name] for each in stacked]) for name in stacked[0]}, note)

    def _restore(self, saved: Snapshot) -> None:
        note = saved.note
        *kept, last = map(Neurons, saved.arrays["directions"], saved.arrays["biases"])
        self.kept = dict(zip(note["kept"], kept, strict=True))
        self.state, self._idle = self.state_of(last), note["idle"]
        self.rng.bit_generator.state = self._random = note["random"]
        self.history = [LogEntry(*line) for line in note["history"]]
        self._begin = time.perf_counter() - note["seconds"]
