"""A trained operator can be differentiated with respect to its points and its inputs: a small design problem.

    python examples/gradients.py

A cooling fin of length 1 with base temperature b (above the air) has the temperature
u(x) = b cosh(m (1 - x)) / cosh(m), where m measures how much heat the air takes away. The operator learns
(m, b) -> u from samples; then Newton's method finds the fin with a given tip temperature and base heat flux.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import trunkfirst

WANTED_TIP, WANTED_FLUX = 30.0, 90.0


def fin(design: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Exact temperatures (samples, points)."""
    m, b = design[:, :1], design[:, 1:]
    return b * np.cosh(m * (1 - x)) / np.cosh(m)


def trained() -> trunkfirst.Operator:
    """(m, b) -> u from 200 random fins."""
    x = np.linspace(0, 1, 40)
    designs = np.random.default_rng(0).uniform((0.5, 40), (2.5, 80), (200, 2))
    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(20, 20), width=6, iterations=200, starts=1),
        branch=trunkfirst.Kernel(),
        inputs=trunkfirst.StandardisedInputs(),
        weights="none",
    )
    return trunkfirst.fit(designs, fin(designs, x), x[:, None], method=method).operator


def main(picture: Path | None = None) -> dict[str, float]:
    operator = trained()
    # Unlike `predict`, a call of the operator does not switch on double precision.
    with jax.enable_x64(True):

        def temperature(x: jax.Array, design: jax.Array) -> jax.Array:
            """u at one point for one design, as a scalar for jax.grad."""
            return operator(design[None], x.reshape(1, 1))[0, 0]

        slope = jax.grad(temperature, argnums=0)  # with respect to the point
        sensitivity = jax.grad(temperature, argnums=1)  # with respect to the input

        design = jnp.array([1.5, 60.0])
        inside = jnp.linspace(0.1, 0.9, 9)
        slopes = jax.vmap(slope, (0, None))(inside, design)
        exact = -60 * 1.5 * np.sinh(1.5 * (1 - inside)) / np.cosh(1.5)
        slope_error = float(jnp.abs(slopes - exact).max() / np.abs(exact).max())
        print(f"du/dx, largest error relative to the largest slope: {slope_error:.1e}")
        print(f"du/d(m, b) at the tip: {np.asarray(sensitivity(jnp.array(1.0), design)).round(3)}")

        # Two equations, two unknowns: Newton's method with the exact Jacobian of the operator.
        def residuals(design: jax.Array) -> jax.Array:
            """Distances of tip temperature and base flux from those wanted."""
            tip, flux = temperature(jnp.array(1.0), design), -slope(jnp.array(0.0), design)
            return jnp.stack([tip - WANTED_TIP, flux - WANTED_FLUX])

        newton = jax.jit(lambda d: d - jnp.linalg.solve(jax.jacobian(residuals)(d), residuals(d)))
        for _ in range(6):
            design = newton(design)

    # Exactly: tip = b / cosh m and flux = b m tanh m, so flux / tip = m sinh m.
    m, b = float(design[0]), float(design[1])
    tip, flux = b / np.cosh(m), b * m * np.tanh(m)
    print(f"design m = {m:.4f}, b = {b:.3f}: tip {tip:.3f} (wanted {WANTED_TIP}), flux {flux:.3f} ({WANTED_FLUX})")
    if picture is not None:
        draw(picture, operator, {"start": np.array([1.5, 60.0]), "found": np.array([m, b])})
    return {"slope": slope_error, "tip": abs(tip / WANTED_TIP - 1), "flux": abs(flux / WANTED_FLUX - 1)}


def draw(path: Path, operator: trunkfirst.Operator, designs: dict[str, np.ndarray]) -> None:
    """Predicted temperatures of designs, and the wanted tip temperature and flux at the base."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    x = np.linspace(0, 1, 101)
    for name, design in designs.items():
        axes.plot(
            x,
            operator.predict(design[None], x[:, None])[0],
            label=f"{name}: m = {design[0]:.2f}, b = {design[1]:.1f}",
        )
    base = designs["found"][1]
    axes.plot([0, 0.3], [base, base - 0.3 * WANTED_FLUX], "k--", label="wanted flux at the base")
    axes.plot(1, WANTED_TIP, "ko", label="wanted temperature of the tip")
    axes.set(title="temperature along the fin", xlabel="x")
    axes.legend()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main(Path("gradients.png"))
