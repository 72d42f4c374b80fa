"""Files that are complete or absent, verified before they are used, and never run as code."""

from .hdf5 import read_hdf5, write_hdf5
from .integrity import (
    CHECKPOINTS,
    MANIFEST,
    atomic_write,
    inside,
    open_file,
    prepare_directory,
    remove_leftovers,
    sha256_of,
    update_manifest,
    verify_manifest,
    verify_run,
    write_manifest,
)
from .mat import read_mat, write_mat
from .npz import map_npz, read_npz, write_npz
from .text_files import (
    parse_json,
    read_csv,
    read_csv_folder,
    read_json,
    read_text,
    read_toml,
    to_json,
    write_csv_folder,
    write_json,
    write_text,
)

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
