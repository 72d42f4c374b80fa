"""A damaged run folder is noticed before a number is used: a short version of benchmarks/corrupt.py."""

import importlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_problems import Call

from trunkfirst.files.integrity import update_manifest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PARTS = {"config.toml", "environment.json", "history.jsonl", "metrics.json", "training.npz", "MANIFEST.sha256"}


@pytest.fixture(scope="module")
def benchmark() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("corrupt")


@pytest.fixture
def run(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "run"))


def test_all_damage_is_noticed(benchmark: Any, run: Path):
    assert {path.name for path in run.iterdir()} >= PARTS
    found = benchmark.damage_all(run, 60, 20)
    assert {how.split(",")[0] for how in found} == {"flipped", "cut", "removed"}
    for how, count in found.items():
        assert count.tried == count.noticed == count.named, how
    for how, count in benchmark.damage_model(run / "model", 30, 10).items():
        assert count.tried == count.noticed == count.named, how


def test_all_commands_miss_a_file(benchmark: Any, run: Path, tmp_path: Path):
    found = benchmark.remove_for_all(run, tmp_path)
    assert len(found) == 5
    for how, count in found.items():
        assert count.tried == count.noticed > 5, how
    assert not (tmp_path / "out.npz").exists()


def test_an_earlier_fit_that_is_damaged(call: Call, place: Path, run: Path, tmp_path: Path):
    (run / "metrics.json").write_text("{}")
    arguments = ("--data", place / "new.npz", "--from", run, "--out", tmp_path / "a")
    code, out, err = call("fit", *arguments)
    assert (code, out) == (10, "")
    assert "metrics.json is damaged" in " ".join(err.split())
    assert not (tmp_path / "a").exists()


def test_the_model_of_another_run_is_noticed(run: Path, benchmark: Any):
    """It is whole, and its own manifest vouches for it, but that of the run does not."""
    text = (run / "model" / "model.json").read_text()
    (run / "model" / "model.json").write_text(text.replace("tanh", "silu").replace("relu", "silu"))
    update_manifest(run / "model", "model.json")
    assert benchmark.by_load(run / "model") is None
    assert "model.json" in (benchmark.evaluate(run) or "")
