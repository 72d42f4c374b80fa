"""The files around the package: they agree with each other, and name only what there is."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from run_lanes import oldest_requirements

import trunkfirst

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOOKS = ROOT / ".pre-commit-config.yaml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SETTINGS = [*WORKFLOWS, *sorted((ROOT / ".github").glob("*.yml")), ROOT / ".readthedocs.yaml", HOOKS]
CONDA_NAMES = {"matplotlib": "matplotlib-base"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package in a lock: several where they depend on the version of Python."""
    found: dict[str, set[str]] = {}
    for package, version in re.findall(
        r"^([\w.-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE
    ):
        found.setdefault(package, set()).add(version)
    return found


def texts(value: Any) -> list[str]:
    """All texts below a value read from YAML."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value] if isinstance(value, str) else [text for part in parts for text in texts(part)]


@pytest.mark.parametrize("path", SETTINGS, ids=lambda path: path.name)
def test_settings_name_only_files_and_targets_that_exist(path: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = "\n".join(texts(read(path)))
    assert set(re.findall(r"^make (\S+)", lines, re.MULTILINE)) <= targets
    for name in re.findall(r"(?:\s|^)((?:tests/|docs/|requirements)[\w./-]+)", lines):
        assert (ROOT / name).exists() or name == "docs/_build", name


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_no_secret_is_used(path: Path):
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", name)] == []
    assert "secrets." not in path.read_text(encoding="utf-8")


def test_every_version_of_python_that_is_named_is_tested():
    named = {line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line}
    tested = set(re.findall(r"python(?:-version)?: \"(3\.\d+)\"", WORKFLOWS[-1].read_text(encoding="utf-8")))
    assert tested == named
    assert PROJECT["project"]["requires-python"] == f">={min(named)}"


def test_the_oldest_versions_tested_are_those_allowed():
    oldest = {(line := Requirement(text)).name: line.specifier for text in oldest_requirements()}
    for text in PROJECT["project"]["dependencies"]:
        allowed = Requirement(text)
        (bound,) = [each.version for each in allowed.specifier if each.operator == ">="]
        assert oldest[allowed.name] == SpecifierSet(f"=={bound}"), text


# -- locks


def test_running_uses_versions_of_developing():
    developing, running = pins("requirements.lock"), pins("requirements-run.lock")
    assert running.items() <= developing.items()
    assert {Requirement(text).name for text in PROJECT["project"]["dependencies"]} <= set(running)
    assert not {"pytest", "sphinx", "ruff", "onnx"} & set(running)


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-run.lock"])
def test_locks_have_hashes_and_no_host(name: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "://" not in text
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("target", "stamps", "installed"),
    [
        ("demo", (), {"requirements-run.lock"}),
        ("demo", ("ready-run",), set[str]()),
        ("lint", (), {"requirements.lock"}),
        ("lint", ("ready-run",), {"requirements.lock"}),
        ("lint", ("ready-run", "ready"), set[str]()),
    ],
)
def test_make_installs_what_is_missing(tmp_path: Path, target: str, stamps: tuple[str, ...], installed: set[str]):
    for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-run.lock"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").mkdir()
    for name in stamps:
        (tmp_path / ".venv" / name).touch()
    found = subprocess.run(["make", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(re.findall(r"-r (\S+)", found.stdout)) == installed


# -- versions, recipe, hooks


def test_the_recipe_agrees_with_the_package():
    recipe = read(ROOT / "recipe" / "recipe.yaml")
    assert recipe["context"]["version"] == trunkfirst.__version__
    assert f">={recipe['context']['python_min']}" == PROJECT["project"]["requires-python"]
    wanted = {(line := Requirement(text)).name: line.specifier for text in PROJECT["project"]["dependencies"]}
    found = {line.split()[0]: SpecifierSet(line.split()[1]) for line in recipe["requirements"]["run"][1:]}
    assert found == {CONDA_NAMES.get(name, name): bounds for name, bounds in wanted.items()}


def test_the_citation_has_the_version_and_cites_the_paper():
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == trunkfirst.__version__
    assert [author.get("name") for author in citation["authors"]] == ["The trunkfirst authors"]
    assert [author["family-names"] for author in citation["references"][0]["authors"]] == ["Lee", "Shin"]


def test_the_hooks_use_the_linter_of_the_lock():
    (ruff,) = (repo for repo in read(HOOKS)["repos"] if repo["repo"].endswith("/ruff-pre-commit"))
    assert {ruff["rev"].removeprefix("v")} == pins("requirements.lock")["ruff"]


# -- the paper about this software


def test_the_paper_cites_what_it_lists_and_shows_what_there_is():
    text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    listed = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper" / "paper.bib").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"(?<=[\[; ])@(\w+)", text)) == set(listed)
    assert len(set(listed)) == len(listed)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert pictures
    assert all((ROOT / "paper" / picture).is_file() for picture in pictures)


def test_the_numbers_of_the_paper_are_those_of_the_readme():
    text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8")
    pages = ("README.md", "docs/comparison.md", "docs/paper.md")
    known = "".join((ROOT / name).read_text(encoding="utf-8") for name in pages)
    numbers = re.findall(r"\d\.\d+e-\d+", text)
    assert len(numbers) > 5
    assert [number for number in numbers if number not in known] == []
