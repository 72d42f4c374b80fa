"""Data made by a real Dask cluster on this machine: the same bytes, and none lost with a worker."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_problems import Call

from trunkfirst.distributed import pools
from trunkfirst.distributed.pools import Lost, on_cluster
from trunkfirst.errors import ClusterError, MissingExtraError, SolveError, ValueRangeError
from trunkfirst.problems.conductivity import RandomConductivity
from trunkfirst.problems.generate import make_data, output_points

PROBLEM = "random-conductivity"
SHARD, SHARDS = 5, 8
SAMPLES = SHARD * SHARDS


@pytest.fixture(scope="module", autouse=True)
def small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RandomConductivity, "shard_samples", SHARD)
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes of one thread each; a dead one is replaced."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def local(small_shards: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local")
    make_data(PROBLEM, samples=SAMPLES, workers=1, cache=folder)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}


def processes(cluster: Any) -> list[int]:
    return [nanny.process.pid for nanny in cluster.workers.values()]


def test_a_killed_worker_loses_no_samples(cluster: Any, local: dict[str, bytes], tmp_path: Path):
    victim = processes(cluster)[0]
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if len(seen) == 1:
            os.kill(victim, signal.SIGKILL)

    data = make_data(
        PROBLEM, samples=SAMPLES, scheduler=cluster.scheduler_address, cache=tmp_path, progress=progress
    )
    assert data.samples == SAMPLES
    assert victim not in processes(cluster)
    assert seen[-1] == (SAMPLES, SAMPLES)
    assert len(local) == SHARDS + 1  # and their index
    assert content(tmp_path) == local


def test_finished_shards_are_not_made_again(cluster: Any, local: dict[str, bytes], tmp_path: Path):
    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done >= total // 2:
            raise StopError

    options: dict[str, Any] = {"samples": SAMPLES, "scheduler": cluster.scheduler_address, "cache": tmp_path}
    with pytest.raises(StopError):
        make_data(PROBLEM, **options, progress=stop)
    seen: list[int] = []
    make_data(PROBLEM, **options, progress=lambda done, total: seen.append(done))
    assert min(seen) > SAMPLES // 2
    assert content(tmp_path) == local


def test_the_command(cluster: Any, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRUNKFIRST_CACHE", str(tmp_path))
    address = cluster.scheduler_address
    code, out, err = call("data", "make", PROBLEM, "--samples", "8", "--scheduler", address, "--json")
    assert code == 0, err
    assert '"samples": 8' in out
    code, _, err = call("data", "make", PROBLEM, "--scheduler", address, "--workers", "2")
    assert code == ValueRangeError.exit_code
    assert "not both" in err


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_run_finds_the_data_that_the_cluster_made(
    cluster: Any, command: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TRUNKFIRST_CACHE", str(tmp_path))

    def begin(*_: Any, **__: Any) -> None:
        assert len(content(tmp_path)) == 3  # two shards and their index
        raise SolveError("far enough")

    monkeypatch.setattr(f"trunkfirst.runs.{command}.{command}", begin)
    address = cluster.scheduler_address
    code, _, err = call(command, PROBLEM, "--samples", "8", "--scheduler", address, "--out", tmp_path / "out")
    assert (code, "far enough" in err) == (SolveError.exit_code, True), err


def test_errors_of_ours_are_raised_and_others_lose_the_task(cluster: Any, monkeypatch: pytest.MonkeyPatch):
    address = cluster.scheduler_address
    with pytest.raises(ValueRangeError, match="points is 'nonsense'"):
        list(on_cluster(output_points, ["grid:2", "nonsense"], address=address))
    results = dict(on_cluster(int, ["5", "x"], address=address))
    assert results["5"] == 5
    assert isinstance(results["x"], Lost)
    assert "ValueError: invalid literal" in results["x"].reason
    monkeypatch.setattr(pools, "__version__", "0.0.0")
    with pytest.raises(ClusterError, match=r"this machine 0\.0\.0; install the same"):
        list(on_cluster(int, [0], address=address))


def test_no_scheduler_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(pools, "ANSWER_SECONDS", 0.5)
    with socket.socket() as taken:  # a port that is open and never answers
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterError, match=address):
            make_data(PROBLEM, samples=8, scheduler=address, cache=tmp_path)
    with pytest.raises(ClusterError, match="'nonsense'"):
        make_data(PROBLEM, samples=8, scheduler="nonsense", cache=tmp_path)


def test_without_dask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'trunkfirst\[dask\]'"):
        make_data(PROBLEM, samples=8, scheduler="tcp://127.0.0.1:1", cache=tmp_path)


def test_dask_is_imported_by_those_who_ask_for_it_alone():
    modules = "trunkfirst.distributed.pools, trunkfirst.problems, trunkfirst.cli"
    script = f"import sys, {modules}; print('dask' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"
