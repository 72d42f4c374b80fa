"""From a folder of meshes to a surrogate, and back to a mesh: temperatures of a plate with a hole.

    python examples/mesh.py                needs: pip install 'trunkfirst[mesh]'

Usually a simulation writes the files. Here scikit-fem solves -div((1 + T) grad T) = q with T = t on the
boundary, for random q and t, and meshio writes a file for each sample, with a table of the parameters.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import meshio
import numpy as np
import skfem as fem
from skfem.models.poisson import laplace, unit_load

import trunkfirst


def simulate(folder: Path, parameters: np.ndarray) -> None:
    """One .vtu file for each row (q, t), and the rows as parameters.csv."""
    mesh = fem.MeshTri.init_circle(4)
    mesh = mesh.restrict(np.flatnonzero(np.hypot(*mesh.p[:, mesh.t].mean(axis=1)) > 0.3))
    rim = mesh.boundary_nodes()[np.hypot(*mesh.p[:, mesh.boundary_nodes()]) < 0.9]
    places = mesh.p.copy()
    places[:, rim] *= 0.3 / np.hypot(*places[:, rim])
    mesh = fem.MeshTri(places, mesh.t)
    basis = fem.Basis(mesh, fem.ElementTriP1())
    unit = fem.solve(*fem.condense(laplace.assemble(basis), unit_load.assemble(basis), D=mesh.boundary_nodes()))
    points = np.column_stack([mesh.p.T, np.zeros(mesh.p.shape[1])])
    for number, (q, t) in enumerate(parameters):
        # w = T + T^2 / 2 solves -lap w = q with w = t + t^2 / 2 on the boundary.
        temperature = np.sqrt(1 + 2 * (q * unit + t + t**2 / 2)) - 1
        case = meshio.Mesh(points, [("triangle", mesh.t.T)], point_data={"T": temperature})
        case.write(folder / f"case-{number:03d}.vtu")
    np.savetxt(folder / "parameters.csv", parameters, delimiter=",", header="q,t", comments="")


def main(picture: Path | None = None) -> dict[str, float]:
    # We write 40 cases as a simulation would: case-000.vtu, case-001.vtu, ..., and parameters.csv.
    parameters = np.random.default_rng(0).uniform((1, 0), (5, 2), (40, 2))
    with tempfile.TemporaryDirectory() as folder:
        simulate(Path(folder), parameters)
        data = trunkfirst.read_data(folder)
    print(*data.describe(), sep="\n")

    # Ten cases are kept for the test. The method has principal modes of the fields as trunk, and a kernel with a
    # length scale for each parameter as branch. Without a method, `fit` compares several, which takes longer.
    method = trunkfirst.TwoStep(
        trunkfirst.ModesTrunk(), trunkfirst.Kernel(lengths="each"), inputs=trunkfirst.StandardisedInputs()
    )
    result = trunkfirst.fit(data, method=method, test_share=0.25, intervals=True)
    print(f"test error {result.evaluation.summary()['mean_relative_l2']:.1e}")

    # For new parameters, predict the field with intervals that should contain nine of ten true values.
    new = np.array([[3.0, 1.0]])
    found = result.operator.predict(new, interval=0.9)
    print(f"largest temperature {found.values.max():.4f} ± {(found.upper - found.lower).max() / 2:.1e}")

    # This is the predicted field on the mesh. `trunkfirst predict RUN --inputs new.csv --out T.vtu` writes it to a
    # file.
    if picture is not None:
        figure, axes = plt.subplots(figsize=(4.5, 3.4), layout="constrained")
        shown = axes.tripcolor(*data.points.T[:2], data.triangles, found.values[0], shading="gouraud")
        axes.set(title="predicted temperature, q = 3, t = 1", aspect="equal")
        figure.colorbar(shown, ax=axes)
        figure.savefig(picture, dpi=80)
    return {"test": result.evaluation.summary()["mean_relative_l2"]}


if __name__ == "__main__":
    main(Path("mesh.png"))
