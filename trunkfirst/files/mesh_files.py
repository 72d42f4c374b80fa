"""Fields on meshes by meshio: VTU, VTK, XDMF and Gmsh, read in a child process, as in `hdf5`.

Cells become triangles in the plane and tetrahedra in space: quadrilaterals and hexahedra are divided.
"""

import importlib
import importlib.util
import io
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from ..errors import CorruptFileError, DataError, MissingExtraError, UnsafeFileError, import_extra
from .hdf5 import limit, read_in_child, send_array, serve
from .integrity import atomic_write, inside, open_file, read_bytes, size_of
from .text_files import read_columns

# The module of meshio that reads files of an ending.
_READERS = {".vtu": "vtu", ".vtk": "vtk", ".xdmf": "xdmf", ".xmf": "xdmf", ".msh": "gmsh"}
_MOST_FILES = 100_000
_MOST_BYTES = 2**32
# The corners of triangles or tetrahedra that make up a cell.
_PARTS: dict[str, list[tuple[int, ...]]] = {
    "triangle": [(0, 1, 2)],
    "quad": [(0, 1, 2), (0, 2, 3)],
    "tetra": [(0, 1, 2, 3)],
    "hexahedron": [(0, 1, 2, 6), (0, 2, 3, 6), (0, 3, 7, 6), (0, 7, 4, 6), (0, 4, 5, 6), (0, 5, 1, 6)],
}
# A field of a sample, where one file holds them all: "T_0017".
_NUMBERED = re.compile(r"(.*?)[ _.-]?(\d+)")


def is_mesh(path: Path) -> bool:
    """Whether a path is a file with a mesh, or a folder of them."""
    return bool(_files(path))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted((file for file in path.iterdir() if file.suffix.lower() in _READERS), key=_natural)
    return [path] if path.suffix.lower() in _READERS else []


def _natural(file: Path) -> list[tuple[int, str]]:
    """So that case-2 comes before case-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", file.name)]


def read_meshes(path: Path) -> dict[str, np.ndarray]:
    """Read a folder of meshes, a sample each in the order of their names; or one mesh with the fields of them all.

    Returns `points`, the cells as `triangles` and the fields at the points by name; a single one as
    "outputs.NAME". The columns of a table of parameters, the only .csv file of the folder or the one next to a
    single mesh, are "inputs.TITLE". Where the meshes differ, every sample has points of its own, padded with
    NaN.
    """
    if importlib.util.find_spec("meshio") is None:
        raise MissingExtraError(f"{path} is a mesh, which", "meshio", "mesh")
    files = _files(path)
    size = sum(size_of(file) for file in _opened(files))
    if len(files) > _MOST_FILES or size > _MOST_BYTES:
        raise DataError(f"{path}: {len(files):,} files of {size:,} bytes are too many; use .npz")
    sent = read_in_child("mesh_files", path, size, files=[str(file) for file in files])
    meshes: list[dict[str, np.ndarray]] = [{} for _ in files]
    for name, (array, _) in sent.items():
        number, _, rest = name.partition(":")
        meshes[int(number)][rest] = array
    return {**_table(path, files), **_assembled(path, files, meshes)}


def _opened(files: Sequence[Path]) -> Iterator[io.BufferedReader]:
    for file in files:
        with open_file(inside(file.parent, file.name)) as opened:
            yield opened


def _table(path: Path, files: Sequence[Path]) -> dict[str, np.ndarray]:
    tables = sorted(path.glob("*.csv")) if path.is_dir() else [path.with_suffix(".csv")]
    if len(tables) > 1:
        names = ", ".join(table.name for table in tables[:3])
        raise DataError(f"{path}: {len(tables)} .csv files ({names}); keep the one with the parameters")
    if not tables or not tables[0].exists():
        return {}
    names = [file.name for file in files] if len(files) > 1 else []
    return read_columns(inside(tables[0].parent, tables[0].name), "inputs", files=names)


def _assembled(path: Path, files: Sequence[Path], meshes: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays of all samples together."""
    meshes = _samples_of(meshes[0]) if len(meshes) == 1 else meshes
    points = [mesh.get("points", meshes[0]["points"]) for mesh in meshes]
    axes = [axis for axis in range(points[0].shape[1]) if any(mesh[:, axis].any() for mesh in points)]
    is_same = all("points" not in mesh for mesh in meshes[1:])
    found = {"points": points[0][:, axes] if is_same else _padded([mesh[:, axes] for mesh in points])}
    if is_same and (cells := _simplices(meshes[0], len(axes))) is not None:
        found["triangles"] = cells
    fields = [name for name in meshes[0] if name.startswith("field:")]
    for name in fields:
        for number, mesh in enumerate(meshes):
            if name not in mesh:
                where = files[number].name if len(files) > 1 else f"sample {number}"
                raise DataError(f"{path}: {where} has no field {name.removeprefix('field:')!r} at its points")
        values = _padded([mesh[name] for mesh in meshes])
        key = f"outputs.{name.removeprefix('field:')}" if len(fields) == 1 else name.removeprefix("field:")
        found[key] = _without_zeros(values) if len(axes) < 3 else values
    return found


def _without_zeros(values: np.ndarray) -> np.ndarray:
    """Vectors in the plane without their third component, zero everywhere."""
    is_flat = values.ndim == 3 and values.shape[2] == 3 and not np.nan_to_num(values[..., 2]).any()
    return values[..., :2] if is_flat else values


def _samples_of(mesh: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """One mesh with the fields "T_0", "T_1", ... as samples that share it."""
    samples: dict[int, dict[str, np.ndarray]] = {}
    for name, array in mesh.items():
        match = _NUMBERED.fullmatch(name.removeprefix("field:")) if name.startswith("field:") else None
        if match is not None:
            samples.setdefault(int(match[2]), {})[f"field:{match[1] or 'output'}"] = array
    shared = {name: array for name, array in mesh.items() if not name.startswith("field:")}
    rows = [samples[number] for number in sorted(samples)]
    return [{**shared, **rows[0]}, *rows[1:]] if rows else [mesh]


def _padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of different lengths as one, with NaN behind the shorter ones."""
    longest = max(map(len, arrays))
    if all(len(array) == longest for array in arrays):
        return np.stack(arrays)
    found = np.full((len(arrays), longest, *arrays[0].shape[1:]), np.nan)
    for row, array in zip(found, arrays, strict=True):
        row[: len(array)] = array
    return found


def _simplices(mesh: Mapping[str, np.ndarray], dimensions: int) -> np.ndarray | None:
    """Triangles in the plane, tetrahedra in space, where there are any."""
    blocks = [
        cells[:, part]
        for name, cells in mesh.items()
        if name.startswith("cells:")
        for part in _PARTS[name.split(":")[1]]
        if len(part) == dimensions + 1
    ]
    return np.concatenate(blocks) if blocks else None


# -- the child process


def serve_child() -> None:
    """Read the meshes that are named on standard input and send their arrays to standard output."""
    serve(_serve_meshes, "a mesh")


def _serve_meshes(job: dict[str, Any], path: Path) -> None:
    del path
    readers = {name: importlib.import_module(f"meshio.{name}") for name in set(_READERS.values())}
    importlib.import_module("meshio.xdmf.main")
    limit(job["most"], 16 * job["size"])
    first: np.ndarray | None = None
    for number, file in enumerate(map(Path, job["files"])):
        try:
            _check_references(file, job["size"])
            mesh = readers[_READERS[file.suffix.lower()]].read(str(file))
        except CorruptFileError:
            raise
        except Exception as error:
            # meshio 5.3 with NumPy 2.3 or later cannot read numbers as text
            hint = "; save it in binary (gmsh -bin)" if file.suffix.lower() == ".msh" else ""
            reason = str(error)[:200] or type(error).__name__
            raise CorruptFileError(f"cannot read {file} as a mesh: {reason}{hint}") from error
        if first is None or not np.array_equal(first, mesh.points):
            send_array(f"{number}:points", np.asarray(mesh.points, np.float64), {})
        first = np.asarray(mesh.points) if first is None else first
        for block, cells in enumerate(mesh.cells if number == 0 else ()):
            if cells.type in _PARTS:
                send_array(f"{number}:cells:{cells.type}:{block}", np.asarray(cells.data, np.int64), {})
        for name, values in mesh.point_data.items():
            if np.asarray(values).dtype.kind in "fiu" and not name.startswith("gmsh:"):
                send_array(f"{number}:field:{name}", np.asarray(values), {})


def _check_references(file: Path, size: int) -> None:
    """Refuse XML with entities, and XDMF that takes values from files outside of its folder."""
    if file.suffix.lower() not in (".vtu", ".xdmf", ".xmf"):
        return
    content = read_bytes(file, most=size)
    if re.search(rb"<!\s*(DOCTYPE|ENTITY)", content[:4096], re.IGNORECASE):
        raise UnsafeFileError(f"{file} defines entities of XML; it is refused")
    if file.suffix.lower() == ".vtu":
        return
    for item in ET.fromstring(content).iter("DataItem"):  # noqa: S314 - without entities
        if item.get("Format", "XML").upper() != "XML":
            name = (item.text or "").strip().split(":")[0]
            other = inside(file.parent, name)
            if other.is_symlink() or len(Path(name).parts) != 1:
                raise UnsafeFileError(f"{file} takes its values from {name[:80]!r}; put that file next to it")


# -- writing


def write_mesh(
    path: Path, points: np.ndarray, cells: tuple[str, np.ndarray] | None, fields: Mapping[str, np.ndarray]
) -> None:
    """Write fields (points) or (points, components) as VTU, which ParaView opens.

    `cells` are their name in meshio, as "triangle", and their corners; without them points are dots.
    """
    meshio = import_extra(f"writing {path}", "meshio", "mesh")
    if points.shape[1] > 3:
        found = f"the points have {points.shape[1]}"
        raise DataError(f"{path}: a mesh has at most 3 coordinates, {found}; write .npz or .nc")
    cells = cells or ("vertex", np.arange(len(points))[:, None])
    places = np.pad(points, ((0, 0), (0, 3 - points.shape[1])))
    data = {name: np.ascontiguousarray(values) for name, values in fields.items()}
    mesh = meshio.Mesh(places, [cells], point_data=data)
    with tempfile.TemporaryDirectory() as folder, atomic_write(path) as file:
        meshio.vtu.write(Path(folder) / "mesh.vtu", mesh)
        file.write((Path(folder) / "mesh.vtu").read_bytes())
