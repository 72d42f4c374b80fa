"""Limited-memory BFGS with a strong Wolfe line search (Nocedal and Wright, chapters 3 and 7)."""

import dataclasses as dc
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..device_arrays import to_device
from ..settings import Field, kind_field, record
from .loop import AbstractMinimiser, AbstractObjective, Parameters, State


class Memory(eqx.Module):
    """The last pairs of steps and gradient changes in a ring buffer, `valid` of them in use.

    Rows 2i and 2i + 1 of `pairs` are a step s_i and its change y_i. Their inner products are stored: `products`
    s_i . y_j for s_i not newer than y_j, `squares` y_i . y_j. Those with the newest change, in slot `written`, are
    computed with the next direction: one pass over the pairs serves them and the gradient.
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
    """The first length to try along the gradient: a step of size 1, or shorter than the one that failed."""
    step_length: Float[Array, ""]
    evaluations: Int[Array, ""]


@record
class LBFGS(AbstractMinimiser):
    """L-BFGS for full-batch objectives; steps satisfy the strong Wolfe conditions, the weak ones at kinks.

    After an ascent direction, or a line search without decrease, the stored pairs are dropped and the next
    direction is the negative gradient. If that fails too, the state stays the same.

    >>> import trunkfirst
    >>> trunkfirst.JointTrunk(minimiser=trunkfirst.LBFGS()).minimiser.kind
    'l-bfgs'
    """

    pairs: int = Field(default=30, ge=1, description="stored pairs of steps and changes of the gradient")
    decrease: float = Field(default=1e-4, description="sufficient decrease, c1 of the Wolfe conditions")
    curvature: float = Field(default=0.9, description="c2 of the Wolfe conditions")
    strong_evaluations: int = Field(
        default=4, description="evaluations after which the weak Wolfe conditions are enough"
    )
    evaluations_per_step: int = Field(
        default=12, ge=1, description="largest number of evaluations in a line search"
    )
    kind: Literal["l-bfgs"] = kind_field("l-bfgs")

    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        """Nothing is evaluated yet: the first step has no direction, and finds value and gradient at the start.

        A function that evaluates would be one more program to compile, as long as the loop itself.
        """
        del objective
        leaves = jax.tree.leaves(eqx.filter(parameters, eqx.is_inexact_array))
        dtype, size = np.result_type(*(leaf.dtype for leaf in leaves)), sum(leaf.size for leaf in leaves)
        zero, one, value = to_device(0, np.int32), to_device(1, dtype), to_device(np.inf, dtype)
        memory = Memory(
            pairs=to_device(np.zeros((2 * self.pairs, size), dtype)),
            products=to_device(np.zeros((self.pairs, self.pairs), dtype)),
            squares=to_device(np.zeros((self.pairs, self.pairs), dtype)),
            written=zero,
            slot=zero,
            valid=zero,
            gradient=to_device(np.zeros(size, dtype)),
            first_length=one,
            step_length=one,
            evaluations=zero,
        )
        return State.monotone(parameters, value, zero, memory, key)

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
        return State.monotone(
            parameters=eqx.combine(unravel(x + step), fixed),
            value=found.value,
            iteration=state.iteration + (memory.evaluations > 0),
            memory=_with_pair(memory, step, first, found),
            key=state.key,
        )

    def rate(self, state: State) -> Float[Array, ""]:
        return state.memory.step_length


class _Search(eqx.Module):
    """The state of a line search: a trial, and an interval from `low`, where the slope is negative, to `high`.

    Both ends are (length, value, slope); `high` is infinite until one is found.
    """

    length: Float[Array, ""]
    value: Float[Array, ""]
    gradient: Float[Array, " size"]
    low: Float[Array, " 3"]
    low_gradient: Float[Array, " size"]
    high: Float[Array, " 3"]
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
        return _narrowed(method, s, jnp.stack([s.length, f, g @ direction]), f, g, value, slope)

    low = jnp.stack([jnp.zeros_like(value), value, slope])
    s = _Search(
        length=first,
        value=value,
        gradient=jnp.zeros_like(x),
        low=low,
        low_gradient=jnp.zeros_like(x),
        high=jnp.full_like(low, jnp.inf),
        evaluations=jnp.int32(0),
        is_done=jnp.bool_(False),
    )
    s = jax.lax.while_loop(lambda s: ~s.is_done & (s.evaluations < method.evaluations_per_step), try_length, s)
    # Without success use the low end, the best point known to decrease; length 0 means that none was found.
    return dc.replace(
        s,
        length=jnp.where(s.is_done, s.length, s.low[0]),
        value=jnp.where(s.is_done, s.value, s.low[1]),
        gradient=jnp.where(s.is_done, s.gradient, s.low_gradient),
    )


def _narrowed(method: LBFGS, s: _Search, here: Array, f: Array, g: Array, value: Array, slope: Array) -> _Search:
    """The search after a trial: done, or with a smaller interval; `value` and `slope` are those at length 0."""
    is_too_high = ~(f <= value + method.decrease * s.length * slope) | (f >= s.low[1]) & (s.low[0] > 0)
    # At a kink of a ReLU network the slope jumps and may never be small: then the weak condition suffices.
    size = jnp.where(s.evaluations < method.strong_evaluations, jnp.abs(here[2]), -here[2])
    is_done = ~is_too_high & (size <= -method.curvature * slope)
    moves_high = is_too_high | (here[2] > 0)
    low, high = jnp.where(moves_high, s.low, here), jnp.where(moves_high, here, s.high)
    return _Search(
        length=jnp.where(is_done, s.length, _next_length(low, high)),
        value=f,
        gradient=g,
        low=low,
        low_gradient=jnp.where(moves_high, s.low_gradient, g),
        high=high,
        evaluations=s.evaluations + 1,
        is_done=is_done,
    )


def _next_length(low: Array, high: Array) -> Array:
    """The minimiser of the cubic through both ends, not too near to them; twice `low` without a `high`."""
    (a, fa, da), (b, fb, db) = low, high
    width = b - a
    d1 = da + db - 3 * (fb - fa) / width
    root = jnp.sqrt(jnp.maximum(d1**2 - da * db, 0))
    cubic = b - width * (db + root - d1) / (db - da + 2 * root)
    inside = jnp.clip(cubic, a + 0.1 * width, b - 0.1 * width)
    inside = jnp.where(jnp.isfinite(inside), inside, a + 0.5 * width)
    return jnp.where(jnp.isfinite(b), inside, jnp.maximum(2 * a, 1e-10))


def _with_pair(memory: Memory, step: Array, first: Array, found: _Search) -> Memory:
    """The memory with the pair of this step, if that has curvature.

    A search that failed, or that shrank to a tiny step at a kink, drops all pairs: the gradient is next.
    """
    change = found.gradient - memory.gradient
    has_failed = found.length == 0
    gradient = jnp.where(has_failed, memory.gradient, found.gradient)
    is_dropped = found.length < 1e-6 * first
    is_good = ~is_dropped & (step @ change > 1e-12 * jnp.linalg.norm(step) * jnp.linalg.norm(change))
    kept = len(memory.products)
    # Rejected pairs still overwrite the oldest slot.
    valid = jnp.minimum(memory.valid + is_good, jnp.where(is_good, kept, kept - 1))
    shorter, was_gradient = 0.1 * found.high[0], memory.valid == 0
    pairs = jax.lax.dynamic_update_slice_in_dim(memory.pairs, jnp.stack([step, change]), 2 * memory.slot, axis=0)
    return Memory(
        pairs=pairs,
        products=memory.products,
        squares=memory.squares,
        written=memory.slot,
        slot=jnp.where(is_good, (memory.slot + 1) % kept, memory.slot),
        valid=jnp.where(is_dropped, 0, valid),
        gradient=gradient,
        first_length=jnp.where(has_failed & was_gradient, shorter, _unit_length(gradient)),
        step_length=found.length,
        evaluations=memory.evaluations + found.evaluations,
    )


def _unit_length(gradient: Float[Array, " size"]) -> Float[Array, ""]:
    """The factor that makes the gradient a step of size 1."""
    return 1 / jnp.maximum(jnp.linalg.norm(gradient), jnp.finfo(gradient.dtype).tiny)


def _multiply(memory: Memory) -> tuple[Memory, Float[Array, "2 kept"]]:
    """Store the inner products with the change written last; return those of all pairs with the gradient.

    The pairs are read here and for the direction before any are written; otherwise XLA would copy them.
    """
    change = jax.lax.dynamic_index_in_dim(memory.pairs, 2 * memory.written + 1, keepdims=False)
    with_steps, with_changes = (memory.pairs @ change).reshape(-1, 2).T
    with_gradient = (memory.pairs @ memory.gradient).reshape(-1, 2).T
    products = memory.products.at[:, memory.written].set(with_steps)
    squares = memory.squares.at[:, memory.written].set(with_changes).at[memory.written].set(with_changes)
    return dc.replace(memory, products=products, squares=squares), with_gradient


def _inverse_hessian_times_gradient(
    memory: Memory, with_gradient: Float[Array, "2 kept"]
) -> Float[Array, " size"]:
    """H g in the compact form of Byrd, Nocedal and Schnabel (1994), with one more pass over the pairs.

    H = c I + [S cY] [[R^-T (D + c Y^T Y) R^-1, -R^-T], [-R^-1, 0]] [S cY]^T with R the upper triangle of S^T Y
    from old to new, D its diagonal, c the scale of the newest pair. Pairs not in use become unit rows.
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
