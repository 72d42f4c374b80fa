"""The three Darcy problems of Lee and Shin, made by finite elements and learned in Python.

    python examples/darcy.py

    5.1 nonlinear-conductivity       one number beta -> the pressure, from beta = 1 to 1000
    5.2 discontinuous-conductivity   the pressure at 4225 nodes -> the conductivity, an inverse problem with a jump
    5.3 multiple-inputs              source, conductivity, boundary value -> the pressure

Few samples and small networks, so that it takes seconds; `trunkfirst run PROBLEM` has the paper's sizes and
networks. The branch is a kernel here, which has nothing to train. What differs from problem to problem is the
trunk, and what the branch is told of the input: the encoder.
"""

import trunkfirst as tf

TANH = {"hidden": (30, 30), "width": 15, "activation": "tanh", "initialisation": "xavier"}
# The jump along a circle: kinks, which ReLU has and tanh has not.
RELU = {"hidden": (25, 25, 25), "width": 25, "activation": "relu", "initialisation": "he"}


def methods(iterations: int) -> dict[str, tf.TwoStep]:
    """What suits each problem."""
    smooth = tf.NetworkTrunk(**TANH, iterations=iterations, starts=1)
    return {
        # The solution depends on beta as 1 / beta: told so, the branch has an easy task.
        "nonlinear-conductivity": tf.TwoStep(
            trunk=smooth,
            branch=tf.Kernel(),
            inputs=tf.StandardisedInputs("inverse"),
            weights="relative",
            coordinates=tf.Coordinates(rescale=False),
        ),
        # 4225 numbers, but they vary in few directions: two principal coordinates tell nearly everything.
        "discontinuous-conductivity": tf.TwoStep(
            trunk=tf.NetworkTrunk(**RELU, iterations=iterations, starts=4),
            branch=tf.Kernel(),
            inputs=tf.PrincipalInputs(2),
            weights="relative",
            coordinates=tf.Coordinates(rescale=False),
        ),
        # Orders of magnitude: logarithms, and relative errors, so that small fields count as much as large ones.
        "multiple-inputs": tf.TwoStep(
            trunk=smooth,
            branch=tf.Kernel(),
            inputs=tf.StandardisedInputs("log"),
            weights="relative",
            coordinates=tf.Coordinates(rescale=False),
        ),
    }


def main(*, samples: int = 300, iterations: int = 600) -> dict[str, float]:
    errors: dict[str, float] = {}
    for problem, method in methods(iterations).items():
        data = tf.make_data(problem, samples=samples)  # solved once, then read from the cache
        split = tf.Split.random(data.samples, validation_share=0, test_share=0.1, seed=0)
        result = tf.fit(data.take(split.train), method, key=0)
        summary = tf.evaluate(result.operator, data.take(split.test)).summary()
        errors[problem] = summary["median_relative_l2"]
        print(
            f"{problem}: test error, median {errors[problem]:.1e}, mean {summary['mean_relative_l2']:.1e}, "
            f"largest {summary['max_relative_l2']:.1e}; mean of the trunk alone "
            f"{summary['optimal_mean_relative_l2']:.1e}"
        )
    return errors


if __name__ == "__main__":
    main()
