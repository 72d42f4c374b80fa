"""Separable least squares: the projected value and its envelope gradient."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trunkfirst.minimisers.separable import AbstractFeatures, SeparableProblem, solve_ridge


class Cosines(AbstractFeatures):
    """cos(x w_j), with a tilt that makes the last column nearly, or exactly, the first."""

    x: jax.Array
    tilt: float

    def __call__(self, parameters):
        columns = jnp.cos(self.x[:, None] * parameters[None, :])
        return jnp.concatenate([columns, columns[:, :1] + self.tilt * self.x[:, None] ** 3], axis=1)


def problem(tilt: float, ridge: float) -> tuple[SeparableProblem, jax.Array]:
    x = jnp.linspace(-1.0, 2.0, 60)
    targets = jnp.stack([jnp.exp(x), jnp.sin(3 * x), x**2], axis=1)
    return SeparableProblem(Cosines(x, tilt), targets, ridge), jnp.array([0.3, 1.1, 2.3, 3.7])


@pytest.mark.parametrize("ridge", [1e-3, 1e-1])
@pytest.mark.parametrize("tilt", [1.0, 1e-3, 0.0], ids=["independent", "nearly dependent", "dependent"])
def test_value_and_gradient(tilt: float, ridge: float):
    """Value against a dense solve, gradient against finite differences, also where Phi is singular."""
    with jax.enable_x64(True):
        F, w = problem(tilt, ridge)
        Phi, B = np.asarray(F.features(w)), np.asarray(F.targets)
        n = Phi.shape[1]
        stacked = np.vstack([Phi, ridge * np.eye(n)])
        A = np.linalg.lstsq(stacked, np.vstack([B, np.zeros((n, 3))]), rcond=None)[0]
        value = np.sum((Phi @ A - B) ** 2) + ridge**2 * np.sum(A**2)
        assert float(F.value(w)) == pytest.approx(value, rel=1e-9)
        gradient = np.asarray(jax.grad(F.value)(w))
        h = 1e-5
        differences = [float(F.value(w.at[i].add(h)) - F.value(w.at[i].add(-h))) / (2 * h) for i in range(len(w))]
        assert np.linalg.norm(gradient - differences) < 1e-5 * np.linalg.norm(differences)


@pytest.mark.parametrize("exponent", [2, 4, 5])
def test_value_by_condition_number(exponent: int):
    """With a tiny ridge the projected value is right to six digits up to a condition number of about 1e6."""
    with jax.enable_x64(True):
        F, w = problem(10.0**-exponent, 1e-9)
        Q, _ = np.linalg.qr(np.asarray(F.features(w)))
        B = np.asarray(F.targets)
        assert float(F.value(w)) == pytest.approx(np.sum((B - Q @ (Q.T @ B)) ** 2), rel=1e-6)


def test_solution_is_refined():
    """Normal equations alone would lose half the digits at this condition number."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        U, _ = np.linalg.qr(rng.normal(size=(80, 12)))
        V, _ = np.linalg.qr(rng.normal(size=(12, 12)))
        Phi = U * np.logspace(0, -5, 12) @ V.T
        B = rng.normal(size=(80, 2))
        exact = np.linalg.lstsq(
            np.vstack([Phi, 1e-6 * np.eye(12)]), np.vstack([B, np.zeros((12, 2))]), rcond=None
        )[0]
        A = np.asarray(eqx.filter_jit(solve_ridge)(jnp.asarray(Phi), jnp.asarray(B), 1e-6))
        assert np.linalg.norm(A - exact) < 1e-8 * np.linalg.norm(exact)
