"""Rows sharded over four virtual devices: the same numbers, and only sums are exchanged."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import mesh_numbers
import numpy as np
import pytest

from trunkfirst.distributed.mesh import current_mesh, shard_rows, use_devices
from trunkfirst.errors import UsageError
from trunkfirst.linear.low_rank import compress
from trunkfirst.linear.orthonormalise import QR

TESTS = Path(__file__).parent
CLOSE = (
    "gram",
    "wide gram",
    "product",
    "orthogonality",
    "basis",
    "value",
    "gradient",
    "branch loss",
)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    "OPENBLAS_NUM_THREADS": "1",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
}


def assert_close(found: Any, expected: Any, names: Iterable[str], margin: float = 1e-10) -> None:
    for name in names:
        difference = np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max()
        assert difference < margin, name


def assert_same_numbers(found: Any, expected: Any) -> None:
    assert_close(found, expected, CLOSE)
    # Another division of the sums rounds like another order of the points, several times in 100 steps.
    assert_close(found, expected, ["after 100 steps of Adam"], 20 * expected["rounding of Adam"])
    assert abs(found["error"] / expected["error"] - 1) < 0.2
    assert str(found["collectives"]) == "all-reduce"


@pytest.fixture(scope="session")
def alone() -> dict[str, Any]:
    """The numbers without a mesh."""
    with jax.enable_x64(True):
        return mesh_numbers.everything() | {"rounding of Adam": mesh_numbers.rounding_of_adam()}


def test_four_devices_give_the_numbers_of_one(alone: dict[str, Any], tmp_path: Path):
    command = [sys.executable, str(TESTS / "mesh_numbers.py"), str(tmp_path / "found.npz"), "4"]
    subprocess.run(command, env=ENVIRONMENT, check=True, timeout=300)
    assert_same_numbers(np.load(tmp_path / "found.npz"), alone)


def test_alone_numbers_are_right(alone: dict[str, Any]):
    outputs = mesh_numbers.DATA.outputs
    np.testing.assert_allclose(alone["gram"], outputs.T @ outputs, rtol=1e-12)
    np.testing.assert_allclose(alone["product"], outputs, atol=1e-12)
    assert str(alone["collectives"]) == ""


def test_without_a_mesh_an_array_stays_as_it_is():
    rows = np.arange(6.0).reshape(3, 2)
    with use_devices(None):
        assert current_mesh() is None
        np.testing.assert_array_equal(shard_rows(rows, axis=1, repeats_last=True), rows)


def test_a_mesh_of_the_one_device_that_there_is_pads_nothing_and_ends():
    rows = np.arange(6.0).reshape(3, 2)
    with use_devices(jax.devices()):
        spread = shard_rows(rows, np.float32)
        assert spread.sharding.num_devices == 1
        np.testing.assert_array_equal(spread, rows)
    assert current_mesh() is None


@pytest.mark.parametrize("shape", [(40, 7), (12, 30)])
def test_compression_and_orthonormalisation_on_a_mesh_keep_their_meaning(shape: tuple[int, int]):
    matrix = np.random.default_rng(0).normal(size=shape) @ np.diag(np.logspace(0, -3, shape[1]))
    plain = QR()(matrix.T if shape[0] < shape[1] else matrix)
    with use_devices(jax.devices()):
        compressed = compress(matrix)
        basis = QR()(matrix.T if shape[0] < shape[1] else matrix)
    np.testing.assert_allclose(compressed.directions @ compressed.factor, matrix, atol=1e-12)
    np.testing.assert_allclose(compressed.directions.T @ compressed.directions, np.eye(min(shape)), atol=1e-12)
    np.testing.assert_allclose(basis.values, plain.values, atol=1e-8)  # signs included
    np.testing.assert_allclose(basis.transform, plain.transform, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("devices", "message"), [(0, "at least 1"), (3, "JAX has 1 here")])
def test_devices_that_are_not_there_are_an_error(devices: int, message: str):
    with pytest.raises(UsageError, match=message), use_devices(devices):
        pass
