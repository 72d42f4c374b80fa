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

from trunkfirst.data.read_write import write_data
from trunkfirst.data.sharded_data import write_shards
from trunkfirst.distributed.launch import Launch, launch
from trunkfirst.distributed.processes import (
    broadcast_value,
    find_processes,
    is_leader,
    leader_first,
)
from trunkfirst.errors import CorruptFileError, LostProcessError, UsageError
from trunkfirst.files.integrity import sha256_of, verify_manifest
from trunkfirst.files.text_files import read_json

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
OPEN_MPI = {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://10.0.0.1:1", "OMPI_COMM_WORLD_SIZE": "2"}
COMPILED_ONCE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
MODEL = "model/model.safetensors"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start_two(command: list[str], **more: str) -> list[subprocess.Popen[str]]:
    """A Python program in two processes that know of each other."""
    coordinator = f"127.0.0.1:{free_port()}"
    ours = {**ENVIRONMENT, "TRUNKFIRST_PROCESSES": "2", "TRUNKFIRST_COORDINATOR": coordinator, **more}
    return [start([sys.executable, *command], {**ours, "TRUNKFIRST_PROCESS": place}) for place in "01"]


def test_two_processes_give_the_numbers_of_one(alone: dict[str, Any], tmp_path: Path):
    both = start_two([str(TESTS / "mesh_numbers.py"), str(tmp_path / "found.npz")])
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


EXCHANGE = """
import time

from trunkfirst.distributed.processes import *

join_processes()
assert is_distributed()
assert broadcast_value([1.5, "text"] if is_leader() else None) == [1.5, "text"]
assert broadcast_value({"long": "x" * 1000} if is_leader() else "") == {"long": "x" * 1000}
"""
STUCK = EXCHANGE + "broadcast_value(None) if is_leader() else time.sleep(100)"


def test_a_process_that_waits_too_long_gives_up():
    first, second = start_two(["-c", STUCK], TRUNKFIRST_PATIENCE="2")
    try:
        _, err = first.communicate(timeout=100)
        assert first.returncode == LostProcessError.exit_code
        assert "process 0: waited more than 2 s for the others" in err
    finally:
        second.kill()
        second.communicate()


# -- what the environment says


OURS_FOUND = {
    "coordinator_address": "a:1",
    "num_processes": 4,
    "process_id": 3,
    "cluster_detection_method": "deactivate",
}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TRUNKFIRST_PROCESSES": "1"}, None),
        (OURS, OURS_FOUND),
        ({**OURS, "TRUNKFIRST_LOCAL": "1"}, {**OURS_FOUND, "local_device_ids": 1}),
        ({"TRUNKFIRST_PROCESSES": "auto"}, {}),
        (SLURM, {}),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "8"}, {"local_device_ids": []}),  # one a host has all its GPUs
        ({**SLURM, "SLURM_NTASKS": "1"}, None),
        ({**SLURM, **OURS}, OURS_FOUND),
        ({**SLURM, "TRUNKFIRST_PROCESSES": "1"}, None),
        ({key: value for key, value in SLURM.items() if "STEP" not in key}, None),  # a batch script by itself
        (OPEN_MPI, {}),
        ({**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "1"}, None),
    ],
)
def test_processes_found_in_the_environment(environment: dict[str, str], expected: dict[str, Any] | None):
    assert find_processes(environment) == expected


@pytest.mark.parametrize(
    "wrong", [{"TRUNKFIRST_PROCESS": "4"}, {"TRUNKFIRST_PROCESS": "x"}, {"TRUNKFIRST_COORDINATOR": ""}]
)
def test_wrong_variables_are_an_error(wrong: dict[str, str]):
    with pytest.raises(UsageError, match="TRUNKFIRST_PROCESS"):
        find_processes({**OURS, **wrong})


@pytest.mark.parametrize("cluster", ["slurm", "ompi"])
def test_jax_detects_two_processes_of_a_cluster(cluster: str):
    """JAX reads Slurm's and Open MPI's variables; here both processes are on this machine."""
    port = str(free_port())
    both = []
    for rank in "01":
        slurm = {"SLURM_NTASKS": "2", "SLURM_PROCID": rank, "SLURM_LOCALID": rank, "SLURM_JOB_ID": "1"}
        slurm |= {"SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_STEP_NUM_NODES": "1"}
        ompi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        ompi |= {"OMPI_MCA_orte_hnp_uri": "4096.0;tcp://127.0.0.1:1"}
        variables = {"slurm": slurm, "ompi": ompi}[cluster]
        environment = {**ENVIRONMENT, **variables, "JAX_COORDINATOR_PORT": port}
        both.append(start([sys.executable, "-c", EXCHANGE], environment))
    for process in both:
        out, err = process.communicate(timeout=200)
        assert (process.returncode, out) == (0, ""), err


def test_collectives_of_one_process():
    assert is_leader()
    assert broadcast_value((1, 2)) == (1, 2)
    assert leader_first(lambda: 3) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arguments": ("serve", "x")}, "launch starts one of run, fit, compare, resume; got: serve x"),
        ({"node": 2, "nodes": 2, "coordinator": "a:1"}, "from 0 to 1"),
        ({"nodes": 2}, "--coordinator"),
    ],
)
def test_launch_refuses(wrong: dict[str, Any], message: str):
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

        monkeypatch.setattr(subprocess, "Popen", started)

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


def test_a_lost_process_and_the_end_of_restarts():
    said: list[str] = []
    plan = Launch(("fit",), 2, restarts=2, program="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(LostProcessError, match="ended by signal 9, and none of the 2 restarts is left"):
        launch(plan, say=said.append)
    assert len(said) == 2


# Process 0 notes its folder; process 1 waits for that, and dies unless it resumes.
FAKE = """
import os, signal, sys, time
from pathlib import Path
with Path({log!r}).open("a") as file:
    print(" ".join(sys.argv[1:]), file=file)
if os.environ["TRUNKFIRST_PROCESS"] == "0":
    Path(os.environ["TRUNKFIRST_NOTE"]).write_text("/a/run")
    time.sleep(100 * ("fit" in sys.argv))
elif "fit" in sys.argv:
    while not Path(os.environ["TMPDIR"], "folder").is_file():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lost_process_makes_all_resume(tmp_path: Path):
    said: list[str] = []
    program = FAKE.format(log=str(tmp_path / "log"))
    assert launch(Launch(("fit", "--json", "--seed=1"), 2, program=program), say=said.append) == 0
    assert said == [
        "process 1 of 2 was ended by signal 9; restarting all from the last checkpoint (restart 1 of at most 3)"
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
