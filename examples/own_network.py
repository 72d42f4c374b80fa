"""Your own network as the trunk, with the parts of the library.

    python examples/own_network.py

The operator maps (a, b) to u(x) = sin(a x) + b exp(-40 (x - 1/2)^2). Variable projection works for any Equinox
module that maps points to values of functions: here Gaussians with trained centres and widths.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np

import trunkfirst
from trunkfirst.encoders import AbstractEncoder
from trunkfirst.linear.low_rank import compress
from trunkfirst.minimisers.loop import minimise
from trunkfirst.minimisers.separable import AbstractFeatures, SeparableProblem
from trunkfirst.networks.layers import Perceptron, Trunk


class Gaussians(AbstractEncoder):
    """exp(-(x - centre)^2 / (2 width^2)) for every pair of centre and width."""

    centres: jax.Array
    log_widths: jax.Array

    @property
    def sensors(self) -> int:
        """The number of coordinates of a point."""
        return 1

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return jnp.exp(-((inputs - self.centres[None]) ** 2) / (2 * jnp.exp(2 * self.log_widths[None])))


class AtPoints(AbstractFeatures):
    """The Gaussians at the points, and the constant that every trunk has: what step 1 fits."""

    points: jax.Array

    def __call__(self, parameters: Gaussians) -> jax.Array:
        return as_trunk(parameters)(self.points)


def as_trunk(gaussians: Gaussians) -> Trunk:
    """A trunk is an encoder of the points and a network; here the network is the identity."""
    count = len(gaussians.centres)
    return Trunk(Perceptron((jnp.eye(count),), (jnp.zeros(count),), "tanh"), gaussians)


def main(picture: Path | None = None, *, iterations: int = 200) -> dict[str, float]:
    rng = np.random.default_rng(0)
    inputs, x = rng.uniform(1, 4, (120, 2)), np.linspace(0, 1, 80)
    outputs = np.sin(inputs[:, :1] * x) + inputs[:, 1:] * np.exp(-40 * (x - 0.5) ** 2)
    data = trunkfirst.OperatorData(inputs, x[:, None], outputs)
    train, test = data.take(slice(0, 100)), data.take(slice(100, 120))
    with jax.enable_x64(True):
        # Step 1: L-BFGS moves centres and widths; the outputs enter through their thin factor (points, rank).
        start = Gaussians(jnp.linspace(0, 1, 8), jnp.full(8, np.log(0.2)))
        factor = jnp.asarray(compress(train.outputs).factor.T)
        problem = SeparableProblem(AtPoints(jnp.asarray(train.points)), factor, ridge=1e-5)
        found = minimise(problem, start, trunkfirst.LBFGS(), iterations=iterations, key=jr.key(0))
        trunk = as_trunk(found.parameters)
        print(f"step 1: loss {float(problem.value(start)):.1e} before, {found.value:.1e} after")

        # Orthonormal functions, and the coefficients of the training outputs.
        functions = np.asarray(trunk(jnp.asarray(train.points)))
        basis = trunkfirst.QR()(functions, targets=train.outputs)
        targets = jnp.asarray(basis.coefficients(train.outputs))

        # Step 2: any branch, on standardised inputs; then all parts in one operator.
        encoder = trunkfirst.StandardisedInputs().fit(train)
        regression = trunkfirst.Kernel().fit(encoder(jnp.asarray(inputs[:100])), targets, key=jr.key(1))
        operator = trunkfirst.Operator(encoder, regression.branch, trunk, jnp.asarray(basis.transform))

    # `predict`, `gradient` and `evaluate` work as usual; `save` is for the library's own networks only.
    summary = trunkfirst.evaluate(operator, test).summary()
    slopes = operator.gradient(test.flat_inputs, test.points)
    a, b = test.flat_inputs.T[:, :, None]
    exact = a * np.cos(a * x) - 80 * b * (x - 0.5) * np.exp(-40 * (x - 0.5) ** 2)
    slope_error = float(np.linalg.norm(slopes[..., 0] - exact) / np.linalg.norm(exact))
    print(f"test error {summary['mean_relative_l2']:.1e}, of the slopes {slope_error:.1e}")
    if picture is not None:
        figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
        panels[0].plot(x, functions)
        panels[0].set_title("trained Gaussians, and the constant")
        panels[1].plot(x, test.outputs[:4].T, color="0.75", lw=5)
        panels[1].plot(x, operator.predict(test.flat_inputs[:4], x[:, None]).T)
        panels[1].set_title("four test samples: exact in grey")
        figure.savefig(picture, dpi=80)
    return {"test": summary["mean_relative_l2"], "slope": slope_error}


if __name__ == "__main__":
    main(Path("own_network.png"))
