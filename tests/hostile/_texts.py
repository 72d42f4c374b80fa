"""JSON, TOML, manifests and shards."""

import hashlib
import json
from pathlib import Path

import numpy as np

from trunkfirst.data.sharded_data import ShardFolder
from trunkfirst.files.integrity import MANIFEST, verify_manifest
from trunkfirst.files.text_files import read_json
from trunkfirst.runs.config import load_config

from ._arrays import npz_bytes
from ._cases import canary_of, case


def written(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@case(read_json, "nested")
def json_of_lists_in_lists(folder: Path) -> Path:
    return written(folder, "x.json", b"[" * 10**5 + b"]" * 10**5)


@case(read_json, "nested")
def json_of_objects_in_objects(folder: Path) -> Path:
    return written(folder, "x.json", b'{"a":' * 10**5 + b"1" + b"}" * 10**5)


@case(read_json, "is given twice")
def json_with_a_key_twice(folder: Path) -> Path:
    return written(folder, "x.json", b'{"samples": 1, "samples": 2}')


@case(read_json, "too many for what it should be")
def json_of_a_million_lists(folder: Path) -> Path:
    return written(folder, "x.json", b"[" + b"[]," * (2**21) + b"[]]")


@case(read_json, "as JSON")
def json_number_of_5000_digits(folder: Path) -> Path:
    return written(folder, "x.json", b"9" * 5000)


@case(read_json, "as JSON")
def json_with_half_a_letter(folder: Path) -> Path:
    return written(folder, "x.json", b'["\\ud800"]')


@case(read_json, "as JSON")
def json_in_another_encoding(folder: Path) -> Path:
    return written(folder, "x.json", '{"a": 1}'.encode("utf-16"))


@case(read_json, "as JSON")
def json_cut_short(folder: Path) -> Path:
    return written(folder, "x.json", b'{"a": [1, 2')


@case(load_config, "not valid TOML")
def toml_of_lists_in_lists(folder: Path) -> Path:
    return written(folder, "c.toml", b"a = " + b"[" * 10**5 + b"]" * 10**5)


@case(load_config, "nested")
def toml_of_a_deep_key(folder: Path) -> Path:
    return written(folder, "c.toml", b"a." * 5000 + b"a = 1")


@case(load_config, "too many for what it should be")
def toml_of_a_megabyte(folder: Path) -> Path:
    return written(folder, "c.toml", b"# comment\n" * 10**5)


@case(load_config, "not valid TOML")
def toml_number_of_5000_digits(folder: Path) -> Path:
    return written(folder, "c.toml", b"seed = " + b"9" * 5000)


@case(load_config, "no setting")
def toml_that_names_a_class_to_make(folder: Path) -> Path:
    return written(folder, "c.toml", b'problem = "nonlinear-conductivity"\n[trunk]\n_target_ = "os.system"')


@case(load_config, "seed")
def toml_of_the_wrong_type(folder: Path) -> Path:
    return written(folder, "c.toml", b'problem = "nonlinear-conductivity"\nseed = [[1979-05-27]]')


# -- manifests


def manifest(folder: Path, lines: bytes) -> Path:
    digest = hashlib.sha256(lines).hexdigest()
    written(folder, MANIFEST, f"# {digest}  of the lines below\n".encode() + lines)
    return folder


ZEROS = b"0" * 64


@case(verify_manifest, "lies outside the folder")
def manifest_that_climbs_out(folder: Path) -> Path:
    return manifest(folder, ZEROS + b"  ../canary.csv\n")


@case(verify_manifest, "lies outside the folder")
def manifest_with_an_absolute_path(folder: Path) -> Path:
    return manifest(folder, ZEROS + f"  {canary_of(folder)}\n".encode())


@case(verify_manifest, "lies outside the folder")
def manifest_of_a_link(folder: Path) -> Path:
    (folder / "a.txt").symlink_to(canary_of(folder))
    return manifest(folder, ZEROS + b"  a.txt\n")


@case(verify_manifest, "lies outside the folder")
def manifest_in_a_linked_folder(folder: Path) -> Path:
    (folder / "model").symlink_to(folder.parent)
    return manifest(folder, ZEROS + b"  model/canary.csv\n")


@case(verify_manifest, "lies outside the folder")
def manifest_that_is_a_link(folder: Path) -> Path:
    (folder / MANIFEST).symlink_to(canary_of(folder))
    return folder


@case(verify_manifest, "not 'SHA-256  name'")
def manifest_with_a_null_character(folder: Path) -> Path:
    return manifest(folder, ZEROS + b"  a\0b\n")


@case(verify_manifest, "or twice")
def manifest_with_a_file_twice(folder: Path) -> Path:
    return manifest(folder, (ZEROS + b"  a.txt\n") * 2)


@case(verify_manifest, "first line is not the SHA-256")
def manifest_cut_short(folder: Path) -> Path:
    for name in ("a", "b"):
        written(folder, name, b"")
    empty = hashlib.sha256(b"").hexdigest()
    manifest(folder, f"{empty}  a\n{empty}  b\n".encode())
    path = folder / MANIFEST
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    return folder


@case(verify_manifest, "too many for what it should be")
def manifest_of_endless_length(folder: Path) -> Path:
    return manifest(folder, b"x" * 2**25)


# -- shards


def shards(folder: Path, content: bytes, name: str = "shard-00000.npz") -> Path:
    written(folder, "shard-00000.npz", content)
    index = {"about": {}, "sha256": {name: hashlib.sha256(content).hexdigest()}}
    written(folder, "index.json", json.dumps(index).encode())
    return folder


def read_shards(folder: Path) -> None:
    found = ShardFolder(folder)
    for number, digest in found.read_index().items():
        found.read(number, digest, shapes={"fields": (3, 4)})


GOOD = npz_bytes(fields=np.ones((3, 4)))


@case(read_shards, "does not list the shards")
def index_that_climbs_out(folder: Path) -> Path:
    return shards(folder, GOOD, "shard-../../canary.npz")


@case(read_shards, "is missing")
def shard_that_is_not_there(folder: Path) -> Path:
    (shards(folder, GOOD) / "shard-00000.npz").unlink()
    return folder


@case(read_shards, "lies outside the folder")
def shard_that_is_a_link(folder: Path) -> Path:
    path = shards(folder, canary_of(folder).read_bytes()) / "shard-00000.npz"
    path.unlink()
    path.symlink_to(canary_of(folder))
    return folder


@case(read_shards, "expected (3, 4)")
def shard_of_one_number_for_all(folder: Path) -> Path:
    return shards(folder, npz_bytes(fields=np.ones(())))


@case(read_shards, "expected (3, 4)")
def shard_without_its_array(folder: Path) -> Path:
    return shards(folder, npz_bytes(other=np.ones((3, 4))))
