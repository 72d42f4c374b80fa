"""L-BFGS: known minima, comparison with SciPy, resumption to the same bits."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize

from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import AbstractObjective, Stopping, advance, minimise


class Rosenbrock(AbstractObjective):
    def value(self, parameters):
        x = parameters
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


class Kinked(AbstractObjective):
    """Not smooth where two coordinates are equal: like a ReLU network at its kinks."""

    def value(self, parameters):
        return jnp.sum(jnp.abs(parameters[1:] - parameters[:-1])) + jnp.sum((parameters - 1) ** 2)


def run(objective: AbstractObjective, start: jax.Array, iterations: int):
    return minimise(objective, start, LBFGS(), iterations=iterations, key=jr.key(0))


def test_finds_the_minimum_in_as_many_evaluations_as_scipy():
    with jax.enable_x64(True):
        start = jnp.asarray(np.linspace(-1.2, 1.0, 12))
        value = jax.jit(jax.value_and_grad(Rosenbrock().value))
        scipys = scipy.optimize.minimize(
            lambda x: tuple(np.asarray(part) for part in value(x)), np.asarray(start), jac=True,
            method="L-BFGS-B", options={"maxcor": 30, "ftol": 0, "gtol": 1e-9, "maxiter": 500},
        )  # fmt: skip
        result = run(Rosenbrock(), start, scipys.nit)
        assert result.value < 1e-12
        assert int(result.state.memory.evaluations) <= 1.5 * scipys.nfev


class Quartic(AbstractObjective):
    """In units in which the minimum lies `far` away and values are of size `size`."""

    far: jax.Array = eqx.field(converter=jnp.asarray)
    size: jax.Array = eqx.field(converter=jnp.asarray)

    def value(self, parameters):
        return self.size * jnp.sum((parameters / self.far - 1) ** 4)


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("far", [1e-6, 1.0, 1e3])
def test_units_do_not_matter(far: float, size: float):
    """The first step along the gradient has size 1; where that fails, the next try is shorter."""
    with jax.enable_x64(True):
        result = run(Quartic(far, size), jnp.zeros(3), 60)
    assert result.value < 1e-10 * size


def test_every_iteration_lowers_the_value_even_at_kinks():
    with jax.enable_x64(True):
        result = run(Kinked(), jnp.asarray([3.0, -2.0, 5.0, 0.5, 1.5]), 60)
        losses = [step.loss for step in result.history]
        assert losses == sorted(losses, reverse=True)
        assert result.value < 1e-3  # the minimum is 0 at (1, ..., 1)


@pytest.mark.parametrize("cut", [1, 7, 33])
def test_a_resumed_state_gives_the_same_bits(cut: int):
    with jax.enable_x64(True):
        start = jnp.asarray(np.linspace(-1.2, 1.0, 8))
        straight = minimise(Rosenbrock(), start, LBFGS(), iterations=40, key=jr.key(0))
        first = minimise(Rosenbrock(), start, LBFGS(), iterations=cut, key=jr.key(0))
        again = minimise(Rosenbrock(), start, LBFGS(), iterations=40, key=jr.key(0), state=first.state)
        assert np.array_equal(again.parameters, straight.parameters)
        assert again.iterations == 40


def test_iterations_compile_once():
    traces = []

    class Counted(AbstractObjective):
        def value(self, parameters):
            traces.append(1)
            return jnp.sum(parameters**4)

    with jax.enable_x64(True):
        minimiser, objective = LBFGS(), Counted()
        state = minimiser.init(objective, jnp.ones(3), key=jr.key(0))
        state = advance(minimiser, objective, state, jnp.int32(3))
        before = len(traces)
        for count in (1, 5, 2):
            state = advance(minimiser, objective, state, jnp.int32(count))
        assert len(traces) == before


def test_stops_on_stagnation_and_at_a_target():
    with jax.enable_x64(True):
        start = jnp.asarray(np.linspace(-1.2, 1.0, 6))
        stopped = minimise(
            Rosenbrock(), start, LBFGS(), iterations=5000, key=jr.key(0), stopping=Stopping(target=1e-3)
        )
        assert stopped.value <= 1e-3
        assert stopped.iterations < 1000
        # At the minimum nothing is gained any more.
        rest = minimise(
            Rosenbrock(), jnp.ones(6), LBFGS(), iterations=5000, key=jr.key(0), stopping=Stopping(patience=100)
        )
        assert rest.iterations < 1000


def test_state_is_a_pytree_of_arrays():
    with jax.enable_x64(True):
        state = LBFGS().init(Rosenbrock(), jnp.ones(4), key=jr.key(0))
        assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(state))
