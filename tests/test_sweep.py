"""Sweeps: the grid, runs compared with single ones, failures, a killed sweep, and the report."""

import csv
import json
import operator
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_problems import Call, antiderivative
from test_resume import assert_same, without_seconds

from trunkfirst.checkpoints import lock_folder
from trunkfirst.cli import run_command as main
from trunkfirst.data.read_write import write_data
from trunkfirst.distributed.pools import Lost, on_processes
from trunkfirst.errors import (
    FailedRunsError,
    FolderInUseError,
    OutputExistsError,
    SettingError,
    UnknownNameError,
    ValueRangeError,
)
from trunkfirst.files.integrity import verify_manifest, write_manifest
from trunkfirst.files.text_files import read_json, read_toml, write_json
from trunkfirst.inputs import PrincipalInputs
from trunkfirst.problems.generate import output_points
from trunkfirst.report.pages import write_sweep
from trunkfirst.runs.config import RunConfig, make_grid
from trunkfirst.runs.run import run
from trunkfirst.runs.sweeps import Row, Sweep, is_sound
from trunkfirst.trunks import JointTrunk
from trunkfirst.two_step import TwoStep

PROBLEM: dict[str, Any] = {"problem": "nonlinear-conductivity"}
SETTINGS = """
checkpoint_seconds = 0.001
inputs = "standardise"
weights = "relative"
[data]
file = "{file}"
[trunk]
kind = "joint"
hidden = [8]
width = 4
iterations = 1000
[branch]
kind = "linear"
"""
# The last is wider than the data have points.
WIDTHS = "[sweep]\nwidth = [4, 40]\nseed = [0, 1]\n"


@pytest.fixture(scope="module", autouse=True)
def quick_processes() -> Iterator[None]:
    """Workers compile as the tests do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("data") / "mine.npz"
    write_data(antiderivative(30), file)
    return SETTINGS.format(file=file)


# -- the grid


LOG, FIRST = {"kind": "standardise", "function": "log"}, {"kind": "principal", "count": 1}


def trunk_of(config: RunConfig) -> Any:
    return getattr(config.method, "trunk", None)


def test_all_combinations_with_names_by_what_differs():
    sweep = {"width": [20, 30], "inputs": [LOG, FIRST], "branch": {"skip": [True]}, "seed": [0, 7]}
    grid = make_grid({**PROBLEM, "sweep": sweep})
    assert list(grid.configs)[:3] == [
        "width=20,inputs=standardise-log,skip=true,seed=0",
        "width=20,inputs=standardise-log,skip=true,seed=7",
        "width=20,inputs=principal-1,skip=true,seed=0",
    ]
    assert len(grid.configs) == 8
    name = "width=30,inputs=principal-1,skip=true,seed=7"
    config = grid.configs[name]
    assert isinstance(config.method, TwoStep)
    assert (trunk_of(config).hidden, trunk_of(config).width) == ((50, 50, 50), 30)
    assert (config.method.inputs, config.seed) == (PrincipalInputs(1), 7)
    assert getattr(config.method.branch, "skip", None) is True
    assert trunk_of(config).iterations == 14_000  # the preset's
    assert config.data.hold_validation
    assert grid.settings[name] == {"width": 30, "inputs": FIRST, "branch.skip": True, "seed": 7}


def test_a_dotted_key_may_be_quoted():
    sweep = {"trunk.hidden": [[9, 5], [9, 9, 7]], "branch.activation": ["tanh"], "trunk.activation": ["tanh"]}
    grid = make_grid({**PROBLEM, "data": {"hold_validation": False}, "sweep": sweep})
    assert list(grid.configs)[1] == "hidden=9x9x7,branch.activation=tanh,trunk.activation=tanh"
    assert [trunk_of(config).hidden for config in grid.configs.values()] == [(9, 5), (9, 9, 7)]
    assert not any(config.data.hold_validation for config in grid.configs.values())


def test_names_that_a_file_system_would_confuse():
    grid = make_grid({**PROBLEM, "sweep": {"data.points": ["random:9", "random-9"]}})
    assert list(grid.configs) == ["points=random-9", "points=random-9-run2"]


def test_settings_for_own_data(text: str, tmp_path: Path):
    (tmp_path / "a.toml").write_text(text + '[sweep]\n"data.samples" = [10, 20]\n')
    grid = make_grid(read_toml(tmp_path / "a.toml"))
    assert [config.data.samples for config in grid.configs.values()] == [10, 20]
    assert all(trunk_of(config) == JointTrunk((8,), 4, iterations=1000) for config in grid.configs.values())


@pytest.mark.parametrize(
    ("sweep", "error", "words"),
    [
        (None, SettingError, "the section [sweep], with the settings to vary, is missing"),
        ({}, SettingError, "the section [sweep], with the settings to vary, is missing"),
        ({"seed": 3}, SettingError, "sweep.seed is 3; expected a list"),
        ({"seed": []}, SettingError, "sweep.seed is []; expected a list"),
        ({"seed": [1, 1]}, SettingError, "sweep.seed has a value twice"),
        ({"width": [0]}, ValueRangeError, "sweep.width is [0]"),
        ({"width": [True]}, ValueRangeError, "sweep.width is [True]"),
        ({"width": [3], "trunk": {"width": [4]}}, SettingError, "give one of them"),
        ({"trunk.nothing": [1]}, SettingError, "there is no setting 'method.trunk.nothing'"),
        ({"trunk.iterations": [10, -1]}, ValueRangeError, "setting method.trunk.iterations is -1"),
        ({"trunk.batches.samples": [1, 2]}, SettingError, "there is no setting 'method.trunk.batches'"),
        ({"problem": ["nothing"]}, UnknownNameError, "there is no problem 'nothing'"),
        ({"seed": list(range(40)), "trunk.iterations": list(range(1, 41))}, SettingError, "1,600 runs"),
    ],
)
def test_mistakes_are_errors_before_anything_runs(sweep: Any, error: type[Exception], words: str):
    with pytest.raises(error) as found:
        make_grid(PROBLEM if sweep is None else {**PROBLEM, "sweep": sweep})
    assert words in str(found.value)


# -- processes


def test_a_process_that_ends_loses_its_own_task_alone():
    signals = {0: None, signal.SIGKILL: "SIGKILL", signal.SIGTERM: "SIGTERM"}
    results = dict(on_processes(signal.raise_signal, list(signals), workers=2))
    assert results.pop(0) is None
    for number, result in results.items():
        assert isinstance(result, Lost)
        assert f"ended by {signals[number]}" in result.reason


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_that_dies_while_idle_is_replaced():
    results = on_processes(operator.call, [os.getpid, os.getpid], workers=1)
    _, first = next(results)
    os.kill(first, signal.SIGKILL)
    while is_alive(first):
        time.sleep(0.01)
    (second,) = (result for _, result in results)
    assert isinstance(second, int)
    assert second != first


def test_errors_in_a_process():
    assert dict(on_processes(int, ["5", "x"], workers=1)) == {
        "5": 5,
        "x": Lost("ValueError: invalid literal for int() with base 10: 'x'"),
    }
    with pytest.raises(ValueRangeError, match="points is 'nonsense'"):
        list(on_processes(output_points, ["nonsense"], workers=1))


# -- runs


@pytest.fixture(scope="module")
def swept(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep, in the folder `out` next to its configuration."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "mine.toml").write_text(text + WIDTHS)
    options = ["--out", str(folder / "out"), "--workers", "1", "--quiet"]
    assert main(["sweep", str(folder / "mine.toml"), *options]) == FailedRunsError.exit_code
    return folder / "out"


def test_a_row_says_what_a_single_run_says(swept: Path, tmp_path: Path):
    grid = make_grid(read_toml(swept.parent / "mine.toml"))
    rows = {row["name"]: row for row in read_json(swept / "sweep.json")["rows"]}
    name = "width=4,seed=1"
    outcome = run(grid.configs[name], tmp_path / "single")
    assert_same(tmp_path / "single", swept / name)
    row, metrics = rows[name], outcome.metrics
    assert row["validation"] == metrics["validation"]["mean_relative_l2"]
    assert row["test"] == metrics["test"]["mean_relative_l2"]
    assert row["trunk_loss"] == metrics["trunk"]["loss"]
    assert row["settings"] == {"width": 4, "seed": 1}


def test_rows_are_ranked_by_validation_and_failures_come_last(swept: Path):
    found = read_json(swept / "sweep.json")
    rows = found["rows"]
    assert [row["status"] for row in rows] == ["finished"] * 2 + ["failed"] * 2
    errors = [row["validation"] for row in rows[:2]]
    assert errors[0] < errors[1]
    assert all("40" in row["reason"] and row["test"] is None for row in rows[2:])
    assert found["best"] == {"settings": {"width": 4}, "validation": sum(errors) / 2, "runs": 2}


def test_files(swept: Path):
    verify_manifest(swept)
    with (swept / "sweep.csv").open() as file:
        rows = list(csv.DictReader(file))
    best = read_json(swept / "sweep.json")["rows"][0]
    assert (rows[0]["name"], float(rows[0]["test"])) == (best["name"], best["test"])
    page = (swept / "report.html").read_text()
    assert "width=40,seed=0 and 1 more failed:" in page
    assert page.count("<svg ") == 1
    assert (swept / "figures" / "sweep-seed.svg").is_file()


def test_the_same_again_keeps_what_is_done_and_other_settings_are_refused(swept: Path, call: Call, tmp_path: Path):
    folder = tmp_path / "copy"
    shutil.copytree(swept, folder)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("width=4*/**/*") if path.is_file()}
    config = tmp_path / "mine.toml"
    config.write_text((swept.parent / "mine.toml").read_text().replace("[4, 40]", "[4]"))
    code, out, err = call("sweep", config, "--out", folder, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == read_json(folder / "sweep.json")
    assert [row["settings"]["width"] for row in json.loads(out)["rows"]] == [4, 4]
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    code, out, _ = call("resume", folder, "--json")
    assert (code, json.loads(out)) == (0, {"status": "finished"})
    config.write_text(config.read_text().replace("iterations = 1000", "iterations = 1001"))
    code, _, err = call("sweep", config, "--out", folder)
    assert code == OutputExistsError.exit_code
    assert "width=4,seed=0 is a run with other settings" in err


def test_a_damaged_run_is_not_kept(swept: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(swept / "width=4,seed=0", folder)
    assert is_sound(folder)
    (folder / "metrics.json").write_text("{}")
    with pytest.warns(RuntimeWarning, match=r"metrics\.json is damaged.*made again"):
        assert not is_sound(folder)
    assert not folder.exists()


def test_an_operator_saved_on_the_way_is_no_finished_run(swept: Path, tmp_path: Path):
    """A sweep that was killed while its runs chose showed them as runs that met a number that is not finite."""
    folder = tmp_path / "run"
    shutil.copytree(swept / "width=4,seed=0", folder)
    write_json(folder / "metrics.json", {**read_json(folder / "metrics.json"), "status": "interrupted"})
    write_manifest(folder)
    (folder / "checkpoints").mkdir(parents=True)
    write_json(folder / "checkpoints" / "request.json", {"command": "run"})
    assert not is_sound(folder)
    assert folder.exists()


def test_a_sweep_killed_before_its_configurations_were_written(swept: Path, call: Call, tmp_path: Path):
    folder = tmp_path / "out"
    (folder / "checkpoints").mkdir(parents=True)
    write_json(folder / "checkpoints" / "request.json", {"command": "sweep", "workers": 1, "scheduler": None})
    code, _, err = call("resume", folder)
    assert (code, "start the sweep with its command" in err) == (2, True)
    config = tmp_path / "mine.toml"
    config.write_text((swept.parent / "mine.toml").read_text().replace("[4, 40]", "[40]"))
    assert call("sweep", config, "--out", folder, "--workers", 1)[0] == 21  # wider than the data have points


@pytest.mark.slow
def test_a_killed_sweep_is_resumed(swept: Path, call: Call, tmp_path: Path):
    config = tmp_path / "mine.toml"
    config.write_text((swept.parent / "mine.toml").read_text().replace("[4, 40]", "[4]"))
    command = [sys.executable, "-c", "from trunkfirst.cli import main; main()", "sweep", str(config), "--quiet"]
    folder = tmp_path / "out"
    with subprocess.Popen([*command, "--out", str(folder), "--workers", "1"]) as process:
        wait_for_checkpoint(folder / "width=4,seed=1" / "checkpoints", process)
        os.kill(process.pid, signal.SIGKILL)
    first = folder / "width=4,seed=0" / "metrics.json"
    before = first.stat().st_mtime_ns
    assert not (folder / "width=4,seed=1" / "MANIFEST.sha256").exists()
    wait_until_free(folder / "width=4,seed=1")
    code, _, err = call("resume", folder)
    assert code == 0, err
    assert "1 of 2 runs are done already" in err
    assert first.stat().st_mtime_ns == before
    for seed in (0, 1):
        assert_same(swept / f"width=4,seed={seed}", folder / f"width=4,seed={seed}")
    assert not (folder / "checkpoints").exists()


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(12_000):
        if any(folder.glob("*.under-way")):
            return
        assert process.poll() is None
        time.sleep(0.01)
    pytest.fail(f"nothing appeared in {folder}")


def wait_until_free(folder: Path) -> None:
    """Wait until the worker of a killed sweep has ended, too."""
    for _ in range(1000):
        try:
            with lock_folder(folder):
                return
        except FolderInUseError:
            time.sleep(0.01)
    pytest.fail(f"a worker of a killed sweep still works in {folder}")


@pytest.mark.slow
def test_on_a_cluster_the_same_bits(swept: Path, call: Call, tmp_path: Path):
    from distributed import LocalCluster

    options: dict[str, Any] = {
        "n_workers": 1,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "processes": True,
    }
    cluster: Any = LocalCluster(**options)
    with cluster:
        code, out, err = call(
            *("sweep", swept.parent / "mine.toml", "--out", tmp_path / "out"),
            *("--scheduler", cluster.scheduler_address, "--json"),
        )
    assert code == FailedRunsError.exit_code, err
    assert without_seconds(json.loads(out)["best"]) == read_json(swept / "sweep.json")["best"]
    for name in ("width=4,seed=0", "width=4,seed=1"):
        assert_same(swept / name, tmp_path / "out" / name)


# -- the table and the page


def row(validation: float | None, status: Any = "finished", **settings: Any) -> Row:
    name = ",".join(f"{key}={value}" for key, value in settings.items())
    return Row(name, settings, status, None if status == "finished" else "why", validation, 0.1, 1e-3, 2.0)


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ([row(0.3, width=1), row(0.2, width=2)], {"settings": {"width": 2}, "validation": 0.2, "runs": 1}),
        (
            [row(0.2, width=1), row(None, "failed", width=2)],
            {"settings": {"width": 1}, "validation": 0.2, "runs": 1},
        ),
        # Half of the seeds of width 2 are missing, so that it does not count.
        (
            [row(0.1, width=2, seed=0), row(0.1, "diverged", width=2, seed=1), row(0.2, width=1, seed=0)],
            {"settings": {"width": 1, "seed": 0}, "validation": 0.2, "runs": 1},
        ),
        ([row(None, width=1), row(None, width=2)], None),
        ([row(0.1, seed=0), row(0.2, seed=1)], None),
    ],
)
def test_the_best_settings(rows: list[Row], best: Any):
    assert Sweep(Path(), tuple(rows)).best() == best


@pytest.mark.parametrize(
    ("rows", "drawings"),
    [
        ([row(0.1 / w, width=w, encoder=e, seed=s) for w in (2, 50) for e in ("log", "none") for s in (0, 1)], 2),
        ([row(0.1, seed=0), row(0.2, seed=1)], 1),
        ([row(0.1, layers=[2, 3]), row(None, layers=[2, 4]), row(0.2, "diverged", layers=[2, 5])], 1),
        ([row(0.1, width=1)], 0),
        ([row(None, "failed", width=1)], 0),
        ([row(0.1 / w, width=w, ridge=r / 10) for w in (2, 3) for r in range(1, 10)], 2),
    ],
)
def test_the_page_for_every_kind_of_setting(rows: list[Row], drawings: int, tmp_path: Path):
    config = {"problem": None, "data": {"file": "<b>.npz", "hold_validation": True}}
    write_json(tmp_path / "sweep.json", Sweep(tmp_path, tuple(rows)).summary())
    write_json(tmp_path / "configs.json", {"configs": {each.name: config for each in rows}})
    write_json(tmp_path / "environment.json", {})
    for each in rows:
        (tmp_path / each.name).mkdir()
        (tmp_path / each.name / "config.toml").write_text("seed = 0\n")
    page = write_sweep(tmp_path).read_text()
    assert page.count("<svg ") == drawings
    assert "<b>" not in page
    verify_manifest(tmp_path)
