"""Samples in shards: the same as in one file, and damage is noticed before a number is used."""

import dataclasses as dc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import waves
from own_problems import Call

from trunkfirst.data import sharded_data as shards_module
from trunkfirst.data.data_check import check_data
from trunkfirst.data.named_arrays import arrays_from_data
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.read_write import read_data, shard_data, write_data
from trunkfirst.data.sharded_data import ShardedData, ShardFolder, write_shards
from trunkfirst.errors import (
    CorruptFileError,
    DataError,
    MemoryNeedError,
    OutputExistsError,
    OutputNotWritableError,
    UsageError,
)
from trunkfirst.files.npz import map_npz, read_npz, write_npz

PLAIN = waves(23)


def rich() -> OperatorData:
    """Everything that a sample can have."""
    rng = np.random.default_rng(0)
    functions = {
        "f": InputFunction(rng.normal(size=(23, 6)), sensors=rng.normal(size=(6, 2)), grid_shape=(2, 3)),
        "g": InputFunction(rng.normal(size=(23, 1)), sensor_weights=np.ones(1)),
    }
    outputs = rng.normal(size=(23, 30, 2))
    return OperatorData(
        functions,
        PLAIN.points,
        outputs,
        point_weights=rng.uniform(1, 2, 30),
        sample_weights=rng.uniform(1, 2, 23),
        reference_outputs=outputs + 1,
        triangles=np.array([[0, 1, 2]]),
        labels={"beta": rng.normal(size=23)},
        channel_names=("p", "q"),
        units={"p": "Pa"},
    )


DATA = {"plain": PLAIN, "rich": rich()}


def in_blocks(data: OperatorData, size: int = 5) -> Iterator[OperatorData]:
    return (data.take(slice(begin, begin + size)) for begin in range(0, data.samples, size))


def assert_same(found: OperatorData, expected: OperatorData) -> None:
    first, second = arrays_from_data(found), arrays_from_data(expected)
    assert first.keys() == second.keys()
    for name, array in first.items():
        # weights of points are scaled to the sum 1 again
        close = np.allclose(array, second[name], rtol=1e-15, atol=0) if array.dtype.kind == "f" else None
        assert close if close is not None else np.array_equal(array, second[name]), name


def joined(blocks: Iterator[OperatorData]) -> OperatorData:
    first, *others = blocks
    for block in others:
        own = {name: getattr(first, name) for name in ("outputs", "sample_weights", "reference_outputs")}
        first = dc.replace(
            first,
            inputs={
                name: dc.replace(f, values=np.concatenate([f.values, block.inputs[name].values]))
                for name, f in first.inputs.items()
            },
            labels={name: np.append(label, block.labels[name]) for name, label in first.labels.items()},
            **{n: None if a is None else np.concatenate([a, getattr(block, n)]) for n, a in own.items()},
        )
    return first


@pytest.fixture
def shards(tmp_path: Path) -> ShardedData:
    return write_shards(in_blocks(PLAIN), tmp_path / "shards")


@pytest.mark.parametrize("name", DATA)
def test_blocks_are_the_samples(name: str, tmp_path: Path):
    data = DATA[name]
    write_shards(in_blocks(data), tmp_path / "a")
    found = read_data(tmp_path / "a")
    assert isinstance(found, ShardedData)
    assert (found.samples, len(found.counts)) == (23, 5)
    assert found.numbers == (data.flat_inputs.size + data.outputs.size) // 23
    assert np.array_equal(found.points, data.points)
    assert_same(joined(found.blocks()), data)


@pytest.mark.parametrize("name", DATA)
def test_samples_are_taken_in_any_order(name: str, tmp_path: Path):
    found = write_shards(in_blocks(DATA[name]), tmp_path / "a")
    indices = np.array([22, 3, 3, 0, 11])
    assert_same(found.take(indices), DATA[name].take(indices))


def test_samples_that_are_left_out(shards: ShardedData):
    out = np.array([0, 7, 5, 6, 8, 9, 22])  # the second shard among them
    kept = np.setdiff1d(np.arange(23), out)
    rest = shards.without(out)
    assert rest.samples == 16
    assert_same(joined(rest.blocks()), PLAIN.take(kept))
    assert_same(rest.take(np.arange(16)[::-1]), PLAIN.take(kept[::-1]))
    assert_same(joined(rest.without(np.array([0, 15])).blocks()), PLAIN.take(kept[1:-1]))
    assert rest.digest != shards.digest
    with pytest.raises(DataError, match="16 samples"):
        rest.take(np.array([16]))


def test_samples_beyond_the_memory_are_refused(shards: ShardedData, monkeypatch: pytest.MonkeyPatch):
    """Otherwise the system would end the process."""
    need = shards.numbers * 8
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 4 * need}.__getitem__)
    assert shards.take(slice(0, 4)).samples == 4
    with pytest.raises(MemoryNeedError, match=r"5 samples take .* GiB, more than .*; take fewer, or use blocks"):
        shards.take(slice(0, 5))
    with pytest.raises(MemoryNeedError, match="23 samples"):
        _ = shards.outputs


def test_parts_cover_all_shards_once(shards: ShardedData):
    parts = [list(shards.blocks(part, 2)) for part in range(2)]
    assert [len(part) for part in parts] == [3, 2]
    order = [block for pair in zip(*parts, strict=False) for block in pair] + parts[0][2:]
    assert_same(joined(iter(order)), PLAIN)


def test_random_samples_depend_on_the_seed_alone(shards: ShardedData):
    assert np.array_equal(shards.some(7).outputs, shards.some(7).outputs)
    assert not np.array_equal(shards.some(7).outputs, shards.some(7, seed=1).outputs)
    assert_same(shards.some(100), PLAIN)


# -- damage


def read_all(path: Path) -> list[OperatorData]:
    opened = read_data(path)
    assert isinstance(opened, ShardedData)
    return list(opened.blocks())


def spoil(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(content if damage == "flip" else content[: len(content) // 2])


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
@pytest.mark.parametrize("how", ["blocks", "take"])
def test_a_damaged_shard_is_named(damage: str, how: str, shards: ShardedData):
    spoil(shards.folder.shard_path(3), damage)
    with pytest.raises(CorruptFileError, match=r"shard-00003.npz"):
        list(shards.blocks()) if how == "blocks" else shards.take(np.array([0, 16]))
    assert shards.take(np.array([0, 1])).samples == 2  # the others serve


@pytest.mark.parametrize("name", ["shared.npz", "index.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_beside_the_shards_is_noticed(name: str, damage: str, shards: ShardedData):
    spoil(shards.folder.path / name, damage)
    with pytest.raises(CorruptFileError):
        read_all(shards.folder.path)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "other"},
        {"samples": [5, 5, 5, 5]},
        {"samples": [5, 5, 5, 5, -3]},
        {"samples": [5, 5, 5, 4, 4]},
        {"samples": "many"},
        {"shared": 1},
    ],
)
def test_an_index_that_says_something_else(change: dict[str, Any], shards: ShardedData):
    path = shards.folder.path / "index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps({**index, "about": {**index["about"], **change}}))
    with pytest.raises(CorruptFileError):
        read_all(shards.folder.path)


def test_a_shard_is_verified_once(shards: ShardedData, monkeypatch: pytest.MonkeyPatch):
    looked_at: list[str] = []
    real = shards_module.sha256_of

    def counted(path: Path) -> str:
        looked_at.append(path.name)
        return real(path)

    monkeypatch.setattr(shards_module, "sha256_of", counted)
    for _ in range(2):
        list(shards.blocks())
    assert len(looked_at) == len(set(looked_at)) == 5
    spoil(shards.folder.shard_path(0), "flip")  # written again, it is looked at again
    with pytest.raises(CorruptFileError):
        list(shards.blocks())


def test_writing_that_was_broken_off_is_no_data(tmp_path: Path):
    def broken() -> Iterator[OperatorData]:
        yield from list(in_blocks(PLAIN))[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shards(broken(), tmp_path / "a")
    with pytest.raises(CorruptFileError):
        read_data(tmp_path / "a")
    assert_same(joined(write_shards(in_blocks(PLAIN), tmp_path / "a").blocks()), PLAIN)
    with pytest.raises(OutputExistsError):
        write_shards(in_blocks(PLAIN), tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": PLAIN.points + 1}, "points: block 1"),
        ({"sample_weights": np.ones(23)}, "sample_weights: given in only one"),
        ({"inputs": np.ones((23, 3))}, "inputs: a sample has shape"),
        ({"outputs": PLAIN.outputs.astype(np.float32)}, "outputs: a sample .* type float32"),
    ],
)
def test_blocks_must_agree(change: dict[str, Any], message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        write_shards([PLAIN, dc.replace(PLAIN, **change)], tmp_path / "a")
    with pytest.raises(DataError, match="no samples"):
        write_shards([], tmp_path / "b")


# -- folders of shards of any arrays


def test_folder_round_trip(tmp_path: Path):
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


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_of_a_folder_is_noticed(tmp_path: Path, damage: str):
    folder = ShardFolder(tmp_path)
    digest = folder.write(0, {"a": np.ones(100)})
    spoil(folder.shard_path(0), damage)
    with pytest.raises(CorruptFileError, match="shard-00000"):
        folder.read(0, digest)


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
    with pytest.raises(OutputNotWritableError, match="cannot make"):
        ShardFolder(tmp_path / "file" / "data").write(0, {"a": np.ones(1)})


# -- one file and shards


def test_mapped_arrays_are_the_arrays(tmp_path: Path):
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.normal(size=(90, 200)),
        "b": np.asfortranarray(rng.normal(size=(200, 90))),
        "c": np.array("x"),
    }
    write_npz(tmp_path / "a.npz", arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    for name in ("a", "b"):
        mapped = map_npz(tmp_path / f"{name}.npz")
        assert isinstance(mapped["a"], np.memmap) == (name == "a")
        assert all(np.array_equal(mapped[key], array) for key, array in read_npz(tmp_path / "a.npz").items())
    spoil(tmp_path / "a.npz", "flip")
    with pytest.raises(CorruptFileError, match=r"a\.npz"):
        map_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_a_file_in_shards(suffix: str, tmp_path: Path):
    write_data(PLAIN, tmp_path / f"a{suffix}")
    found = shard_data(tmp_path / f"a{suffix}", tmp_path / "a", samples_per_shard=4)
    assert found.counts.tolist() == [4, 4, 4, 4, 4, 3]
    assert_same(joined(found.blocks()), PLAIN)


def test_what_is_wrong_in_a_file_is_named(tmp_path: Path):
    outputs = PLAIN.outputs.copy()
    outputs[17, 2] = np.nan
    write_npz(tmp_path / "a.npz", {"inputs": PLAIN.flat_inputs, "points": PLAIN.points, "outputs": outputs})
    with pytest.raises(DataError, match=r"a\.npz: samples from 15 on: outputs: .* samples 2, points 2"):
        shard_data(tmp_path / "a.npz", tmp_path / "b", samples_per_shard=5)
    arrays = {"inputs": PLAIN.flat_inputs[:9], "points": PLAIN.points, "outputs": PLAIN.outputs}
    write_npz(tmp_path / "c.npz", arrays)
    with pytest.raises(DataError, match="samples' has 9"):
        shard_data(tmp_path / "c.npz", tmp_path / "d")


def test_commands(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    write_data(rich(), "a.npz")
    code, out, _ = call("data", "convert", "a.npz", "--out", "a", "--samples-per-shard", "10", "--json")
    assert (code, json.loads(out)) == (0, {"file": "a", "samples": 23, "points": 30, "shards": 3})
    code, out, _ = call("data", "check", "a")
    assert code == 0
    assert "23 samples in 3 shards" in out
    assert "looked at all samples" in out
    code, out, _ = call("data", "info", "a", "--json")
    assert (code, json.loads(out)["output_range"]) == (0, [rich().outputs.min(), rich().outputs.max()])
    assert call("data", "convert", "a", "b.npz", "--quiet")[0] == 0
    back = read_data("b.npz")
    assert isinstance(back, OperatorData)
    assert_same(back, rich())
    for wrong in (("a.npz",), ("a.npz", "c.npz", "--out", "c"), ("a.npz", "c.npz", "--samples-per-shard", "3")):
        assert call("data", "convert", *wrong)[0] == UsageError.exit_code
    with monkeypatch.context() as patch:
        patch.setattr(os, "sysconf", lambda name: 1)
        assert call("data", "convert", "a", "c.npz")[0] == MemoryNeedError.exit_code
    spoil(tmp_path / "a" / "shard-00001.npz", "flip")
    code, _, err = call("data", "check", "a")
    assert (code, "shard-00001" in err) == (CorruptFileError.exit_code, True)


def test_checks_look_at_all_ranges(tmp_path: Path):
    outputs = PLAIN.outputs.copy()
    outputs[-1] *= 100
    data = dc.replace(PLAIN, outputs=outputs)
    found = check_data(write_shards(in_blocks(data), tmp_path / "a"))
    assert found.numbers["output_range"] == [outputs.min(), outputs.max()]
    assert found.numbers["looked_at"] == 23
    assert found.numbers["rank"] == check_data(data).numbers["rank"]


MEMORY = """
import resource, sys
import numpy as np
from trunkfirst.data.read_write import read_data, shard_data
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[1] == "convert":
    shard_data(sys.argv[2], sys.argv[3])
else:
    data = read_data(sys.argv[3])
    for block in data.blocks():
        pass
    data.take(np.arange(0, data.samples, 100))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_bounded(tmp_path: Path):
    """400 MB in shards of 8 MB are passed over, and taken from, in less than 90 MB."""
    rng = np.random.default_rng(0)
    block = OperatorData(rng.normal(size=(1000, 1)), rng.normal(size=(1000, 2)), rng.normal(size=(1000, 1000)))
    write_shards((block for _ in range(50)), tmp_path / "a")
    used = subprocess.run(
        [sys.executable, "-c", MEMORY, "read", "-", tmp_path / "a"], capture_output=True, text=True, check=True
    )
    assert int(used.stdout) * 1024 < 90e6
