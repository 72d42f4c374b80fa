"""Levenberg-Marquardt on a separable problem with Kaufman's Jacobian: few iterations, for small networks."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import UsageError
from ..settings import Field, kind_field, record
from .loop import AbstractMinimiser, AbstractObjective, Parameters, State, keep_better
from .separable import SeparableProblem

# Entries of the Jacobian, rows x outputs x parameters: 2^27 doubles are 1 GiB.
_MOST_ENTRIES = 2**27


@record
class LevenbergMarquardt(AbstractMinimiser):
    """(J^T J + damping diag(J^T J)) d = J^T r with J = P (dPhi A), P the projection off the span of Phi.

    The coefficients A are solved for at every trial (variable projection; Kaufman 1975 drops the second term of
    the Jacobian, which does not change the gradient). A step that does not lower the value is rejected.
    """

    first_damping: float = Field(default=1e-2, gt=0, description="damping at the start")
    on_success: float = Field(default=0.2, gt=0, description="factor of the damping after an accepted step")
    on_failure: float = Field(default=4.0, gt=0, description="factor of the damping after a rejected step")
    kind: Literal["levenberg-marquardt"] = kind_field("levenberg-marquardt")

    def init(self, objective: AbstractObjective, parameters: Parameters, *, key: PRNGKeyArray) -> State:
        if not isinstance(objective, SeparableProblem):
            raise UsageError(
                "levenberg-marquardt needs coefficients that are solved for: use a trunk or branch of kind network"
            )
        if float(objective.decay) > 0:
            raise UsageError("levenberg-marquardt minimises squares of errors alone: set decay = 0, or use l-bfgs")
        size = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(parameters, eqx.is_inexact_array)))
        entries = objective.targets.size * size
        if entries > _MOST_ENTRIES:
            raise UsageError(
                f"levenberg-marquardt would need a Jacobian of {8 * entries / 2**30:.0f} GiB; "
                "use l-bfgs, or a smaller network"
            )
        value = eqx.filter_jit(type(objective).value)(objective, parameters)
        return State.monotone(
            parameters=parameters,
            value=value,
            iteration=jnp.zeros((), jnp.int32),
            memory=jnp.asarray(self.first_damping, value.dtype),
            key=key,
        )

    def step(self, objective: AbstractObjective, state: State) -> State:
        assert isinstance(objective, SeparableProblem)
        trained, fixed = eqx.partition(state.parameters, eqx.is_inexact_array)
        x, unravel = jax.flatten_util.ravel_pytree(trained)
        J, r = _jacobian(objective, x, lambda y: eqx.combine(unravel(y), fixed))
        gram = J.T @ J
        scales = jnp.maximum(jnp.diagonal(gram), 1e-12 * jnp.max(jnp.diagonal(gram)))
        damping = state.memory
        factor = jsl.cho_factor(gram + damping * jnp.diag(scales), lower=True)
        trial = eqx.combine(unravel(x - jsl.cho_solve(factor, J.T @ r)), fixed)
        value = objective.value(trial)
        is_better = value < state.value  # false for NaN
        new = damping * jnp.where(is_better, self.on_success, self.on_failure)
        return State.monotone(
            parameters=keep_better(is_better, trial, state.parameters),
            value=jnp.where(is_better, value, state.value),
            iteration=state.iteration + 1,
            memory=jnp.clip(new, 1e-15, 1e15),
            key=state.key,
        )

    def rate(self, state: State) -> Float[Array, ""]:
        return state.memory


def _jacobian(problem: SeparableProblem, x: Array, build: Callable[[Array], Parameters]) -> tuple[Array, Array]:
    """Kaufman's Jacobian (rows x outputs, parameters) and the residual, both projected off the span of Phi.

    With a ridge, least squares and projection are those of the stacked matrix (Phi; ridge I).
    """
    Phi = problem.features(build(x))
    columns = Phi.shape[1]
    A = problem.coefficients(build(x))
    Q, _ = jnp.linalg.qr(jnp.concatenate([Phi, problem.ridge * jnp.eye(columns, dtype=Phi.dtype)]))
    top = Q[: len(Phi)]
    D = jax.jacfwd(lambda y: problem.features(build(y)) @ A)(x)  # (rows, outputs, parameters)
    # The lower block of the stacked derivative is zero, that of its projection is not.
    inner = jnp.einsum("rc,rop->cop", top, D)
    upper = D - jnp.einsum("rc,cop->rop", top, inner)
    lower = -jnp.einsum("rc,cop->rop", Q[len(Phi) :], inner)
    J = jnp.concatenate([upper.reshape(-1, x.size), lower.reshape(-1, x.size)])
    r = jnp.concatenate([(Phi @ A - problem.targets).ravel(), (problem.ridge * A).ravel()])
    return J, r
