"""The package: its names, its version, what importing it loads, and which modules import which."""

import ast
import functools as ft
import graphlib
import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import trunkfirst

ROOT = Path(trunkfirst.__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
}


def test_public_names_are_those_listed():
    assert dir(trunkfirst) == sorted(trunkfirst.__all__)
    assert len(set(trunkfirst.__all__)) == len(trunkfirst.__all__)


@pytest.mark.parametrize("name", trunkfirst.__all__)
def test_every_public_name_can_be_imported(name: str):
    assert getattr(trunkfirst, name) is not None


def test_other_names_cannot():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(trunkfirst, "nothing")  # noqa: B009


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


@ft.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_of(name: str) -> set[str]:
    """The modules of the package that a module imports, anywhere in it but for the checker of types alone."""
    path, found = MODULES[name], set[str]()
    tree = tree_of(path)
    only_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    ignored = {id(inner) for node in only_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not node.level or id(node) in ignored:
            continue
        parts = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
        stem = ".".join([*parts[: len(parts) + 1 - node.level], *([node.module] if node.module else [])])
        names = {f"{stem}.{alias.name}" for alias in node.names} & set(MODULES) or {stem}
        found |= names & set(MODULES) - {"trunkfirst"}
    return found


def test_modules_import_downwards_only():
    """A module can be put above all that it imports: there are no cycles."""
    graph = {name: imports_of(name) for name in MODULES if MODULES[name].name != "__init__.py"}
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError
    assert (
        order.index("trunkfirst.settings")
        < order.index("trunkfirst.two_step")
        < order.index("trunkfirst.interface")
    )


def test_the_package_imports_itself_by_relative_names():
    for path in MODULES.values():
        for node in ast.walk(tree_of(path)):
            absolute = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else absolute
            assert not any(each.split(".")[0] == "trunkfirst" for each in names), path


def test_no_file_name_is_used_twice():
    names = [path.name for path in MODULES.values() if path.name != "__init__.py"]
    assert sorted(set(names)) == sorted(names)
