"""Quantities that must not depend on devices and processes: `python mesh_numbers.py FILE [DEVICES]` writes them.

Tests run it in processes of their own, because devices are chosen before JAX is first used.
"""

import dataclasses as dc
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from helpers import BRANCH, TRUNK, as_fields, make_network, waves

from trunkfirst import stream
from trunkfirst.data.sharded_data import ShardedData, ShardFolder, write_shards
from trunkfirst.distributed.mesh import replicate_like, use_devices
from trunkfirst.distributed.processes import (
    gather_in_order,
    is_leader,
    join_processes,
    leave_processes,
    process_shard,
)
from trunkfirst.evaluation import evaluate
from trunkfirst.fields import Fields, Searched
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, RawInputs, StandardisedInputs
from trunkfirst.linear import low_rank
from trunkfirst.linear.blocked_qr import tall_qr
from trunkfirst.linear.low_rank import RowFactor, compress
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.loop import minimise
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.regressors import base
from trunkfirst.regressors.network import NetworkBranch, RegressionLoss, spread_loss
from trunkfirst.trunks import reuse_trunk
from trunkfirst.two_step import TwoStep

DOUBLE = np.dtype(np.float64)
# Neither number is divisible by 2 or 4.
DATA, TEST = waves(131, 33), waves(20, 33, seed=1)
STEP1 = NetworkTrunk(**TRUNK, minimiser=Adam(), iterations=100, starts=1)
STREAMED = TwoStep(
    STEP1,
    NetworkBranch(**BRANCH, skip=False, iterations=0, ridge=0.0001, decay=0.0),
    inputs=StandardisedInputs(),
    weights="relative",
    coordinates=Coordinates(rescale=False),
)
SHARDS = 14
# The numbers of `shard_numbers` that do not depend on the processes.
FROM_SHARDS = (
    "sketched gram",
    "shards gram",
    "shards weighted gram",
    "shards value",
    "shards gradient",
    "shards prediction",
    "shards branch loss",
)


def flat(tree: Any) -> np.ndarray:
    return np.asarray(jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0])


def collectives(compiled: Any) -> str:
    """The kinds of communication in a compiled function."""
    kinds = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
    text = compiled.compiled.as_text()
    return ",".join(kind for kind in kinds if f"{kind}(" in text or f"{kind}-start(" in text)


def numbers() -> dict[str, Any]:
    """The quantities, by name."""
    fields = as_fields(DATA)
    problem = fields.problem(DOUBLE, floats_per_point=12)(1e-3)
    start = replicate_like(STEP1.start(fields, dtype=DOUBLE, key=jr.key(0)), problem)
    compiled = value_and_gradient.lower(problem, start).compile()
    value, gradient = value_and_gradient(problem, in_double(start))
    factor, wide = compress(fields.outputs).factor, compress(fields.outputs[:9]).factor
    Q, R = tall_qr(fields.outputs)
    basis = QR()(np.vander(DATA.points[:, 0], 6))
    return {
        "gram": factor.T @ factor,
        "wide gram": wide.T @ wide,
        "product": Q @ R,
        "orthogonality": Q.T @ Q,
        "basis": basis.values,
        "value": np.asarray(value),
        "gradient": flat(gradient),
        "after 100 steps of Adam": after_adam(fields),
        "collectives": collectives(compiled),
    }


def in_double(start: Searched) -> Searched:
    """The same with all digits of the gradient: a search computes it in single precision."""
    return dc.replace(start, has_fast_gradient=False)


def after_adam(fields: Fields) -> np.ndarray:
    """The parameters after 100 steps of Adam."""
    problem = fields.problem(DOUBLE)(1e-3)
    start = replicate_like(STEP1.start(fields, dtype=DOUBLE, key=jr.key(0)), problem)
    return flat(minimise(problem, start, Adam(), iterations=100, key=jr.key(1)).state.parameters)


def rounding_of_adam() -> float:
    """How far rounding alone moves these parameters: their largest difference from those with reordered points.

    Adam divides every entry of the gradient by its own size, so that it magnifies the rounding of small entries.
    """
    fields = as_fields(DATA)
    expected, rng = after_adam(fields), np.random.default_rng(0)
    orders = [rng.permutation(len(fields.points)) for _ in range(3)]
    found = [after_adam(Fields(fields.points[order], fields.outputs[:, order])) for order in orders]
    return float(max(np.abs(each - expected).max() for each in found) / np.abs(expected).max())


value_and_gradient: Any = eqx.filter_jit(lambda problem, start: problem.value_and_grad(start, key=jr.key(0)))


def sketched_gram() -> np.ndarray:
    """The Gram matrix of rows that the processes share, by random sketches; rank 5, of which 8 rows are kept."""
    rows = DATA.outputs[:, :5] @ np.random.default_rng(0).normal(size=(5, 33))
    with mock.patch.multiple(low_rank, _MOST_COLUMNS=20, _MOST_NUMBERS=33 * 8, _FEWEST_ROWS=8):
        factor = RowFactor(33)
        part, parts = process_shard()
        for block in np.array_split(rows, 10)[part::parts]:
            factor.add(block)
        factor.combine()
        found = factor.finish().factor
    return found.T @ found


def from_shards(data: ShardedData) -> dict[str, Any]:
    """Factors, loss, gradient and predictions where the data are in shards; how often each process read each."""
    reads, real = np.zeros(SHARDS, int), ShardFolder.read

    def counted(folder: ShardFolder, number: int, *arguments: Any, **options: Any) -> dict[str, np.ndarray]:
        reads[number] += 1
        return real(folder, number, *arguments, **options)

    with (
        mock.patch.object(ShardFolder, "read", counted),
        mock.patch.object(stream, "_MOST_SAMPLES", 40),
        mock.patch.object(base, "_MAX_ROWS", 50),
    ):
        fields = STREAMED.encode(data).fields
        problem = fields.problem(DOUBLE, floats_per_point=12)(1e-3)
        start = replicate_like(STEP1.start(fields, dtype=DOUBLE, key=jr.key(0)), problem)
        value, gradient = value_and_gradient(problem, in_double(start))
        step1 = reuse_trunk(STEP1.make(fields, dtype=DOUBLE, key=jr.key(1)), fields)
        result = fit_method(data, STREAMED, trunk_result=step1)
    assert isinstance(fields, Fields)
    assert fields.factor is not None
    return {
        "shards gram": fields.outputs.T @ fields.outputs,
        "shards weighted gram": fields.factor.T @ fields.factor,
        "shards value": np.asarray(value),
        "shards gradient": flat(gradient),
        "shards prediction": result.operator.predict(TEST.flat_inputs, TEST.points),
        "shards branch loss": np.asarray(result.diagnostics["branch"]["loss"]),
        "reads": np.stack(list(gather_in_order(reads))),
    }


def shard_numbers() -> dict[str, Any]:
    """`from_shards`, twice: the same bits, in every process."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = (DATA.take(rows) for rows in np.array_split(np.arange(DATA.samples), SHARDS))
        data = write_shards(blocks, Path(folder) / "data")
        found, again = from_shards(data), from_shards(data)
    repeated = all(np.array_equal(found[name], again[name]) for name in found)
    predictions = list(gather_in_order(found["shards prediction"]))
    alike = all(np.array_equal(each, predictions[0]) for each in predictions)
    return found | {"repeated": repeated, "alike": alike, "sketched gram": sketched_gram()}


def error() -> float:
    """Mean test error of a whole fit."""
    method = TwoStep(
        STEP1,
        NetworkBranch(**BRANCH, skip=False, minimiser=Adam(0.01), iterations=20, ridge=0.0001, decay=0.0),
        inputs=RawInputs(),
        coordinates=Coordinates(rescale=False),
        weights="none",
    )
    return float(evaluate(fit_method(DATA, method).operator, TEST).errors.mean())


def branch_loss() -> np.ndarray:
    """The loss of the paper's step 2, with weights."""
    inputs, weights = jnp.asarray(DATA.flat_inputs), jnp.linspace(1.0, 2.0, DATA.samples)
    loss = spread_loss(RegressionLoss(inputs, jnp.asarray(DATA.outputs[:, :5]), weights))
    return np.asarray(eqx.filter_jit(type(loss).value)(loss, make_network(2, 6, 5)))


def everything() -> dict[str, Any]:
    """What is spread over the mesh there is."""
    return numbers() | {"branch loss": branch_loss(), "error": error()}


def main(file: str, devices: str | None = None) -> None:
    """Compute and write."""
    join_processes()
    with use_devices(None if devices is None else int(devices)), jax.enable_x64(True):
        found = everything() | (shard_numbers() if devices is None else {})
    if is_leader():
        np.savez(Path(file), **found)
    leave_processes(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
