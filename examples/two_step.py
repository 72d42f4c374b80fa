"""The paper's method in three steps: trunk, orthonormal functions, branch; next to training both networks at once.

    python examples/two_step.py

The problem nonlinear-conductivity of Lee and Shin: flow through a porous square, -div(beta p grad p) = 1 with
p = cos x on the boundary. The operator maps the number beta to the pressure p. `trunkfirst run
nonlinear-conductivity` has the paper's sizes.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst


def main(picture: Path | None = None) -> dict[str, float]:
    # 200 finite-element solutions for beta between 1 and 1000; a tenth of them for the test.
    data = trunkfirst.make_data("nonlinear-conductivity", samples=200)
    encoder = trunkfirst.StandardisedInputs("inverse")

    # Both networks at once, by Adam.
    monolithic = trunkfirst.Monolithic(
        trunkfirst.TrunkNetwork(hidden=(30, 30), width=15),
        trunkfirst.BranchNetwork(hidden=(60,), activation="tanh", initialisation="xavier"),
        minimiser=trunkfirst.Adam(),
        iterations=1000,
        inputs=encoder,
    )
    at_once = trunkfirst.fit(data, method=monolithic, test_share=0.1)

    # In two steps. Step 1 fits the trunk with free coefficients, which are solved for; its functions are made
    # orthonormal. Step 2 fits the branch to the coefficients of the training samples.
    method = trunkfirst.TwoStep(
        trunkfirst.NetworkTrunk(hidden=(30, 30), width=15, iterations=300, starts=1),
        trunkfirst.NetworkBranch(hidden=(60,), activation="tanh", initialisation="xavier", iterations=200),
        inputs=encoder,
    )
    result = trunkfirst.fit(data, method=method, test_share=0.1)

    # Errors on the test samples, and with the best possible branch for this trunk. If the two agree, the trunk
    # limits the operator.
    errors: dict[str, float] = {}
    for name, found in {"at once": at_once, "two steps": result}.items():
        summary = found.evaluation.summary()
        errors[name] = summary["mean_relative_l2"]
        print(f"{name}: test error {errors[name]:.1e}, best branch {summary['optimal_mean_relative_l2']:.1e}")

    # The pressure for a new beta, and the errors of all test samples.
    if picture is not None:
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 2.9), layout="constrained")
        pressure = result.operator.predict(np.array([[2.5]]))[0]
        figure.colorbar(left.tripcolor(*data.points.T, data.triangles, pressure, shading="gouraud"), ax=left)
        left.set(title="predicted pressure, beta = 2.5", aspect="equal", xticks=[], yticks=[])
        for name, found in {"at once": at_once, "two steps": result}.items():
            right.semilogy(np.sort(found.evaluation.errors), label=name)
        right.set(title="relative errors of the test samples, sorted")
        right.legend()
        figure.savefig(picture, dpi=80)
    return errors


if __name__ == "__main__":
    main(Path("two_step.png"))
