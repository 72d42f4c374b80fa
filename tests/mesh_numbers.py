"""What must not depend on devices and processes: `python mesh_numbers.py FILE [DEVICES]` writes it to a file.

Run by tests in processes of their own, because devices are chosen before JAX is first used.
"""

import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from helpers import BRANCH, TRUNK, make_network, waves

from trunkfirst.devices import is_first, join_processes, leave_processes, replicate_beside, use_devices
from trunkfirst.evaluation import evaluate
from trunkfirst.linear import QR, combine_triangles, compress, tall_qr
from trunkfirst.minimisers import Adam, minimise
from trunkfirst.regressors import ProjectedNetwork
from trunkfirst.regressors._network import RegressionLoss, spread_loss
from trunkfirst.training import ProjectedTrunk, TwoStep, as_fields, fit, trunk_problems

DOUBLE = np.dtype(np.float64)
# Neither number is divisible by 2 or 4.
DATA, TEST = waves(131, 33), waves(20, 33, seed=1)
STEP1 = ProjectedTrunk(TRUNK, Adam(), iterations=100, starts=1)


def flat(tree: Any) -> np.ndarray:
    return np.asarray(jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0])


def collectives(compiled: Any) -> str:
    """The ways of communication in a compiled function."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    text = compiled.compiled.as_text()
    return ",".join(kind for kind in kinds if f"{kind}(" in text or f"{kind}-start(" in text)


def numbers() -> dict[str, Any]:
    """The quantities, by name."""
    fields = as_fields(DATA)
    problem = trunk_problems(fields, DOUBLE)(1e-3)
    start = replicate_beside(STEP1.start(dtype=DOUBLE, key=jr.key(0)), problem)
    evaluate: Any = eqx.filter_jit(lambda p, s: p.value_and_grad(s, key=jr.key(0)))
    compiled = evaluate.lower(problem, start).compile()
    value, gradient = compiled(problem, start)
    factor, wide = compress(fields.outputs).factor, compress(fields.outputs[:9]).factor
    Q, R = tall_qr(fields.outputs)
    trained = minimise(problem, start, Adam(), iterations=100, key=jr.key(1))
    rows = np.array_split(fields.outputs, jax.process_count())[jax.process_index()]
    combined = combine_triangles(np.linalg.qr(rows, mode="r"))
    basis = QR()(np.vander(DATA.points[:, 0], 6))
    return {
        "gram": factor.T @ factor,
        "wide gram": wide.T @ wide,
        "product": Q @ R,
        "orthogonality": Q.T @ Q,
        "combined gram": combined.T @ combined,
        "basis": basis.values,
        "value": np.asarray(value),
        "gradient": flat(gradient),
        "after 100 steps of Adam": flat(trained.state.parameters),
        "collectives": collectives(compiled),
    }


def error() -> float:
    """Mean test error of a whole fit."""
    method = TwoStep(STEP1, ProjectedNetwork(BRANCH, Adam(1e-2), iterations=20))
    return float(evaluate(fit(DATA, method).operator, TEST).errors.mean())


def branch_loss() -> np.ndarray:
    """The loss of the paper's step 2, with weights."""
    inputs, weights = jnp.asarray(DATA.flat_inputs), jnp.linspace(1.0, 2.0, DATA.samples)
    loss = spread_loss(RegressionLoss(inputs, jnp.asarray(DATA.outputs[:, :5]), weights))
    return np.asarray(eqx.filter_jit(type(loss).value)(loss, make_network(2, 6, 5)))


def everything() -> dict[str, Any]:
    """All of it, for the mesh there is."""
    return numbers() | {"branch loss": branch_loss(), "error": error()}


def main(file: str, devices: str | None = None) -> None:
    """Compute and write."""
    join_processes()
    with use_devices(None if devices is None else int(devices)), jax.enable_x64(True):
        found = everything()
    if is_first():
        np.savez(Path(file), **found)
    leave_processes(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
