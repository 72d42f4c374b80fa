"""The three Darcy problems of Lee and Shin: data from finite elements, one method for each.

    python examples/darcy.py

    nonlinear-conductivity       one number beta -> the pressure, from beta = 1 to 1000
    discontinuous-conductivity   the pressure at 4225 nodes -> the conductivity, an inverse problem with a jump
    multiple-inputs              source, conductivity, boundary value -> the pressure

Few samples and small networks, so that it takes seconds; `trunkfirst run PROBLEM` has the paper's sizes and
networks. The branch is kernel ridge regression, which needs no training. The problems differ in the trunk and in
the encoder of the inputs.
"""

from pathlib import Path

import matplotlib.pyplot as plt

import trunkfirst
from trunkfirst.inputs import AbstractInputs


def methods(iterations: int) -> dict[str, trunkfirst.TwoStep]:
    """A method for each problem, by relative errors, so that small fields count as much as large ones."""
    smooth = trunkfirst.NetworkTrunk(hidden=(30, 30), width=15, iterations=iterations, starts=1)
    # The conductivity jumps along a circle. ReLU networks have kinks, which can follow it; tanh is smooth.
    kinked = trunkfirst.NetworkTrunk((25, 25, 25), 25, "relu", "he", iterations=iterations, starts=4)

    def method(trunk: trunkfirst.NetworkTrunk, inputs: AbstractInputs) -> trunkfirst.TwoStep:
        return trunkfirst.TwoStep(trunk, trunkfirst.Kernel(), inputs=inputs, weights="relative")

    return {
        # The solution depends on beta through 1 / beta.
        "nonlinear-conductivity": method(smooth, trunkfirst.StandardisedInputs("inverse")),
        # 4225 numbers that vary in few directions.
        "discontinuous-conductivity": method(kinked, trunkfirst.PrincipalInputs(2)),
        # Inputs that vary over orders of magnitude.
        "multiple-inputs": method(smooth, trunkfirst.StandardisedInputs("log")),
    }


def main(picture: Path | None = None, *, samples: int = 300, iterations: int = 600) -> dict[str, float]:
    errors: dict[str, float] = {}
    figure, panels = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
    for panel, (problem, method) in zip(panels, methods(iterations).items(), strict=True):
        data = trunkfirst.make_data(problem, samples=samples)  # solved once, then read from the cache
        result = trunkfirst.fit(data, method=method, test_share=0.1)
        summary = result.evaluation.summary()
        errors[problem] = summary["median_relative_l2"]
        print(
            f"{problem}: test error, median {errors[problem]:.1e}, mean {summary['mean_relative_l2']:.1e}, "
            f"largest {summary['max_relative_l2']:.1e}; mean with the best possible branch "
            f"{summary['optimal_mean_relative_l2']:.1e}"
        )

        # The prediction for one of the test samples.
        shown = panel.tripcolor(
            *data.points.T, data.triangles, result.evaluation.predictions[0], shading="gouraud"
        )
        panel.set(title=problem, aspect="equal", xticks=[], yticks=[])
        figure.colorbar(shown, ax=panel)
    if picture is not None:
        figure.savefig(picture, dpi=70)
    return errors


if __name__ == "__main__":
    main(Path("darcy.png"))
