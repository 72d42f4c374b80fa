"""Burgers' equation from public data: from the initial value to the solution in space and time.

    python examples/burgers.py burgers.npz

The data are `burgers_lowres.pt` of the package neuraloperator (MIT licence) as a NumPy archive with `inputs`
(1200, 16), the initial value at 16 places; `points` (272, 2), time and place; `outputs` (1200, 272). Another file
with these names works too. Time is a coordinate like any other.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

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
    summary = trunkfirst.evaluate(result.operator, test).summary()
    error, best = summary["mean_relative_l2"], summary["optimal_mean_relative_l2"]
    print(f"mean relative test error {error:.1e}; {best:.1e} with the best possible branch")

    # One test sample at five times: the exact solution in grey, the prediction on top.
    if picture is not None:
        figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
        times, places = data.points.T
        predicted = result.operator.predict(test.flat_inputs[:1])[0]
        for time in np.unique(times)[::4]:
            now = times == time
            axes.plot(places[now], test.outputs[0, now], color="0.75", lw=5)
            axes.plot(places[now], predicted[now], label=f"t = {time:.2g}")
        axes.set(title="one test sample: exact in grey, prediction on top", xlabel="x", ylabel="u")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(picture, dpi=80)
    return {"test": error, "trunk": best}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/burgers.py burgers.npz")
    main(Path(sys.argv[1]), Path("burgers.png"))
