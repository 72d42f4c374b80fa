"""Where neurons may go: random starts, data pairs, and the local least squares of the published analysis."""

import numpy as np
from jaxtyping import Float, Int

from ._exchange import Neurons, OutputFit, Samples

# How far to go from a neuron to its local least-squares fit.
_STEPS = np.array([1.0, 0.5, 0.25, 0.1, 0.02])


def random_neurons(samples: Samples, width: int, *, rng: np.random.Generator) -> Neurons:
    """Random directions; breakpoints spread evenly over the data along them.

    With zero biases all breakpoints of a one-dimensional input would coincide.
    """
    count, coordinates = samples.coordinates.shape
    directions = _unit(rng.normal(size=(width, coordinates)))
    t = np.sort(samples.coordinates @ directions.T, axis=0)
    places = (rng.permutation(width) + rng.random(width)) / width * (count - 1)
    below = places.astype(int)
    low, high = t[below, np.arange(width)], t[below + 1, np.arange(width)]
    return Neurons(directions, -(low + (places - below) * (high - low)))


def pair_directions(
    samples: Samples, count: int, *, rng: np.random.Generator
) -> Float[np.ndarray, "directions coordinates"]:
    """(x_i - x_j) / |x_i - x_j| for random pairs of samples; pairs that coincide are left out."""
    i, j = rng.integers(len(samples.roots), size=(2, count))
    differences = samples.coordinates[i] - samples.coordinates[j]
    return _unit(differences[np.any(differences != 0, axis=1)])


def local_fits(
    samples: Samples, neurons: Neurons, fit: OutputFit, sources: Int[np.ndarray, " sources"]
) -> Neurons:
    """Some neurons on their way to their local least-squares fits, the fits themselves first.

    With the active samples D and the output weights g of a neuron frozen, the residual is best reduced by
    (w*, b*) = argmin sum_{k in D} |<w - w*, x_k> + b - b* + <residual_k, g> / |g|^2|^2.
    """
    corrections = np.array([_correction(samples, neurons, fit, int(source)) for source in sources])
    starts = np.column_stack([neurons.directions, neurons.biases])[sources]
    moved = (starts + _STEPS[:, None, None] * corrections).reshape(-1, starts.shape[1])
    lengths = np.linalg.norm(moved[:, :-1], axis=1, keepdims=True)
    moved = (moved / np.where(lengths > 0, lengths, 1.0))[lengths[:, 0] > 0]
    return Neurons(moved[:, :-1], moved[:, -1])


def _correction(
    samples: Samples, neurons: Neurons, fit: OutputFit, neuron: int
) -> Float[np.ndarray, " coordinates_and_bias"]:
    """(w*, b*) - (w, b); zero for a neuron without effect."""
    g = fit.weights[1 + neuron]
    active = np.flatnonzero(samples.coordinates @ neurons.directions[neuron] + neurons.biases[neuron] > 0)
    if not g.any() or not len(active):
        return np.zeros(samples.coordinates.shape[1] + 1)
    X = np.column_stack([samples.coordinates[active], np.ones(len(active))]) * samples.roots[active, None]
    gram = X.T @ X
    # Few active samples leave the fit open; this takes a small correction.
    gram[np.diag_indices_from(gram)] += 1e-12 * np.trace(gram) + np.finfo(float).tiny
    return np.linalg.solve(gram, X.T @ (fit.residual[active] @ g) / (g @ g))


def _unit(vectors: Float[np.ndarray, "count coordinates"]) -> Float[np.ndarray, "count coordinates"]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
