"""The command line, in process: output, exit codes, messages."""

import functools as ft
import gc
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer
from helpers import read_file

import trunkfirst
from trunkfirst import progress, run_data
from trunkfirst.cli import app, console, keep_interrupts, run_command as main
from trunkfirst.data.operator_data import OperatorData
from trunkfirst.files.integrity import verify_manifest
from trunkfirst.files.text_files import read_json
from trunkfirst.networks.operator import load
from trunkfirst.problems.generate import make_data
from trunkfirst.records import LogEntry

NAME = "nonlinear-conductivity"
DATA_COMMANDS = (("data", "make"), ("data", "info"), ("data", "check"), ("data", "convert"))
COMMANDS = (("run",), ("compare",), ("report",), ("doctor",), *DATA_COMMANDS)
# Few samples at few points, small networks of the shapes of other tests: what takes time is compiling.
POINTS = ["--set", "data.points=random:30", "--set", "data.validation_share=0"]
NETWORKS = ["--set", "trunk.hidden=[6]", "--set", "trunk.width=4", "--set", "branch.hidden=[6]"]
SMALL = ["--preset", "paper", "--samples", "13", "--iterations", "4", *POINTS, *NETWORKS]


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@ft.cache
def data_once(problem: str, samples: int, points: str) -> OperatorData:
    return make_data(problem, samples=samples, points=points)


WRITE_REPORT = console.write_run_report


@pytest.fixture(autouse=True)
def surroundings(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cache and the same data for all, a folder of its own for each test, and no report, which others test."""
    monkeypatch.setenv("TRUNKFIRST_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        run_data,
        "make_data",
        lambda problem, *, samples, points, **_: data_once(problem, samples, points),
    )
    monkeypatch.setattr(console, "write_run_report", lambda folder, *_: Path(folder) / "report.html")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command and return its exit code, standard output and standard error."""

    def go(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return go


Call = Callable[..., tuple[int, str, str]]


# -- run


def test_as_a_module_it_tells_its_version():
    command = [sys.executable, "-m", "trunkfirst", "--version"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert found == f"trunkfirst {trunkfirst.__version__}\n"


def test_run_prints_a_table_and_progress_apart(call: Call, tmp_path: Path):
    code, out, err = call("run", NAME, *SMALL)
    folder = tmp_path / "runs" / f"{NAME}-two-step-seed0"
    assert code == 0
    assert "two-step" in out
    assert f"report: {Path('runs') / folder.name / 'report.html'}" in out
    assert f"{NAME}, two-step, preset paper, seed 0: 4 iterations for the trunk, 4 for the branch" in " ".join(
        err.split()
    )
    assert "trunk 4/4" in err
    assert "branch 4/4" in err
    verify_manifest(folder)


def test_a_second_run_takes_another_folder(call: Call, tmp_path: Path):
    for _ in range(2):
        call("run", NAME, *SMALL, "--quiet")
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"{NAME}-two-step-seed0",
        f"{NAME}-two-step-seed0-2",
    ]


@pytest.mark.parametrize("method", ["two-step", "two-step-without-qr", "monolithic"])
def test_run_prints_one_json_object(call: Call, tmp_path: Path, method: str):
    code, out, err = call("run", NAME, *SMALL, "--method", method, "--seed", "3", "--json", "--out", "a")
    assert (code, err) == (0, "")
    metrics = json.loads(out)
    assert metrics == read_json(tmp_path / "a" / "metrics.json")
    assert (metrics["problem"], metrics["method"], metrics["seed"]) == (NAME, method, 3)
    assert metrics["samples"] == {"train": 12, "validation": 0, "test": 1}
    assert metrics["trunk"]["iterations"] == 4
    assert (metrics["branch"] is None) == (method == "monolithic")
    assert load("a").trunk.count == 5


def test_run_quietly(call: Call):
    assert call("run", NAME, *SMALL, "--quiet", "--out", "a") == (0, "", "")


def test_run_a_configuration_and_run_it_again(call: Call, tmp_path: Path):
    """The folder of a run holds all that is needed to do it again, to the bit."""
    file = f'problem = "{NAME}"\nseed = 5\n[data]\nsamples = 13\nvalidation_share = 0.0\npoints = "random:30"\n'
    sections = "[trunk]\nhidden = [6]\nwidth = 4\niterations = 4\n[branch]\nhidden = [6]\niterations = 4\n"
    (tmp_path / "mine.toml").write_text(file + sections)
    assert call("run", "mine.toml", "--preset", "paper", "--out", "a", "--quiet") == (0, "", "")
    assert call("run", "a/config.toml", "--out", "b", "--quiet") == (0, "", "")
    models = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("a", "b")]
    assert models[0] == models[1]
    assert read_json(tmp_path / "b" / "metrics.json")["seed"] == 5


def test_an_interrupted_run_ends_with_130(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def stop(self: Any, step: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(progress.TerminalReporter, "on_step", stop)
    code, _, err = call("run", NAME, *SMALL, "--out", "a", "--quiet")
    assert code == 130
    assert err == "trunkfirst: interrupted; finished work is kept; continue with: trunkfirst resume a\n"
    assert not (tmp_path / "a" / "metrics.json").exists()


def test_an_interrupt_of_the_garbage_collector_is_not_lost():
    """Python ignores exceptions of its callbacks."""

    def callback(*_: Any) -> None:
        gc.callbacks.remove(callback)
        raise KeyboardInterrupt

    before, sys.unraisablehook = sys.unraisablehook, keep_interrupts
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012
            gc.callbacks.append(callback)
            gc.collect()
            time.sleep(10)
    finally:
        sys.unraisablehook = before


def test_an_interrupt_outside_training_ends_with_130(call: Call, monkeypatch: pytest.MonkeyPatch):
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trunkfirst.runs.run.run", stop)
    code, out, err = call("run", NAME, *SMALL, "--quiet")
    assert (code, out) == (130, "")
    assert err == "trunkfirst: interrupted\n"


# -- compare


def test_compare(call: Call, tmp_path: Path):
    code, out, err = call("compare", NAME, *SMALL, "--methods", "two-step, monolithic", "--out", "a")
    assert code == 0
    assert "the paper's claims" in out
    assert "monolithic" in out
    assert "monolithic 4/4" in err
    assert [m["method"] for m in read_json(tmp_path / "a" / "metrics.json")] == ["two-step", "monolithic"]


def test_compare_prints_one_json_list(call: Call):
    arguments = ("--methods", "two-step,two-step-without-qr", "--json", "--out", "a")
    code, out, err = call("compare", NAME, *SMALL, *arguments)
    assert (code, err) == (0, "")
    assert [m["method"] for m in json.loads(out)] == ["two-step", "two-step-without-qr"]


# -- data, report, doctor


def test_data_make(call: Call, tmp_path: Path, cache: Path):
    made = ("data", "make", "multiple-inputs", "--samples", "6")
    code, out, err = call(*made, "--workers", "1", "--out", "a.npz")
    assert (code, out) == (0, "multiple-inputs: 6 samples at 541 points\n")
    assert "data 6/6" in err
    data = read_file(tmp_path / "a.npz")
    assert (data.flat_inputs.shape, data.points.shape, data.outputs.shape) == ((6, 3), (541, 2), (6, 541))
    assert set(data.labels) == {"f", "kappa", "g"}
    assert any(cache.iterdir())
    assert call(*made, "--quiet") == (0, "", "")


def test_data_make_with_random_points(call: Call):
    code, out, err = call("data", "make", NAME, "--samples", "6", "--points", "random:7", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["samples"], found["points"], found["labels"]) == (6, 7, {"beta": [1.0, 1000.0]})


def test_data_info(call: Call):
    code, out, err = call("data", "info", "multiple-inputs", "--samples", "6", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["samples"], found["points"], found["coordinates"]) == (6, 541, 2)
    assert 1 <= found["rank"] <= 6
    assert found["inputs"] == {"parameters": 3}
    code, out, _ = call("data", "info", "multiple-inputs", "--samples", "6")
    assert code == 0
    assert "541" in out


@pytest.mark.usefixtures("unrendered")
def test_report_of_a_run(call: Call, monkeypatch: pytest.MonkeyPatch):
    call("run", NAME, *SMALL, "--quiet", "--out", "a")
    monkeypatch.setattr(console, "write_run_report", WRITE_REPORT)
    code, out, err = call("report", "a", "--json")
    assert (code, err) == (0, "")
    page = Path(json.loads(out)["report"])
    assert page.name == "report.html"
    text = page.read_text(encoding="utf-8")
    assert "<html" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert call("report", "a", "--quiet") == (0, "", "")
    code, _, err = call("report", ".")  # it only holds the run
    assert (code, [path.name for path in Path().iterdir() if path.is_file()]) == (10, [])
    assert "runs here: a" in err


def test_doctor(call: Call, cache: Path, monkeypatch: pytest.MonkeyPatch):
    code, out, _ = call("doctor", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["double_precision"]
    assert found["cache_writable"]
    assert found["cache"] == str(cache)
    assert found["packages"]["numpy"] == np.__version__
    code, out, _ = call("doctor")
    assert code == 0
    assert np.__version__ in out
    assert out.endswith("ready: nothing is missing\n")
    assert call("doctor", "--quiet") == (0, "", "")
    installed = [each for each in importlib.metadata.distributions() if each.name != "onnx"]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: installed)
    code, out, _ = call("doctor", "--json")
    assert (code, json.loads(out)["missing_extras"]) == (0, ["onnx"])
    assert "pip install 'trunkfirst[EXTRA]': onnx" in call("doctor")[1]
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, out, _ = call("doctor")
    assert code == 1
    assert f"not ready: {cache} cannot be written" in out


# -- errors: one line each, an exit code each

WIDE = ["--set", "trunk.width=30"]
ERRORS: dict[str, tuple[list[str], int, str]] = {
    "wrong problem": (["run", "no-such-problem"], 3, "no problem 'no-such-problem'; choose one of: nonlinear"),
    "unknown setting": (["run", NAME, "--set", "trunk.colour=red"], 4, "no setting 'method.trunk.colour'; known"),
    "p below 1": (["run", NAME, "--set", "trunk.p=0.5"], 5, "trunk.p is 0.5"),
    "N not below m_y": (
        ["run", NAME, *SMALL, *WIDE, "--out", "a"],
        7,
        "N = 30 needs more than N output points, got 30",
    ),
    "folder not empty": (["run", NAME, *SMALL, "--out", "full"], 8, "full is not empty"),
    "folder not writable": (["run", NAME, *SMALL, "--out", "full/file/a"], 9, "cannot write to full/file/a"),
    "wrong command line": (["run", NAME, "--colour", "red"], 2, "--colour"),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("quiet", [True, False], ids=["quiet", "not quiet"])
def test_errors_are_one_line(call: Call, tmp_path: Path, name: str, quiet: bool):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    arguments, code, words = ERRORS[name]
    found, out, err = call(*arguments, *(["--quiet"] if quiet else []))
    *before, line = err.splitlines()
    assert (found, out) == (code, "")
    assert line.startswith("trunkfirst: ")
    assert words in line
    # Where it was not asked to be quiet, a sentence may have said what was about to be done.
    assert not (quiet and before), err
    assert not before or " ".join(before).startswith(f"{NAME}, two-step, preset paper"), err


def test_every_error_has_its_own_code():
    codes = [code for _, code, _ in ERRORS.values()]
    assert len(set(codes)) == len(codes)
    assert not {0, 1, 130} & set(codes)


MORE_ERRORS: dict[str, tuple[list[str], int, str]] = {
    "wrong method": (["run", NAME, "--method", "magic"], 3, "no method 'magic'"),
    "wrong preset": (["run", NAME, "--preset", "quick"], 3, "no preset 'quick'"),
    "unused setting": (
        ["run", NAME, "--preset", "paper", "--set", "train_transform=true"],
        4,
        "no setting 'method.train_transform'",
    ),
    "wrong data": (
        ["run", NAME, *SMALL, "--set", "inputs={kind='basis',basis='fourier',count=3}", "--out", "a"],
        6,
        "need at least 3 different positions in it, got 1",
    ),
    "no problem at all": (["run"], 2, "PROBLEM"),
    "too few samples": (["run", NAME, "--samples", "2"], 2, "--samples"),
    "no such command": (["walk"], 2, "walk"),
    "a similar command": (["comapre"], 2, "Did you mean 'compare'?"),
    "a similar option": (["run", NAME, "--iteration", "3"], 2, "--iterations"),
    "a similar problem": (["run", "nonlinear-conductvity"], 3, f"did you mean '{NAME}'?"),
    "no such file": (["run", "absent.toml"], 10, "absent.toml does not exist"),
    "batch too large": (["run", NAME, *SMALL, "--set", "branch.batch=99", "--out", "a"], 5, "batch of 99"),
    "no run": (["report", "absent"], 10, "absent: no such run"),
    "nothing to resume": (["resume", "absent"], 10, "absent: no such run"),
    "random points": (["data", "make", NAME, "--samples", "6", "--points", "seven"], 5, "points is 'seven'"),
}


@pytest.mark.parametrize("name", MORE_ERRORS)
def test_more_errors_are_one_line(call: Call, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "write_run_report", WRITE_REPORT)
    arguments, code, words = MORE_ERRORS[name]
    found, out, err = call(*arguments, "--quiet")
    assert (found, out) == (code, "")
    assert err.count("\n") == 1, err
    assert err.startswith("trunkfirst: ")
    assert words in err
    assert not Path("a").exists()  # what was refused leaves nothing


# -- help


def test_no_arguments_give_help(call: Call):
    code, out, err = call()
    assert code in (0, 2)
    assert "compare" in out + err
    assert "Traceback" not in err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_json_and_quiet(call: Call, command: tuple[str, ...]):
    code, out, _ = call(*command, "--help")
    assert code == 0
    assert "--json" in out
    assert "--quiet" in out


@pytest.mark.parametrize("command", sorted(set(typer.main.get_group(app).commands) - {"data"}))
def test_help_has_an_example(call: Call, command: str):
    _, out, _ = call(command, "--help")
    assert f"Example: trunkfirst {command}" in " ".join(out.split())


def test_progress_is_printed_while_nothing_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch):
    """Off a terminal, e.g. during a long compilation."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress.TerminalReporter() as reporter:
        reporter.on_samples(1, 3)
        deadline = time.monotonic() + 60
        err = ""
        while err.count("data 1/3") < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
            err += capsys.readouterr().err
    assert err.count("data 1/3") >= 2


def test_a_sentence_stays_in_its_line(capsys: pytest.CaptureFixture[str]):
    """Off a terminal; and what is in brackets, as a unit, is no markup."""
    sentence = f"warning: velocity [m/s] {'is large ' * 20}".strip()
    with progress.TerminalReporter() as reporter:
        reporter.say(sentence)
    assert capsys.readouterr().err.splitlines() == [sentence]


def test_a_closed_form_has_no_progress(capsys: pytest.CaptureFixture[str]):
    with progress.TerminalReporter() as reporter:
        for iterations in (1, 2):
            reporter.on_step(LogEntry("trunk", iterations, iterations, 0.5, 0.5, 1.0, 0.1))
    assert capsys.readouterr().err.splitlines() == ["trunk 2/2  loss 5.00e-01  rate 1.0e+00"]


def test_progress_is_shown_in_notebooks(monkeypatch: pytest.MonkeyPatch):
    with progress.as_reporter(None) as reporter:
        assert isinstance(reporter, progress.Silent)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    with progress.as_reporter(None) as reporter:
        assert isinstance(reporter, progress.TerminalReporter)
    with progress.as_reporter(False) as reporter:
        assert isinstance(reporter, progress.Silent)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or (os.cpu_count() or 1) < 2, reason="needs two cores")
def test_one_core_and_two_give_the_same_bits():
    """Of the gradient of a trunk, whose sums over points XLA divides among threads."""
    script = """
import os, sys
os.sched_setaffinity(0, range(int(sys.argv[1])))
from trunkfirst.cli import _limit_threads
_limit_threads()
import hashlib, equinox, jax, numpy as np
from trunkfirst.fields import Fields
from trunkfirst.network_trunk import NetworkTrunk
points = np.random.default_rng(0).uniform(size=(4000, 2))
with jax.enable_x64(True):
    fields, dtype = Fields(points, np.sin(points.T * 3)), np.dtype(np.float64)
    start = NetworkTrunk((20,), 20).start(fields, dtype=dtype, key=jax.random.key(0))
    problem = fields.problem(dtype, floats_per_point=42)(1e-3)
    gradient = equinox.filter_jit(problem.value_and_grad)(start, key=None)[1]
print(hashlib.sha256(b"".join(np.asarray(g).tobytes() for g in jax.tree.leaves(gradient))).hexdigest())
"""
    environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
    digests = {
        subprocess.check_output([sys.executable, "-c", script, cores], env=environment) for cores in ("1", "2")
    }
    assert len(digests) == 1


def test_help_and_data_load_no_jax(cache: Path, tmp_path: Path):
    """Help loads nothing heavy; making data loads no JAX."""
    script = """
import sys
from trunkfirst.cli import run_command as main
for command in ([], ["run"], ["compare"], ["report"], ["doctor"], ["data", "make"]):
    assert main([*command, "--help"]) == 0
heavy = {"jax", "numpy", "scipy", "matplotlib", "rich", "skfem"} & set(sys.modules)
assert not heavy, heavy
assert main(["data", "make", "nonlinear-conductivity", "--samples", "4", "--points", "random:5"]) == 0
assert "jax" not in sys.modules
"""
    environment = {**os.environ, "TRUNKFIRST_CACHE": str(cache)}
    found = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
