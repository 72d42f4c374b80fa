"""Trunk and branch trained at once: by a minimiser, or with the matrix between them solved for."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ..data import OperatorData
from ..errors import UsageError
from ..minimisers import Minimised, OnStep, minimise
from ..networks import Operator, Perceptron, Trunk, count_parameters
from ._bilinear import BilinearProblem, HiddenPair, hidden_layers
from ._keys import named_key
from ._losses import BranchCoefficients, CompressedLoss, make_loss, plain_loss
from ._methods import Monolithic, MonolithicProjected
from ._result import FitResult, trunk_diagnostics
from ._trunks import passed_on


def fit_monolithic(
    data: OperatorData, method: Monolithic, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None
) -> FitResult:
    """The usual way, with the transform T trained too if the method says so."""
    method.trunk.check(data)
    encoder = method.inputs.fit_in(data, dtype)
    inputs = encoder(jnp.asarray(data.flat_inputs, dtype))
    trunk = method.trunk.make(dtype=dtype, key=named_key(key, "trunk"))
    functions = trunk.width + 1
    branch = method.branch.make(inputs.shape[1], functions, dtype=dtype, key=named_key(key, "branch"))
    transform = jnp.eye(functions, dtype=dtype) if method.train_transform else None
    result = minimise(
        make_loss(data, inputs, p=method.p, batches=method.batches, dtype=dtype),
        BranchCoefficients(trunk, branch, transform),
        method.minimiser,
        iterations=method.iterations,
        key=named_key(key, "monolithic"),
        stage="monolithic",
        on_step=on_step,
    )
    best: BranchCoefficients = result.parameters
    operator = Operator(encoder, best.branch, best.trunk, best.transform, tuple(data.inputs))
    return _finished(data, operator, result, p=method.p)


def fit_monolithic_projected(
    data: OperatorData,
    method: MonolithicProjected,
    *,
    dtype: np.dtype,
    key: PRNGKeyArray,
    on_step: OnStep | None,
) -> FitResult:
    """The same with the output layers of both networks, one matrix between them, solved for."""
    method.trunk.check(data)
    encoder = method.inputs.fit_in(data, dtype)
    inputs = encoder(jnp.asarray(data.flat_inputs, dtype))
    trunk = method.trunk.make(dtype=dtype, key=named_key(key, "trunk"))
    branch = method.branch.make(inputs.shape[1], trunk.width + 1, dtype=dtype, key=named_key(key, "branch"))
    if not isinstance(branch, Perceptron) or trunk.effective_width == trunk.width != _hidden_width(trunk):
        raise UsageError("monolithic-projected needs an unstacked branch and N not below the last hidden width")
    loss = make_loss(data, inputs, p=2.0, dtype=dtype)
    assert isinstance(loss, CompressedLoss)
    problem = BilinearProblem(loss, method.ridge)
    result = minimise(
        problem,
        HiddenPair(hidden_layers(trunk.network), hidden_layers(branch)),
        method.minimiser,
        iterations=method.iterations,
        key=named_key(key, "monolithic"),
        stage="monolithic",
        on_step=on_step,
    )
    best: HiddenPair = result.parameters
    M = problem.matrix(best)  # (branch features, trunk features)
    padding = jnp.zeros((len(M), trunk.width + 1 - M.shape[1]), M.dtype)
    last = jnp.concatenate([M, padding], axis=1)
    new_branch = Perceptron((*best.branch.weights, last[1:].T), (*best.branch.biases, last[0]), branch.activation)
    return _finished(
        data, Operator(encoder, new_branch, passed_on(best.trunk, trunk), None, tuple(data.inputs)), result, p=2.0
    )


def _hidden_width(trunk: Trunk) -> int:
    return trunk.network.architecture[-2]


def _finished(data: OperatorData, operator: Operator, result: Minimised, *, p: float) -> FitResult:
    basis = np.asarray(operator.basis(data.points))
    coefficients = np.asarray(operator.coefficients(data.flat_inputs))
    diagnostics = {
        "trunk": trunk_diagnostics(
            data,
            operator.trunk,
            loss=plain_loss(coefficients, basis, data.outputs, p=p),
            seconds=result.seconds,
            iterations=result.iterations,
            rank=operator.trunk.width + 1,
        ),
        "branch": None,
        "parameters": {
            "trunk": count_parameters(operator.trunk),
            "coefficients": None,
            "branch": count_parameters(operator.branch),
        },
    }
    return FitResult(operator, result.status, result.history, diagnostics)
