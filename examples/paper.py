"""The paper in miniature: the same two networks, trained at once and in two steps.

    python examples/paper.py

S. Lee and Y. Shin, "On the training and generalization of deep operator networks" (2023): first the trunk alone,
with free coefficients for every sample; then its functions are made orthonormal; then the branch learns the
coefficients. The problem is their first, nonlinear conductivity: -div(beta p grad p) = 1 on a square, p = cos x on
its boundary, and the operator maps the number beta to the pressure p. Mesh, networks and iterations are smaller
here than in the paper; `trunkfirst compare nonlinear-conductivity --preset paper` trains with theirs.
"""

from pathlib import Path

import matplotlib.pyplot as plt

import trunkfirst
from trunkfirst.problems.nonlinear_darcy import NonlinearConductivity


def main(picture: Path | None = None) -> dict[str, float]:
    # The data are pressures for 100 values of beta from 1 to 1000, by finite elements on a mesh of 145 nodes.
    data = trunkfirst.make_data(NonlinearConductivity(145), samples=100)

    # Networks with ReLU, and Adam, as in the paper. The input of the branch is 1 / beta, on which the pressure
    # depends.
    relu = {"activation": "relu", "initialisation": "he"}
    trunk, branch = {"hidden": (30, 30), "width": 15, **relu}, {"hidden": (60,), "skip": False, **relu}
    adam = {"minimiser": trunkfirst.Adam(), "iterations": 5000}
    common = {"inputs": trunkfirst.StandardisedInputs("inverse"), "weights": "none"}

    # First as usual: all weights of both networks are trained at once.
    monolithic = trunkfirst.Monolithic(
        trunkfirst.TrunkNetwork(**trunk), trunkfirst.BranchNetwork(**branch), **adam, **common
    )
    at_once = trunkfirst.fit(data, method=monolithic, test_share=0.2)
    print(f"at once: test error {at_once.evaluation.summary()['mean_relative_l2']:.1e}")

    # Then in two steps, as in the paper, with the same networks, minimiser and number of iterations.
    two_step = trunkfirst.TwoStep(
        trunkfirst.JointTrunk(**trunk, **adam), trunkfirst.JointBranch(**branch, **adam), **common
    )
    in_two = trunkfirst.fit(data, method=two_step, test_share=0.2)
    print(f"in two steps: test error {in_two.evaluation.summary()['mean_relative_l2']:.1e}")

    # Last in two steps as with the preset `fast`: coefficients and last layers are solved for by linear least
    # squares in every iteration, and L-BFGS trains the rest.
    projected = trunkfirst.TwoStep(
        trunkfirst.NetworkTrunk(**trunk, iterations=1000, starts=1),
        trunkfirst.NetworkBranch(**branch, iterations=200, ridge=1e-5),
        **common,
    )
    result = trunkfirst.fit(data, method=projected, test_share=0.2)
    summary = result.evaluation.summary()
    print(f"with coefficients solved for: test error {summary['mean_relative_l2']:.1e}")

    # With the trunk of the last operator no branch can have a smaller error than this.
    print(f"best possible with this trunk: {summary['optimal_mean_relative_l2']:.1e}")

    # The picture shows the loss of both networks trained at once, and those of step 1.
    if picture is not None:
        figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
        results = {"at once": at_once, "step 1": in_two, "step 1, coefficients solved for": result}
        for name, each in results.items():
            lines = [line for line in each.history if line.step in ("monolithic", "trunk")]
            axes.loglog([line.iteration for line in lines], [line.best_loss for line in lines], label=name)
        axes.set(title="training loss", xlabel="iteration")
        axes.legend()
        figure.savefig(picture, dpi=80)
    return {
        "at once": at_once.evaluation.summary()["mean_relative_l2"],
        "in two steps": in_two.evaluation.summary()["mean_relative_l2"],
        "solved for": summary["mean_relative_l2"],
    }


if __name__ == "__main__":
    main(Path("paper.png"))
