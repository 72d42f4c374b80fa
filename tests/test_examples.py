"""Every example runs, and its errors are as small as its text says."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# The largest error allowed of each kind, a few times what is measured.
LARGEST = {
    "antiderivative": {"test": 2e-4, "between": 2e-4},
    "multi_output": {"velocity": 1e-4, "position": 1e-4, "start": 0.0},
    "multi_input": {"concatenated": 3e-2, "product": 1e-4},
    "scattered": {"own points": 5e-3, "grid": 5e-3},
    "design": {"field": 1e-3, "design": 3e-2},
    "gradients": {"slope": 1e-3, "tip": 1e-3, "flux": 2e-3},
}


@pytest.mark.parametrize("name", LARGEST)
def test_an_example_keeps_what_it_promises(name, capsys):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    errors = module.main()
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
        assert f"[{path.name}]({path.name})" in listed
