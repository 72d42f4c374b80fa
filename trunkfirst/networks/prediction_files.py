"""Files of predictions: arrays, labelled arrays, meshes."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from ..data.named_arrays import NewInputs
from ..errors import OutputExistsError, UnknownNameError
from ..files.hdf5 import write_hdf5
from ..files.integrity import prepare_directory
from ..files.mat import write_mat
from ..files.mesh_files import write_mesh
from ..files.npz import write_npz
from ..files.xarray_files import write_dataset
from .grids import grid_cells
from .training_domain import TrainingDomain

_PLAIN = {".npz": write_npz, ".mat": write_mat, ".h5": write_hdf5, ".hdf5": write_hdf5}
_LABELLED = (".nc", ".zarr")
_ENDINGS = (*_PLAIN, *_LABELLED, ".vtu", "")
_FIELDS = {"outputs": "", "lower": "_lower", "upper": "_upper"}


def check_target(path: Path, *sources: Path | None) -> None:
    """Refuse a file of an unknown format, or one that is read, before anything is computed."""
    if any(each is not None and each.exists() and path.exists() and path.samefile(each) for each in sources):
        raise OutputExistsError(f"{path} is read for these predictions; write them to another file with --out")
    if path.suffix.lower() not in _ENDINGS:
        known = (*_ENDINGS[:-1], "a folder, without an ending, of .vtu files")
        raise UnknownNameError("file format", path.suffix, known)


def write_predictions(
    path: Path, domain: TrainingDomain, arrays: Mapping[str, np.ndarray], is_outlier: np.ndarray, given: NewInputs
) -> None:
    """Write points, outputs, bounds and marks in the format that the ending of `path` names."""
    suffix = path.suffix.lower()
    fields = {ending: arrays[name] for name, ending in _FIELDS.items() if name in arrays}
    if suffix in (".vtu", ""):
        _write_meshes(path, domain, arrays["points"], domain.by_channel(fields), arrays["is_extrapolated"])
    elif suffix in _LABELLED:
        marks = {"is_outlier": is_outlier, "is_extrapolated": arrays["is_extrapolated"]}
        write_dataset(path, domain.dataset(fields, arrays["points"], given, **marks))
    else:
        # the second is the name before 0.2
        _PLAIN[suffix](path, {**arrays, "is_outlier": is_outlier, "is_strange": is_outlier})


def _write_meshes(
    path: Path, domain: TrainingDomain, points: np.ndarray, fields: dict[str, np.ndarray], is_outside: np.ndarray
) -> None:
    """One file with the fields "T_0", "T_1", ... of all samples, or a folder with a file for each of them."""
    cells, count = _cells(domain, points), len(next(iter(fields.values())))
    marks = {"is_extrapolated": is_outside.astype(np.uint8)} if is_outside.any() else {}
    samples = [{name: values[k] for name, values in fields.items()} for k in range(count)]
    if path.suffix:
        digits = len(str(count - 1))
        all_fields = {f"{name}_{k:0{digits}}": v for k, each in enumerate(samples) for name, v in each.items()}
        write_mesh(path, points, cells, (samples[0] if count == 1 else all_fields) | marks)
        return
    folder = prepare_directory(path)
    for number, each in enumerate(samples):
        write_mesh(folder / f"sample-{number:05}.vtu", points, cells, each | marks)


def _cells(domain: TrainingDomain, points: np.ndarray) -> tuple[str, np.ndarray] | None:
    """The triangles or tetrahedra of training where the points are those of training, else the cells of a grid."""
    is_known = domain.points is not None and np.array_equal(points, domain.points)
    if is_known and domain.triangles is not None:
        return {3: "triangle", 4: "tetra"}[domain.triangles.shape[1]], domain.triangles
    return grid_cells(points)
