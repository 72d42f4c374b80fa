"""Memory is looked at before it is asked for."""

from pathlib import Path

import jax
import numpy as np
import pytest
from own_problems import Call

import trunkfirst
from trunkfirst import memory as needs
from trunkfirst.errors import MemoryNeedError


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Free memory in GiB, as one wants it."""

    def is_free(gigabytes: float) -> None:
        monkeypatch.setattr(needs, "free_memory", lambda: int(gigabytes * 2**30))

    monkeypatch.setenv("TRUNKFIRST_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return is_free


def test_what_fits_is_not_refused(memory):
    memory(8)
    needs.check_memory(100_000, 541)


def test_the_advice_fits(memory):
    memory(2)
    with pytest.raises(
        MemoryNeedError, match=r"100,000 samples of 541 numbers need .* GiB .*; data.samples=\d+"
    ) as info:
        needs.check_memory(100_000, 541)
    fits = int(str(info.value).split("data.samples=")[1].split()[0])
    needs.check_memory(fits, 541)
    with pytest.raises(MemoryNeedError):
        needs.check_memory(int(1.01 * fits) + 1, 541)


def test_a_machine_that_is_too_small(memory):
    memory(0.1)
    with pytest.raises(MemoryNeedError, match="another machine"):
        needs.check_memory(100, 541)


def test_before_data_are_made(memory, call: Call, tmp_path: Path):
    memory(2)
    code, out, err = call("run", "multiple-inputs", "--out", "a")
    assert (code, out) == (MemoryNeedError.exit_code, "")
    assert "100,000 samples" in err
    assert not list(tmp_path.glob("cache/*"))
    assert not (tmp_path / "a" / "checkpoints").exists()


def test_free_memory_of_this_machine():
    free = needs.free_memory()
    assert free is None or 2**24 < free < 2**50


def test_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    monkeypatch.setattr(needs, "_GROUPS", tmp_path)
    if Path("/proc/meminfo").exists():
        assert needs.free_memory() == 2_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert (needs.free_memory() or 2**30) > 2_000_000


@pytest.mark.parametrize(
    "settings",
    [
        ("trunk.kind=network", "trunk.hidden=[300000, 300000]", "trunk.width=2"),
        ("branch.kind=network", "branch.hidden=[1000000000]"),
        ("branch.kind=network", "branch.hidden=[1000000]"),  # a square matrix of this size is solved with
        ("branch.kind=active-neurons", "branch.width=1000000000"),
        ("branch.kind=fourier", "branch.channels=1000000000", "inputs=raw", "trunk.kind=modes"),
    ],
    ids=str,
)
def test_widths_count(memory, call: Call, tmp_path: Path, settings: tuple[str, ...]):
    memory(8)
    x, a = np.linspace(0, 1, 20), np.random.default_rng(0).normal(size=(30, 8))
    outputs = np.tanh(a[:, :1] * x + a[:, 1:2] * x**2)
    np.savez(tmp_path / "d.npz", inputs=a, points=x[:, None], outputs=outputs, sensors=np.linspace(0, 1, 8))
    code, _, err = call("fit", "--data", "d.npz", "--out", "a", *(f"--set={each}" for each in settings))
    assert code == MemoryNeedError.exit_code, err
    assert "use smaller widths" in err


def test_what_xla_cannot_allocate_is_said_in_words(memory, monkeypatch: pytest.MonkeyPatch):
    memory(10_000)  # the estimate finds nothing wrong
    x, a = np.linspace(0, 1, 20), np.random.default_rng(0).normal(size=(30, 2))
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(width=2), trunkfirst.NetworkBranch(hidden=(5,)))

    def exhausted(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 14400050640003024 bytes.")

    monkeypatch.setattr(trunkfirst.NetworkBranch, "learn", exhausted)
    with pytest.raises(MemoryNeedError, match="memory ran out while training"):
        trunkfirst.fit(a, np.tanh(a @ np.stack([x, x**2])), x[:, None], method=method, progress=False)
