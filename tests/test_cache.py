"""The cache folder, and the compiled programs in it."""

import json
import os
from collections.abc import Generator
from pathlib import Path

import jax
import numpy as np
import pytest
from own_problems import Call

from trunkfirst import cache
from trunkfirst.cache import cache_folder, cached_programs, program_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, in which compiled programs are kept."""
    monkeypatch.setenv("TRUNKFIRST_CACHE", str(tmp_path))
    monkeypatch.delenv("TRUNKFIRST_PROGRAM_CACHE")
    return tmp_path


@pytest.fixture
def own_cache(tmp_path: Path) -> Generator[str]:
    """A cache that the user has configured."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    yield str(tmp_path / "own")
    jax.config.update("jax_compilation_cache_dir", None)


def programs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def hits_of_a_run() -> list[str]:
    """Programs read from the cache while one is needed that no other test compiles."""
    hits, listening = list[str](), True

    def listen(event: str, **_: object) -> None:
        if listening and event == "/jax/compilation_cache/cache_hits":
            hits.append(event)

    jax.monitoring.register_event_listener(listen)
    with cached_programs():
        value = jax.jit(lambda x: 3 * x + 17)(np.arange(5, dtype=np.float32))
    listening = False
    assert np.array_equal(value, 3 * np.arange(5) + 17)
    return hits


@pytest.mark.parametrize(
    ("argument", "variables", "expected"),
    [
        ("there", {"TRUNKFIRST_CACHE": "/a"}, "there"),
        (None, {"TRUNKFIRST_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        (None, {"XDG_CACHE_HOME": "/b"}, "/b/trunkfirst"),
        (None, {"HOME": "/c"}, "/c/.cache/trunkfirst"),
    ],
)
def test_cache_folder(argument, variables, expected, monkeypatch: pytest.MonkeyPatch):
    for name in ("TRUNKFIRST_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder(argument) == Path(expected)


def test_programs_are_read_the_second_time(folder: Path):
    assert not hits_of_a_run()
    (stored,) = programs(folder)
    assert stored.parent == program_folder()
    assert len(hits_of_a_run()) == 1
    assert programs(folder) == [stored]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda b: b[: len(b) // 2], lambda b: b[:40] + b"x" + b[41:]])
def test_a_damaged_program_is_compiled_again(damage, folder: Path):
    """Without a warning, which would be an error here."""
    hits_of_a_run()
    (stored,) = programs(folder)
    stored.write_bytes(damage(stored.read_bytes()))
    assert not hits_of_a_run()


def test_options_of_jax_are_restored(folder: Path):
    before = jax.config.jax_persistent_cache_min_compile_time_secs  # pyright: ignore[reportAttributeAccessIssue]
    with cached_programs():
        assert jax.config.jax_compilation_cache_dir == str(program_folder_of(folder))  # pyright: ignore[reportAttributeAccessIssue]
    assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore[reportAttributeAccessIssue]
    assert jax.config.jax_persistent_cache_min_compile_time_secs == before  # pyright: ignore[reportAttributeAccessIssue]
    jax.jit(lambda x: 3 * x + 19)(np.arange(5, dtype=np.float32))
    assert not programs(folder)


def program_folder_of(folder: Path) -> Path:
    return next((folder / "programs").iterdir())


@pytest.mark.parametrize("name", ["flags", "XLA_FLAGS", "NPROC", "jaxlib"])
def test_other_machines_use_other_folders(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    before = program_folder()
    if name == "flags":
        monkeypatch.setattr(cache, "_CPU_INFO", folder / "cpuinfo")
        (folder / "cpuinfo").write_text("model name : A\nflags : sse avx\n")
    elif name == "jaxlib":
        monkeypatch.setattr("jaxlib.version.__version__", "0.0.1")
    else:
        monkeypatch.setenv(name, "7")
    assert program_folder() not in (before, None)


def test_a_cache_of_the_user_is_kept(folder: Path, own_cache: str):
    assert program_folder() is None
    with cached_programs():
        assert jax.config.jax_compilation_cache_dir == own_cache  # pyright: ignore[reportAttributeAccessIssue]
    assert not programs(folder)


def test_switched_off(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRUNKFIRST_PROGRAM_CACHE", "off")
    hits_of_a_run()
    assert not list(folder.iterdir())


def test_programs_that_others_could_replace_are_not_run(folder: Path):
    hits_of_a_run()
    program_folder_of(folder).chmod(0o777)
    assert not hits_of_a_run()


def test_oldest_programs_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    hits_of_a_run()
    (stored,) = programs(folder)
    old = stored.parents[1] / "older-version" / "program"
    old.parent.mkdir()
    old.write_bytes(bytes(10))
    os.utime(old, (0, 0))
    monkeypatch.setattr(cache, "_MAX_BYTES", stored.stat().st_size)
    assert len(hits_of_a_run()) == 1
    assert programs(folder) == [stored]


def test_doctor_shows_and_clears_them(folder: Path, call: Call):
    hits_of_a_run()
    _, out, _ = call("doctor", "--json")
    assert (json.loads(out)["programs"], json.loads(out)["program_cache"]) == (1, str(program_folder()))
    code, out, _ = call("doctor", "--clear-cache")
    assert code == 0
    assert out.startswith("1 compiled programs were deleted")
    assert not programs(folder)
