"""Two output channels: a force f(t) pushes a body of unit mass, and we want its velocity and its position.

    python examples/multi_output.py

v = int f and s = int v, both exact. The channels share one trunk; each has its own coefficients. Their sizes are
very different (positions are in millimetres), which does not matter: every channel is scaled before training.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst


def motions(samples: int, t: np.ndarray, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Forces f = sum_k a_k cos(k pi t), and (samples, times, 2) velocities in m/s and positions in mm."""
    k = np.pi * np.arange(1, 6)[:, None]
    a = np.random.default_rng(seed).normal(size=(samples, len(k))) / np.arange(1, 6)
    velocity = a @ (np.sin(k * t) / k)
    position = a @ ((1 - np.cos(k * t)) / k**2)
    return a @ np.cos(k * t), np.stack([velocity, 1000 * position], axis=-1)


def main(picture: Path | None = None) -> dict[str, float]:
    t = np.linspace(0, 1, 50)
    forces, fields = motions(200, t, seed=0)
    data = trunkfirst.OperatorData(
        forces,
        t[:, None],
        fields,  # channels are the third axis
        coordinate_names=("t",),
        channel_names=("velocity", "position"),
        units={"velocity": "m/s", "position": "mm"},
    )
    train, test = data.take(slice(0, 160)), data.take(slice(160, 200))

    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(30, 30), width=11, iterations=400, starts=1),
        branch=trunkfirst.Linear(),
        inputs=trunkfirst.StandardisedInputs(),
        # The body starts at rest at 0: the output is exactly 0 at the lower end of t. Position counts twice.
        output=trunkfirst.Output(fixed=("t-",), channel_weights=(1.0, 2.0)),
        weights="none",
    )
    operator = trunkfirst.fit(train, method=method).operator

    predicted = operator.predict(test.flat_inputs)  # (samples, points, channels)
    errors: dict[str, float] = {}
    for channel, name in enumerate(data.channel_names):
        difference = predicted[..., channel] - test.outputs[..., channel]
        errors[name] = float(np.linalg.norm(difference) / np.linalg.norm(test.outputs[..., channel]))
        print(f"{name}: relative error {errors[name]:.1e}")
    errors["start"] = float(np.abs(predicted[:, 0]).max())
    print(f"largest value at t = 0: {errors['start']}")

    # Four test samples, a panel for each channel.
    if picture is not None:
        figure, panels = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
        for channel, (panel, name) in enumerate(zip(panels, data.channel_names, strict=True)):
            panel.plot(t, test.outputs[:4, :, channel].T, color="0.75", lw=5)
            panel.plot(t, predicted[:4, :, channel].T)
            panel.set(title=f"{name} in {data.units[name]}: exact in grey", xlabel="t")
        figure.savefig(picture, dpi=80)
    return errors


if __name__ == "__main__":
    main(Path("multi_output.png"))
