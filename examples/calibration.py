"""Parameters from measurements: which conductivity explains twenty noisy values of a field?

    python examples/calibration.py

The operator learns beta -> p of the problem nonlinear-conductivity, -div(beta p grad p) = 1 with p = cos x on the
boundary. `operator.invert` then finds the beta that explains measurements at twenty points, by gradients from
several starts, with its spread. A second operator, of the problem multiple-inputs, has three parameters (f, kappa,
g), but only f / kappa and g have an effect on the field: the spread shows it.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst

NOISE, COUNT = 1e-3, 20
METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(), trunkfirst.Kernel(lengths="each"), inputs=trunkfirst.StandardisedInputs("log")
)


def measured(field: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The places of the measurements, and noisy values there."""
    places = np.sort(rng.choice(len(field), COUNT, replace=False))
    return places, field[places] + NOISE * rng.normal(size=COUNT)


def conductivity(rng: np.random.Generator) -> trunkfirst.Inversion:
    """beta = 20 from a field that the operator has not seen."""
    data = trunkfirst.make_data("nonlinear-conductivity", samples=1000)
    beta = data.flat_inputs[:, 0]
    few = np.unique(np.geomspace(1, 1000, 40).round()).astype(int) - 1
    train = np.setdiff1d(few, [19])
    operator = trunkfirst.fit(
        {"beta": beta[train, None]}, data.outputs[train], data.points, method=METHOD, intervals=True
    ).operator
    places, values = measured(data.outputs[19], rng)
    return operator.invert(values, data.points[places], noise=NOISE)


def three_parameters(rng: np.random.Generator) -> tuple[trunkfirst.Inversion, np.ndarray]:
    """(f, kappa, g) of a sample that the operator has not seen."""
    data = trunkfirst.make_data("multiple-inputs", samples=400)
    names = dict(zip(("f", "kappa", "g"), data.flat_inputs.T[..., None], strict=True))
    rest = {name: column[:-1] for name, column in names.items()}
    operator = trunkfirst.fit(rest, data.outputs[:-1], data.points, method=METHOD, intervals=True).operator
    places, values = measured(data.outputs[-1], rng)
    return operator.invert(values, data.points[places], noise=NOISE), data.flat_inputs[-1]


def main(picture: Path | None = None) -> dict[str, float]:
    rng = np.random.default_rng(0)
    found = conductivity(rng)
    print(f"beta: {found.inputs[0]:.2f} ± {found.spread[0]:.2f}, the truth is 20; misfit {found.misfit:.2f}")
    several, truth = three_parameters(rng)
    for name, value, spread, true in zip(several.names, several.inputs, several.spread, truth, strict=True):
        print(f"{name}: {value:.4g} ± {spread:.1g}, the truth is {true:.4g}")
    if picture is not None:
        draw(
            picture,
            ("beta", *several.names),
            np.append(found.inputs, several.inputs) / np.append(20, truth),
            np.append(found.spread, several.spread) / np.append(20, truth),
        )
    f, kappa, g = several.inputs
    print(f"f / kappa: {f / kappa:.3f}, the truth is {truth[0] / truth[1]:.3f}")
    return {
        "beta": abs(found.inputs[0] / 20 - 1),
        "beta in spreads": abs(found.inputs[0] - 20) / found.spread[0],
        "f / kappa": abs(f / kappa * truth[1] / truth[0] - 1),
        "g": abs(g / truth[2] - 1),
    }


def draw(path: Path, names: tuple[str, ...], values: np.ndarray, spreads: np.ndarray) -> None:
    """What was found, relative to the truth."""
    figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
    axes.axvline(1, color="0.75", lw=5)
    axes.errorbar(values, names, xerr=spreads, fmt="o", capsize=4)
    axes.invert_yaxis()
    axes.set(
        title="found from 20 noisy values: f and kappa only as f / kappa",
        xlabel="value ± spread, relative to the truth",
    )
    figure.savefig(path, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    main(Path("calibration.png"))
