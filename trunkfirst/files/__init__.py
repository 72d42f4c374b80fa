"""Files that are whole or absent, verified before they are believed, and never run as code."""

from ._atomic import atomic_write, prepare_directory
from ._formats import read_json, read_npz, read_toml, to_json, write_json, write_npz, write_text
from ._manifest import sha256_of, verify_manifest, write_manifest

__all__ = [
    "atomic_write",
    "prepare_directory",
    "read_json",
    "read_npz",
    "read_toml",
    "sha256_of",
    "to_json",
    "verify_manifest",
    "write_json",
    "write_manifest",
    "write_npz",
    "write_text",
]
