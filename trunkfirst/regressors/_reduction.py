"""A regression in as few coordinates and targets as it has, and the way back."""

import dataclasses as dc

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..linear import principal_directions
from ..networks import Perceptron
from ._exchange import Neurons, Samples


@dc.dataclass(frozen=True, eq=False)
class Reduction:
    """coordinates = (inputs - centre) @ matrix; targets = reduced targets @ rows, with orthonormal rows."""

    centre: Float[np.ndarray, " features"]
    matrix: Float[np.ndarray, "features coordinates"]
    rows: Float[np.ndarray, "reduced coefficients"]

    def branch(
        self, neurons: Neurons, weights: Float[np.ndarray, "functions reduced"], *, dtype: np.dtype
    ) -> Perceptron:
        """The network of reduced neurons and output weights, for inputs and targets as they came; |w_l| = 1."""
        W = neurons.directions @ self.matrix.T
        b = neurons.biases - W @ self.centre
        G = weights @ self.rows
        lengths = np.linalg.norm(W, axis=1)
        lengths = np.where(lengths > 0, lengths, 1.0)
        hidden, output = W / lengths[:, None], (G[1:] * lengths[:, None]).T
        return Perceptron(
            (jnp.asarray(hidden, dtype), jnp.asarray(output, dtype)),
            (jnp.asarray(b / lengths, dtype), jnp.asarray(G[0], dtype)),
            "relu",
        )


def reduce(
    inputs: Float[np.ndarray, "samples features"],
    targets: Float[np.ndarray, "samples coefficients"],
    weights: Float[np.ndarray, " samples"],
    *,
    tolerance: float,
) -> tuple[Reduction, Samples]:
    """Principal coordinates of the inputs above `tolerance`, with one scale, and of the targets, exactly."""
    centre, roots = inputs.mean(axis=0), np.sqrt(weights)
    s, V = _principal(inputs - centre, tolerance)
    scale = s[0] / np.sqrt(len(inputs)) if s[0] > 0 else 1.0
    matrix = V.T / scale
    rows = principal_directions(targets * roots[:, None], tolerance=1e-14)
    samples = Samples((inputs - centre) @ matrix, (targets * roots[:, None]) @ rows.T, roots)
    return Reduction(centre, matrix, rows), samples


def _principal(
    values: Float[np.ndarray, "samples columns"], tolerance: float
) -> tuple[Float[np.ndarray, " rank"], Float[np.ndarray, "rank columns"]]:
    """Singular values above `tolerance` times the first, at least one, and their right singular vectors."""
    triangle = np.linalg.qr(values, mode="r") if len(values) > values.shape[1] else values
    _, s, V = np.linalg.svd(triangle, full_matrices=False)
    rank = max(1, int((s > tolerance * s[0]).sum()))
    return s[:rank], V[:rank]
