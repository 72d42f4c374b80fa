"""Two input functions: the work u(x) = int_0^x f g that a force f does along a path with slope g.

    python examples/multi_input.py

Concatenated, one branch network gets the sensors of both functions. As a product (MIONet), each function has its
own network, and the two are multiplied: the right form here, because u is linear in f and in g.
"""

import functools as ft
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst


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


def main(picture: Path | None = None) -> dict[str, float]:
    x = np.linspace(0, 1, 40)
    f, g, u = works(400, x, seed=0)
    # Any number of inputs, each with its own sensors: f at ten places, g at eight.
    inputs = {
        "f": trunkfirst.InputFunction(f[:, ::4], sensors=x[::4, None]),
        "g": trunkfirst.InputFunction(g[:, ::5], sensors=x[::5, None]),
    }
    data = trunkfirst.OperatorData(inputs, x[:, None], u)
    train, test = data.take(slice(0, 320)), data.take(slice(320, 400))

    trunk = trunkfirst.NetworkTrunk(hidden=(24,), width=8, iterations=200, starts=1)
    encoders = trunkfirst.PerInput({"f": trunkfirst.PrincipalInputs(3), "g": trunkfirst.PrincipalInputs(3)})
    network = ft.partial(
        trunkfirst.NetworkBranch, activation="tanh", skip=False, iterations=150, ridge=1e-4, decay=0.0
    )
    branches = {
        "concatenated": network(hidden=(40,)),
        # A single linear layer for each input is enough: the 16 products of (three coordinates, 1) with (three
        # coordinates, 1). hidden=(40, 16) would put a layer of 40 neurons before it.
        "product": network(hidden=(16,), product=True),
    }
    errors: dict[str, float] = {}
    works_of_four: dict[str, np.ndarray] = {}
    step1 = None
    for name, branch in branches.items():
        method = trunkfirst.TwoStep(trunk, branch, inputs=encoders, weights="none")
        # Step 1 does not depend on the inputs: both branches use the same trunk.
        result = trunkfirst.fit(train, method=method, trunk_result=step1)
        step1 = result.trunk_result
        errors[name] = trunkfirst.evaluate(result.operator, test).summary()["mean_relative_l2"]
        print(f"{name}: mean relative test error {errors[name]:.1e}")

        # `predict` accepts inputs by name.
        four = {name: function.values[:4] for name, function in test.inputs.items()}
        works_of_four[name] = result.operator.predict(four)

    # Four test samples: the work, and the error with each branch.
    if picture is not None:
        figure, panels = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
        panels[0].plot(x, test.outputs[:4].T)
        panels[0].set(title="work of four test samples", xlabel="x")
        for (name, predicted), colour in zip(works_of_four.items(), ("C3", "C0"), strict=True):
            error = np.abs(predicted - test.outputs[:4]).T
            panels[1].semilogy(x, error, colour, label=[name, *["_"] * 3])
        panels[1].set(title="errors", xlabel="x", ylim=(1e-7, None))
        panels[1].legend()
        figure.savefig(picture, dpi=80)
    return errors


if __name__ == "__main__":
    main(Path("multi_input.png"))
