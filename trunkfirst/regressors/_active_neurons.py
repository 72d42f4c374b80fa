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
from typing import ClassVar, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import UnknownNameError, ValueRangeError
from ..linear import one_blas_thread
from ..minimisers import OnStep, Status, Step
from ..networks import Perceptron
from ._abstract import AbstractRegressor, Regression, mean_square
from ._exchange import Neurons, OutputFit, Samples, fit_output
from ._host import generator, to_host
from ._proposals import local_fits, pair_directions, random_neurons
from ._reduction import Reduction, reduce
from ._scores import Scores

OnBranch: TypeAlias = Callable[[int, Perceptron], None]

# Exchanges tried, the most promising first, before an attempt is given up.
_TRIES = 4
# Pairs of samples that propose directions at each visit of a sweep; in an exchange they are `proposals`.
_SWEEP_PAIRS = 4
# Iterations without any change after which there is no hope.
_PATIENCE = {"exchange": 10, "sweep": 1}
# Share of the loss below which a gain is not worth an exchange.
_WORTHWHILE = 1e-6


@dc.dataclass(frozen=True)
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
    exact, more keeps the network from reacting to small directions. `on_branch` is called with the iteration,
    0 for the start, and the branch it ended with.
    """

    kind: ClassVar[str] = "active-neurons"
    width: int = 100
    mode: str = "exchange"
    iterations: int = 100
    ridge: float = 1e-13
    # the search
    proposals: int = 8
    positions: int = 1000
    scoring_samples: int = 10_000
    input_tolerance: float = 1e-14
    on_branch: OnBranch | None = dc.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.mode not in ("exchange", "sweep"):
            raise UnknownNameError("mode of active-neuron least squares", self.mode, ("exchange", "sweep"))
        for name in ("width", "iterations", "proposals", "positions", "scoring_samples"):
            if getattr(self, name) < 1:
                raise ValueRangeError(f"{name} is {getattr(self, name)}; expected at least 1")
        if not self.ridge > 0:
            raise ValueRangeError(f"ridge is {self.ridge}; expected more than 0, which dead neurons need")

    def briefly(self) -> AbstractRegressor:
        return dc.replace(self, mode="exchange", iterations=1)

    def fit(
        self,
        inputs: Float[Array, "samples features"],
        targets: Float[Array, "samples coefficients"],
        weights: Float[Array, " samples"] | None = None,
        *,
        key: PRNGKeyArray,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        """Fit on the host, in double precision; the logged loss is weighted, the returned one is not."""
        with one_blas_thread():
            reduction, samples = reduce(*to_host(inputs, targets, weights), tolerance=self.input_tolerance)
            log = _Log(self, reduction, loss_unit / targets.size, jnp.dtype(targets.dtype), on_step)
            status = self._run(samples, generator(key), log)
        loss = float(mean_square(log.branch(inputs) - targets))
        return Regression(log.branch, loss, status, len(log.history), log.seconds, tuple(log.history))

    def _run(self, samples: Samples, rng: np.random.Generator, log: "_Log") -> Status:
        neurons = random_neurons(samples, self.width, rng=rng)
        state = _State(neurons, fit_output(samples, neurons, ridge=self.ridge))
        log.start(state)
        idle = 0
        try:
            for iteration in range(1, self.iterations + 1):
                changed, state = self._iterate(samples, state, rng)
                log.add(iteration, state, changed / self.width)
                idle = 0 if changed else idle + 1
                if idle == _PATIENCE[self.mode]:
                    break
        except KeyboardInterrupt:
            return "interrupted"
        return "finished"

    def _iterate(self, samples: Samples, state: "_State", rng: np.random.Generator) -> tuple[int, "_State"]:
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
        state: "_State",
        sources: Int[np.ndarray, " sources"],
        pairs: int,
        rng: np.random.Generator,
    ) -> "_State":
        """The state after the best exchange that lowers the loss, or the same state."""
        scores = self._scores(samples, state, rng)
        local, directions = self._proposals(scores, state, sources, pairs, rng)
        for exchange in scores.best(local, directions, _TRIES, floor=_WORTHWHILE * scores.fit.loss, rng=rng):
            best = scores.refine(exchange)
            neurons = state.neurons.replace(best.neuron, best.direction, best.bias)
            fit = fit_output(samples, neurons, ridge=self.ridge)
            if fit.loss < state.fit.loss:
                return _State(neurons, fit)
        return state

    def _proposals(
        self,
        scores: Scores,
        state: "_State",
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

    def _scores(self, samples: Samples, state: "_State", rng: np.random.Generator) -> Scores:
        """Scores on all samples, or on a random choice of them where there are many."""
        fit = state.fit
        if len(samples.roots) > self.scoring_samples:
            samples = samples.take(rng.choice(len(samples.roots), self.scoring_samples, replace=False))
            fit = fit_output(samples, state.neurons, ridge=self.ridge)
        neurons = np.flatnonzero(fit.is_dead) if fit.is_dead.any() else np.arange(self.width)
        return Scores(samples, fit, neurons, self.positions)


@dc.dataclass(frozen=True, eq=False)
class _State:
    neurons: Neurons
    fit: OutputFit


class _Log:
    """The history, and the branch of the last iteration."""

    def __init__(
        self, method: ActiveNeurons, reduction: Reduction, unit: float, dtype: jnp.dtype, on_step: OnStep | None
    ):
        self.method, self.reduction, self.unit, self.dtype, self.on_step = method, reduction, unit, dtype, on_step
        self.history: list[Step] = []
        self.begin = time.perf_counter()
        self.seconds = 0.0
        self.branch: Perceptron

    def start(self, state: _State) -> None:
        """Note the branch before the first iteration."""
        self._take(0, state)

    def add(self, iteration: int, state: _State, changed: float) -> None:
        """Note an iteration; its rate is the share of neurons changed."""
        self._take(iteration, state)
        self.seconds = time.perf_counter() - self.begin
        loss = state.fit.loss * self.unit
        step = Step("branch", iteration, self.method.iterations, loss, loss, changed, self.seconds)
        self.history.append(step)
        if self.on_step is not None:
            self.on_step(step)

    def _take(self, iteration: int, state: _State) -> None:
        self.branch = self.reduction.branch(state.neurons, state.fit.weights, dtype=self.dtype)
        if self.method.on_branch is not None:
            self.method.on_branch(iteration, self.branch)
