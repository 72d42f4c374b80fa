"""Which input matters where: Sobol indices of a field, from an operator instead of a simulation.

    pip install SALib
    python examples/sensitivity.py

SALib asks for 8,192 evaluations of the problem multiple-inputs, -div(kappa p grad p) = f with p = g on the
boundary. Finite elements would need seconds; an operator that was fitted to 300 samples needs milliseconds. The
exact solution, p^2 = g^2 + 2 f / kappa w with -lap w = 1, gives the same indices.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import trunkfirst

try:
    from SALib.analyze import sobol
    from SALib.sample import sobol as sampling
except ImportError as error:
    raise SystemExit("this example needs SALib: pip install SALib") from error

PROBLEM = {"num_vars": 3, "names": ["f", "kappa", "g"], "bounds": [[1.0, 5.0]] * 3}


def main(picture: Path | None = None) -> dict[str, float]:
    data = trunkfirst.make_data("multiple-inputs", samples=300)
    f, kappa, g = data.flat_inputs.T
    operator = trunkfirst.fit(
        {name: column[:, None] for name, column in zip(PROBLEM["names"], (f, kappa, g), strict=True)},
        data.outputs,
        data.points,
        method=trunkfirst.TwoStep(
            trunkfirst.ModesTrunk(), trunkfirst.Kernel(lengths="each"), inputs=trunkfirst.StandardisedInputs("log")
        ),
    ).operator
    unit = (data.outputs[0] ** 2 - g[0] ** 2) * kappa[0] / (2 * f[0])
    centre = int(np.argmax(unit))

    inputs = sampling.sample(PROBLEM, 1024, seed=0)
    f, kappa, g = inputs.T
    values = operator.predict(inputs, data.points[[centre]])[:, 0]
    exact = np.sqrt(g**2 + 2 * f / kappa * unit[centre])
    found, true = (sobol.analyze(PROBLEM, v, seed=0)["ST"] for v in (values, exact))
    for name, index, other in zip(PROBLEM["names"], found, true, strict=True):
        print(f"{name}: total index {index:.3f} of the value at the centre, with the exact solution {other:.3f}")
    if picture is not None:
        figure, axes = plt.subplots(figsize=(6, 2.8), layout="constrained")
        axes.bar(np.arange(3) - 0.2, found, 0.4, label="operator")
        axes.bar(np.arange(3) + 0.2, true, 0.4, label="exact solution")
        axes.set(title="total Sobol index of the value at the centre", yscale="log")
        axes.set_xticks(range(3), PROBLEM["names"])
        axes.legend()
        figure.savefig(picture, dpi=80)
    return {"indices": float(np.abs(found - true).max())}


if __name__ == "__main__":
    main(Path("sensitivity.png"))
