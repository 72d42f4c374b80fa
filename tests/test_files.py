"""Files: whole or absent, damage noticed, no code run."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from trunkfirst.errors import (
    CorruptFileError,
    OutputExistsError,
    OutputNotWritableError,
    SettingError,
    TrunkfirstError,
)
from trunkfirst.files import (
    atomic_write,
    prepare_directory,
    read_json,
    read_npz,
    read_toml,
    sha256_of,
    to_json,
    verify_manifest,
    write_json,
    write_manifest,
    write_npz,
    write_text,
)

# -- whole or absent


def write_half(path: Path, error: BaseException) -> None:
    with atomic_write(path) as file:
        file.write(b"half")
        file.flush()
        raise error


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("old", [None, "old"])
def test_a_block_that_raises_leaves_what_was_there(tmp_path: Path, error: BaseException, old: str | None):
    if old:
        write_text(tmp_path / "x", old)
    with pytest.raises(type(error)):
        write_half(tmp_path / "x", error)
    assert [path.read_text() for path in tmp_path.iterdir()] == ([old] if old else [])


def test_the_final_name_appears_only_at_the_end(tmp_path: Path):
    path = tmp_path / "x"
    with atomic_write(path) as file:
        file.write(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["absent/x", "file/x", "folder"])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputNotWritableError, match="cannot write"):
        write_text(tmp_path / place, "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


# -- output folders


def test_prepare_makes_the_folder_and_leaves_it_empty(tmp_path: Path):
    folder = prepare_directory(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
    assert prepare_directory(folder) == folder


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ("full", OutputExistsError, "is not empty"),
        ("file", OutputExistsError, "is a file"),
        ("file/below", OutputNotWritableError, "cannot write to"),
    ],
)
def test_prepare_refuses(tmp_path: Path, place: str, error: type[TrunkfirstError], words: str):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("")
    with pytest.raises(error, match=words):
        prepare_directory(tmp_path / place)
    assert (tmp_path / "full" / "kept").exists()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write everywhere")
def test_prepare_refuses_a_folder_that_is_read_only(tmp_path: Path):
    tmp_path.chmod(0o555)
    with pytest.raises(OutputNotWritableError, match="--out"):
        prepare_directory(tmp_path / "a")


# -- the manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "run" / "model").mkdir(parents=True)
    write_text(tmp_path / "run" / "a.txt", "a")
    write_text(tmp_path / "run" / "model" / "b.txt", "b")
    write_manifest(tmp_path / "run")
    return tmp_path / "run"


def test_manifest_has_the_format_of_sha256sum(folder: Path):
    lines = (folder / "MANIFEST.sha256").read_text().splitlines()
    assert lines == [f"{sha256_of(folder / name)}  {name}" for name in ("a.txt", "model/b.txt")]
    assert lines[0].startswith("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  ")
    verify_manifest(folder)


def test_manifest_of_nothing_is_sound(tmp_path: Path):
    write_manifest(tmp_path)
    verify_manifest(tmp_path)


def damage(folder: Path, how: str) -> None:
    manifest = folder / "MANIFEST.sha256"
    if how == "flip":
        (folder / "model" / "b.txt").write_bytes(bytes([ord("b") ^ 1]))
    elif how == "remove":
        (folder / "model" / "b.txt").unlink()
    elif how == "no manifest":
        manifest.unlink()
    else:
        lines = {"outside": f"{'0' * 64}  ../secret", "absolute": f"{'0' * 64}  /secret", "malformed": "no digest"}
        manifest.write_bytes(b"\xff\xfe" if how == "not text" else lines[how].encode())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("flip", r"b\.txt is damaged"),
        ("remove", r"b\.txt is missing"),
        ("no manifest", "MANIFEST.sha256 cannot be read"),
        ("outside", "not 'SHA-256  name'"),
        ("absolute", "not 'SHA-256  name'"),
        ("malformed", "not 'SHA-256  name'"),
        ("not text", "cannot be read"),
    ],
)
def test_manifest_notices(folder: Path, how: str, words: str):
    (folder.parent / "secret").write_text("")
    damage(folder, how)
    with pytest.raises(CorruptFileError, match=words):
        verify_manifest(folder)


# -- formats


def test_npz_round_trip_keeps_bits_types_and_shapes(tmp_path: Path):
    arrays = {
        "a": np.random.default_rng(0).normal(size=(3, 4)),
        "labels.b": np.arange(3, dtype=np.int32),
        "c": np.float32(1) / np.arange(1, 4, dtype=np.float32),
        "scalar": np.asarray(7),
    }
    write_npz(tmp_path / "x.npz", arrays)
    back = read_npz(tmp_path / "x.npz")
    assert set(back) == set(arrays)
    for name, array in arrays.items():
        assert (back[name].dtype, back[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(back[name], array)


class Bomb:
    """Would leave a file behind if it were unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("kind", ["pickled array", "bare pickle"])
def test_npz_runs_no_code(tmp_path: Path, kind: str):
    path, trace = tmp_path / "x.npz", tmp_path / "trace"
    if kind == "bare pickle":
        path.write_bytes(pickle.dumps(Bomb(trace)))
    else:
        np.savez(path, a=np.array([Bomb(trace)], dtype=object))
    with pytest.raises(CorruptFileError, match=r"x\.npz"):
        read_npz(path)
    assert not trace.exists()


def test_npz_notices_every_kind_of_damage(tmp_path: Path):
    path = tmp_path / "x.npz"
    write_npz(path, {"a": np.ones(20)})
    whole = path.read_bytes()
    # Every seventh byte with one bit changed, some of them in the zip's own records; then cut short.
    damaged = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(0, len(whole), 7)]
    damaged += [whole[:i] for i in range(0, len(whole), 41)]
    for content in damaged:
        path.write_bytes(content)
        try:
            assert np.array_equal(read_npz(path)["a"], np.ones(20))  # a byte that carries nothing, as in a date
        except CorruptFileError as error:
            assert "x.npz" in str(error)  # noqa: PT017 - both outcomes are right


@pytest.mark.parametrize("kind", ["a bare npy", "unknown compression", "encrypted", "missing", "folder"])
def test_npz_refuses(tmp_path: Path, kind: str):
    path = tmp_path / "x.npz"
    if kind == "a bare npy":
        with path.open("wb") as file:
            np.save(file, np.ones(3))
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        write_npz(path, {"a": np.ones(3)})
        change_zip_record(path, offset=8 if kind == "encrypted" else 10, value=1 if kind == "encrypted" else 99)
    with pytest.raises(CorruptFileError, match=r"x\.npz"):
        read_npz(path)


def change_zip_record(path: Path, *, offset: int, value: int) -> None:
    """Change the flags (offset 8) or the method (10) of the only entry in the zip's central directory."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.start_dir
    content[start + offset] = value
    path.write_bytes(content)


def test_json_has_no_nan(tmp_path: Path):
    value = {"a": float("nan"), "b": (np.float32(0.5), np.inf), "c": np.array([1, 2]), 3: {"d": [True, None, "ä"]}}
    expected = {"a": None, "b": [0.5, None], "c": [1, 2], "3": {"d": [True, None, "ä"]}}
    assert json.loads(to_json(value)) == expected
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == expected


@pytest.mark.parametrize("content", [b"{", b"", b"\xff\xfe\x00", b"[" * 100_000])
def test_json_notices_damage(tmp_path: Path, content: bytes):
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"x\.json"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("content", "error"),
    [(b"a = ", SettingError), (b"a = 1\na = 2", SettingError), (b"\xff", CorruptFileError)],
)
def test_toml_errors_name_the_file(tmp_path: Path, content: bytes, error: type[TrunkfirstError]):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(error, match=r"x\.toml"):
        read_toml(tmp_path / "x.toml")
