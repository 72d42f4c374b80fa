"""Two real processes: the same numbers as one, a place for each, and an end when one of them is lost."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import mesh_numbers
import numpy as np
import pytest
from own_problems import OPTIONS, Call, antiderivative
from test_mesh import ENVIRONMENT, TESTS, alone, assert_close, assert_same_numbers

from trunkfirst.data import write_data, write_shards
from trunkfirst.devices import Membership, agree, find_membership, first_alone, is_first, share
from trunkfirst.devices._processes import first_host
from trunkfirst.errors import CorruptFileError, LostProcessError, UsageError
from trunkfirst.files import read_json, sha256_of, verify_manifest
from trunkfirst.runs import Launch, _launch

__all__ = ["alone"]  # a fixture
OURS = {"TRUNKFIRST_PROCESSES": "4", "TRUNKFIRST_PROCESS": "3", "TRUNKFIRST_COORDINATOR": "a:1"}
SLURM = {
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_JOB_ID": "4097",
}
COMPILED_ONCE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
MODEL = "model/model.safetensors"


def start_two(script: str, *arguments: str, **more: str) -> list[subprocess.Popen[str]]:
    """A script in two processes that know of each other."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{listener.getsockname()[1]}"
    told = {**ENVIRONMENT, "TRUNKFIRST_PROCESSES": "2", "TRUNKFIRST_COORDINATOR": coordinator, **more}
    return [
        subprocess.Popen(
            [sys.executable, *script.split(" ", 1), *arguments],
            env={**told, "TRUNKFIRST_PROCESS": place},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for place in "01"
    ]


def test_two_processes_give_the_numbers_of_one(alone: dict[str, Any], tmp_path: Path):
    both = start_two(str(TESTS / "mesh_numbers.py"), str(tmp_path / "found.npz"))
    for process in both:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out == ""
    found = np.load(tmp_path / "found.npz")
    assert_same_numbers(found, alone)
    with jax.enable_x64(True):
        expected = mesh_numbers.shard_numbers()
    assert_close(found, expected, mesh_numbers.FROM_SHARDS)
    assert found["repeated"]
    assert found["alike"]
    own = np.arange(mesh_numbers.SHARDS) % 2 == np.arange(2)[:, None]  # of the first, and of the second
    np.testing.assert_array_equal(found["reads"] > 0, own)
    assert found["reads"].sum() == expected["reads"].sum()


STUCK = """
import time
from trunkfirst.devices import agree, is_first, join_processes, share
join_processes()
assert agree([1.5, "told"] if is_first() else None) == [1.5, "told"]
assert share(b"x" * 1000 if is_first() else b"") == b"x" * 1000
agree(None) if is_first() else time.sleep(100)
"""


def test_a_process_that_waits_too_long_gives_up():
    first, second = start_two(f"-c {STUCK}", TRUNKFIRST_PATIENCE="2")
    try:
        _, err = first.communicate(timeout=100)
        assert first.returncode == LostProcessError.exit_code
        assert "process 0: waited more than 2 s for the others" in err
    finally:
        second.kill()
        second.communicate()


# -- what the environment says


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TRUNKFIRST_PROCESSES": "1"}, None),
        (OURS, Membership(4, 3, "a:1")),
        ({**OURS, "TRUNKFIRST_LOCAL": "1"}, Membership(4, 3, "a:1", 1)),
        (SLURM, Membership(8, 5, "gpu07:61441", 1)),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "8"}, Membership(8, 5, "gpu07:61441")),
        ({**SLURM, **OURS}, Membership(4, 3, "a:1")),
        ({**SLURM, "TRUNKFIRST_PROCESSES": "1"}, None),
        ({key: value for key, value in SLURM.items() if "STEP" not in key}, None),  # a batch script by itself
    ],
)
def test_the_place_of_a_process(environment: dict[str, str], expected: Membership | None):
    assert find_membership(environment) == expected


@pytest.mark.parametrize(
    "wrong", [{"TRUNKFIRST_PROCESS": "4"}, {"TRUNKFIRST_PROCESS": "x"}, {"TRUNKFIRST_COORDINATOR": ""}]
)
def test_a_place_that_cannot_be_is_an_error(wrong: dict[str, str]):
    with pytest.raises(UsageError, match="TRUNKFIRST_PROCESS"):
        find_membership({**OURS, **wrong})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("login", "login"), ("a,b[1-2]", "a"), ("gpu[07-09,12],login", "gpu07"), ("n[3,5]-ib", "n3-ib")],
)
def test_first_host_of_a_list(nodes: str, first: str):
    assert first_host(nodes) == first


def test_alone_one_agrees_with_oneself():
    assert is_first()
    assert agree((1, 2)) == (1, 2)
    assert share(b"mine") == b"mine"
    assert first_alone(lambda: 3) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arguments": ("serve", "x")}, "launch starts one of run, fit, compare, resume; got: serve x"),
        ({"node": 2, "nodes": 2, "coordinator": "a:1"}, "from 0 to 1"),
        ({"nodes": 2}, "--coordinator"),
    ],
)
def test_what_cannot_be_launched(wrong: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        Launch(**{"arguments": ("fit",), "processes": 2, **wrong})


# -- the launcher


class Watched:
    """The launcher in this process, its children at hand, and something that happens to them at a checkpoint."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.folder, self.children = folder, list[subprocess.Popen[bytes]]()
        start = subprocess.Popen

        def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            self.children.append(start(*arguments, **options))
            return self.children[-1]

        monkeypatch.setattr(_launch.subprocess, "Popen", started)

    def at_checkpoint(self, happen: Callable[[], None]) -> None:
        """Once there is a new checkpoint of a step under way."""
        before = self._checkpoints()

        def watch() -> None:
            deadline = time.monotonic() + 200
            while self._checkpoints() <= before and time.monotonic() < deadline:
                time.sleep(0.01)
            happen()

        threading.Thread(target=watch, daemon=True).start()

    def _checkpoints(self) -> set[int]:
        with contextlib.suppress(FileNotFoundError):  # renamed while one looks
            return {path.stat().st_mtime_ns for path in self.folder.glob("checkpoints/*.under-way")}
        return set()


def fit_arguments(data: Path, out: Path) -> list[str]:
    return ["fit", "--data", str(data), "--out", str(out), *OPTIONS, "--set=checkpoint_seconds=0.001", "--json"]


@pytest.fixture(scope="module", params=["in memory", "streamed"])
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    if request.param == "streamed":  # more than 20,000 samples are
        return write_shards((antiderivative(3000, seed=seed) for seed in range(7)), folder / "shards").folder.path
    write_data(antiderivative(40), folder / "data.npz")
    return folder / "data.npz"


def test_an_error_of_ours_ends_all_with_its_code(call: Call, tmp_path: Path):
    code, out, _ = call("launch", "--processes", "2", *fit_arguments(tmp_path / "none.npz", tmp_path / "run"))
    assert code == CorruptFileError.exit_code
    assert out == ""


def test_a_lost_process_and_the_end_of_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_launch, "_START", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    said: list[str] = []
    with pytest.raises(LostProcessError, match="ended by signal 9, and all 2 restarts are used up"):
        _launch.launch(Launch(("fit",), 2, restarts=2), say=said.append)
    assert len(said) == 2


FAKE = """
import os, signal, sys
from pathlib import Path
os.environ["TRUNKFIRST_PROCESS"] == "0" and Path(os.environ["TRUNKFIRST_NOTE"]).write_text("/a/run")
log = Path({log!r})
with log.open("a") as file:
    print(" ".join(sys.argv[1:]), file=file)
os.environ["TRUNKFIRST_PROCESS"] == "1" and "fit" in sys.argv and os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lost_process_makes_all_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_launch, "_START", FAKE.format(log=str(tmp_path / "log")))
    monkeypatch.setattr(_launch, "_LOOK_SECONDS", 0.5)  # time for the first to note its folder
    said: list[str] = []
    assert _launch.launch(Launch(("fit", "--json", "--seed=1"), 2), say=said.append) == 0
    assert said == [
        "process 1 of 2 was ended by signal 9; all start again from the last checkpoint (restart 1 of at most 3)"
    ]
    assert (tmp_path / "log").read_text().splitlines()[-2:] == ["resume /a/run --json"] * 2


@pytest.mark.slow
def test_killed_or_ended_and_started_again_to_the_same_bits(
    call: Call, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {**ENVIRONMENT, **COMPILED_ONCE, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "c")}.items():
        monkeypatch.setenv(name, value)
    launch = ["launch", "--processes", "2"]
    assert call(*launch, *fit_arguments(data, tmp_path / "whole"))[0] == 0
    broken = Watched(tmp_path / "broken", monkeypatch)
    broken.at_checkpoint(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert call(*launch, *fit_arguments(data, broken.folder))[0] == 143
    assert not any(child.poll() is None for child in broken.children)
    broken.children.clear()
    broken.at_checkpoint(lambda: broken.children[1].kill())
    code, _, err = call(*launch, "resume", str(broken.folder), "--quiet")
    assert code == 0, err
    assert len(broken.children) == 4  # two were lost
    verify_manifest(broken.folder)
    assert ("stream" in read_json(broken.folder / "metrics.json")) == data.is_dir()
    assert sha256_of(broken.folder / MODEL) == sha256_of(tmp_path / "whole" / MODEL)
