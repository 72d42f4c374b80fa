"""Operators of every part that can be stored, and what runs an exported one."""

import dataclasses as dc
import functools as ft
import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network

from trunkfirst.encoders import (
    ELEMENTWISE,
    Chain,
    Elementwise,
    FourierFeatures,
    Identity,
    LinearProjection,
    Parallel,
    Periodic,
    Powers,
    Standardise,
)
from trunkfirst.networks.branches import (
    MATERN,
    ConvolutionFeatures,
    FeatureBranch,
    KernelBranch,
    LayerFeatures,
    ProductFeatures,
    SkipFeatures,
    StackedBranch,
)
from trunkfirst.networks.fourier_layers import GridBranch, GridSymmetries, make_fourier_network
from trunkfirst.networks.interpolants import FlatInterpolation, RadialInterpolation
from trunkfirst.networks.interpolate import interpolate
from trunkfirst.networks.layers import (
    ACTIVATIONS,
    Latent,
    Modes,
    MovingFunctions,
    Trunk,
    moving_side_by_side,
)
from trunkfirst.networks.operator import Operator
from trunkfirst.outputs import Boundary, OutputMap

RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.uniform(0.5, 2.0, (7, 12)), RNG.uniform(-1, 1, (5, 2))
INPUTS[:, 1] *= -1
RANK = 4


def array(values: Any) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.asarray(values)


def normal(*shape: int, seed: int = 0) -> jax.Array:
    return array(np.random.default_rng(seed).normal(size=shape))


def positive(*shape: int) -> jax.Array:
    return array(np.random.default_rng(9).uniform(1, 3, shape))


def make(
    encoder: Any = None,
    branch: Any = None,
    *,
    points: Any = None,
    features: int = 12,
    channels: int | None = None,
    output: OutputMap | None = None,
    activation: str = "tanh",
    transform: bool = True,
) -> Operator:
    """An operator of 12 sensors and 2 coordinates around the parts that are given."""
    points = points or Identity()
    encoded = width_of(points, POINTS)
    trunk = Trunk(make_network(encoded, 6, 5, 5 if transform else RANK - 1, activation=activation, seed=1), points)
    coefficients = RANK * (channels or 1)
    branch = branch or make_network(features, 6, 5, coefficients, activation=activation, seed=2)
    T = normal(6, RANK, seed=3) if transform else None
    return Operator(encoder or Identity(), branch, trunk, T, ("f", "g"), output, channels)


def width_of(part: Any, rows: np.ndarray) -> int:
    with jax.enable_x64(True):
        return jax.eval_shape(part, rows).shape[1]


def on_features(features: Any) -> Operator:
    width = width_of(features, INPUTS)
    return make(branch=FeatureBranch(features, normal(RANK, width, seed=4), normal(RANK, seed=5)))


def convolution(*grid: int, channels: tuple[int, ...]) -> Operator:
    taps = (3,) * len(grid)
    kernels = tuple(normal(n_out, n_in, *taps) for n_in, n_out in itertools.pairwise((1, *channels)))
    cells = math.prod(math.ceil(size / 2 ** len(channels)) for size in grid)
    dense = make_network(cells * channels[-1], 4, activation="gelu")
    return on_features(ConvolutionFeatures(kernels, tuple(normal(n) for n in channels), dense, grid))


def fourier(*grid: int, functions: int = 1, turns: bool = False) -> Operator:
    """Fourier layers on a grid, the last axis periodic; a second function is a constant; a symmetry if asked."""
    cells = math.prod(grid)
    is_periodic = [False] * (len(grid) - 1) + [True]
    shape = {"channels": 3, "layers": 2, "modes": 2, "is_periodic": is_periodic, "padding": 0.3}
    with jax.enable_x64(True):
        network = make_fourier_network(grid, functions, 1, **shape, dtype=np.dtype(float), key=jax.random.key(0))
    places = np.stack([np.arange(cells)[::-1], np.full(cells, cells)])[:functions]
    branch = GridBranch(
        network,
        normal(cells, RANK),
        normal(functions),
        positive(functions),
        normal(RANK, seed=1),
        array(2.0),
        jnp.asarray(places, jnp.int32),
        grid,
        12,
        reflection(cells) if turns else None,
    )
    return make(branch=branch)


def reflection(cells: int) -> GridSymmetries:
    """The identity, and a reflection that changes the signs of input and output."""
    both = jnp.asarray([np.arange(cells), np.arange(cells)[::-1]], jnp.int32)
    return GridSymmetries(both, array([1.0, -1.0]), both, array([[1.0], [-1.0]]))


def kernel(smoothness: str) -> Operator:
    centres = np.concatenate([INPUTS[:3], np.asarray(normal(6, 12))])  # distance 0 is among them
    branch = KernelBranch(array(centres), normal(9, RANK), normal(RANK), array(3.0), smoothness, 0.0)
    return make(branch=branch)


def kernel_with_lengths(groups: tuple[int, ...]) -> Operator:
    """A length for every feature, a product over groups and a linear factor."""
    centres = np.concatenate([INPUTS[:3], np.asarray(normal(6, 12))])
    branch = KernelBranch(
        array(centres),
        normal(9, RANK),
        normal(RANK),
        array(np.linspace(2, 5, 12)),
        "5/2",
        0.0,
        positive(13),
        groups,
    )
    return make(branch=branch)


def mapped(*, channels: int | None, boundary: Boundary | None, is_positive: bool) -> Operator:
    return make(channels=channels, output=OutputMap(positive(channels or 1), boundary, is_positive))


def between(*, grid: bool, smooth: bool, periods: tuple[float, float] = (0.0, 0.0)) -> Operator:
    """Functions at points of [-0.8, 0.9]^2: some of the points to predict lie outside."""
    rng = np.random.default_rng(7)
    axes = [np.sort(rng.uniform(-0.8, 0.9, count)) for count in (5, 6)]
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2) if grid else rng.uniform(-0.8, 0.9, (30, 2))
    values = np.stack([np.sin(2 * points[:, 0]), points[:, 1] ** 2, points[:, 0] * points[:, 1]], axis=1)
    modes = Modes(interpolate(points, values, periods=periods, smooth=smooth))
    return dc.replace(make(), trunk=modes, transform=normal(3, RANK, seed=3))


def radial() -> Operator:
    centres = array(np.concatenate([POINTS[:2] / 2, np.asarray(normal(4, 2))]))  # distance 0 is among them
    functions = RadialInterpolation(normal(9, 3), centres, array([0.0, 0.0]), array([2.0, 2.0]))
    return dc.replace(make(), trunk=Modes(functions), transform=normal(3, RANK, seed=3))


def on_a_line() -> Operator:
    x = np.linspace(-1, 1, 8)[:, None]
    make_flat: Any = FlatInterpolation
    functions = make_flat(interpolate(x, np.sin(x * [1, 2, 3])), (1,), 2)
    return dc.replace(make(), trunk=Modes(functions), transform=normal(3, RANK, seed=3))


def moving(*, channels: int | None = None, latent: bool = True) -> Operator:
    """Functions of two coordinates and the input: two members that see three numbers of it, or one all of it."""
    numbers, widths = (3, (2, 3)) if latent else (12, (5,))
    members = [
        MovingFunctions(
            make_network(2 + numbers, 5, 4, activation="tanh", seed=1),
            normal(4, seed=2),
            make_network(2 + numbers + 8, 5, width, activation="tanh", seed=3),
            numbers,
            Latent(normal(12, 3), make_network(12, 4, 3, activation="tanh", seed=4)) if latent else None,
        )
        for width in widths
    ]
    with jax.enable_x64(True):
        trunk = moving_side_by_side(members)
    return dc.replace(make(STANDARD, channels=channels), trunk=trunk)


LAYERS = LayerFeatures(make_network(12, 5, 4, seed=3))
STANDARD = Standardise(normal(12), array([np.inf, *positive(11).tolist()]))
SIDES = Boundary((-1.0, -1.0), (1.0, 2.0), ((0, True), (1, False)), 0.7)
IS_POSITIVE = jnp.asarray(INPUTS[0] > 0)
MAKERS: dict[str, Callable[[], Operator]] = {
    **{f"activation {name}": ft.partial(make, activation=name) for name in ACTIVATIONS},
    **{f"kernel {name}": ft.partial(kernel, name) for name in MATERN},
    **{f"elementwise {name}": ft.partial(make, Elementwise(IS_POSITIVE, name)) for name in ELEMENTWISE},
    "kernel with lengths": ft.partial(kernel_with_lengths, ()),
    "product of kernels": ft.partial(kernel_with_lengths, (5, 7)),
    "powers": lambda: make(Powers(array(np.resize([-1.0, 0.5, 0.0, 1.0, -0.5], 12)), IS_POSITIVE)),
    "no transform": ft.partial(make, transform=False),
    "stacked": lambda: make(branch=StackedBranch(make_network(12, 5, 3, 1, stack=(RANK,), seed=2))),
    "layers": lambda: on_features(LAYERS),
    "skip": lambda: on_features(SkipFeatures(LAYERS)),
    "product": lambda: on_features(
        ProductFeatures((make_network(5, 5, 4, seed=1), make_network(7, 5, 4, seed=2)), (5, 7))
    ),
    "convolution 1d": lambda: convolution(12, channels=(2, 3)),
    "convolution 2d": lambda: convolution(3, 4, channels=(3, 2)),
    "convolution 3d": lambda: convolution(2, 3, 2, channels=(3,)),
    "fourier 1d": lambda: fourier(12),
    "fourier 2d": lambda: fourier(3, 4),
    "fourier turned": lambda: fourier(12, turns=True),
    "fourier 3d": lambda: fourier(2, 3, 1, functions=2),
    "standardise": lambda: make(STANDARD),
    "one sensor": lambda: make(
        Chain((LinearProjection(normal(12, 1)), Standardise(normal(1), positive(1)))), features=1
    ),
    "all positive": lambda: make(
        Parallel((Elementwise(jnp.ones(1, bool), "log"), LinearProjection(normal(11, 3), normal(11))), (1, 11)),
        features=4,
    ),
    "coordinates": lambda: make(LinearProjection(normal(12, 3, seed=1), normal(12)), features=3),
    "chain": lambda: make(Chain((STANDARD, LinearProjection(normal(12, 3)))), features=3),
    "periodic": lambda: make(points=Periodic((0.0, 1.5))),
    "fourier": lambda: make(points=FourierFeatures(normal(4, 2))),
    "points chain": lambda: make(points=Chain((Standardise(normal(2), positive(2)), Periodic((2.0, 0.0))))),
    "linear grid": lambda: between(grid=True, smooth=False),
    "cubic grid": lambda: between(grid=True, smooth=True, periods=(0.0, 1.9)),
    "linear triangles": lambda: between(grid=False, smooth=False),
    "smooth triangles": lambda: between(grid=False, smooth=True, periods=(2.0, 0.0)),
    "radial": radial,
    "on a line": on_a_line,
    "moving": ft.partial(moving, latent=False),
    "moving channels": ft.partial(moving, channels=3),
    "channels": ft.partial(make, channels=3),
    "scale": lambda: mapped(channels=None, boundary=None, is_positive=False),
    "boundary": lambda: mapped(channels=None, boundary=SIDES, is_positive=False),
    "boundary of channels": lambda: mapped(channels=3, boundary=SIDES, is_positive=True),
    "one channel": lambda: mapped(channels=1, boundary=dc.replace(SIDES, sides=()), is_positive=False),
}


@ft.cache
def known(name: str) -> tuple[Operator, np.ndarray]:
    """An operator and its own predictions."""
    operator = MAKERS[name]()
    return operator, operator.predict(INPUTS, POINTS)


def run_onnx(model: bytes, inputs: np.ndarray, points: np.ndarray, dtype: type) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["outputs"], {"inputs": inputs.astype(dtype), "points": points.astype(dtype)})[0]


def run_numpy(text: bytes, folder: Path) -> Any:
    """The written file as a module."""
    path = folder / "exported_model.py"
    path.write_bytes(text)
    spec = importlib.util.spec_from_file_location("exported_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_stablehlo(stored: bytes, inputs: np.ndarray, points: np.ndarray, dtype: type) -> np.ndarray:
    with jax.enable_x64(dtype is np.float64):
        call = jax.export.deserialize(bytearray(stored)).call
        return np.asarray(call(inputs.astype(dtype), points.astype(dtype)))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / np.abs(expected).max())
