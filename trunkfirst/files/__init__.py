"""Files that are whole or absent, verified before they are believed, and never run as code."""

from ._atomic import atomic_write, prepare_directory, remove_leftovers
from ._csv import read_csv, read_csv_folder, write_csv_folder
from ._formats import parse_json, read_json, read_text, read_toml, to_json, write_json, write_text
from ._hdf5 import read_hdf5, write_hdf5
from ._limits import inside, open_file
from ._manifest import (
    CHECKPOINTS,
    MANIFEST,
    sha256_of,
    update_manifest,
    verify_manifest,
    verify_run,
    write_manifest,
)
from ._mat import read_mat, write_mat
from ._npz import map_npz, read_npz, write_npz

__all__ = [
    "CHECKPOINTS",
    "MANIFEST",
    "atomic_write",
    "inside",
    "map_npz",
    "open_file",
    "parse_json",
    "prepare_directory",
    "read_csv",
    "read_csv_folder",
    "read_hdf5",
    "read_json",
    "read_mat",
    "read_npz",
    "read_text",
    "read_toml",
    "remove_leftovers",
    "sha256_of",
    "to_json",
    "update_manifest",
    "verify_manifest",
    "verify_run",
    "write_csv_folder",
    "write_hdf5",
    "write_json",
    "write_manifest",
    "write_mat",
    "write_npz",
    "write_text",
]
