"""Runs on data larger than memory: interrupted and resumed, by the commands, in bounded memory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import Call, antiderivative
from test_large import shards_of
from test_resume import Crash, Work, assert_same, config_of, work
from test_sharded_data import spoil

from trunkfirst import memory, stream
from trunkfirst.data.read_write import write_data
from trunkfirst.errors import CorruptFileError, DataError, MemoryNeedError, UsageError
from trunkfirst.files.text_files import read_json
from trunkfirst.linear.low_rank import RowFactor
from trunkfirst.run_data import load_run_data
from trunkfirst.runs.resume import resume
from trunkfirst.runs.run import run

__all__ = ["work"]  # a fixture


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 30 samples were all that fits."""
    monkeypatch.setattr(stream, "_MOST_SAMPLES", 30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shards_of(antiderivative(90), tmp_path_factory.mktemp("data") / "shards", 16).folder.path


def test_an_interrupted_run_is_resumed(folder: Path, tmp_path: Path, work: Work, small: None):
    config = config_of(folder, trunk={"starts": 1})
    outcome = run(config, tmp_path / "whole")
    assert outcome.metrics["samples"] == {"train": 83, "validation": 0, "test": 7}
    assert outcome.metrics["test"]["mean_relative_l2"] < 0.5
    assert outcome.metrics["parameters"]["coefficients"] == 83 * 7
    assert outcome.metrics["stream"]["samples_in_memory"] == 30
    work.begin(work.done - 5)  # in step 2
    with pytest.raises(Crash):
        run(config, tmp_path / "a")
    assert len(list((tmp_path / "a" / "checkpoints").glob("rows-*.npy"))) == 3
    resume(tmp_path / "a")
    assert_same(tmp_path / "whole", tmp_path / "a")


def test_an_interrupted_pass_is_resumed(folder: Path, tmp_path: Path, small: None, monkeypatch: Any):
    options = {
        "trunk": {"starts": 1, "iterations": 5},
        "branch": {"kind": "linear"},
    }
    config = config_of(folder, checkpoint_seconds=1e-9, **options)
    run(config, tmp_path / "whole")
    real, seen = RowFactor.add, [0]

    def counted(factor: RowFactor, rows: np.ndarray) -> None:
        seen[0] += 1
        if seen[0] == 7:
            raise Crash
        real(factor, rows)

    monkeypatch.setattr(RowFactor, "add", counted)
    with pytest.raises(Crash):
        run(config, tmp_path / "a")
    resume(tmp_path / "a")
    assert seen[0] == 7 + 12 - 6  # six shards, two factors each
    assert_same(tmp_path / "whole", tmp_path / "a")


def test_other_shards_are_not_taken_for_those_of_the_run(tmp_path: Path, work: Work, small: None):
    place = shards_of(antiderivative(90), tmp_path / "data", 16).folder.path
    config = config_of(place)
    work.begin(60)
    with pytest.raises(Crash):
        run(config, tmp_path / "a")
    for path in place.iterdir():
        path.unlink()
    shards_of(antiderivative(90, seed=1), place, 16)
    with pytest.raises(DataError, match="the data have changed since this run began"):
        resume(tmp_path / "a")
    spoil(place / "shard-00002.npz", "flip")
    with pytest.raises(CorruptFileError, match="shard-00002"):
        run(config, tmp_path / "b")


def test_a_folder_that_fits_is_read(folder: Path, tmp_path: Path):
    write_data(antiderivative(90), tmp_path / "a.npz")
    both = [load_run_data(config_of(path).data) for path in (folder, tmp_path / "a.npz")]
    assert both[0].whole is None
    assert np.array_equal(both[0].data.outputs, both[1].data.outputs)
    assert np.array_equal(both[0].split.test, both[1].split.test)


@pytest.mark.usefixtures("no_report")
def test_commands(folder: Path, tmp_path: Path, small: None, call: Call, monkeypatch: pytest.MonkeyPatch):
    options = ["--set=trunk.hidden=[8]", "--set=trunk.width=6", "--set=trunk.iterations=30"]
    options += ["--set=trunk.starts=1", "--set=branch=linear", "--set=inputs=standardise"]
    options += ["--set=weights=relative"]
    code, out, err = call("fit", "--data", folder, "--out", tmp_path / "a", *options)
    assert (code, err.count("30 of them")) == (0, 1), err
    metrics = read_json(tmp_path / "a" / "metrics.json")
    assert sum(metrics["samples"].values()) == 90
    code, out, _ = call("evaluate", tmp_path / "a", "--json")
    assert code == 0
    assert json.loads(out)["test"]["mean_relative_l2"] == pytest.approx(metrics["test"]["mean_relative_l2"])
    code, _, err = call("fit", "--data", folder, "--from", tmp_path / "a", "--out", tmp_path / "b", *options)
    assert (code, "fit all of them again" in err) == (UsageError.exit_code, True)
    write_data(antiderivative(40), tmp_path / "c.npz")
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    code, _, err = call("fit", "--data", tmp_path / "c.npz", "--out", tmp_path / "c", *options)
    assert (code, "trunkfirst data convert" in err) == (MemoryNeedError.exit_code, True)


# -- memory

MEMORY = """
import resource, sys
sys.path.insert(0, sys.argv[2])
import numpy as np
import dataclasses as dc
import jax
from test_large import METHOD, TRUNK
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.sharded_data import write_shards
from trunkfirst import stream
from trunkfirst.fitting import fit_method
from trunkfirst.regressors.ridge import Linear
from trunkfirst.regressors import base

jax.config.update("jax_disable_most_optimizations", True)
METHOD = dc.replace(METHOD, trunk=dc.replace(TRUNK, iterations=2), branch=Linear())
stream._MOST_SAMPLES = 500
base._MAX_ROWS, base._BLOCK = 500, 1000
rng = np.random.default_rng(0)
points = rng.uniform(-1, 1, (500, 2))

def make(seed):
    a = np.random.default_rng(seed).uniform(0.5, 1.5, (1000, 2))
    return OperatorData(a, points, 2 + np.sin(a @ points.T))

peaks = []
for count in (4, 60):
    data = write_shards(map(make, range(count)), f"{sys.argv[1]}/{count}")
    fit_method(data, METHOD, key=0)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
print(*peaks)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_samples(tmp_path: Path):
    """16 MB and 240 MB of outputs take the same; a bound of 80 MB more leaves room for the allocator."""
    command = [sys.executable, "-c", MEMORY, str(tmp_path), str(Path(__file__).parent)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    first, second = map(float, found.stdout.split())
    assert second < first + 80
