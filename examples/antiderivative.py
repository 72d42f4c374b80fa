"""The first operator of most tutorials: from a function f to its antiderivative u(x) = int_0^x f.

    python examples/antiderivative.py

Data are made from a seed: Gaussian fields as cosine series, integrated term by term, so that the truth is exact.
"""

import numpy as np

import trunkfirst as tf


def gaussian_fields(samples: int, x: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fields f = sum_k a_k cos(k pi x) with a_k of deviation e^(-k^2 / 16), and their antiderivatives, exactly."""
    k = np.arange(8)[:, None]
    a = np.random.default_rng(seed).normal(size=(samples, len(k))) * np.exp(-((k[:, 0] / 4) ** 2))
    integrals = np.where(k > 0, np.sin(k * np.pi * x) / np.where(k > 0, k * np.pi, 1), x)
    return a @ np.cos(k * np.pi * x), a @ integrals


def main() -> dict[str, float]:
    # Inputs (samples, sensors), points (points, coordinates), outputs (samples, points).
    x = np.linspace(0, 1, 60)
    f, u = gaussian_fields(250, x, seed=0)
    data = tf.OperatorData(inputs=f, points=x[:, None], outputs=u)
    split = tf.Split.random(data.samples, validation_share=0, test_share=0.2, seed=0)
    print(*tf.check_data(data).sentences, sep="\n")

    # Step 1: a trunk of ten functions. Step 2: the operator is linear, so a linear branch is the right one.
    method = tf.TwoStep(
        trunk=tf.NetworkTrunk(
            hidden=(30, 30), width=10, activation="tanh", initialisation="xavier", iterations=400, starts=1
        ),
        branch=tf.Linear(),
        inputs=tf.StandardisedInputs(),
        coordinates=tf.Coordinates(rescale=True),
        weights="none",
    )
    result = tf.fit(data.take(split.train), method, key=0)
    print(result)

    # The error on samples that training never saw, beside the least that any branch could reach on this trunk.
    summary = tf.evaluate(result.operator, data.take(split.test)).summary()
    print(f"test error {summary['mean_relative_l2']:.1e}, at best {summary['optimal_mean_relative_l2']:.1e}")

    # The trunk is a function: any points will do.
    finer = np.linspace(0, 1, 501)
    _, exact = gaussian_fields(250, finer, seed=0)
    predicted = result.operator.predict(f[split.test], finer[:, None])
    between = np.linalg.norm(predicted - exact[split.test]) / np.linalg.norm(exact[split.test])
    print(f"error at 501 points instead of 60: {between:.1e}")
    return {"test": summary["mean_relative_l2"], "between": float(between)}


if __name__ == "__main__":
    main()
