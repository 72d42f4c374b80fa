"""Arrays with named axes: xarray's Datasets, netCDF and zarr.

netCDF 4 is HDF5 and read by h5py, netCDF 3 by SciPy, zarr by its own library; all of them in a child process, as
in `hdf5`. A zarr folder may only name codecs that are known to run no code. Writing needs xarray.
"""

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import CorruptFileError, MissingExtraError, OutputExistsError, UnsafeFileError, import_extra
from .hdf5 import Labels, allow, attributes_of, limit, read_in_child, read_with_labels, send_array, serve
from .integrity import atomic_write, open_file, read_bytes, size_of
from .text_files import parse_json

_MOST_FILES = 1_000_000
_MOST_METADATA = 2**20
# The codecs of zarr that turn bytes into bytes or numbers and nothing else; numcodecs has one that runs pickles.
_CODECS = {
    *("blosc", "bytes", "crc32c", "gzip", "shuffle", "transpose", "vlen-utf8", "zlib", "zstd", "lz4", "delta"),
    *("fixedscaleoffset", "numcodecs.zlib", "numcodecs.blosc", "numcodecs.shuffle", "numcodecs.lz4"),
}


class Labelled(NamedTuple):
    """Named arrays; the names of their axes and their units, where known, and which of them are coordinates."""

    arrays: dict[str, np.ndarray]
    axes: Mapping[str, tuple[str, ...]] = {}
    units: Mapping[str, str] = {}
    coordinates: tuple[str, ...] = ()


# -- reading


def from_dataset(dataset: Any) -> Labelled:
    """The variables and coordinates of an xarray Dataset, or of an object with the same attributes."""
    variables = {str(name): dataset[name] for name in (*dataset.data_vars, *dataset.coords)}
    return Labelled(
        {name: np.asarray(variable.values) for name, variable in variables.items()},
        {name: tuple(map(str, variable.dims)) for name, variable in variables.items()},
        _units({name: getattr(variable, "attrs", {}) for name, variable in variables.items()}),
        tuple(map(str, dataset.coords)),
    )


def read_netcdf(path: Path | str) -> Labelled:
    """Read a netCDF file of version 3 or 4."""
    with open_file(path) as file:
        is_classic, size = file.read(3) == b"CDF", size_of(file)
    if not is_classic:
        return _labelled(read_with_labels(path))
    return _labelled(read_in_child("xarray_files", path, size, is_zarr=False))


def read_zarr(path: Path | str) -> Labelled:
    """Read the arrays at the top of a zarr folder of version 2 or 3."""
    if importlib.util.find_spec("zarr") is None:
        raise MissingExtraError(f"{path} is zarr, which", "zarr", "xarray")
    folder = Path(path)
    size = count = 0
    for root, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        if count > _MOST_FILES:
            raise CorruptFileError(f"{path} has more than {_MOST_FILES:,} files; save it with larger chunks")
        for name in (*folders, *files):
            if (Path(root) / name).is_symlink():
                raise UnsafeFileError(
                    f"{path}: {name} is a link to another place, which is refused; copy the data"
                )
        size += sum((Path(root) / name).stat().st_size for name in files)
    return _labelled(read_in_child("xarray_files", path, size, is_zarr=True))


def _labelled(found: Mapping[str, tuple[np.ndarray, Labels]]) -> Labelled:
    labels = {name: labels for name, (_, labels) in found.items()}
    axes = {name: tuple(each["axes"]) for name, each in labels.items() if each.get("axes") is not None}
    listed = {word for each in labels.values() for word in str(each.get("coordinates", "")).split()}
    scales = {name for name, dims in axes.items() if dims == (name,)}
    arrays = {name: _unpacked(name, array, labels[name]) for name, (array, _) in found.items()}
    return Labelled(arrays, axes, _units(labels), tuple(name for name in arrays if name in listed | scales))


def _units(attributes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        name: str(each["units"]) for name, each in attributes.items() if each.get("units") not in (None, "", "1")
    }


def _unpacked(name: str, array: np.ndarray, labels: Labels) -> np.ndarray:
    """Numbers as netCDF means them: NaN where they are missing, and with scale and offset."""
    fills = [labels[key] for key in ("_FillValue", "missing_value") if isinstance(labels.get(key), int | float)]
    scale, offset = labels.get("scale_factor", 1), labels.get("add_offset", 0)
    if not all(isinstance(number, int | float) for number in (scale, offset)):
        raise CorruptFileError(f"{name}: scale_factor {scale!r} and add_offset {offset!r} are not numbers")
    if array.dtype.kind not in "iuf":
        return array
    is_missing = np.isin(array, fills)
    if array.dtype.kind in "iu" and not is_missing.any() and (scale, offset) == (1, 0):
        return array
    numbers = array.astype(np.float64) if array.dtype.kind in "iu" or (scale, offset) != (1, 0) else array
    numbers = np.where(is_missing, np.asarray(np.nan, numbers.dtype), numbers) if is_missing.any() else numbers
    return numbers * scale + offset if (scale, offset) != (1, 0) else numbers


# -- the child process


def serve_child() -> None:
    """Read one netCDF 3 file or zarr folder, named on standard input, and send its arrays to standard output."""
    serve(lambda job, path: (_serve_zarr if job["is_zarr"] else _serve_classic)(job, path), "netCDF or zarr")


def _serve_classic(job: dict[str, Any], path: Path) -> None:
    from scipy.io import netcdf_file

    limit(2 * job["size"], job["size"])
    with netcdf_file(path, "r", mmap=False) as file:
        for name, variable in file.variables.items():
            axes = list(map(str, variable.dimensions))
            array = np.asarray(variable[...])  # in the byte order of the file
            if array.dtype.kind == "S":
                array = np.char.decode(array.reshape(*array.shape[:-1], -1).view(f"S{array.shape[-1]}")[..., 0])
                axes = axes[:-1]
            attributes = attributes_of(vars(variable)["_attributes"])
            send_array(name, array.astype(array.dtype.newbyteorder("=")), {"axes": axes, **attributes})


def _serve_zarr(job: dict[str, Any], path: Path) -> None:
    import zarr

    zarr.config.set({"threading.max_workers": 1, "async.concurrency": 1})
    found = {each.parent.name: each for each in sorted((*path.glob("*/zarr.json"), *path.glob("*/.zarray")))}
    arrays = {name: each for name, file in found.items() if (each := _opened(path, name, file, zarr)) is not None}
    if not arrays:
        raise CorruptFileError(f"{path} is not a zarr folder, or has no arrays at the top level")
    allow(path, {name: _claim(array) for name, array in arrays.items()}, job)
    for name, array in arrays.items():
        values = np.asarray(array[...])
        values = values.astype(np.str_) if values.dtype.kind in "TO" else values
        axes = array.metadata.dimension_names if array.metadata.zarr_format == 3 else None
        axes = axes or array.attrs.get("_ARRAY_DIMENSIONS")
        send_array(name, values, {"axes": axes and list(axes), **attributes_of(dict(array.attrs))})


def _opened(path: Path, name: str, file: Path, zarr: Any) -> Any:
    """An array whose codecs are known; None for a group."""
    metadata = parse_json(read_bytes(file, most=_MOST_METADATA), file)
    if not isinstance(metadata, dict):
        raise CorruptFileError(f"{file} does not describe an array")
    if metadata.get("node_type") == "group":
        return None
    named = [*(metadata.get("codecs") or ()), *(metadata.get("filters") or ()), metadata.get("compressor")]
    codecs = [each.get("name", each.get("id")) if isinstance(each, dict) else each for each in named if each]
    if unknown := [codec for codec in codecs if codec not in _CODECS]:
        raise UnsafeFileError(f"{path}: {name} has the unknown codec {str(unknown[0])[:80]!r}; refused")
    return zarr.open_array(store=str(file.parent), mode="r")


def _claim(array: Any) -> int:
    """Bytes in memory: of the array or of one of its chunks."""
    return max(math.prod(array.shape), math.prod(array.chunks)) * max(array.dtype.itemsize, 1)


# -- writing


def field_dataset(
    fields: Mapping[str, np.ndarray],
    points: np.ndarray,
    *,
    coordinate_names: Sequence[str],
    units: Mapping[str, str],
    sample_axis: str = "samples",
    sample_coordinates: Mapping[str, Any] | None = None,
) -> Any:
    """An xarray Dataset of fields (samples, points) by name.

    Points that are all combinations of their coordinates, in order, give an axis for each coordinate; others an
    axis "points" with the coordinates along it.
    """
    xarray = import_extra("a Dataset", "xarray", "xarray")
    grid = grid_of(points)
    places = tuple(coordinate_names) if grid is not None else ("points",)
    columns = points.T if grid is None else grid
    coordinates: dict[str, Any] = {
        name: ((name,) if grid is not None else places, values, _unit(units, name))
        for name, values in zip(coordinate_names, columns, strict=True)
    }
    shape = (len(points),) if grid is None else tuple(map(len, grid))
    variables = {
        name: ((sample_axis, *places), values.reshape(len(values), *shape), _unit(units, name))
        for name, values in fields.items()
    }
    return xarray.Dataset(variables, coords={**coordinates, **(sample_coordinates or {})})


def _unit(units: Mapping[str, str], name: str) -> dict[str, str]:
    return {"units": units[name]} if name in units else {}


def grid_of(points: np.ndarray) -> list[np.ndarray] | None:
    """The values of every coordinate, if the points are all their combinations, the last coordinate fastest."""
    found: list[np.ndarray] = []
    for values in points.T:
        distinct, first = np.unique(values, return_index=True)
        found.append(distinct[np.argsort(first)])
    if math.prod(map(len, found)) != len(points):
        return None
    whole = np.stack(np.meshgrid(*found, indexing="ij"), axis=-1).reshape(len(points), -1)
    return found if np.array_equal(whole, points) else None


def write_dataset(path: Path, dataset: Any) -> None:
    """Write a Dataset as netCDF 4 (.nc) or zarr."""
    if path.suffix.lower() == ".zarr":
        if path.exists():
            raise OutputExistsError(f"{path} exists already; remove it first or choose another name")
        dataset.to_zarr(path, mode="w-", zarr_format=2, consolidated=True)
        return
    if importlib.util.find_spec("h5netcdf") is None:
        raise MissingExtraError(f"writing {path}", "h5netcdf", "xarray")
    with atomic_write(path) as file:
        file.write(dataset.to_netcdf(engine="h5netcdf"))
