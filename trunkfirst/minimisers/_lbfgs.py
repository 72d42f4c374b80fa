"""Limited-memory BFGS with a strong Wolfe line search (Nocedal and Wright, chapters 3 and 7)."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..settings import kind_field, record
from ._abstract import AbstractMinimiser, AbstractObjective, Parameters, State


class Memory(eqx.Module):
    """The last pairs of steps and gradient changes, in a ring; `valid` of them count.

    Rows 2i and 2i + 1 of `pairs` are a step s_i and its change y_i. Inner products are kept: `products` s_i . y_j
    for s_i not newer than y_j, `squares` y_i . y_j; those with the newest change, the last written, come when the
    next direction is sought: one pass over the pairs for them and for the gradient.
    """

    # the pairs
    pairs: Float[Array, "rows size"]
    products: Float[Array, "kept kept"]
    squares: Float[Array, "kept kept"]
    written: Int[Array, ""]
    slot: Int[Array, ""]
    valid: Int[Array, ""]
    # the iterate
    gradient: Float[Array, " size"]
    first_length: Float[Array, ""]
    """Of a step along the gradient, should the next one be such: a step of size 1, or less than what failed."""
    step_length: Float[Array, ""]
    evaluations: Int[Array, ""]


@record
class LBFGS(AbstractMinimiser):
    """L-BFGS for full-batch objectives; steps satisfy the strong Wolfe conditions, the weak ones at kinks.

    A direction that does not descend, or a line search that finds no decrease, forgets the pairs and starts
    again from the gradient. If that does not decrease the value either, the state stays where it is.
    """

    pairs: int = 30
    decrease: float = 1e-4
    curvature: float = 0.9
    strong_evaluations: int = 4
    evaluations_per_step: int = 12
    kind: Literal["l-bfgs"] = kind_field("l-bfgs")

    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        value, gradient = _value_and_grad(objective, parameters, key)
        flat, _ = jax.flatten_util.ravel_pytree(gradient)
        zero = jnp.zeros((), jnp.int32)
        memory = Memory(
            jnp.zeros((2 * self.pairs, flat.size), flat.dtype),
            jnp.zeros((self.pairs, self.pairs), flat.dtype),
            jnp.zeros((self.pairs, self.pairs), flat.dtype),
            zero,
            zero,
            zero,
            flat,
            _unit_length(flat),
            jnp.ones((), flat.dtype),
            zero + 1,
        )
        return State(parameters, value, zero, parameters, value, memory, key)

    def step(self, objective: AbstractObjective, state: State) -> State:
        trained, fixed = eqx.partition(state.parameters, eqx.is_inexact_array)
        x, unravel = jax.flatten_util.ravel_pytree(trained)
        memory: Memory = state.memory

        def evaluate(y: Array) -> tuple[Array, Array]:
            value, gradient = objective.value_and_grad(eqx.combine(unravel(y), fixed), key=state.key)
            return value, jax.flatten_util.ravel_pytree(gradient)[0]

        memory, with_gradient = _multiply(memory)
        direction = -_inverse_hessian_times_gradient(memory, with_gradient)
        slope = direction @ memory.gradient
        is_newton = (memory.valid > 0) & (slope < 0)
        direction = jnp.where(is_newton, direction, -memory.gradient)
        slope = jnp.where(is_newton, slope, -(memory.gradient @ memory.gradient))
        first = jnp.where(is_newton, 1.0, memory.first_length)
        found = _line_search(self, evaluate, x, direction, state.value, slope, first)
        step = found.length * direction
        parameters = eqx.combine(unravel(x + step), fixed)
        memory = _remember(memory, step, first, found)
        return State(parameters, found.value, state.iteration + 1, parameters, found.value, memory, state.key)

    def rate(self, state: State) -> Float[Array, ""]:
        return state.memory.step_length


@eqx.filter_jit
def _value_and_grad(
    objective: AbstractObjective, parameters: Parameters, key: PRNGKeyArray
) -> tuple[Float[Array, ""], Parameters]:
    return objective.value_and_grad(parameters, key=key)


class _Search(eqx.Module):
    """A line search under way: the interval between `low`, where the slope points on, and `high`."""

    # the trial
    length: Float[Array, ""]
    value: Float[Array, ""]
    gradient: Float[Array, " size"]
    # the interval: (length, value, slope) of both ends; an infinite high end is not known yet
    low: Float[Array, " 3"]
    low_gradient: Float[Array, " size"]
    high: Float[Array, " 3"]
    # how it goes
    evaluations: Int[Array, ""]
    is_done: Bool[Array, ""]


def _line_search(
    method: LBFGS,
    evaluate: Callable[[Array], tuple[Array, Array]],
    x: Array,
    direction: Array,
    value: Array,
    slope: Array,
    first: Array,
) -> _Search:
    """Find a length that satisfies the strong Wolfe conditions, or the best decrease within the evaluations."""

    def try_length(s: _Search) -> _Search:
        f, g = evaluate(x + s.length * direction)
        here = jnp.stack([s.length, f, g @ direction])
        is_too_high = ~(f <= value + method.decrease * s.length * slope) | (f >= s.low[1]) & (s.low[0] > 0)
        # At a kink of a ReLU network the slope jumps and may never be small: there the weak condition is enough.
        size = jnp.where(s.evaluations < method.strong_evaluations, jnp.abs(here[2]), -here[2])
        is_flat = size <= -method.curvature * slope
        is_done = ~is_too_high & is_flat
        moves_high = is_too_high | (here[2] > 0)
        low = jnp.where(is_too_high, s.low, jnp.where(here[2] > 0, s.low, here))
        high = jnp.where(moves_high, here, s.high)
        low_gradient = jnp.where(moves_high, s.low_gradient, g)
        length = jnp.where(is_done, s.length, _next_length(low, high))
        return _Search(length, f, g, low, low_gradient, high, s.evaluations + 1, is_done)

    start = jnp.stack([jnp.zeros_like(value), value, slope])
    nowhere = jnp.full_like(start, jnp.inf)
    s = _Search(first, value, jnp.zeros_like(x), start, jnp.zeros_like(x), nowhere, jnp.int32(0), jnp.bool_(False))
    s = jax.lax.while_loop(lambda s: ~s.is_done & (s.evaluations < method.evaluations_per_step), try_length, s)
    # Not done: fall back to the low end, the best point known to decrease; length 0 means nothing was found.
    return eqx.tree_at(
        lambda s: (s.length, s.value, s.gradient),
        s,
        (
            jnp.where(s.is_done, s.length, s.low[0]),
            jnp.where(s.is_done, s.value, s.low[1]),
            jnp.where(s.is_done, s.gradient, s.low_gradient),
        ),
    )


def _next_length(low: Array, high: Array) -> Array:
    """The minimiser of the cubic through both ends, kept off them; twice as far while there is no high end."""
    (a, fa, da), (b, fb, db) = low, high
    width = b - a
    d1 = da + db - 3 * (fb - fa) / width
    root = jnp.sqrt(jnp.maximum(d1**2 - da * db, 0))
    cubic = b - width * (db + root - d1) / (db - da + 2 * root)
    inside = jnp.clip(cubic, a + 0.1 * width, b - 0.1 * width)
    inside = jnp.where(jnp.isfinite(inside), inside, a + 0.5 * width)
    return jnp.where(jnp.isfinite(b), inside, jnp.maximum(2 * a, 1e-10))


def _remember(memory: Memory, step: Array, first: Array, found: _Search) -> Memory:
    """Add the pair of this step; a pair without curvature is left out.

    A search that failed, or that came down to a tiny step at a kink, forgets them all: the gradient leads on.
    """
    change = found.gradient - memory.gradient
    has_failed = found.length == 0
    gradient = jnp.where(has_failed, memory.gradient, found.gradient)
    was_gradient = memory.valid == 0
    forgets = found.length < 1e-6 * first
    is_good = ~forgets & (step @ change > 1e-12 * jnp.linalg.norm(step) * jnp.linalg.norm(change))
    kept = len(memory.products)
    # What is not good is written too, over the oldest pair, which counts no longer.
    valid = jnp.minimum(memory.valid + is_good, jnp.where(is_good, kept, kept - 1))
    return Memory(
        jax.lax.dynamic_update_slice_in_dim(memory.pairs, jnp.stack([step, change]), 2 * memory.slot, axis=0),
        memory.products,
        memory.squares,
        memory.slot,
        jnp.where(is_good, (memory.slot + 1) % kept, memory.slot),
        jnp.where(forgets, 0, valid),
        gradient,
        jnp.where(has_failed & was_gradient, 0.1 * found.high[0], _unit_length(gradient)),
        found.length,
        memory.evaluations + found.evaluations,
    )


def _unit_length(gradient: Float[Array, " size"]) -> Float[Array, ""]:
    """The multiple of the gradient that has size 1."""
    return 1 / jnp.maximum(jnp.linalg.norm(gradient), jnp.finfo(gradient.dtype).tiny)


def _multiply(memory: Memory) -> tuple[Memory, Float[Array, "2 kept"]]:
    """Put in the inner products with the change written last; return those of all pairs with the gradient.

    Everything is read here and in the direction, before anything is written: else XLA copies the pairs.
    """
    change = jax.lax.dynamic_index_in_dim(memory.pairs, 2 * memory.written + 1, keepdims=False)
    both = (memory.pairs @ jnp.stack([change, memory.gradient], axis=1)).reshape(-1, 2, 2)
    (with_steps, with_changes), with_gradient = both.transpose(2, 1, 0)
    products = memory.products.at[:, memory.written].set(with_steps)
    squares = memory.squares.at[:, memory.written].set(with_changes).at[memory.written].set(with_changes)
    return eqx.tree_at(lambda m: (m.products, m.squares), memory, (products, squares)), with_gradient


def _inverse_hessian_times_gradient(
    memory: Memory, with_gradient: Float[Array, "2 kept"]
) -> Float[Array, " size"]:
    """H g in the compact form of Byrd, Nocedal and Schnabel (1994), one more pass over the pairs.

    H = c I + [S cY] [[R^-T (D + c Y^T Y) R^-1, -R^-T], [-R^-1, 0]] [S cY]^T with R the upper triangle of S^T Y
    from old to new, D its diagonal, c the scale of the newest pair. Pairs that do not count become unit rows.
    """
    kept = len(memory.products)
    order = (memory.slot + jnp.arange(kept)) % kept  # old to new
    counts = jnp.arange(kept) >= kept - memory.valid
    both = counts[:, None] & counts[None, :]
    products = jnp.where(both, memory.products[order][:, order], 0.0)
    squares = jnp.where(both, memory.squares[order][:, order], 0.0)
    diagonal = jnp.diagonal(products)
    R = jnp.triu(products) + jnp.diag(jnp.where(counts, 0.0, 1.0))
    scale = jnp.where(counts[-1], diagonal[-1] / jnp.where(counts[-1], squares[-1, -1], 1.0), 1.0)
    p, q = jnp.where(counts, with_gradient[:, order], 0.0)
    u = jsl.solve_triangular(R, p)
    v = jsl.solve_triangular(R, diagonal * u + scale * (squares @ u - q), trans=1)
    back = jnp.zeros((kept, 2), R.dtype).at[order].set(jnp.stack([v, -scale * u], axis=1))
    return scale * memory.gradient + back.ravel() @ memory.pairs
