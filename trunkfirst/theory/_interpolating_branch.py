"""A two-layer ReLU branch through any training data (assmpt-branch), and the Lipschitz constant of a branch."""

import numpy as np
from jaxtyping import Float

from ..errors import UsageError
from ..networks import Perceptron
from ._line import broken_line, spread_direction
from ._measure import measure

# Upper bounds of |sigma'|, one for every activation.
SLOPES = {
    "relu": 1.0,
    "tanh": 1.0,
    "sine": 1.0,
    "softplus": 1.0,
    "elu": 1.0,
    "sigmoid": 0.25,
    "gelu": 1.13,
    "silu": 1.1,
}

SensorWeights = Float[np.ndarray, " sensors"]


def interpolating_branch(
    inputs: Float[np.ndarray, "samples sensors"],
    targets: Float[np.ndarray, "samples coefficients"],
    *,
    sensor_weights: SensorWeights | None = None,
    seed: int = 0,
) -> Perceptron:
    """A branch with exactly the `targets` at the `inputs`: (sensors, samples - 1, coefficients).

    The inputs are laid out on a line in the best of many random directions, and a broken line joins the targets:
    it proves that zero loss is possible, not that it is wise. A sensor without weight takes no part. Inputs that
    coincide are a `DataError`.
    """
    scales = np.sqrt(measure(sensor_weights, inputs.shape[1], name="sensor_weights"))
    return broken_line(spread_direction("inputs", inputs, scales=scales, seed=seed), inputs, targets)


def branch_lipschitz(branch: Perceptron, *, sensor_weights: SensorWeights | None = None) -> float:
    """L_sigma L_c, where L_c = sum_l |gamma_l| |w_l|: |c(f) - c(g)| is at most this times |f - g|.

    For a branch c(f) = sum_l gamma_l sigma(<w_l, f> + beta_l) + constant. |f|^2 = sum_j omega_j f_j^2 with sensor
    weights that are scaled to sum to 1 (None: all alike, as in `coefficient_lipschitz`), and |w| is the dual norm
    (sum_j w_j^2 / omega_j)^(1/2). The paper's Euclidean |w| (assmpt-branch) is smaller, for equal weights by the
    root of the number of sensors, and does not bound the slope. A sensor of weight zero that the branch listens to
    leaves no bound: then infinity is returned.
    """
    if len(branch.weights) != 2:
        raise UsageError(
            f"the branch has the widths {branch.architecture}; L_c is defined for two layers (one hidden)"
        )
    w, gamma = (np.asarray(W, float) for W in branch.weights)
    omega = measure(sensor_weights, w.shape[1], name="sensor_weights")
    if (w[:, omega == 0] != 0).any():
        return float("inf")
    duals = np.linalg.norm(w[:, omega > 0] / np.sqrt(omega[omega > 0]), axis=1)
    return SLOPES[branch.activation] * float(np.linalg.norm(gamma, axis=0) @ duals)
