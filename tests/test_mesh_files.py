"""Meshes: written by meshio, fitted, predicted, written as VTU and read by meshio again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import read_file
from own_problems import Call

import trunkfirst
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.read_write import read_data, read_inputs
from trunkfirst.data.scattered_data import ScatteredData
from trunkfirst.errors import CorruptFileError, DataError, UnsafeFileError
from trunkfirst.files.mesh_files import write_mesh

meshio = pytest.importorskip("meshio", reason="meshes need the extra mesh")

rng = np.random.default_rng(0)
A = rng.uniform(1, 2, (12, 2))
METHOD = trunkfirst.TwoStep(
    trunkfirst.ModesTrunk(width=2), trunkfirst.Linear(), inputs=trunkfirst.StandardisedInputs(), weights="none"
)
CELLS: dict[str, np.ndarray] = {
    "triangle": np.array([[0, 1, 3], [0, 3, 2], [2, 3, 5], [2, 5, 4]]),
    "quad": np.array([[0, 1, 3, 2], [2, 3, 5, 4]]),
    "hexahedron": np.array([[0, 1, 3, 2, 6, 7, 9, 8], [2, 3, 5, 4, 8, 9, 11, 10]]),
}
PLANE = np.array([[x, y, 0.0] for y in range(3) for x in range(2)])
SPACE = np.concatenate([PLANE, PLANE + np.array([0, 0, 1.0])])
CELLS["tetra"] = np.concatenate(
    [CELLS["hexahedron"][:, part] for part in ([0, 1, 2, 6], [0, 2, 3, 6], [0, 3, 7, 6])]
)


def fields(points: np.ndarray) -> np.ndarray:
    """Two modes, for the parameters A."""
    return A @ np.stack([1 + points[:, 0], points[:, 1] ** 2 + points.sum(axis=1)])


def mesh(kind: str, **data: np.ndarray) -> Any:
    points = PLANE if kind in ("triangle", "quad") else SPACE
    return meshio.Mesh(points, [(kind, CELLS[kind])], point_data=data)


def write_table(path: Path) -> None:
    np.savetxt(path, A, delimiter=",", header="load,stiffness", comments="")


def make_folder(folder: Path, kind: str, ending: str) -> Path:
    folder.mkdir()
    for number, values in enumerate(fields(PLANE if kind in ("triangle", "quad") else SPACE)):
        options = {"data_format": "XML"} if ending == "xdmf" else {}
        options = {"file_format": "gmsh"} if ending == "msh" else options
        mesh(kind, T=values).write(folder / f"case{number:02}.{ending}", **options)
    write_table(folder / "parameters.csv")
    return folder


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("triangle", "vtu"), ("quad", "xdmf"), ("tetra", "vtu"), ("hexahedron", "msh"), ("triangle", "vtk")],
)
def test_a_folder_of_meshes(tmp_path: Path, kind: str, ending: str):
    data = read_file(make_folder(tmp_path / "my", kind, ending))
    assert isinstance(data, OperatorData)
    points = PLANE[:, :2] if kind in ("triangle", "quad") else SPACE
    assert np.array_equal(data.points, points)
    assert np.allclose(data.outputs, fields(SPACE if points is SPACE else PLANE), rtol=1e-12)
    assert (list(data.inputs), data.output_name) == (["load", "stiffness"], "T")
    assert data.triangles is not None
    corners = data.points[data.triangles]
    sizes = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])) / (2 if points.shape[1] == 2 else 6)
    assert sizes.min() > 0
    assert sizes.sum() == pytest.approx(1.0 if kind == "tetra" else 2.0)


def test_names_of_a_field_and_of_columns_as_keys(tmp_path: Path):
    """A single field and the columns have keys already; to name them again is no error, and chooses."""
    folder = make_folder(tmp_path / "my", "triangle", "vtu")
    data = read_file(folder, keys={"outputs": "T"})
    assert np.array_equal(data.outputs, read_file(folder).outputs)
    assert data.output_name == "T"
    data = read_file(folder, keys={"outputs": "T", "inputs": "stiffness"})
    assert list(data.inputs) == ["stiffness"]
    assert np.allclose(data.flat_inputs, A[:, 1:], rtol=1e-12)
    table = read_inputs(folder / "parameters.csv", keys={"inputs": "stiffness"})
    assert list(table.functions) == ["stiffness"]
    with pytest.raises(DataError, match="no array 'U' for 'outputs' here"):
        read_data(folder, keys={"outputs": "U"})


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize("out", ["u.vtu", "u"])
def test_fit_predict_and_read_again(call: Call, tmp_path: Path, out: str):
    folder = make_folder(tmp_path / "my", "triangle", "vtu")
    trunkfirst.fit(folder, method=METHOD, out=tmp_path / "run")
    inputs = folder / "parameters.csv"
    code, _, err = call("predict", tmp_path / "run", "--inputs", inputs, "--out", tmp_path / out)
    assert (code, err) == (0, "")
    if out == "u.vtu":
        found = meshio.read(tmp_path / out)
        assert np.allclose([found.point_data[f"T_{i:02}"] for i in range(12)], fields(PLANE))
        write_table(tmp_path / "u.csv")
        assert np.allclose(read_file(tmp_path / "u.vtu").outputs, fields(PLANE))
    else:
        files = sorted((tmp_path / out).iterdir())
        assert len(files) == 12
        found = meshio.read(files[3])
        assert np.allclose(found.point_data["T"], fields(PLANE)[3])
    assert np.array_equal(found.points, PLANE)
    assert np.array_equal(found.cells_dict["triangle"], CELLS["triangle"])


@pytest.mark.usefixtures("no_report")
@pytest.mark.parametrize(("dimensions", "kind"), [(1, "line"), (2, "quad"), (3, "hexahedron")])
def test_points_on_a_grid_are_written_with_cells(call: Call, tmp_path: Path, dimensions: int, kind: str):
    """In any order of the points the cells fill the box, none of them turned inside out."""
    axes = [np.array([0, 1, 3.0]), np.array([0, 2.0]), np.array([1, 2, 2.5, 4])][:dimensions]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dimensions)
    points = np.random.default_rng(1).permutation(points)
    values = A @ np.stack([1 + points[:, 0], points[:, -1] ** 2 + points.sum(axis=1)])
    trunkfirst.fit(A, values, points, method=METHOD, out=tmp_path / "run")
    np.savetxt(tmp_path / "new.csv", A, delimiter=",")
    code, _, err = call("predict", tmp_path / "run", "--inputs", tmp_path / "new.csv", "--out", tmp_path / "u.vtu")
    assert (code, err) == (0, "")
    found = meshio.read(tmp_path / "u.vtu")
    assert list(found.cells_dict) == [kind]
    corners = found.points[found.cells_dict[kind]][..., :dimensions]
    # The edges from the first corner: along x, y and z in VTK's order of corners.
    edges = np.stack([corners[:, k] - corners[:, 0] for k in (1, 3, 4)[:dimensions]], axis=1)
    assert np.allclose(np.linalg.det(edges).sum(), np.prod([np.ptp(axis) for axis in axes]))
    assert np.linalg.det(edges).min() > 0
    centres = corners.mean(axis=1)
    assert np.allclose(centres, corners[:, 0] + edges.sum(axis=1) / 2)
    assert np.allclose(found.point_data["output_00"], values[0])


def test_a_mesh_has_three_coordinates_at_most(tmp_path: Path):
    with pytest.raises(DataError, match=r"u\.vtu: a mesh has at most 3 coordinates, the points have 4"):
        write_mesh(tmp_path / "u.vtu", np.zeros((5, 4)), None, {"u": np.zeros(5)})


@pytest.mark.usefixtures("no_report")
def test_points_outside_the_domain_are_marked(call: Call, tmp_path: Path):
    folder = make_folder(tmp_path / "my", "triangle", "vtu")
    trunkfirst.fit(folder, method=METHOD, out=tmp_path / "run")
    np.savez(tmp_path / "points.npz", points=[[0.5, 0.5], [50.0, 0.5]])
    files = ("--inputs", folder / "parameters.csv", "--points", tmp_path / "points.npz")
    code, _, _ = call("predict", tmp_path / "run", *files, "--extrapolate", "--out", tmp_path / "u.vtu")
    assert code == 0
    assert meshio.read(tmp_path / "u.vtu").point_data["is_extrapolated"].tolist() == [0, 1]


def test_meshes_that_differ_are_scattered_data(tmp_path: Path):
    folder = make_folder(tmp_path / "my", "triangle", "vtu")
    smaller = meshio.Mesh(PLANE[:4], [("triangle", CELLS["triangle"][:2])], point_data={"T": fields(PLANE)[5, :4]})
    smaller.write(folder / "case05.vtu")
    data = read_file(folder)
    assert isinstance(data, ScatteredData)
    assert np.isnan(data.outputs).sum() == 2


def test_several_fields_and_vectors(tmp_path: Path):
    folder = tmp_path / "my"
    folder.mkdir()
    for number, values in enumerate(fields(PLANE)):
        flow = np.stack([values, -values, 0 * values], axis=1)
        mesh("triangle", T=values, flow=flow).write(folder / f"{number:02}.vtu")
    write_table(folder / "parameters.csv")
    data = read_file(folder, keys={"outputs": "T,flow"})
    assert data.channel_names == ("T", "flow 1", "flow 2")
    assert read_file(folder, keys={"outputs": "T"}).output_name == "T"
    with pytest.raises(DataError, match=r"no outputs here; found: .*T \(12, 6\).*flow \(12, 6, 2\)"):
        read_data(folder)
    mesh("triangle", T=fields(PLANE)[0]).write(folder / "03.vtu")
    with pytest.raises(DataError, match=r"03\.vtu has no field 'flow' at its points"):
        read_data(folder)


def test_hostile_and_damaged_meshes(tmp_path: Path):
    folder = make_folder(tmp_path / "my", "triangle", "xdmf")
    text = (folder / "case03.xdmf").read_text()
    bomb = '<!DOCTYPE a [<!ENTITY b "c">]>' + text
    away = text.replace('Format="XML"', 'Format="HDF"', 1)
    start = away.index('Format="HDF"') + len('Format="HDF"')
    away = away[:start] + away[start:].replace(">", ">../secret.h5:/a<!--", 1).replace(
        "</DataItem>", "--></DataItem>", 1
    )
    for content, kind, words in (
        (bomb, UnsafeFileError, "defines entities of XML"),
        (away, UnsafeFileError, "secret.h5"),
        (text[:300], CorruptFileError, "case03.xdmf"),
        ("\x1b", CorruptFileError, r"case03.xdmf as a mesh: \w"),
    ):
        (folder / "case03.xdmf").write_text(content)
        with pytest.raises(kind, match=words):
            read_data(folder)


@pytest.mark.parametrize("ending", [".vtu", ""])
def test_a_table_may_name_the_files_in_any_order(tmp_path: Path, ending: str):
    folder = make_folder(tmp_path / "cases", "triangle", "vtu")
    expected = read_data(folder).flat_inputs
    rows = [f"case{number:02}{ending},{a!r},{b!r}" for number, (a, b) in enumerate(A.tolist())]
    table = folder / "parameters.csv"
    table.write_text("\n".join(["file,load,stiffness", *reversed(rows)]))
    data = read_data(folder)
    assert list(data.inputs) == ["load", "stiffness"]
    np.testing.assert_array_equal(data.flat_inputs, expected)
    table.write_text("\n".join(["file,load,stiffness", *rows[:-1]]))
    with pytest.raises(DataError, match=r"column 1 has file names, but not case11\.vtu"):
        read_data(folder)


def test_numbers_in_names_are_ordered_as_numbers(tmp_path: Path):
    for number in range(12):
        mesh("triangle", T=np.full(6, float(number))).write(tmp_path / f"case-{number}.vtu")
    write_table(tmp_path / "parameters.csv")
    np.testing.assert_array_equal(read_data(tmp_path).outputs[:, 0], np.arange(12))
