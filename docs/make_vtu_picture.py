"""Draws the picture of docs/data.md, meshes as a renderer opens them: python docs/make_vtu_picture.py.

Needs pyvista besides the extra `mesh`. Left, the plate of examples/mesh.py: files of a simulation, `fit`,
`predict` to T.vtu. Right, a prediction on a grid in three dimensions, which is written with hexahedra.
"""

import importlib
import runpy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import trunkfirst
from trunkfirst.cli import run_command

ROOT = Path(__file__).parents[1]
METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(), trunkfirst.Kernel(lengths="each"), inputs=trunkfirst.StandardisedInputs()
)


def plate(folder: Path) -> Path:
    """Cases of a simulation, and T.vtu with two predictions for new parameters."""
    (folder / "cases").mkdir()
    parameters = np.random.default_rng(0).uniform((1, 0), (5, 2), (40, 2))
    runpy.run_path(str(ROOT / "examples" / "mesh.py"))["simulate"](folder / "cases", parameters)
    trunkfirst.fit(folder / "cases", method=METHOD, out=folder / "plate")
    (folder / "new.csv").write_text("q,t\n3,1\n5,0\n", encoding="utf-8")
    return predicted(folder / "plate", folder / "new.csv", folder / "T.vtu")


def bar(folder: Path) -> Path:
    """Temperatures of a bar on a grid, and u.vtu with a prediction."""
    x, y, z = np.linspace(0, 4, 25), np.linspace(0, 1, 9), np.linspace(0, 1, 9)
    k = np.random.default_rng(0).uniform(0.5, 2, (40, 1))
    grid = np.stack(np.meshgrid(x, y, z, indexing="ij"), axis=-1).reshape(-1, 3)
    outputs = np.exp(-k * grid[:, 0] / 4) * np.cos(k * grid[:, 1]) * (1 + grid[:, 2] ** 2)
    trunkfirst.fit({"k": k}, {"u": outputs}, grid, method=METHOD, out=folder / "bar")
    (folder / "k.csv").write_text("k\n1.2\n", encoding="utf-8")
    return predicted(folder / "bar", folder / "k.csv", folder / "u.vtu")


def predicted(run: Path, inputs: Path, out: Path) -> Path:
    """The file that the command line writes."""
    assert run_command(["predict", str(run), "--inputs", str(inputs), "--out", str(out)]) == 0
    return out


def main() -> None:
    pyvista: Any = importlib.import_module("pyvista")
    with tempfile.TemporaryDirectory() as name:
        meshes = [pyvista.read(make(Path(name))) for make in (plate, bar)]
    plotter = pyvista.Plotter(off_screen=True, shape=(1, 2), window_size=(900, 340), border=False)
    for number, (mesh, field) in enumerate(zip(meshes, ("T_0", "u"), strict=True)):
        plotter.subplot(0, number)
        plotter.add_mesh(
            mesh,
            scalars=field,
            show_edges=True,
            scalar_bar_args={"title": field, "vertical": True, "position_x": 0.82},
        )
        plotter.camera_position = [(-4, -5, 4), (2, 0.5, 0.5), (0, 0, 1)] if number else "xy"
    plotter.screenshot(ROOT / "docs" / "images" / "vtu.png")


if __name__ == "__main__":
    main()
