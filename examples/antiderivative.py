"""Learn the antiderivative: from a function f to u(x) = int_0^x f.

    python examples/antiderivative.py

This is the first operator of most tutorials. The data are random cosine series and their exact integrals.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst


def random_series(samples: int, x: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """f = sum_k a_k cos(k pi x), where a_k has deviation e^(-k^2 / 16), and its antiderivative."""
    k = np.arange(8)[:, None]
    a = np.random.default_rng(seed).normal(size=(samples, len(k))) * np.exp(-((k[:, 0] / 4) ** 2))
    integrals = np.where(k > 0, np.sin(k * np.pi * x) / np.where(k > 0, k * np.pi, 1), x)
    return a @ np.cos(k * np.pi * x), a @ integrals


def main(picture: Path | None = None) -> dict[str, float]:
    # The data are three arrays: inputs (samples, sensors), outputs (samples, points) and points (points,
    # coordinates).
    x = np.linspace(0, 1, 60)
    f, u = random_series(250, x, seed=0)

    # `trunkfirst.fit(f, u, x[:, None])` would choose a method by the error on samples left out. Here we give one:
    # a trunk of ten functions for step 1 and, because this operator is linear, a linear branch for step 2.
    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(30, 30), width=10, iterations=400, starts=1),
        branch=trunkfirst.Linear(),
        inputs=trunkfirst.StandardisedInputs(),
        weights="none",
    )
    result = trunkfirst.fit(f, u, x[:, None], method=method, test_share=0.2)
    print(result)

    # These are the error on the test samples, and the smallest error that any branch could have with this trunk.
    summary = result.evaluation.summary()
    print(f"test error {summary['mean_relative_l2']:.1e}, best possible {summary['optimal_mean_relative_l2']:.1e}")

    # The trunk is a function of x, so we can predict at 501 points instead of the 60 of training.
    new, _ = random_series(50, x, seed=1)
    finer = np.linspace(0, 1, 501)
    predicted = result.operator.predict(new, finer[:, None])
    _, exact = random_series(50, finer, seed=1)
    between = np.linalg.norm(predicted - exact) / np.linalg.norm(exact)
    print(f"error at 501 points: {between:.1e}")

    # The picture shows predictions and exact solutions of four new samples.
    if picture is not None:
        figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
        axes.plot(finer, exact[:4].T, color="0.7", lw=4)
        axes.plot(finer, predicted[:4].T, lw=1)
        axes.set(title="four new samples: exact in grey, predictions on top", xlabel="x")
        figure.savefig(picture, dpi=80)
    return {"test": summary["mean_relative_l2"], "between": float(between)}


if __name__ == "__main__":
    main(Path("antiderivative.png"))
