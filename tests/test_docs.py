"""The documentation: pages made from the code are up to date, every link leads somewhere, and its code runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import trunkfirst

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["settings", "commands"])
def test_a_page_made_from_the_code_is_up_to_date(page):
    assert (DOCS / f"{page}.md").read_text(encoding="utf-8") == load(f"make_{page}").page(), (
        f"docs/{page}.md is out of date: python docs/make_{page}.py"
    )


def test_site_builds_without_a_warning(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        str(tmp_path / "tree"),
    ]
    built = subprocess.run(
        [*command, str(DOCS), str(tmp_path / "html")], capture_output=True, text=True, check=False, timeout=300
    )
    assert built.returncode == 0, built.stderr
    # Names come with their descriptions, and a page for every room.
    assert "Train an operator on" in (tmp_path / "html" / "api" / "training.html").read_text(encoding="utf-8")
    assert "Undefined" not in (tmp_path / "html" / "api" / "errors.html").read_text(encoding="utf-8")
    # Every picture is there: those in HTML tags are not looked at by Sphinx.
    sources = [
        page.parent / source
        for page in (tmp_path / "html").rglob("*.html")
        for source in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text(encoding="utf-8"))
    ]
    assert "explorer-5.3-phone.png" in {source.name for source in sources}
    assert [source for source in sources if not source.is_file()] == []


def test_every_room_has_a_page():
    rooms = {path.parent.name for path in Path(trunkfirst.__file__).parent.glob("*/__init__.py")} - {"cli"}
    assert rooms | {"errors", "index"} == {path.stem for path in (DOCS / "api").glob("*.md")}


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md"])
def test_links_outside_the_site_lead_somewhere(file):
    path = ROOT / file
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_program_of_the_readme_runs(capsys):
    """With fewer samples and iterations, and a smaller trunk."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 16
    for long, short in (("samples=200", "samples=40"), ("(2, 50, 50, 50, 50)", "(2, 10)")):
        assert long in block
        block = block.replace(long, short)
    exec(re.sub(r"iterations=\d+", "iterations=20", block), {})
    assert capsys.readouterr().out


def test_citation_has_what_the_format_asks_for():
    words = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for key in ("cff-version: 1.2.0", "message:", "title:", "authors:", "type: software", "references:"):
        assert re.search(rf"^{re.escape(key)}", words, re.MULTILINE), key
    assert f"version: {trunkfirst.__version__}\n" in words
