"""Legendre polynomials and the uniform measure on [-1, 1]: a basis whose Christoffel function is known."""

import numpy as np
from numpy.polynomial import legendre


def lobatto(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Lobatto points, the ends among them, and weights that sum to 1: exact up to degree 2 points - 3."""
    inner = np.sort(legendre.Legendre.basis(points - 1).deriv().roots().real)
    y = np.concatenate([[-1.0], inner, [1.0]])
    return y, 1 / (points * (points - 1) * legendre.legval(y, np.eye(points)[-1]) ** 2)


def polynomials(y: np.ndarray, count: int) -> np.ndarray:
    """The first `count` Legendre polynomials (points, functions), orthonormal under the uniform measure."""
    return legendre.legvander(y, count - 1) * np.sqrt(2 * np.arange(count) + 1)


def known_christoffel(y: np.ndarray, count: int) -> np.ndarray:
    """Christoffel and Darboux: k = n (P_n' P_{n-1} - P_{n-1}' P_n), which is n^2 at the ends."""
    P, before = legendre.Legendre.basis(count), legendre.Legendre.basis(count - 1)
    return count * (P.deriv()(y) * before(y) - before.deriv()(y) * P(y))


def bumps(y: np.ndarray, samples: int = 12) -> np.ndarray:
    """Functions (samples, points) that no polynomial of low degree represents."""
    centres = np.linspace(-0.6, 0.7, samples)[:, None]
    return 1 / (1 + 12 * (y - centres) ** 2) + np.abs(y - centres)
