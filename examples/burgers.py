"""Burgers' equation from public data: from the initial value to the solution in space and time.

    python examples/burgers.py burgers.npz

The data are `burgers_lowres.pt` of the package neuraloperator (MIT licence) as a NumPy archive with `inputs`
(1200, 16), the initial value at 16 places; `points` (272, 2), time and place; `outputs` (1200, 272). Another file
with these names works too. Time is a coordinate like any other.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt

import trunkfirst


def main(path: Path, picture: Path | None = None, *, iterations: int = 3000) -> dict[str, float]:
    data = trunkfirst.read_data(path)
    print(*trunkfirst.check_data(data).sentences, sep="\n")

    # `trunkfirst.fit(path)` chooses all this on samples left out. By hand: a smooth trunk of 40 functions of
    # (t, x), and kernel ridge regression, which needs no training and is hard to beat with 1000 samples.
    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(60, 60), width=40, iterations=iterations, starts=1),
        branch=trunkfirst.Kernel(),
        inputs=trunkfirst.StandardisedInputs(),
        weights="none",
    )
    result = trunkfirst.fit(data.take(slice(0, 1000)), method=method)
    print(result)

    # Which part of the error is due to the trunk? The one that remains with the best possible branch.
    test = data.take(slice(1000, 1200))
    found = trunkfirst.evaluate(result.operator, test)
    summary = found.summary()
    error, best = summary["mean_relative_l2"], summary["optimal_mean_relative_l2"]
    print(f"mean relative test error {error:.1e}; {best:.1e} with the best possible branch")
    if picture is not None:
        figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
        for panel, title, u in zip(panels, ("exact", "predicted"), (test.outputs, found.predictions), strict=True):
            shown = panel.tricontourf(*test.points.T, u[0], 20)
            panel.set(title=f"an unseen sample, {title}", xlabel="t", ylabel="x")
            figure.colorbar(shown, ax=panel)
        figure.savefig(picture, dpi=80)
    return {"test": error, "trunk": best}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/burgers.py burgers.npz")
    main(Path(sys.argv[1]), Path("burgers.png"))
