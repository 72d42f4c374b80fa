"""Replacing one neuron: what it gains, with all output weights refitted, for all pairs from one factorisation.

Symbols: Phi (samples, 1 + neurons) the constant and the neurons at the samples, columns scaled to length one;
G the output weights; rho the ridge. The factorisation is of the augmented matrix [Phi; sqrt(rho) I] = Q R.
"""

import dataclasses as dc
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

# Below this a candidate is a combination of the neurons that stay, up to rounding: its gain means nothing.
_INDEPENDENT = 1e-10


@dc.dataclass(frozen=True, eq=False)
class Samples:
    """A regression problem; `targets` are multiplied by `roots` already, the square roots of the weights."""

    coordinates: Float[np.ndarray, "samples coordinates"]
    targets: Float[np.ndarray, "samples coefficients"]
    roots: Float[np.ndarray, " samples"]

    def take(self, rows: Int[np.ndarray, " some"]) -> "Samples":
        """The problem on some of the samples."""
        return Samples(self.coordinates[rows], self.targets[rows], self.roots[rows])


@dc.dataclass(frozen=True, eq=False)
class Neurons:
    """relu(<w_l, x> + b_l) with |w_l| = 1: a positive factor belongs to the output weights."""

    directions: Float[np.ndarray, "neurons coordinates"]
    biases: Float[np.ndarray, " neurons"]

    def __call__(self, samples: Samples) -> Float[np.ndarray, "samples neurons"]:
        """Values at the samples, times the roots of the weights."""
        values = samples.coordinates @ self.directions.T
        values += self.biases
        np.maximum(values, 0, out=values)
        values *= samples.roots[:, None]
        return values

    def replace(self, neuron: int, direction: Float[np.ndarray, " coordinates"], bias: float) -> "Neurons":
        """The same neurons but for one."""
        directions, biases = self.directions.copy(), self.biases.copy()
        directions[neuron], biases[neuron] = direction, bias
        return Neurons(directions, biases)


@dc.dataclass(frozen=True, eq=False)
class OutputFit:
    """The best output weights for given neurons, and what the exchange formula needs.

    `removal` has a row R^-1_l / sqrt(P_ll) for every neuron l, where P = R^-1 R^-T: with a candidate psi,
    u = removal Q^T psi is its component along what neuron l alone adds. `share` has the rows g_l / sqrt(P_ll):
    |share_l|^2 is what the loss grows by without neuron l.
    """

    weights: Float[np.ndarray, "functions coefficients"]
    residual: Float[np.ndarray, "samples coefficients"]
    loss: float
    is_dead: Bool[np.ndarray, " neurons"]
    # for the exchange formula
    basis: Float[np.ndarray, "samples functions"]
    removal: Float[np.ndarray, "neurons functions"]
    share: Float[np.ndarray, "neurons coefficients"]
    ridge: float


def fit_output(samples: Samples, neurons: Neurons, *, ridge: float) -> OutputFit:
    """Least squares for the output layer, columns scaled to length one, by QR of the augmented matrix."""
    Phi = np.hstack([samples.roots[:, None], neurons(samples)])
    lengths = np.linalg.norm(Phi, axis=0)
    scales = np.where(lengths > 0, lengths, 1.0)
    Phi /= scales
    augmented = np.vstack([Phi, np.sqrt(ridge) * np.eye(Phi.shape[1])])
    Q, inverse = _orthogonal(augmented, len(Phi))
    G = inverse @ (Q.T @ samples.targets)
    residual = samples.targets - Phi @ G
    roots = np.linalg.norm(inverse[1:], axis=1, keepdims=True)  # sqrt(P_ll)
    return OutputFit(
        weights=G / scales[:, None],
        residual=residual,
        loss=float(np.sum(residual**2)),
        is_dead=lengths[1:] == 0,
        basis=Q,
        removal=inverse[1:] / roots,
        share=G[1:] / roots,
        ridge=ridge,
    )


def _orthogonal(augmented: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first rows of Q, and R^-1."""
    factors: Any = scipy.linalg.qr(augmented, mode="economic", overwrite_a=True, check_finite=False)
    Q, R = factors
    return Q[:rows], scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False)


@dc.dataclass(frozen=True, eq=False)
class Products:
    """What a gain needs of candidate columns psi: psi^T Q, psi^T residual, |psi|^2; one row a candidate."""

    projections: Float[np.ndarray, "candidates functions"]
    correlations: Float[np.ndarray, "candidates coefficients"]
    squares: Float[np.ndarray, " candidates"]

    def take(self, rows: Int[np.ndarray, " some"]) -> "Products":
        """Those of some candidates."""
        return Products(self.projections[rows], self.correlations[rows], self.squares[rows])


def products(fit: OutputFit, columns: Float[np.ndarray, "samples candidates"]) -> Products:
    """The products of candidate columns, one by one."""
    return Products(columns.T @ fit.basis, columns.T @ fit.residual, np.sum(columns**2, axis=0))


def gain_bounds(fit: OutputFit, candidates: Products) -> Float[np.ndarray, " candidates"]:
    """What every candidate would gain as one more neuron: no exchange gains more (Cauchy-Schwarz)."""
    squares, Qpsi, c = candidates.squares, candidates.projections, candidates.correlations
    d = (1 + fit.ridge) * squares - np.einsum("jk,jk->j", Qpsi, Qpsi)
    bounds = np.einsum("jk,jk->j", c, c) / np.maximum(d, np.finfo(float).tiny)
    return np.where(squares > 0, bounds, -np.inf)


def exchange_gains(
    fit: OutputFit, candidates: Products, neurons: Int[np.ndarray, " neurons"]
) -> Float[np.ndarray, "candidates neurons"]:
    """How much |residual|^2 + rho |G|^2 falls when a neuron gives way to a candidate and G is solved for again.

    With psi of length one, c = residual^T psi, d = 1 + rho - |Q^T psi|^2, u and h = share as in `OutputFit`:
    gain = |c + u h_l|^2 / (d + u^2) - |h_l|^2 = (|c|^2 + 2 u c.h_l - d |h_l|^2) / (d + u^2).
    Exact; for small rho the gain of the loss itself. -inf where rounding decides.
    """
    lengths = np.sqrt(np.where(candidates.squares > 0, candidates.squares, 1.0))[:, None]
    Qpsi, c = candidates.projections / lengths, candidates.correlations / lengths
    removal, h = fit.removal[neurons], fit.share[neurons]
    d = 1 + fit.ridge - np.einsum("jk,jk->j", Qpsi, Qpsi)
    u = Qpsi @ removal.T
    gains = c @ (2 * h).T
    gains *= u
    gains += np.einsum("jk,jk->j", c, c)[:, None]
    gains -= d[:, None] * np.einsum("lk,lk->l", h, h)
    np.square(u, out=u)
    u += d[:, None]
    np.maximum(u, _INDEPENDENT, out=u)
    gains /= u
    gains[u == _INDEPENDENT] = -np.inf
    gains[candidates.squares <= 0] = -np.inf
    return gains
