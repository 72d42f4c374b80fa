"""Active-neuron least squares (ANLS) for one hidden ReLU layer.

A reconstruction from the published principles of M. Ainsworth and Y. Shin, "Plateau phenomenon in gradient
descent training of ReLU networks" (SIAM J. Sci. Comput. 43, 2021) and "Active neuron least squares" (SIAM J. Sci.
Comput. 44, 2022): for a fixed activation pattern the fit is linear least squares; stationary points of gradient
descent are local least-squares fits over the active samples; plateaus are left by changing the pattern
explicitly; the loss never rises. Candidates, the exchange gain and the order of work are this library's own.
"""

import dataclasses as dc
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..checkpoints import checkpointed_step
from ..errors import UnknownNameError, ValueRangeError
from ..linear import one_blas_thread
from ..minimisers import Status
from ._abstract import AbstractRegressor, Regression, Task
from ._exchange import Neurons, Samples, fit_output
from ._host import to_host
from ._neuron_journey import NeuronJourney, NeuronState, OnBranch
from ._numbers import generator, mean_square
from ._proposals import local_fits, pair_directions, random_neurons
from ._reduction import reduce
from ._scores import Scores

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
    exact, more keeps the network from reacting to small directions. `on_branch` is called at some fifty of the
    iterations, and with 0 for the start, with the branch they ended with.
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

    def learn(self, task: Task) -> Regression:
        """Fit on the host, in double precision; the logged loss is weighted, the returned one is not."""
        dtype = jnp.dtype(task.targets.dtype)
        with one_blas_thread():
            reduction, samples = reduce(*to_host(task), tolerance=self.input_tolerance)
            journey = NeuronJourney(
                self.iterations,
                generator(task.key),
                lambda neurons: NeuronState(neurons, fit_output(samples, neurons, ridge=self.ridge)),
                lambda state: reduction.branch(state.neurons, state.fit.weights, dtype=dtype),
                task.loss_unit / task.targets.size,
                on_step=task.on_step,
                on_branch=self.on_branch,
            )
            status = self._run(samples, journey)
        branch, history = journey.branch, tuple(journey.history)
        loss = float(mean_square(branch(task.inputs) - task.targets))
        seconds = history[-1].seconds if history else 0.0
        return Regression(branch, loss, status, len(history), seconds, history)

    def _run(self, samples: Samples, journey: NeuronJourney) -> Status:
        place = checkpointed_step(f"active neurons, {self.iterations} iterations")
        if place.saved is None:
            journey.start(random_neurons(samples, self.width, rng=journey.rng))
        else:
            journey.restore(place.saved)
        try:
            while len(journey.history) < self.iterations and journey.idle < _PATIENCE[self.mode]:
                changed, state = self._iterate(samples, journey.state, journey.rng)
                journey.add(state, changed / self.width)
                place.save(journey.snapshot)
        except KeyboardInterrupt:
            if place.journal is not None:
                place.save(journey.snapshot, at_once=True)
                raise
            return "interrupted"
        if not place.is_done:
            place.finish(journey.snapshot)
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
        for exchange in scores.best(local, directions, _TRIES, floor=_WORTHWHILE * scores.fit.loss, rng=rng):
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
