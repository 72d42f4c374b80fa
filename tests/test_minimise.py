"""The loop: compiles once, logs, stops cleanly, keeps the best."""

import math
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import has_same_bits
from jaxtyping import Array, Float, PRNGKeyArray
from test_separable import problem as separable

from trunkfirst.checkpoints import keep_checkpoints
from trunkfirst.errors import ValueRangeError
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import (
    AbstractMinimiser,
    AbstractObjective,
    Minimised,
    Parameters,
    Stopping,
    minimise,
)
from trunkfirst.records import LogEntry

traces: list[str] = []  # grows whenever Python code of an objective runs, that is when it is traced


class Bowl(AbstractObjective):
    """f(x) = mean of (x - a_i)^2 over the rows a_i."""

    rows: Float[Array, "rows n"]

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        traces.append("value")
        return jnp.mean((parameters[None] - self.rows) ** 2)


class OneRow(Bowl):
    """The same, looking at one random row an iteration."""

    @property
    def is_stochastic(self) -> bool:
        return True

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        row = jr.randint(key, (), 0, len(self.rows))
        return eqx.filter_value_and_grad(Bowl(self.rows[row][None]).value)(parameters)


class Cliff(AbstractObjective):
    """f(x) = sum of sqrt(x): falls until x is negative, where it is not a number."""

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return jnp.sum(jnp.sqrt(parameters))


ROWS = np.random.default_rng(0).normal(size=(5, 3))


def run(
    kind: Callable[..., AbstractObjective] = Bowl, iterations: int = 5, rate: float = 0.1, **more
) -> Minimised:
    with jax.enable_x64(True):
        objective = kind() if kind is Cliff else kind(jnp.asarray(ROWS))
        return minimise(objective, jnp.ones(3), Adam(rate), iterations=iterations, key=jr.key(0), **more)


def full_value(parameters: Parameters) -> float:
    return float(np.mean((np.asarray(parameters) - ROWS) ** 2))


@pytest.mark.parametrize("kind", [Bowl, OneRow])
def test_compiles_once(kind: type[Bowl]):
    """405 iterations are 40 chunks of 10 and a last one of 5."""
    counts: list[int] = []
    result = run(kind, 405, rate=0.01, on_step=lambda step: counts.append(len(traces)))
    assert [step.iteration for step in result.history[-3:]] == [390, 400, 405]
    assert len(set(counts)) == 1
    run(kind, 405, rate=0.01)  # and not again for the same shapes; a few traces only look at types
    assert len(traces) - counts[0] <= 1


@pytest.mark.parametrize(("iterations", "entries"), [(1, 1), (7, 7), (400, 40), (4000, 200)])
def test_log(iterations: int, entries: int):
    seen: list[LogEntry] = []
    result = run(iterations=iterations, stage="trunk", loss_unit=10.0, on_step=seen.append)
    assert result.status == "finished"
    assert result.iterations == iterations
    assert list(result.history) == seen
    assert len(seen) == entries
    last = seen[-1]
    assert (last.stage, last.iteration, last.iterations) == ("trunk", iterations, iterations)
    assert last.best_loss == pytest.approx(10 * result.value, rel=1e-15)
    assert seen[0].loss >= last.loss
    assert len(seen) == 1 or last.remaining_seconds(seen[0]) == 0
    assert result.seconds == last.seconds > 0


def test_remaining_time():
    step = LogEntry("fit", 10, 40, 1.0, 1.0, 1e-3, seconds=13.0)
    # 12 s for the first 5 iterations, most of them for compiling.
    assert step.remaining_seconds(LogEntry("fit", 5, 40, 1.0, 1.0, 1e-3, seconds=12.0)) == 6.0
    assert math.isnan(step.remaining_seconds(step))


@pytest.mark.parametrize("kind", [Bowl, OneRow])
def test_interrupt_ends_with_what_there_is(kind: type[Bowl]):
    def stop(step: LogEntry) -> None:
        if step.iteration == 3:
            raise KeyboardInterrupt

    result = run(kind, 5, on_step=stop)
    assert result.status == "interrupted"
    assert result.iterations == len(result.history) == 3
    assert result.value == pytest.approx(full_value(result.parameters), rel=1e-12)
    assert result.value < full_value(np.ones(3)) or kind is OneRow


class Stopped(Bowl):
    """Ctrl-C during the first chunk."""

    def value_and_grad(self, parameters: Parameters, *, key: PRNGKeyArray) -> tuple[Float[Array, ""], Parameters]:
        raise KeyboardInterrupt


def test_interrupt_before_the_first_chunk():
    result = run(Stopped)
    assert (result.status, result.history, result.iterations) == ("interrupted", (), 0)
    assert np.array_equal(result.parameters, np.ones(3))


def test_divergence_keeps_the_best_finite_parameters():
    result = run(Cliff, 20, rate=0.3)
    assert result.status == "diverged"
    assert result.iterations == len(result.history) < 20
    assert math.isnan(result.history[-1].loss)
    assert np.isfinite(result.parameters).all()
    assert result.value == pytest.approx(np.sum(np.sqrt(np.asarray(result.parameters))), rel=1e-12)
    assert result.history[-1].best_loss == result.value < 3


def test_random_batches_are_evaluated_on_all_data():
    result = run(OneRow, 40, rate=0.5)
    losses = [step.loss for step in result.history]
    assert result.value == min(losses) == result.history[-1].best_loss
    assert result.value == pytest.approx(full_value(result.parameters), rel=1e-12)
    assert losses[-1] > min(losses)  # the rate is too large to converge


def test_the_key_decides_the_batches():
    with jax.enable_x64(True):
        results = [
            minimise(
                OneRow(jnp.asarray(ROWS)), jnp.ones(3), Adam(0.5), iterations=40, key=jr.key(k)
            ).state.parameters
            for k in (0, 0, 1)
        ]
    assert np.array_equal(results[0], results[1])
    assert not np.allclose(results[0], results[2])


class Crash(BaseException):
    """Ends the program between two iterations."""


@pytest.mark.parametrize("error", [Crash, KeyboardInterrupt])
@pytest.mark.parametrize("minimiser", [Adam(0.1), LBFGS(pairs=3)], ids=lambda minimiser: type(minimiser).__name__)
def test_an_interrupted_minimisation_is_resumed_to_the_same_bits(
    minimiser: AbstractMinimiser, error: type[BaseException], tmp_path: Path
):
    """Also where the last entry, after which the loop would have stopped, is interrupted."""

    def attempt(target: float, last: int = 0) -> Minimised:
        def stop(entry: LogEntry) -> None:
            if entry.iteration == last:
                raise error

        problem, start = separable(1.0, 1e-3)
        options = {"stopping": Stopping(target), "on_step": stop}
        return minimise(problem, start, minimiser, iterations=12, key=jr.key(0), **options)

    with jax.enable_x64(True):
        target = attempt(0.0).history[4].best_loss
        whole = attempt(target)
        assert 1 < whole.iterations <= 5
        for last in (1, whole.iterations):
            with keep_checkpoints(tmp_path, interval=0), pytest.raises(error):
                attempt(target, last)
        for _ in range(2):  # the second time it is finished already
            with keep_checkpoints(tmp_path, interval=0):
                resumed = attempt(target)
            assert has_same_bits(
                *((end.parameters, end.state.parameters, end.state.memory) for end in (resumed, whole))
            )
            assert [entry.loss for entry in resumed.history] == [entry.loss for entry in whole.history]
            assert resumed.status == whole.status == "finished"


@pytest.mark.parametrize("iterations", [0, -3])
def test_iterations_out_of_range(iterations: int):
    with pytest.raises(ValueRangeError, match=f"branch: iterations is {iterations}; expected at least 1"):
        run(iterations=iterations, stage="branch")
