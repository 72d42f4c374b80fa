"""Damaged files of every kind, signed anew: refused in words or read, a few hundred each."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
HAS_HDF5 = importlib.util.find_spec("h5py") is not None
# A damaged HDF5 file takes a process, a model a look at its shapes.
COUNTS = {"HDF5": 3, "model": 100}


@pytest.fixture(scope="module")
def benchmark() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("fuzz_readers")


@pytest.fixture(scope="module")
def kinds(benchmark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return benchmark.make_kinds(tmp_path_factory.mktemp("good"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    [
        *("npz, zip records", "npz, arrays", "mat", "mat, inside compression", "CSV", "JSON"),
        *("TOML configuration", "model", "manifest", "shards", "run folder"),
        pytest.param("HDF5", marks=pytest.mark.skipif(not HAS_HDF5, reason="HDF5 needs the extra hdf5")),
    ],
)
def test_damaged_files_give_documented_errors(benchmark: Any, kinds: dict[str, Any], name: str, tmp_path: Path):
    found = benchmark.fuzz(kinds[name], COUNTS.get(name, 250), tmp_path, seed=1)
    assert found.faults == []
    assert found.refused > 0
    assert found.refused + found.accepted == found.files


def test_every_kind_is_tried(kinds: dict[str, Any]):
    assert len(kinds) == 12 - (not HAS_HDF5)


def test_a_reader_that_raises_something_else_is_found_out(benchmark: Any, kinds: dict[str, Any], tmp_path: Path):
    def careless(path: Path) -> None:
        assert path.read_bytes() == kinds["JSON"].pieces["a.json"]

    kind = benchmark.Kind(kinds["JSON"].pieces, kinds["JSON"].assemble, careless)
    assert len(benchmark.fuzz(kind, 20, tmp_path).faults) > 15
