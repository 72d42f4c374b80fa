"""What the paper leaves open in its training by Adam: step 1 and the monolithic method, one choice at a time.

    taskset -c 1 python benchmarks/paper_open_choices.py --problem discontinuous-conductivity --vary rate=3e-3

Each --vary is a run with these choices (comma separated) in place of the preset's; "" is the preset itself. Losses
are the smallest of all iterations, as means over samples and points. The error is the mean relative l2 error of
the test samples; the optimum is that with the best coefficients for the same trunk. Inputs enter the
monolithic branch as V S with orthonormal V: exact up to rounding, and fast where many sensors hold few numbers.
"""

import argparse
import dataclasses as dc
import functools as ft
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from _common import PAPER_PROBLEMS, Stopwatch, Table, draw_curves, options_for, publish
from _two_step import prepared_data

from trunkfirst.linear.low_rank import compress
from trunkfirst.linear.orthonormalise import relative_errors
from trunkfirst.presets import preset_method

CHUNK = 250  # iterations between two entries of the log, at most


@dc.dataclass(frozen=True)
class Choices:
    """What the paper does not print, or may have meant otherwise; defaults are those of preset `paper`."""

    step: str = "trunk"  # or monolithic
    rate: float = 1e-3
    halve: int = 0  # halve the rate after this many iterations; 0: never
    decay: float = 1.0  # the rate falls exponentially by this factor over the whole run
    eps: float = 1e-8
    start: str = "normal"  # of A: normal (variance scale^2 / (N + 1)), zeros, same (one draw for all), ones
    scale: float = 1.0
    bias: str = "zeros"  # or torch: uniform within 1 / sqrt(n_in)
    weights: str = "preset"  # He or Xavier normal; uniform: the same variance; torch: uniform in 1 / sqrt(n_in)
    last: str = "linear"  # or active: the activation on the trunk's last layer too
    inputs: str = "preset"  # or raw, standardise
    loss: str = "mean"  # or sum, which matters for eps only
    precision: str = "double"
    batch: int = 0  # samples in a step; 0: all

    @classmethod
    def read(cls, text: str) -> "Choices":
        """From words like `rate=3e-3,start=zeros`."""
        fields = {field.name: type(field.default) for field in dc.fields(cls)}
        pairs = [word.split("=", 1) for word in text.split(",") if word]
        return cls(**{name: fields[name](value) for name, value in pairs})


@dc.dataclass(frozen=True)
class Problem:
    """Training data in factors, the networks' widths, and the test samples."""

    points: np.ndarray
    inputs: np.ndarray
    outputs: np.ndarray
    test_inputs: np.ndarray
    test_outputs: np.ndarray
    trunk: tuple[int, ...]
    branch: tuple[int, ...]
    activation: str
    scaling: str = "raw"
    """How the preset scales inputs."""


def main(argv: Sequence[str] | None = None) -> None:
    """Train with every set of choices and every seed."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.iterations, options.samples = 500, 40
    problem = read_problem(options.problem, options.samples)
    rows, curves = [], {}
    for text in options.vary:
        for seed in options.seeds:
            row, curve = train(problem, Choices.read(text), text or "the preset", seed, options)
            print(*row, flush=True)
            rows.append(row)
            curves[f"{text or 'preset'}, {seed}"] = curve
    head = (
        "choices",
        "seed",
        "iterations",
        "smallest loss",
        "last loss",
        "test error",
        "its optimum",
        "seconds",
        "ms an iteration",
    )
    table = Table(f"{options.problem}: what the paper leaves open", head, rows)

    def draw(axes: Any) -> None:
        axes.set(xlabel="iterations", ylabel="smallest loss so far", xscale="log", yscale="log")
        draw_curves(axes, curves)

    publish(f"paper-open-choices-{options.problem}", options, table, curves, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problem", choices=list(PAPER_PROBLEMS), default="discontinuous-conductivity", help="which"
    )
    parser.add_argument("--iterations", type=int, default=10_000, help="of Adam")
    parser.add_argument("--samples", type=int, default=None, help="as many as the paper if left out")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="seeds of the networks")
    parser.add_argument("--vary", nargs="+", default=[""], help="choices of a run, e.g. rate=3e-3,start=zeros")


def read_problem(name: str, samples: int | None) -> Problem:
    """The data of the paper, split as `trunkfirst run` does."""
    method: Any = preset_method("paper", name, "monolithic")
    prepared = prepared_data("paper", name, samples)
    train, test = (
        prepared.data.take(rows)
        for rows in (np.setdiff1d(np.arange(prepared.data.samples), prepared.split.test), prepared.split.test)
    )
    trunk, branch = method.trunk, method.branch
    return Problem(
        train.points,
        train.flat_inputs,
        train.outputs,
        test.flat_inputs,
        test.outputs,
        (train.points.shape[1], *trunk.hidden, trunk.width),
        (train.flat_inputs.shape[1], *branch.hidden, trunk.width + 1),
        trunk.activation,
        method.inputs.kind,
    )


# -- networks, as lists of weights and biases


def make_network(widths: tuple[int, ...], activation: str, choices: Choices, key: jax.Array) -> list[Any]:
    """Layers (weights, biases) with the initialisation that is chosen."""
    layers = []
    for n_in, n_out, layer in zip(widths[:-1], widths[1:], jr.split(key, len(widths) - 1), strict=True):
        weight_key, bias_key = jr.split(layer)
        variance = 2 / n_in if activation == "relu" else 2 / (n_in + n_out)
        half = 1 / np.sqrt(n_in)
        if choices.weights == "preset":
            W = jr.normal(weight_key, (n_in, n_out)) * np.sqrt(variance)
        else:
            bound = half if choices.weights == "torch" else np.sqrt(3 * variance)
            W = jr.uniform(weight_key, (n_in, n_out), minval=-bound, maxval=bound)
        is_torch = choices.bias == "torch"
        b = jr.uniform(bias_key, (n_out,), minval=-half, maxval=half) if is_torch else jnp.zeros(n_out)
        layers.append((W, b))
    return layers


def apply(layers: list[Any], x: Any, sigma: Any, *, is_last_active: bool = False) -> jax.Array:
    """The network at x, or at V S if x is a pair (V, S)."""
    for number, (W, b) in enumerate(layers):
        x = (x[0] @ (x[1] @ W) if isinstance(x, tuple) else x @ W) + b[None, :]
        if number < len(layers) - 1 or is_last_active:
            x = sigma(x)
    return x


def first_matrix(samples: int, functions: int, choices: Choices, key: jax.Array) -> jax.Array:
    """A at the start of step 1, (samples, functions)."""
    size = choices.scale / np.sqrt(functions)
    if choices.start == "same":
        return jnp.broadcast_to(jr.normal(key, (1, functions)) * size, (samples, functions))
    values = {"zeros": 0.0, "ones": choices.scale}
    if choices.start in values:
        return jnp.full((samples, functions), values[choices.start])
    return jr.normal(key, (samples, functions)) * size


# -- the loss


@jax.custom_vjp
def weighted_squares(E: jax.Array, G: jax.Array) -> jax.Array:
    """tr(E G E^T) for a symmetric G, with two products for value and gradient instead of three."""
    return jnp.sum((E @ G) * E)


def _forward(E: jax.Array, G: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    EG = E @ G
    return jnp.sum(EG * E), (E, EG)


def _backward(kept: tuple[jax.Array, jax.Array], up: jax.Array) -> tuple[jax.Array, jax.Array]:
    E, EG = kept
    return 2 * up * EG, up * (E.T @ E)


weighted_squares.defvjp(_forward, _backward)


class Training:
    """The loss of a problem with some choices, and Adam on it."""

    def __init__(self, problem: Problem, choices: Choices, seed: int, iterations: int) -> None:
        self.problem, self.choices = problem, choices
        dtype = np.float64 if choices.precision == "double" else np.float32
        self.cast = ft.partial(jnp.asarray, dtype=dtype)
        found = compress(problem.outputs)
        self.V, self.B = self.cast(found.directions), self.cast(found.factor)
        self.points, self.U = self.cast(problem.points), self.cast(problem.outputs) if choices.batch else None
        inputs, self.scaled_test = self._scaled(problem.inputs), self.cast(self._scaled(problem.test_inputs))
        if choices.step == "monolithic" and inputs.shape[1] > 100:
            low = compress(inputs)
            self.inputs: Any = (self.cast(low.directions), self.cast(low.factor))
        else:
            self.inputs = self.cast(inputs)
        self.sigma = {"relu": jax.nn.relu, "tanh": jnp.tanh}[problem.activation]
        trunk_key, other_key, self.batch_key = jr.split(jr.key(seed), 3)
        samples, functions = len(inputs), problem.branch[-1]
        other = (
            first_matrix(samples, functions, choices, other_key)
            if choices.step == "trunk"
            else make_network(problem.branch, problem.activation, choices, other_key)
        )
        trunk = make_network(problem.trunk, problem.activation, choices, trunk_key)
        self.start = jax.tree.map(self.cast, (trunk, other))
        self.optimiser = optax.adam(self._rate(iterations), eps=choices.eps)

    def _scaled(self, inputs: np.ndarray) -> np.ndarray:
        train, scaling = self.problem.inputs, self.choices.inputs
        if (self.problem.scaling if scaling == "preset" else scaling) == "raw":
            return inputs
        return (inputs - train.mean(axis=0)) / np.maximum(train.std(axis=0), 1e-12)

    def _rate(self, iterations: int) -> Any:
        choices = self.choices
        if choices.halve:
            return optax.exponential_decay(choices.rate, choices.halve, 0.5, staircase=True)
        return optax.exponential_decay(choices.rate, iterations, choices.decay)

    def functions(self, trunk: list[Any]) -> jax.Array:
        """Phi (points, functions)."""
        values = apply(trunk, self.points, self.sigma, is_last_active=self.choices.last == "active")
        return jnp.concatenate([jnp.ones((len(values), 1), values.dtype), values], axis=1)

    def coefficients(self, other: Any, inputs: Any, rows: Any = None) -> jax.Array:
        """C (samples, functions): A itself, or the branch."""
        if self.choices.step == "trunk":
            return other if rows is None else other[rows]
        if rows is not None:
            inputs = (inputs[0][rows], inputs[1]) if isinstance(inputs, tuple) else inputs[rows]
        return apply(other, inputs, self.sigma)

    def loss(self, networks: Any, key: Any = None) -> jax.Array:
        """The mean of squares over samples (all without `key`, or a batch) and points."""
        trunk, other = networks
        Phi = self.functions(trunk)
        if key is not None:
            rows = jr.choice(key, len(self.V), (self.choices.batch,), replace=False)
            return jnp.mean((self.coefficients(other, self.inputs, rows) @ Phi.T - self.U[rows]) ** 2)
        C = self.coefficients(other, self.inputs)
        inside = self.V.T @ C
        squares = jnp.sum((inside @ Phi.T - self.B) ** 2) + weighted_squares(C - self.V @ inside, Phi.T @ Phi)
        return squares / (len(self.V) * len(self.points))

    @ft.partial(jax.jit, static_argnums=0)
    def chunk(self, networks: Any, memory: Any, best: jax.Array, keys: jax.Array) -> tuple[Any, Any, Any, Any]:
        """An iteration for each key; also the networks of the smallest loss."""
        unit = len(self.V) * len(self.points) if self.choices.loss == "sum" else 1

        def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
            networks, memory, best, kept = carry
            drawn = key if self.choices.batch else None
            value, gradient = jax.value_and_grad(lambda q: unit * self.loss(q, drawn))(networks)
            kept = jax.tree.map(lambda new, old: jnp.where(value < best, new, old), networks, kept)
            updates, memory = self.optimiser.update(gradient, memory, networks)
            return (optax.apply_updates(networks, updates), memory, jnp.minimum(best, value), kept), None

        networks, memory, best, kept = jax.lax.scan(step, (networks, memory, best * unit, networks), keys)[0]
        return networks, memory, best / unit, kept


def train(
    problem: Problem, choices: Choices, name: str, seed: int, options: argparse.Namespace
) -> tuple[tuple[Any, ...], list[tuple[int, float]]]:
    """A row of the table, and the smallest loss so far by iteration."""
    with jax.enable_x64(choices.precision == "double"):
        watch, length = Stopwatch(options.clock), min(CHUNK, max(options.iterations // 2, 1))
        training = Training(problem, choices, seed, options.iterations)
        networks = kept = training.start
        memory, best, curve, pace = training.optimiser.init(networks), training.cast(np.inf), [], np.inf
        for done in range(length, options.iterations + 1, length):
            before, begin = best, watch.read()
            keys = jr.split(jr.fold_in(training.batch_key, done), length)
            networks, memory, best, newest = training.chunk(networks, memory, best, keys)
            kept = newest if choices.batch or best < before else kept
            curve.append((done, float(training.loss(networks)) if choices.batch else float(best)))
            pace = min(pace, (watch.read() - begin) / length)  # the first one compiles
        last, error, optimum = float(training.loss(networks)), *test_errors(training, kept)
    return (name, seed, options.iterations, curve[-1][1], last, error, optimum, watch.read(), 1e3 * pace), curve


def test_errors(training: Training, networks: Any) -> tuple[float | None, float]:
    """Mean relative l2 error on the test samples: of the operator, and with the best coefficients."""
    trunk, other = networks
    outputs = training.problem.test_outputs
    Phi = np.asarray(training.functions(trunk), np.float64)
    u, s, _ = np.linalg.svd(Phi, full_matrices=False)
    Q = u[:, s > 1e-12 * s[0]]
    optimum = float(relative_errors((outputs @ Q) @ Q.T, outputs).mean())
    if training.choices.step == "trunk":
        return None, optimum
    predictions = np.asarray(training.coefficients(other, training.scaled_test), np.float64) @ Phi.T
    return float(relative_errors(predictions, outputs).mean()), optimum


if __name__ == "__main__":
    main()
