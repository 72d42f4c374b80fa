"""Two input functions: the work u(x) = int_0^x f g that a force f does along a path with slope g.

    python examples/multi_input.py

The branch sees both functions. Concatenated, one network gets all sensors side by side. As a product (MIONet),
each function has a network of its own, and the two are multiplied: the right form here, since u is linear in f
and in g.
"""

import numpy as np

import trunkfirst as tf


def works(samples: int, x: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """f = sum_i a_i cos(i pi x), g = sum_j b_j cos(j pi x), and int_0^x f g from the products of cosines."""
    rng, order = np.random.default_rng(seed), np.arange(3)
    a, b = rng.normal(size=(2, samples, len(order))) / (1 + order)
    cosines = np.cos(np.pi * order[:, None] * x)

    def integral(n: np.ndarray) -> np.ndarray:
        """int_0^x cos(n pi x)."""
        return np.where(n == 0, x, np.sin(np.pi * n * x) / np.where(n == 0, 1, np.pi * n))

    i, j = order[:, None, None], order[None, :, None]
    return a @ cosines, b @ cosines, np.einsum("si,sj,ijx->sx", a, b, (integral(i - j) + integral(i + j)) / 2)


def main() -> dict[str, float]:
    x = np.linspace(0, 1, 40)
    f, g, u = works(400, x, seed=0)
    # Any number of inputs, each on sensors of its own: f at ten of them, g at eight.
    sensors = {"f": x[::4], "g": x[::5]}
    inputs = {
        "f": tf.InputFunction(f[:, ::4], sensors=sensors["f"][:, None]),
        "g": tf.InputFunction(g[:, ::5], sensors=sensors["g"][:, None]),
    }
    data = tf.OperatorData(inputs, x[:, None], u)
    train, test = data.take(slice(0, 320)), data.take(slice(320, 400))

    # Step 1 does not look at the inputs: it is done once, and both branches are fitted on the same trunk.
    trunk = tf.NetworkTrunk(
        hidden=(24,), width=8, activation="tanh", initialisation="xavier", iterations=200, starts=1
    )
    encodings = (("f", tf.PrincipalInputs(3)), ("g", tf.PrincipalInputs(3)))  # three numbers tell each function
    branches = {
        "concatenated": {"hidden": (40,), "activation": "tanh", "initialisation": "xavier"},
        # groups=() stands for one network for each input. Here a single linear layer each is enough, multiplied
        # 4 x 4 ways (three numbers and a constant); (40, 16) would put a layer of 40 neurons before it.
        "product": {"hidden": (16,), "activation": "tanh", "initialisation": "xavier", "product": True},
    }
    errors: dict[str, float] = {}
    first = None
    for name, network in branches.items():
        method = tf.TwoStep(
            trunk=trunk,
            branch=tf.NetworkBranch(**network, skip=False, iterations=150, ridge=0.0001, decay=0.0),
            inputs=tf.PerInput(dict(encodings)),
            coordinates=tf.Coordinates(rescale=True),
            weights="none",
        )
        result = tf.fit(train, method, key=0, trunk_result=first)
        first = result.trunk_result
        errors[name] = tf.evaluate(result.operator, test).summary()["mean_relative_l2"]
        print(f"{name}: mean relative test error {errors[name]:.1e}")

        # Predict from a mapping by name.
        two = {name: function.values[:2] for name, function in test.inputs.items()}
        assert result.operator.predict(two, test.points).shape == (2, 40)
    return errors


if __name__ == "__main__":
    main()
