"""Burgers' equation from public data: from the initial value to the solution in space and time.

    python examples/burgers.py burgers.npz

The data are `burgers_lowres.pt` of the package neuraloperator (MIT licence) as a NumPy archive with `inputs`
(1200, 16), the initial value at 16 places; `points` (272, 2), time and place; `outputs` (1200, 272). Any other
file of these names and shapes will do. Time is a coordinate like any other.
"""

import sys
from pathlib import Path

import trunkfirst as tf


def main(path: Path, *, iterations: int = 3000) -> dict[str, float]:
    data = tf.read_data(path)
    print(*tf.check_data(data).sentences, sep="\n")
    train, test = data.take(slice(0, 1000)), data.take(slice(1000, 1200))

    # `trunkfirst fit` chooses all this by itself, on validation samples. By hand: a smooth trunk of 40 functions
    # of (t, x), and a kernel branch, which has nothing to train and is hard to beat on 1000 samples of 16 numbers.
    method = tf.TwoStep(
        trunk=tf.NetworkTrunk(
            hidden=(60, 60), width=40, activation="tanh", initialisation="xavier", iterations=iterations, starts=1
        ),
        branch=tf.Kernel(),
        inputs=tf.StandardisedInputs(),
        coordinates=tf.Coordinates(rescale=True),
        weights="none",
    )
    result = tf.fit(train, method, key=0)
    print(result)

    # Where does the error come from? The optimum is what the best of all branches would leave on this trunk.
    summary = tf.evaluate(result.operator, test).summary()
    error, best = summary["mean_relative_l2"], summary["optimal_mean_relative_l2"]
    print(f"mean relative test error {error:.1e}, of which the trunk alone {best:.1e}")
    return {"test": error, "trunk": best}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/burgers.py burgers.npz")
    main(Path(sys.argv[1]))
