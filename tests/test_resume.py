"""Interrupted anywhere and resumed: the same bits, and little work repeated."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_problems import Call, antiderivative
from test_runs import Listening

from trunkfirst.checkpoints import Journal, Snapshot, checkpointed_step, keep_checkpoints, lock_folder
from trunkfirst.data.read_write import write_data
from trunkfirst.errors import (
    CorruptFileError,
    DataError,
    FolderInUseError,
    OutputNotWritableError,
    Terminated,
    UsageError,
)
from trunkfirst.files.integrity import sha256_of, verify_manifest
from trunkfirst.files.npz import read_npz
from trunkfirst.files.text_files import read_json
from trunkfirst.minimisers import loop
from trunkfirst.networks.operator import load
from trunkfirst.progress import Silent
from trunkfirst.regressors.active_neurons import NeuronSearch
from trunkfirst.runs.compare import Comparison, compare
from trunkfirst.runs.config import RunConfig, load_config, make_config, nested
from trunkfirst.runs.directory import run_directory
from trunkfirst.runs.resume import fit_more, resume
from trunkfirst.runs.run import run
from trunkfirst.settings import merge

INTERVAL = 30  # iterations between checkpoints; the package itself uses the clock
MOST_AGAIN = INTERVAL + 10  # a compiled part has up to 10
MODEL = "model/model.safetensors"
TANH = {"activation": "tanh", "initialisation": "xavier"}
NETWORK = {"hidden": [8], "iterations": 25, "skip": False, "decay": 0.0, **TANH}
SMALL: dict[str, Any] = {
    "trunk": {"hidden": [8], "width": 6, "iterations": 80, "starts": 3},
    "branch": {"kind": "network", **NETWORK},
    "inputs": "standardise",
    "coordinates": {"rescale": False},
    "weights": "relative",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "two-step": {"inputs": "auto"},
    "everything chosen": {"inputs": "auto", "branch": {"kind": "auto", "network": NETWORK}, "weights": "auto"},
    "intervals": {"intervals": True},
    "moving": {
        "method": {
            "kind": "two-step",
            "trunk": {"kind": "moving", "hidden": [6], "fronts": 2, "width": 2, "members": 2, "iterations": 40},
            "branch": "kernel",
            "inputs": "standardise",
            "weights": "relative",
        }
    },
    "monolithic": {
        "method": {
            "kind": "monolithic",
            "trunk": {"hidden": [8], "width": 6},
            "branch": {"hidden": [8], **TANH},
            "inputs": "standardise",
            "weights": "relative",
            "iterations": 80,
            "batches": {"samples": 8},
        }
    },
}


class Crash(BaseException):
    """As sudden as a power cut: the package does not handle it."""


def crash() -> None:
    raise Crash


class Work:
    """Counts iterations of minimisers and of active neurons, and calls `blow` when a limit is reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.done, self.limit, self.written = 0, sys.maxsize, 0
        self.blow: Callable[[], object] = crash
        advance_chunk, iterate = loop.advance_chunk, NeuronSearch.iterate

        def counted(minimiser: Any, objective: Any, progress: loop.Progress) -> loop.Progress:
            after = advance_chunk(minimiser, objective, progress)
            self.add(int(after.state.iteration) - int(progress.state.iteration))
            return after

        def counted_exchange(*arguments: Any) -> Any:
            result = iterate(*arguments)
            self.add(1)
            return result

        def is_due(_: Journal) -> bool:
            if self.done < self.written + INTERVAL:
                return False
            self.written = self.done
            return True

        monkeypatch.setattr(Journal, "is_due", is_due)
        monkeypatch.setattr(loop, "advance_chunk", counted)
        monkeypatch.setattr(NeuronSearch, "iterate", counted_exchange)

    def begin(self, limit: int = sys.maxsize) -> None:
        """Count anew, up to a limit."""
        self.done, self.written, self.limit = 0, 0, limit

    def add(self, iterations: int) -> None:
        self.done += iterations
        if self.done >= self.limit:
            self.limit = sys.maxsize
            self.blow()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.npz"
    write_data(antiderivative(40), path)
    return path


def undisturbed(config: RunConfig, folder: Path) -> tuple[Path, int]:
    """The folder of an undisturbed run, and its iterations."""
    with pytest.MonkeyPatch.context() as patch:
        work = Work(patch)
        run(config, folder)
    return folder, work.done


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run in two steps, its encoder chosen."""
    return undisturbed(config_of(file, **VARIANTS["two-step"]), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def plain(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A run in two steps with everything set."""
    return undisturbed(config_of(file), tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def interrupted_once(file: Path, whole: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, interrupted near its end."""
    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patch:
        Work(patch).begin(int(0.9 * whole[1]))
        with pytest.raises(Crash):
            run(config_of(file, **VARIANTS["two-step"]), folder)
    return folder


def config_of(file: Path, **more: Any) -> RunConfig:
    is_whole = isinstance(more.get("method"), dict)
    base = {"data": {"file": str(file)}, **({} if is_whole else SMALL)}
    return make_config(merge(nested(base), nested(more)))


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_seconds(item) for key, item in value.items() if key != "seconds"}
    if isinstance(value, list):
        return [without_seconds(item) for item in value]
    return value


def assert_same(one: Path, other: Path) -> None:
    """Everything but the times."""
    for folder in (one, other):
        verify_manifest(folder)
    assert not (other / "checkpoints").exists()
    for name in (MODEL, "model/model.json", "config.toml"):
        assert sha256_of(one / name) == sha256_of(other / name), name
    assert without_seconds(read_json(one / "metrics.json")) == without_seconds(read_json(other / "metrics.json"))


@pytest.mark.parametrize(
    ("variant", "shares"),
    [
        ("two-step", (0.3, 0.9)),
        pytest.param("intervals", (0.9,), marks=pytest.mark.slow),
        ("moving", (0.5,)),
        ("monolithic", (0.5,)),
        pytest.param("two-step", (0.02, 0.15, 0.3, 0.5, 0.7, 0.85), marks=pytest.mark.slow),
        pytest.param("everything chosen", (0.05, 0.3, 0.5, 0.7, 0.9, 0.98), marks=pytest.mark.slow),
    ],
)
def test_a_run_interrupted_anywhere_ends_with_the_same_bits(
    variant: str, shares: tuple[float, ...], file: Path, whole: tuple[Path, int], tmp_path: Path, work: Work
):
    config = config_of(file, **VARIANTS[variant])
    expected, iterations = whole if variant == "two-step" else undisturbed(config, tmp_path / "whole")
    for number, share in enumerate(shares):
        folder = tmp_path / str(number)
        work.begin(int(share * iterations))
        with pytest.raises(Crash):
            run(config, folder)
        assert not (folder / "metrics.json").exists()
        resume(folder)
        assert_same(expected, folder)
        assert work.done <= iterations + MOST_AGAIN  # starting over does not pass


def test_active_neurons_are_resumed(file: Path, tmp_path: Path, work: Work):
    branch = {"kind": "active-neurons", "width": 8, "iterations": 30}
    config = config_of(file, branch=branch, inputs={"kind": "principal", "count": 2})
    run(config, tmp_path / "whole")
    whole = work.done
    work.begin(whole - 12)
    with pytest.raises(Crash):
        run(config, tmp_path / "a")
    resume(tmp_path / "a")
    assert_same(tmp_path / "whole", tmp_path / "a")
    assert work.done <= whole + MOST_AGAIN
    curves = [read_npz(tmp_path / name / "anls.npz") for name in ("whole", "a")]
    for name, values in curves[0].items():
        assert np.array_equal(values, curves[1][name])


def test_interrupted_again_and_again(file: Path, whole: tuple[Path, int], tmp_path: Path, work: Work):
    config = config_of(file, **VARIANTS["two-step"])
    crashes = 0
    for crashes in range(1000):
        work.limit = work.done + INTERVAL + 15
        try:
            run(config, tmp_path / "a", resumes=crashes > 0)
            break
        except Crash:
            continue
    assert_same(whole[0], tmp_path / "a")
    assert crashes > 3
    assert work.done < whole[1] + crashes * MOST_AGAIN


def test_a_comparison_is_resumed(file: Path, tmp_path: Path, work: Work):
    configs = [config_of(file, method=method) for method in ("two-step", "two-step-without-qr")]
    compare(configs, tmp_path / "whole", seeds=2)
    whole = work.done
    work.begin(int(0.8 * whole))
    with pytest.raises(Crash):
        compare(configs, tmp_path / "a", seeds=2)
    resume(tmp_path / "a")
    assert work.done <= whole + MOST_AGAIN
    for name in ("two-step-seed0", "two-step-seed1", "two-step-without-qr-seed1"):
        assert_same(tmp_path / "whole" / name, tmp_path / "a" / name)


class Interrupting(Silent):
    """Presses Ctrl-C when the first part of a comparison is finished."""

    def say(self, text: str) -> None:
        if ": finished after" in text:
            raise KeyboardInterrupt


@pytest.mark.slow  # each process compiles everything for itself
def test_a_comparison_in_two_processes_has_the_same_bits(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also when it is interrupted while one process has finished and the other has not."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as in this process
    methods = ("two-step", "two-step-without-qr", "monolithic")
    configs = [config_of(file, method=method) for method in methods[:2]]
    configs.append(config_of(file, **VARIANTS["monolithic"]))
    compare(configs, tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        compare(configs, tmp_path / "two", workers=2, reporter=Interrupting())
    assert not (tmp_path / "two" / "metrics.json").exists()
    found = resume(tmp_path / "two")
    assert isinstance(found, Comparison)
    assert [outcome.config.method.name for outcome in found.outcomes] == list(methods)
    for outcome in found.outcomes:
        assert_same(tmp_path / "one" / outcome.folder.name, outcome.folder)
    inputs, points = antiderivative(3).flat_inputs, antiderivative(3).points
    known = load(tmp_path / "one" / "two-step-seed0").predict(inputs, points)
    assert np.array_equal(found.outcomes[0].result.operator.predict(inputs, points), known)
    verify_manifest(tmp_path / "two")
    assert not (tmp_path / "two" / "checkpoints").exists()


@pytest.mark.parametrize("keeps", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_adding_samples_is_resumed(keeps: bool, file: Path, tmp_path: Path, work: Work):
    write_data(antiderivative(20, seed=1, modes=5 if keeps else 11), tmp_path / "new.npz")
    run(config_of(file, trunk={"iterations": 200}), tmp_path / "first")
    given = nested({"data": {"file": str(tmp_path / "new.npz")}, **SMALL})
    work.done = 0
    fit_more(given, tmp_path / "whole", tmp_path / "first")
    whole = work.done
    work.begin(whole // 2)
    with pytest.raises(Crash):
        fit_more(given, tmp_path / "a", tmp_path / "first")
    resume(tmp_path / "a")
    assert work.done <= whole + MOST_AGAIN
    assert_same(tmp_path / "whole", tmp_path / "a")


# -- damage


@pytest.fixture
def interrupted(interrupted_once: Path, tmp_path: Path) -> Path:
    """An interrupted run, to be damaged."""
    return shutil.copytree(interrupted_once, tmp_path / "run")


@pytest.mark.parametrize("pattern", ["*.under-way", "*.finished"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "other run"])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_used(
    pattern: str, damage: str, interrupted: Path, whole: tuple[Path, int], work: Work
):
    path = max((interrupted / "checkpoints").glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16 * (damage == "flip")
    identity = identity_of(interrupted)
    changed = {
        "flip": bytes(content),
        "cut": bytes(content[:-7]),
        "empty": b"",
        "other run": resealed(bytes(content).replace(identity, b"0" * len(identity))),
    }[damage]
    path.write_bytes(changed)
    work.begin()
    with pytest.warns(RuntimeWarning, match=path.name):
        resume(interrupted)
    assert_same(whole[0], interrupted)
    assert work.done < 0.1 * whole[1] + 2 * MOST_AGAIN


def identity_of(folder: Path) -> bytes:
    return hashlib.sha256((folder / "checkpoints" / "request.json").read_bytes()).hexdigest().encode()


def resealed(content: bytes) -> bytes:
    start = content.index(b"\n") + 1
    payload = content[start + 64 :]
    return content[:start] + hashlib.sha256(payload).hexdigest().encode() + payload


def test_other_data_are_refused(file: Path, tmp_path: Path, work: Work):
    mine = shutil.copy(file, tmp_path / "mine.npz")
    work.begin(100)
    with pytest.raises(Crash):
        run(config_of(Path(mine)), tmp_path / "a")
    write_data(antiderivative(40, seed=9), Path(mine))
    with pytest.raises(DataError, match="the data have changed since this run began"):
        resume(tmp_path / "a")
    shutil.copy(file, mine)
    resume(tmp_path / "a")


# -- interrupts


def count_to_five(interrupt_at: int | None) -> tuple[int, int, bool]:
    """Where counting began, where it ended, and whether it was interrupted."""
    step, note = checkpointed_step("count"), {"count": 0}
    if step.saved is not None:
        note.update(step.saved.note)
    first = note["count"]
    with step.interruptible(lambda: Snapshot({}, note)):
        while not step.is_done and note["count"] < 5:
            note["count"] += 1
            step.save(lambda: Snapshot({}, note))
            if note["count"] == interrupt_at:
                raise KeyboardInterrupt
    if not step.is_interrupted:
        step.finish(lambda: Snapshot({}, note))
    return first, note["count"], step.is_interrupted


def test_a_loop_with_the_callbacks_of_a_step(tmp_path: Path):
    assert count_to_five(3) == (0, 3, True)
    with pytest.raises(KeyboardInterrupt), keep_checkpoints(tmp_path):
        count_to_five(3)
    with keep_checkpoints(tmp_path, interval=0):
        assert count_to_five(None) == (3, 5, False)
    with keep_checkpoints(tmp_path):
        assert count_to_five(None) == (5, 5, False)


class TerminatesInDestructor:
    """Python ignores the exception that the handler of a signal raises here."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("interrupt", "code"),
    [
        (lambda: signal.raise_signal(signal.SIGINT), 130),
        (lambda: signal.raise_signal(signal.SIGTERM), 143),
        (TerminatesInDestructor, 143),
    ],
    ids=["SIGINT", "SIGTERM", "ignored SIGTERM"],
)
def test_an_interrupt_writes_a_checkpoint(
    interrupt: Callable[[], object],
    code: int,
    plain: tuple[Path, int],
    tmp_path: Path,
    work: Work,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(Journal, "is_due", lambda _: False)
    folder, iterations = plain
    toml = (folder / "config.toml").as_posix()
    work.begin(iterations // 2)
    work.blow = interrupt
    got, _, err = call("fit", "--config", toml, "--out", tmp_path / "a", "--quiet")
    assert got == code
    assert f"continue with: trunkfirst resume {tmp_path / 'a'}" in err
    assert "Traceback" not in err
    got, out, err = call("resume", tmp_path / "a", "--json")
    assert (got, err) == (0, "")
    assert '"status": "finished"' in out
    assert sha256_of(folder / MODEL) == sha256_of(tmp_path / "a" / MODEL)
    assert work.done <= iterations + MOST_AGAIN
    assert call("resume", tmp_path / "a")[1].endswith("is already finished; nothing was left to do\n")


@pytest.mark.parametrize(("iteration", "changed"), [(1, '"NPROC": "'), (100, '"jax": "')])
def test_other_versions_and_threads_are_reported(
    file: Path, tmp_path: Path, work: Work, iteration: int, changed: str
):
    """The first iteration is one of choosing; nothing was written before the choice was made."""
    work.begin(iteration)
    with pytest.raises(Crash):
        run(config_of(file), tmp_path / "a")
    path = tmp_path / "a" / "environment.json"
    path.write_text(path.read_text().replace(changed, f"{changed}0."))
    listener = Listening()
    resume(tmp_path / "a", reporter=listener)
    assert any("versions or flags differ from those" in text for text in listener.said)


def test_nothing_to_resume(tmp_path: Path, call: Call):
    code, _, err = call("resume", tmp_path / "a")
    assert code == CorruptFileError.exit_code
    assert "no such run" in err
    (tmp_path / "a").mkdir()
    code, _, err = call("resume", tmp_path / "a")
    assert code == UsageError.exit_code
    assert "nothing to resume" in err


# -- one process a folder


def test_a_folder_in_use_is_refused(file: Path, tmp_path: Path, work: Work):
    work.begin(100)
    with pytest.raises(Crash):
        run(config_of(file), tmp_path / "a")
    hold = (
        "import sys, time; from pathlib import Path; from trunkfirst.checkpoints import lock_folder\n"
        "with lock_folder(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / "a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUseError, match=f"in use by process {other.pid} on "):
            resume(tmp_path / "a")
        other.kill()
    resume(tmp_path / "a")  # its owner is dead: the lock does not count


def test_a_full_disk_leaves_the_state_before_it(
    file: Path, plain: tuple[Path, int], tmp_path: Path, work: Work, monkeypatch: pytest.MonkeyPatch
):
    written = 0
    sync = os.fsync

    def full(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 12:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputNotWritableError, match=r"cannot write .*checkpoints.*No space left"):
            run(config_of(file), tmp_path / "a")
    resume(tmp_path / "a")
    assert_same(plain[0], tmp_path / "a")


def test_a_folder_that_becomes_read_only_keeps_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The lock could not be removed, which ended in a traceback instead of exit code 9."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputNotWritableError, match="cannot write"), lock_folder(tmp_path):
        raise OutputNotWritableError("cannot write")


def test_a_second_sigterm_ends_the_process_at_once(tmp_path: Path):
    """By its default action: an exception in the middle of the clean-up could reach the interpreter's shutdown."""
    before = signal.getsignal(signal.SIGTERM)

    def interrupted() -> None:
        with run_directory(tmp_path / "run", {}, interval=1.0, resumes=False):
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    with pytest.raises(Terminated):
        interrupted()
    assert signal.getsignal(signal.SIGTERM) == before


CLOSED = ("--set=trunk.kind=modes", "--set=branch.kind=linear", "--quiet")


def test_what_a_kill_leaves_before_and_after_the_work(
    file: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
):
    """Empty checkpoints do not stand in the way; a report that was not written any more is written by resume."""
    monkeypatch.chdir(file.parent)
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".lock").touch()
    code, _, err = call("resume", folder)
    assert (code, "start it with its command" in err) == (UsageError.exit_code, True)
    assert call("fit", "--data", file.name, "--out", folder, *CLOSED)[0] == 0
    # a resumed run holds the whole path, and so must this one
    assert load_config(folder / "config.toml").data.file == str(file.resolve())
    files = sorted(folder.rglob("*"))
    (folder / "report.html").unlink()
    (folder / "figures" / ".typical.svg.tmp-abc").touch()  # of the process that was killed
    code, out, _ = call("resume", folder)
    assert (code, sorted(folder.rglob("*"))) == (0, files)
    assert "its report was missing and is written now" in out


# -- real processes that get SIGKILL and SIGTERM


@pytest.mark.parametrize(
    ("kills", "terms", "stages"),
    [
        (1, 1, ("trunk", "evaluation and files")),
        pytest.param(14, 14, (), marks=pytest.mark.slow),  # every stage
    ],
)
def test_signals_at_random_moments(kills: int, terms: int, stages: tuple[str, ...], tmp_path: Path):
    """By the benchmark, which checks the exit codes, too."""
    script = Path(__file__).parents[1] / "benchmarks" / "kill_and_resume.py"
    command = [sys.executable, str(script), "--kills", str(kills), "--terms", str(terms), "--out", str(tmp_path)]
    command += ["--stages", *stages] if stages else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=900)
    found = read_json(tmp_path / "kill-and-resume.json")["table"]["rows"]
    # which stages were met depends on the speed of the machine
    *by_stage, whole = found
    assert whole == ["all", kills + terms, kills + terms]
    assert by_stage
    assert sum(tries for _, tries, _ in by_stage) == kills + terms
