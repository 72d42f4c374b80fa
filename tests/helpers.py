"""Problems and measures that several tests share."""

import dataclasses as dc
import functools as ft
import itertools
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import read_data
from trunkfirst.data.scattered_data import AnyData
from trunkfirst.data.sharded_data import ShardedData
from trunkfirst.encode import make_fields
from trunkfirst.encoders import Identity
from trunkfirst.fields import AbstractFields
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.method import Trained
from trunkfirst.minimisers.adam import Adam
from trunkfirst.monolithic import Monolithic
from trunkfirst.networks.branches import StackedBranch
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.regressors.network import BranchNetwork, JointBranch
from trunkfirst.trunks import JointTrunk, TrunkNetwork
from trunkfirst.two_step import TwoStep

TRUNK: dict[str, Any] = {"hidden": (6,), "width": 4, "activation": "tanh", "initialisation": "xavier"}
PLAIN: dict[str, Any] = {
    "inputs": RawInputs(),
    "coordinates": Coordinates(rescale=False),
    "weights": "none",
}
"""The paper's way: inputs and points as they are, every sample with the same weight."""
BRANCH: dict[str, Any] = {"hidden": (6,), "activation": "tanh", "initialisation": "xavier"}


def as_fields(data: AnyData) -> AbstractFields:
    """The fields of `data` as they are: no encoding, no output map."""
    weights = None if data.sample_weights is None else np.repeat(data.sample_weights[:, None], data.channels, 1)
    return make_fields(data, Identity(), None, weights)


def waves(samples: int = 12, points: int = 30, *, sensors: int = 2, seed: int = 0, **more: Any) -> OperatorData:
    """Smooth data: u(y) = 2 + sin(a . y) + a_1 y_1, with the input a."""
    rng = np.random.default_rng(seed)
    inputs = rng.uniform(0.5, 1.5, (samples, sensors))
    places = rng.uniform(-1, 1, (points, 2))
    outputs = 2 + np.sin(inputs[:, :2] @ places.T) + inputs[:, :1] * places[:, 0]
    return OperatorData(inputs, places, outputs, **more)


def read_file(source: Any, **options: Any) -> AnyData:
    """`read_data` of what is not in shards."""
    data = read_data(source, **options)
    assert not isinstance(data, ShardedData)
    return data


def two_step(*, iterations: int = 5, rate: float = 1e-2, **more: Any) -> TwoStep:
    """A small two-step method; `more` are fields of its step 1 or of itself."""
    step1 = {name: more.pop(name) for name in ("p", "batches") if name in more}
    minimiser = Adam(rate)
    return TwoStep(
        JointTrunk(**TRUNK, minimiser=minimiser, iterations=iterations, **step1),
        **{
            "branch": JointBranch(**BRANCH, minimiser=minimiser, iterations=iterations),
            "orthonormalise": QR(),
            **PLAIN,
            **more,
        },
    )


def monolithic(*, iterations: int = 5, rate: float = 1e-2, **more: Any) -> Monolithic:
    """A small monolithic method."""
    networks = {"trunk": TrunkNetwork(**TRUNK), "branch": BranchNetwork(**BRANCH)}
    return Monolithic(**{**networks, **PLAIN, **more}, minimiser=Adam(rate), iterations=iterations)


METHODS: dict[str, Callable[..., Any]] = {
    "two-step": two_step,
    "two-step-without-qr": ft.partial(two_step, orthonormalise=None),
    "monolithic": monolithic,
}


@ft.cache
def fitted(name: str) -> Trained:
    """A short fit of `waves()`, shared because compiling takes longer than fitting."""
    return fit_method(waves(), METHODS[name](), key=0)


def arrays_of(tree: Any) -> list[np.ndarray]:
    """All arrays of a pytree."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]


def has_same_bits(a: Any, b: Any) -> bool:
    """Whether two pytrees hold the same arrays to the bit."""
    pairs = list(zip(arrays_of(a), arrays_of(b), strict=True))
    return len(pairs) > 0 and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def central_difference(f: Callable[[Any], Any], tree: Any, direction: Any, step: float = 1e-6) -> float:
    """(f(tree + h direction) - f(tree - h direction)) / 2h."""

    def moved(h: float) -> Any:
        return jax.tree.map(lambda a, d: a + h * d, tree, direction)

    return float(f(moved(step)) - f(moved(-step))) / (2 * step)


def random_like(tree: Any, *, seed: int) -> Any:
    """A pytree of normal numbers in the shapes of `tree`."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), tree)


def with_inputs(data: OperatorData, **functions: Any) -> OperatorData:
    """The same data with other input functions."""
    return dc.replace(data, inputs=functions)


# -- networks from NumPy's random numbers, because JAX compiles its own anew for every shape


def make_network(
    *architecture: int,
    activation: str = "tanh",
    dtype: type = np.float64,
    stack: tuple[int, ...] = (),
    seed: int = 0,
) -> Perceptron:
    """A perceptron with normal weights and biases, or a stack of them."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=(*stack, *shape)) / 2, dtype)

    with jax.enable_x64(True):
        layers = [(normal(n_out, n_in), normal(n_out)) for n_in, n_out in itertools.pairwise(architecture)]
    return Perceptron(tuple(W for W, _ in layers), tuple(b for _, b in layers), activation)


def make_operator(
    *, encoder: Any = None, stacked: bool = False, transform: bool = True, dtype: type = np.float64
) -> Operator:
    """Trunk (2, 6, 4), branch (3, 6, rank) for two inputs f (1 sensor) and g (2 sensors)."""
    rank = 3 if transform else 5
    trunk = Trunk(make_network(2, 6, 4, dtype=dtype, seed=1))
    branch = (
        StackedBranch(make_network(3, 6, 1, dtype=dtype, stack=(rank,), seed=2))
        if stacked
        else make_network(3, 6, rank, dtype=dtype, seed=2)
    )
    with jax.enable_x64(True):
        T = jnp.asarray(np.random.default_rng(3).normal(size=(5, 3)), dtype) if transform else None
    return Operator(encoder or Identity(), branch, trunk, T, ("f", "g"))


def network_of(part: Any) -> Perceptron:
    """The network of the trunk of an operator or of step 1."""
    assert isinstance(part.trunk, Trunk)
    return part.trunk.network


# -- compiled programs


@contextmanager
def compilations() -> Generator[list[str]]:
    """The names of programs that are compiled meanwhile."""
    found: list[str] = []

    def listen(event: str, duration: float, **options: Any) -> None:
        del duration
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(str(options.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
