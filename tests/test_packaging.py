"""What a person installs: a small wheel with all its parts, and few packages behind it."""

import importlib.metadata
import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
MOST_PACKAGES = 40
LARGEST_WHEEL = 1_000_000


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """The packages that installing `name` brings along, by the metadata of what is installed here."""
    found: set[str] = set()
    asked = [(name, extras)]
    while asked:
        package, wanted = asked.pop()
        for line in importlib.metadata.requires(package) or ():
            requirement = Requirement(line)
            is_asked_for = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *wanted)
            )
            key = canonicalize_name(requirement.name)
            if is_asked_for and key not in found:
                found.add(key)
                asked.append((key, frozenset(requirement.extras)))
    return found


def test_core_brings_few_packages():
    packages = needed("trunkfirst")
    assert {"jax", "jaxlib", "numpy", "scipy", "matplotlib"} <= packages
    assert not {"scikit-learn", "onnx", "starlette", "sphinx"} & packages
    assert len(packages) <= MOST_PACKAGES, (
        f"installing trunkfirst brings {len(packages)} packages, at most {MOST_PACKAGES} are wanted; "
        f"move a dependency into an extra: {', '.join(sorted(packages))}"
    )


def test_wheel_is_small_and_complete(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: the wheel cannot be built here")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < LARGEST_WHEEL
    inside = set(zipfile.ZipFile(wheel).namelist())
    parts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "trunkfirst").rglob("*") if path.is_file()}
    assert {part for part in parts if "__pycache__" not in part} <= inside
    assert {"trunkfirst/report/template.html", "trunkfirst/exporters/page/page.html"} <= inside
    assert not [name for name in inside if not name.startswith(("trunkfirst/", "trunkfirst-"))]
