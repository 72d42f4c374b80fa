"""Shards: what is written is read, what is damaged is noticed."""

import os
from pathlib import Path

import numpy as np
import pytest

from trunkfirst.data import ShardFolder
from trunkfirst.errors import CorruptFileError, OutputNotWritableError


def test_round_trip(tmp_path: Path):
    folder = ShardFolder(tmp_path / "new" / "data")
    digests = {n: folder.write(n, {"a": np.full(3, float(n)), "b": np.arange(n)}) for n in (2, 0)}
    folder.write_index(digests, about={"problem": "x"})
    assert folder.read_index() == digests
    arrays = folder.read(2, digests[2])
    assert np.array_equal(arrays["a"], np.full(3, 2.0))
    assert np.array_equal(arrays["b"], np.arange(2))


def test_same_arrays_give_the_same_bytes(tmp_path: Path):
    arrays = {"a": np.linspace(0, 1, 7)}
    assert ShardFolder(tmp_path / "1").write(0, arrays) == ShardFolder(tmp_path / "2").write(0, arrays)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "empty"])
def test_damage_is_noticed(tmp_path: Path, damage: str):
    folder = ShardFolder(tmp_path)
    digest = folder.write(0, {"a": np.ones(100)})
    spoil(folder.shard_path(0), damage)
    with pytest.raises(CorruptFileError, match="shard-00000"):
        folder.read(0, digest)


def spoil(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes({"flip": content, "truncate": content[:-20], "empty": b""}[damage])


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"sha256": []}', '{"sha256": {"other.npz": "0"}}', '{"sha256": null}']
)
def test_damaged_index_is_noticed(tmp_path: Path, text: str):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(CorruptFileError, match=r"index\.json"):
        ShardFolder(tmp_path).read_index()


def test_no_index_means_no_shards(tmp_path: Path):
    assert ShardFolder(tmp_path / "absent").read_index() == {}


@pytest.mark.parametrize("arrays", [{}, {"a": np.ones(3)}, {"a": np.ones(())}, {"b": np.ones((2, 3))}])
def test_a_shard_of_other_shapes_is_never_spread_over_all_samples(tmp_path: Path, arrays: dict[str, np.ndarray]):
    folder = ShardFolder(tmp_path)
    digest = folder.write(0, arrays)
    with pytest.raises(CorruptFileError, match=r"a has shape .*expected \(2, 3\)"):
        folder.read(0, digest, shapes={"a": (2, 3)})


def test_what_a_killed_maker_left_is_removed(tmp_path: Path):
    left = tmp_path / ".shard-00003.npz.tmp-x"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    ShardFolder(tmp_path).write(0, {"a": np.ones(1)})
    assert not left.exists()


def test_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputNotWritableError, match="data folder"):
        ShardFolder(tmp_path / "file" / "data").write(0, {"a": np.ones(1)})
