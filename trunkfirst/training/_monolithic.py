"""Trunk and branch trained at once: by a minimiser, or with the matrix between them solved for."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..distributed.mesh import to_local
from ..errors import UsageError
from ..minimisers import Minimised, OnStep, Stopping, minimise
from ..networks import Perceptron, Trunk, count_parameters
from ._bilinear import BilinearProblem, HiddenPair, hidden_layers
from ._fields import Fields, ScatteredFields
from ._keys import named_key
from ._losses import BranchCoefficients, CompressedLoss, make_loss, plain_loss
from ._methods import Monolithic, MonolithicProjected
from ._prepared import Prepared
from ._result import FitResult, find_limits, trunk_diagnostics
from ._trunks import passed_on


def fit_monolithic(
    prepared: Prepared, method: Monolithic, *, key: PRNGKeyArray, on_step: OnStep | None
) -> FitResult:
    """The usual way, with the transform T trained too if the method says so."""
    fields, inputs, dtype = _aligned(prepared), prepared.inputs, prepared.dtype
    method.trunk.check(*fields.points.shape)
    trunk = method.trunk.make(dtype=dtype, key=named_key(key, "trunk"))
    functions = trunk.width + 1
    settings = method.branch.with_groups(prepared.groups)
    branch = settings.make(inputs.shape[1], functions, dtype=dtype, key=named_key(key, "branch"))
    transform = jnp.eye(functions, dtype=dtype) if method.train_transform else None
    result = minimise(
        make_loss(fields, inputs, p=method.p, batches=method.batches, dtype=dtype),
        BranchCoefficients(trunk, branch, transform),
        method.minimiser,
        iterations=method.iterations,
        key=named_key(key, "monolithic"),
        stage="monolithic",
        on_step=on_step,
    )
    best: BranchCoefficients = result.parameters
    return _finished(prepared, best, result, p=method.p)


def fit_monolithic_projected(
    prepared: Prepared,
    method: MonolithicProjected,
    *,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> FitResult:
    """The same with the output layers of both networks, one matrix between them, solved for."""
    fields, inputs, dtype = _aligned(prepared), prepared.inputs, prepared.dtype
    method.trunk.check(*fields.points.shape)
    trunk = method.trunk.make(dtype=dtype, key=named_key(key, "trunk"))
    settings = method.branch.with_groups(prepared.groups)
    branch = settings.make(inputs.shape[1], trunk.width + 1, dtype=dtype, key=named_key(key, "branch"))
    if not isinstance(branch, Perceptron) or trunk.effective_width == trunk.width != _hidden_width(trunk):
        raise UsageError("monolithic-projected needs an unstacked branch and N not below the last hidden width")
    loss = make_loss(fields, inputs, p=2.0, dtype=dtype)
    assert isinstance(loss, CompressedLoss)
    problem = BilinearProblem(loss, method.ridge)
    result = minimise(
        problem,
        HiddenPair(hidden_layers(trunk.network), hidden_layers(branch)),
        method.minimiser,
        iterations=method.iterations,
        key=named_key(key, "monolithic"),
        stage="monolithic",
        stopping=Stopping(stuck=100),
        on_step=on_step,
    )
    best: HiddenPair = result.parameters
    M = to_local(problem.matrix(best))  # (branch features, trunk features)
    padding = jnp.zeros((len(M), trunk.width + 1 - M.shape[1]), M.dtype)
    last = jnp.concatenate([M, padding], axis=1)
    new_branch = Perceptron((*best.branch.weights, last[1:].T), (*best.branch.biases, last[0]), branch.activation)
    return _finished(prepared, BranchCoefficients(passed_on(best.trunk, trunk), new_branch), result, p=2.0)


def _hidden_width(trunk: Trunk) -> int:
    return trunk.network.architecture[-2]


def _aligned(prepared: Prepared) -> Fields:
    if isinstance(prepared.fields, ScatteredFields) or prepared.fields.channels is not None:
        raise UsageError("monolithic methods need one channel and the same points for all; use two-step")
    return prepared.fields


def _finished(prepared: Prepared, best: BranchCoefficients, result: Minimised, *, p: float) -> FitResult:
    fields = _aligned(prepared)
    Phi = np.asarray(best.trunk(jnp.asarray(fields.points, prepared.dtype)))
    coefficients = np.asarray(best.coefficients(prepared.inputs))
    diagnostics = {
        "trunk": trunk_diagnostics(
            loss=plain_loss(coefficients, Phi, fields.outputs, p=p),
            seconds=result.seconds,
            iterations=result.iterations,
            rank=best.trunk.width + 1,
            limits=find_limits(fields, best.trunk, p),
        ),
        "branch": None,
        "parameters": {
            "trunk": count_parameters(best.trunk),
            "coefficients": None,
            "branch": count_parameters(best.branch),
        },
    }
    operator = prepared.operator(best.branch, best.trunk, best.transform)
    return FitResult(operator, result.status, result.history, diagnostics)
