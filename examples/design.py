"""Design by gradient through an operator: which source, conductivity and boundary value give the field we want?

    python examples/design.py

The operator learns (f, kappa, g) -> p of the problem multiple-inputs, -div(kappa p grad p) = f with p = g on the
boundary, from 400 finite-element solutions. Then a minimiser changes all three until p is the wanted field. Only
f / kappa matters, so that many designs give the same field; a small penalty selects the nearest one.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

import trunkfirst

START, WANTED = (
    np.array([1.0, 1.0, 1.0]),
    np.array([6.0, 2.0, 2.5]),
)  # (f, kappa, g); of the second only the field is given
PENALTY = 1e-8


def trained(data: trunkfirst.OperatorData) -> trunkfirst.Operator:
    """From logarithms, in which the operator is nearly linear."""
    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(30, 30), width=15, iterations=400, starts=1),
        branch=trunkfirst.NetworkBranch(hidden=(60,), activation="tanh", iterations=300, ridge=1e-6),
        inputs=trunkfirst.StandardisedInputs(),
        weights="none",
    )
    return trunkfirst.fit(data, method=method).operator


def field_of(parameters: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The exact solution: p^2 = g^2 + 2 f / kappa w, where -lap w = 1; `unit` is w at the points."""
    f, kappa, g = parameters
    return np.sqrt(g**2 + 2 * f / kappa * unit)


def main(picture: Path | None = None) -> dict[str, float]:
    made = trunkfirst.make_data("multiple-inputs", samples=400)
    parameters = made.flat_inputs
    data = trunkfirst.OperatorData(np.log(parameters), made.points, made.outputs)
    f, kappa, g = parameters[0]
    unit = (made.outputs[0] ** 2 - g**2) * kappa / (2 * f)
    wanted = field_of(WANTED, unit)

    operator = trained(data)
    with jax.enable_x64(True):
        points, target, start = jnp.asarray(data.points), jnp.asarray(wanted), jnp.log(jnp.asarray(START))

        @jax.jit
        @jax.value_and_grad
        def miss(design: jax.Array) -> jax.Array:
            """Mean square distance from the wanted field, and the penalty."""
            error = operator(design[None], points)[0] - target
            return jnp.mean(error**2) / jnp.mean(target**2) + PENALTY * jnp.sum((design - start) ** 2)

        found = scipy.optimize.minimize(lambda x: tuple(map(np.asarray, miss(jnp.asarray(x)))), start, jac=True)
    design = np.exp(found.x)
    reached = field_of(design, unit)
    error = float(np.linalg.norm(reached - wanted) / np.linalg.norm(wanted))
    # The nearest design has the wanted f / kappa, with f and kappa changed by the same factor from the start.
    ratio = np.sqrt(WANTED[0] / WANTED[1] / (START[0] / START[1]))
    nearest = np.array([START[0] * ratio, START[1] / ratio, WANTED[2]])
    print(f"found f = {design[0]:.3f}, kappa = {design[1]:.3f}, g = {design[2]:.3f} in {found.nit} steps")
    print(f"the true field of this design is {error:.1e} away from the wanted one (relative)")
    if picture is not None:
        draw(picture, made, {"start": field_of(START, unit), "wanted": wanted, "found": reached})
    return {"field": error, "design": float(np.abs(design / nearest - 1).max())}


def draw(path: Path, data: trunkfirst.OperatorData, fields: dict[str, np.ndarray]) -> None:
    """One panel for each field, all on the same scale."""
    import matplotlib.pyplot as plt

    low, high = min(p.min() for p in fields.values()), max(p.max() for p in fields.values())
    figure, panels = plt.subplots(1, len(fields), figsize=(9, 3), layout="constrained")
    for panel, (name, p) in zip(panels, fields.items(), strict=True):
        shown = panel.tripcolor(*data.points.T, data.triangles, p, shading="gouraud", vmin=low, vmax=high)
        panel.set(title=name, aspect="equal", xticks=[], yticks=[])
    figure.colorbar(shown, ax=panels, label="p")
    figure.savefig(path, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    main(Path("design.png"))
