"""Every example runs, and its errors are as small as its text says."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pytest
from own_problems import shared_data

EXAMPLES = Path(__file__).parents[1] / "examples"
# The largest error allowed of each kind, a few times what is measured.
LARGEST = {
    "mesh": {"test": 6e-3},
    "antiderivative": {"test": 2e-4, "between": 2e-4},
    "multi_output": {"velocity": 1e-4, "position": 1e-4, "start": 0.0},
    "multi_input": {"concatenated": 3e-2, "product": 1e-4},
    "scattered": {"own points": 5e-3, "grid": 5e-3},
    "design": {"field": 1e-3, "design": 3e-2},
    "calibration": {"beta": 0.05, "beta in spreads": 3.0, "f / kappa": 0.1, "g": 1e-2},
    "sensitivity": {"indices": 1e-2},
    "gradients": {"slope": 1e-3, "tip": 1e-3, "flux": 2e-3},
    "darcy": {"nonlinear-conductivity": 5e-3, "discontinuous-conductivity": 0.2, "multiple-inputs": 0.1},
    "burgers": {"test": 3e-2, "trunk": 3e-2},
    "paper": {"at once": 0.15, "in two steps": 0.06, "solved for": 1e-3},
    "own_network": {"test": 4e-3, "slope": 5e-2},
    "pipeline": {"test": 1e-2, "lost score": 1e-3},
}
# Less of everything where the example takes longer than a test should.
SMALLER: dict[str, dict[str, Any]] = {
    "darcy": {"samples": 60, "iterations": 100},
    "burgers": {"iterations": 60},
    "own_network": {"iterations": 50},
}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Several compilations each, or many iterations.
SLOW = ("darcy", "burgers", "paper", "pipeline", "calibration")
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in LARGEST]


@pytest.fixture
def _headless():
    """Draw without a window, and close what was drawn."""
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("_headless")
def test_an_example_keeps_what_it_promises(name, tmp_path, capsys):
    if name == "sensitivity":
        pytest.importorskip("SALib", reason="SALib is not among the packages for tests; pip install SALib")
    files = [shared_data("burgers.npz")] if name == "burgers" else []
    picture = tmp_path / "picture.png"
    errors = load(EXAMPLES / f"{name}.py").main(*files, picture, **SMALLER.get(name, {}))
    assert picture.stat().st_size > 2000
    assert errors.keys() == LARGEST[name].keys()
    for kind, error in errors.items():
        assert error <= LARGEST[name][kind], kind
    assert capsys.readouterr().out


def test_every_example_is_tested_and_short():
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert {path.stem for path in scripts} == set(LARGEST)
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in scripts:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 100
        assert f"[{path.name}](../examples/{path.name})" in listed
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", listed)
    assert len(pictures) == len(scripts)
    sizes = [(EXAMPLES / picture).stat().st_size for picture in pictures]
    assert max(sizes) < 60_000


@pytest.mark.parametrize("name", load(EXAMPLES.parent / "docs" / "make_notebook.py").NOTEBOOKS)
def test_a_notebook_is_that_of_its_script_and_runs(name, tmp_path, capsys):
    notebook = json.loads((EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == load(EXAMPLES.parent / "docs" / "make_notebook.py").cells(name), "python docs/make_notebook.py"
    assert len({cell["id"] for cell in notebook["cells"]}) == len(cells)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert code[-1]["outputs"][0]["data"]["image/png"]

    program = "\n".join(source for kind, source in cells if kind == "code")
    program = re.sub(r"(iterations(=|\": ))\d+", r"\g<1>20", program)
    (tmp_path / "notebook.py").write_text(program, encoding="utf-8")
    ran = load(tmp_path / "notebook.py")
    assert ran.result.evaluation.summary()["mean_relative_l2"] < 0.1
    assert "test error" in capsys.readouterr().out
