"""Problems of the kind that people bring: operators of known form, and trunks that need no training."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import make_network

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.fitting import fit_method
from trunkfirst.method import Trained
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.trunks import reuse_trunk
from trunkfirst.two_step import TwoStep

DOUBLE = np.dtype(np.float64)
Call = Callable[..., tuple[int, str, str]]
NARROW = {"hidden": (20,), "width": 8, "starts": 1}
SETTINGS: dict[str, Any] = {
    "trunk": {**NARROW, "iterations": 60},
    "branch": {"kind": "linear"},
    "inputs": {"kind": "standardise"},
    "weights": "relative",
}
# The same on the command line; everything below has the same shapes, because compiling takes the time.
OPTIONS = [
    f"--set={section}.{key}={json.dumps(value)}"
    for section, values in SETTINGS.items()
    if isinstance(values, dict)
    for key, value in values.items()
] + ["--set=weights=relative"]


def shared_data(name: str) -> Path:
    """A public data set beside the repository; the test is skipped where it is absent."""
    folder = os.environ.get("TRUNKFIRST_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    path = Path(folder) / name
    if not path.is_file():
        pytest.skip(f"the public data set {name} is not in {folder}")
    return path


def antiderivative(samples: int, *, sensors: int = 24, modes: int = 5, seed: int = 0) -> OperatorData:
    """f -> its integral from 0, for Gaussian fields f = sum a_k cos(k pi x), integrated exactly."""
    k = np.arange(1, modes + 1)[:, None]
    a = np.random.default_rng(seed).normal(size=(samples, modes)) / k[:, 0]
    x = np.linspace(0, 1, sensors)
    inputs = InputFunction(a @ np.cos(np.pi * k * x), sensors=x[:, None])
    return OperatorData({"f": inputs}, x[:, None], a @ (np.sin(np.pi * k * x) / (np.pi * k)))


def known_trunk(coordinates: int = 1, functions: int = 20, seed: int = 5) -> Trunk:
    """Random functions that represent smooth ones well: a trunk that needs no training."""
    return Trunk(make_network(coordinates, 40, functions, seed=seed))


def fit_branch(data: Any, method: TwoStep, trunk: Trunk | None = None, **options: Any) -> Trained:
    """`fit` behind a known trunk, because training a trunk compiles for seconds."""
    return fit_method(data, method, trunk_result=known_step1(data, method, trunk), **options)


def known_step1(data: Any, method: TwoStep, trunk: Trunk | None = None) -> Any:
    """Step 1 of a known trunk."""
    with jax.enable_x64(True):
        fields = method.encode(data).fields
        return reuse_trunk(trunk or known_trunk(fields.points.shape[1]), fields)


def linear_layer(*shape: int, seed: int) -> Perceptron:
    """A layer without hidden ones."""
    return make_network(*shape, seed=seed)


def saved_and_loaded(operator: Operator, folder: Path) -> Operator:
    """There and back again."""
    return load(save(operator, folder))
