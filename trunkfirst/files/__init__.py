"""Files that are whole or absent, verified before they are believed, and never run as code."""

from ._atomic import atomic_write, prepare_directory
from ._csv import read_csv, read_csv_folder, write_csv_folder
from ._formats import read_json, read_toml, to_json, write_json, write_text
from ._hdf5 import read_hdf5, write_hdf5
from ._manifest import sha256_of, verify_manifest, write_manifest
from ._mat import read_mat, write_mat
from ._npz import read_npz, write_npz

__all__ = [
    "atomic_write",
    "prepare_directory",
    "read_csv",
    "read_csv_folder",
    "read_hdf5",
    "read_json",
    "read_mat",
    "read_npz",
    "read_toml",
    "sha256_of",
    "to_json",
    "verify_manifest",
    "write_csv_folder",
    "write_hdf5",
    "write_json",
    "write_manifest",
    "write_mat",
    "write_npz",
    "write_text",
]
