"""Every sample with its own points, any number of them: moving sensors, adaptive meshes, lost measurements.

    python examples/scattered.py

The operator maps two numbers (a, b) to the wave u(x, y) = sin(a x + b y). Every sample is known at 15 to 60 random
points of its own. The trained operator predicts the whole field, here compared with the exact one on a grid.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst


def wave(ab: np.ndarray, points: np.ndarray) -> np.ndarray:
    """sin(a x + b y)."""
    return np.sin(points @ ab)


def main(picture: Path | None = None) -> dict[str, float]:
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0.5, 2, (150, 2))
    points = [rng.uniform(-1, 1, (rng.integers(15, 61), 2)) for _ in inputs]
    outputs = [wave(ab, own) for ab, own in zip(inputs, points, strict=True)]

    # From lists of arrays; in a file, samples with fewer points are padded with NaN.
    data = trunkfirst.scattered_from_lists(inputs, points, outputs, coordinate_names=("x", "y"))
    print(f"{data.samples} samples with {data.counts.min()} to {data.counts.max()} points each")

    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(20, 20), width=12, iterations=150, starts=1),
        branch=trunkfirst.Kernel(),
        inputs=trunkfirst.StandardisedInputs(),
        weights="none",
    )
    result = trunkfirst.fit(data.take(slice(0, 120)), method=method)
    test = data.take(slice(120, 150))
    print(result)

    # The error at the test samples' own points ...
    own = trunkfirst.evaluate(result.operator, test).summary()["mean_relative_l2"]
    print(f"mean relative test error at the samples' own points: {own:.1e}")

    # ... and on a grid.
    grid = np.stack(np.meshgrid(np.linspace(-0.9, 0.9, 30), np.linspace(-0.9, 0.9, 30)), axis=-1).reshape(-1, 2)
    exact = np.stack([wave(ab, grid) for ab in test.flat_inputs])
    predicted = result.operator.predict(test.flat_inputs, grid)
    everywhere = float(np.linalg.norm(predicted - exact) / np.linalg.norm(exact))
    print(f"relative test error on a grid: {everywhere:.1e}")
    if picture is not None:
        figure, axes = plt.subplots(figsize=(4.5, 3.4), layout="constrained")
        side = np.linspace(-0.9, 0.9, 30)
        figure.colorbar(axes.contourf(side, side, predicted[0].reshape(30, 30), 20))
        axes.plot(*test.points[0].T, "k.")
        axes.set(title="predicted field, and where the sample is known", xlabel="x", ylabel="y")
        figure.savefig(picture, dpi=80)
    return {"own points": own, "grid": everywhere}


if __name__ == "__main__":
    main(Path("scattered.png"))
