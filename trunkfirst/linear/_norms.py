"""Relative errors, one a sample."""

import numpy as np
from jaxtyping import Float


def relative_errors(
    predictions: Float[np.ndarray, "samples points"],
    outputs: Float[np.ndarray, "samples points"],
    *,
    point_weights: Float[np.ndarray, " points"] | None = None,
) -> Float[np.ndarray, " samples"]:
    """|prediction - output|_2 / |output|_2 for every sample; infinite where an output is zero everywhere.

    >>> relative_errors(np.array([[3.0, 4.4]]), np.array([[3.0, 4.0]]))
    array([0.08])
    """
    roots = 1.0 if point_weights is None else np.sqrt(point_weights)
    sizes = np.linalg.norm(outputs * roots, axis=1)
    errors = np.linalg.norm((predictions - outputs) * roots, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(errors == 0, 0.0, errors / sizes)


def projection(
    outputs: Float[np.ndarray, "samples points"],
    basis: Float[np.ndarray, "points rank"],
    *,
    point_weights: Float[np.ndarray, " points"] | None = None,
) -> Float[np.ndarray, "samples points"]:
    """The best approximation of each output in the span of an orthonormal `basis` (in the weighted mean)."""
    weights = np.full(len(basis), 1 / len(basis)) if point_weights is None else point_weights
    return (outputs * weights) @ basis @ basis.T
