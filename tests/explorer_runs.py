"""Run folders around untrained operators, with names that try to break out of a page."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import make_network

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encoders import Elementwise, Identity
from trunkfirst.evaluation import evaluate, evaluation_arrays
from trunkfirst.files.integrity import write_manifest
from trunkfirst.files.npz import write_npz
from trunkfirst.files.text_files import write_json
from trunkfirst.networks.layers import MovingFunctions, Trunk
from trunkfirst.networks.operator import Operator, save
from trunkfirst.outputs import Boundary, OutputMap
from trunkfirst.training_summary import summarise, write_summary

RNG = np.random.default_rng(0)
HOSTILE = "</script><script>document.title = 'taken'</script><b>"
SQUARE = np.stack(np.meshgrid(np.linspace(0, 2, 9), np.linspace(-1, 1, 9)), axis=-1).reshape(-1, 2)
LINE = np.linspace(0, 1, 30)[:, None]


def halves(columns: int) -> np.ndarray:
    """Two triangles for each cell of a square grid."""
    first = np.array([columns * i + j for i in range(columns - 1) for j in range(columns - 1)])
    lower = np.stack([first, first + 1, first + columns + 1], axis=1)
    upper = np.stack([first, first + columns + 1, first + columns], axis=1)
    return np.concatenate([lower, upper])


def make(
    sensors: int,
    coordinates: int,
    names: tuple[str, ...],
    *,
    encoder: Any = None,
    channels: int | None = None,
    output: OutputMap | None = None,
) -> Operator:
    rank = 5
    branch = make_network(sensors, 7, rank * (channels or 1), seed=2)
    with jax.enable_x64(True):
        transform = jnp.asarray(np.random.default_rng(3).normal(size=(7, rank)))
    trunk = Trunk(make_network(coordinates, 8, 6, seed=1))
    return Operator(encoder or Identity(), branch, trunk, transform, names, output, channels)


def mapped() -> OutputMap:
    sides = Boundary((0.0, -1.0), (2.0, 1.0), ((0, False), (1, True)), 0.7)
    with jax.enable_x64(True):
        return OutputMap(jnp.asarray([0.5, 1.5]), sides, is_positive=True)


def data_for(operator: Operator, inputs: Any, points: np.ndarray, **more: Any) -> OperatorData:
    """Samples whose outputs are nearly what the operator predicts."""
    arrays = {name: f.values for name, f in inputs.items()}
    outputs = operator.predict(arrays, points)
    return OperatorData(inputs, points, outputs * (1 + 1e-3 * RNG.normal(size=outputs.shape)), **more)


def numbers() -> tuple[Operator, OperatorData]:
    values = RNG.uniform(0.5, 2, (20, 3))
    operator = make(3, 2, ("parameters",))
    labels = {name: values[:, k] for k, name in enumerate(("a", "b", HOSTILE))}
    inputs = {"parameters": InputFunction(values)}
    return operator, data_for(operator, inputs, SQUARE, labels=labels, triangles=halves(9))


def logarithm() -> tuple[Operator, OperatorData]:
    operator = make(1, 1, ("size",), encoder=Elementwise(jnp.ones(1, bool), "log"))
    return operator, data_for(operator, {"size": InputFunction(np.geomspace(0.01, 10, 20)[:, None])}, LINE)


def functions() -> tuple[Operator, OperatorData]:
    x = np.linspace(0, 1, 24)[:, None]
    values = RNG.normal(size=(20, 4)) @ np.cos(np.pi * np.arange(4)[:, None] * x.T)
    inputs = {HOSTILE: InputFunction(values, sensors=x), "g": InputFunction(RNG.uniform(1, 2, (20, 1)))}
    operator = make(25, 2, tuple(inputs), channels=2, output=mapped())
    names = {"channel_names": (HOSTILE, "v")}
    return operator, data_for(operator, inputs, RNG.uniform((0, -1), (2, 1), (40, 2)), **names)


def space() -> tuple[Operator, OperatorData]:
    operator = make(2, 3, ("a", "b"))
    inputs = {name: InputFunction(RNG.uniform(1, 2, (20, 1))) for name in ("a", "b")}
    return operator, data_for(operator, inputs, RNG.uniform(-1, 1, (60, 3)))


def moving() -> tuple[Operator, OperatorData]:
    """Functions that depend on the input have no table."""
    operator = make(2, 2, ("a", "b"), channels=2, output=mapped())
    levels, network = (
        make_network(4, 6, 3, activation="tanh", seed=4),
        make_network(10, 6, 6, activation="tanh", seed=5),
    )
    with jax.enable_x64(True):
        trunk = MovingFunctions(levels, jnp.ones(3), network, 2)
    inputs = {name: InputFunction(RNG.uniform(1, 2, (20, 1))) for name in ("a", "b")}
    operator = dc.replace(operator, trunk=trunk)
    return operator, data_for(operator, inputs, RNG.uniform((0, -1), (2, 1), (40, 2)), channel_names=("u", "v"))


MAKERS = {"numbers": numbers, "logarithm": logarithm, "functions": functions, "space": space, "moving": moving}


def write_run(folder: Path, operator: Operator, data: OperatorData, *, tested: bool = True) -> None:
    """A run folder around an untrained operator."""
    save(operator, folder / "model")
    write_summary(folder, summarise(data.take(np.arange(16)), None))
    metrics: dict[str, Any] = {"problem": HOSTILE, "samples": {"train": 16, "test": 4}}
    if tested:
        test = data.take(np.arange(16, 20))
        found = evaluate(operator, test)
        write_npz(folder / "evaluation.npz", evaluation_arrays(None, found, test))
        metrics["test"] = found.summary()
    write_json(folder / "metrics.json", metrics)
    write_manifest(folder)
