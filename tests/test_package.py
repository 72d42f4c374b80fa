"""The package: its names, its version, what importing it loads, and which room knows which."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trunkfirst

ROOT = Path(trunkfirst.__file__).parent
# From the ground up, as designed; a room imports from rooms before it alone. Not all of them are built yet.
DESIGNED = (
    "errors",
    "files",
    "distributed",
    "workers",
    "data",
    "problems",
    "devices",
    "linear",
    "networks",
    "checkpoints",
    "minimisers",
    "regressors",
    "training",
    "evaluation",
    "theory",
    "selection",
    "runs",
    "estimator",
    "report",
    "exporters",
    "serve",
    "cli",
)
ROOMS = tuple(room for room in DESIGNED if (ROOT / room / "__init__.py").is_file())


def test_public_names_are_those_listed():
    assert dir(trunkfirst) == sorted(trunkfirst.__all__)
    assert set(trunkfirst._ROOM_OF) == set(trunkfirst.__all__) - {"__version__", "errors"}


@pytest.mark.parametrize("name", trunkfirst.__all__)
def test_every_public_name_can_be_imported(name: str):
    assert getattr(trunkfirst, name) is not None


def test_other_names_cannot():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        trunkfirst.nothing  # noqa: B018


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "cli"])
def test_a_room_exports_what_it_lists(room: str):
    module = importlib.import_module(f"trunkfirst.{room}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_importing_loads_neither_jax_nor_scipy():
    script = (
        "import sys, trunkfirst, trunkfirst.errors, trunkfirst.data, trunkfirst.files\n"
        "heavy = {'jax', 'scipy', 'matplotlib', 'skfem', 'pydantic', 'sklearn'}\n"
        "assert not heavy & set(sys.modules), sorted(sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_version_is_the_newest_of_the_changelog():
    changelog = (ROOT.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert trunkfirst.__version__ == newest[1]


def test_version_is_the_installed_one():
    assert importlib.metadata.version("trunkfirst") == trunkfirst.__version__


def rooms_used(path: Path) -> set[str]:
    """Rooms that a file imports from, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
            found.add(node.module.split(".")[0])
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not any(name.split(".")[0] == "trunkfirst" for name in names), f"{path} imports itself by name"
    return found


def test_every_room_is_in_the_plan():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_downwards_only(room: str):
    below = {*DESIGNED[: DESIGNED.index(room)], "_version"}
    for path in (ROOT / room).glob("*.py"):
        assert rooms_used(path) <= below, path
