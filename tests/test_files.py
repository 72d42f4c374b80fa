"""Files: folders for results, damage noticed, no code run."""

import contextlib
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from trunkfirst.errors import (
    CorruptFileError,
    OutputExistsError,
    OutputNotWritableError,
    SettingError,
    TrunkfirstError,
)
from trunkfirst.files import integrity, npz
from trunkfirst.files.integrity import (
    prepare_directory,
    sha256_of,
    update_manifest,
    verify_manifest,
    verify_run,
    write_manifest,
)
from trunkfirst.files.mat import read_mat
from trunkfirst.files.npz import read_npz, write_npz
from trunkfirst.files.text_files import read_json, read_toml, to_json, write_json, write_text

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
    first, *lines = (folder / "MANIFEST.sha256").read_text().splitlines()
    assert lines == [f"{sha256_of(folder / name)}  {name}" for name in ("a.txt", "model/b.txt")]
    assert lines[0].startswith("ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  ")
    assert first.split()[1] == hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    verify_manifest(folder)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum")
def test_sha256sum_agrees(folder: Path):
    command = ["sha256sum", "--check", "--strict", "--quiet", "MANIFEST.sha256"]
    assert subprocess.run(command, cwd=folder, check=False).returncode == 0
    (folder / "a.txt").write_text("b")
    assert subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode == 1


def test_signing_some_files_does_not_vouch_for_the_others(folder: Path):
    write_text(folder / "a.txt", "new")
    write_text(folder / "more.txt", "new")
    (folder / "model" / "b.txt").write_text("damaged")
    update_manifest(folder, "a.txt", "m*.txt")
    verify_manifest(folder, but=("model/*",))
    assert "more.txt" in (folder / "MANIFEST.sha256").read_text()
    update_manifest(folder, "model/*")
    verify_manifest(folder)
    (folder / "more.txt").unlink()
    update_manifest(folder, "more.txt")
    verify_manifest(folder)


def test_what_is_made_from_the_rest_does_not_keep_a_run_from_being_used(folder: Path):
    for name in ("report.html", "diagnosis.json", "figures/x.svg"):
        (folder / name).parent.mkdir(exist_ok=True)
        write_text(folder / name, name)
    write_manifest(folder)
    for name in ("report.html", "diagnosis.json", "figures/x.svg"):
        (folder / name).unlink()
    verify_run(folder)
    with pytest.raises(CorruptFileError, match="is missing"):
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
        lines = manifest.read_bytes().splitlines(keepends=True)
        manifest.write_bytes({"not text": b"\xff\xfe", "cut": b"".join(lines[:-1]), "empty": b""}[how])


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("flip", r"b\.txt is damaged"),
        ("remove", r"b\.txt is missing"),
        ("no manifest", "is not the folder of a run"),
        ("cut", "first line is not the SHA-256 of the others"),
        ("empty", "first line is not the SHA-256 of the others"),
        ("not text", "cannot be read"),
    ],
)
def test_manifest_notices(folder: Path, how: str, words: str):
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


@pytest.mark.parametrize("what", ["grows too much", "too many"])
def test_npz_of_unbelievable_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str):
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(10**6), b=np.zeros(1))
    monkeypatch.setattr(
        *((integrity, "_HARMLESS_BYTES", 2**20) if what == "grows too much" else (npz, "_MOST_ARRAYS", 1))
    )
    with pytest.raises(CorruptFileError, match=r"claims 0\.0 GiB but takes|2 arrays, which is too many"):
        read_npz(tmp_path / "x.npz")


def test_npz_of_two_arrays_with_one_name(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("a", "a.npy"):
            archive.writestr(name, b"")
    with pytest.raises(CorruptFileError, match="two with the same name"):
        read_npz(tmp_path / "x.npz")


# -- MATLAB, against SciPy's writer and reader

MATRICES: dict[str, np.ndarray] = {
    "double": np.random.default_rng(0).normal(size=(3, 4, 2)),
    "single": np.float32(1) / np.arange(1, 6, dtype=np.float32)[:, None],
    "integers": np.arange(-3, 3, dtype=np.int16).reshape(2, 3),
    "whole": np.arange(6.0).reshape(2, 3),
    "yes": np.array([[True, False]]),
    "words": np.array(["ab", "cdé", "x"]),
    "empty": np.zeros((0, 3)),
}


@pytest.mark.filterwarnings("ignore:The default value for `spmatrix`:DeprecationWarning")
@pytest.mark.parametrize("is_compressed", [True, False])
def test_mat_reads_what_scipy_writes(tmp_path: Path, is_compressed: bool):
    struct = {"f": np.ones((2, 3)), "second": np.arange(3.0)[None]}
    cell = np.array([1, "a"], dtype=object)
    others = {"struct": struct, "cell": cell, "sparse": scipy.sparse.eye(2), "z": np.array([[1 + 2j, 3]])}
    scipy.io.savemat(tmp_path / "x.mat", {**MATRICES, **others}, do_compression=is_compressed)
    found = read_mat(tmp_path / "x.mat")
    expected = scipy.io.loadmat(tmp_path / "x.mat")
    for name in ("double", "single", "integers", "whole", "yes", "empty", "z"):
        assert found[name].shape == expected[name].shape
        assert np.array_equal(found[name], expected[name]), name
    assert (found["double"].dtype, found["single"].dtype) == (np.float64, np.float32)
    assert found["words"].tolist() == MATRICES["words"].tolist()
    assert found["struct.second"].tolist() == [[0, 1, 2]]
    assert found["cell"].dtype == found["sparse"].dtype == object


@pytest.mark.parametrize("is_compressed", [True, False])
def test_mat_survives_damage(tmp_path: Path, is_compressed: bool):
    """SciPy's reader crashes the process on some of these."""
    scipy.io.savemat(tmp_path / "x.mat", {**MATRICES, "s": {"f": np.ones(2)}}, do_compression=is_compressed)
    whole = (tmp_path / "x.mat").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(400):
        content = bytearray(whole)
        for place in rng.integers(len(whole), size=rng.integers(1, 9)):
            content[place] = rng.integers(256)
        (tmp_path / "y.mat").write_bytes(content[: rng.integers(len(whole)) if rng.random() < 0.2 else None])
        with contextlib.suppress(CorruptFileError):  # a byte may carry nothing, or a value
            read_mat(tmp_path / "y.mat")


@pytest.mark.parametrize(("missing", "words"), [(0, "incorrect data check"), (4, "is cut short")])
def test_mat_notices_a_wrong_or_missing_checksum(tmp_path: Path, missing: int, words: str):
    scipy.io.savemat(tmp_path / "x.mat", {"a": np.arange(1000.0)}, do_compression=True)
    content = bytearray((tmp_path / "x.mat").read_bytes())
    content[-1] ^= 1
    content = content[: len(content) - missing]
    content[132:136] = (len(content) - 136).to_bytes(4, "little")  # how long the element says it is
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(CorruptFileError, match=words):
        read_mat(tmp_path / "x.mat")


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


def test_a_run_that_was_broken_off_says_how_to_go_on(tmp_path: Path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CorruptFileError, match=f"is not finished; continue with: trunkfirst resume {tmp_path}"):
        verify_run(tmp_path)
