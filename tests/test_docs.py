"""The documentation: pages made from the code are up to date, every link leads somewhere, and its code runs."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
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
    # Names come with their descriptions, records with those of their settings.
    reference = (tmp_path / "html" / "api" / "index.html").read_text(encoding="utf-8")
    assert "Learn the operator that maps input functions" in reference
    assert "hidden widths; from the data if left out" in reference
    assert "Undefined" not in reference
    # No browser breaks a number at its hyphen.
    problems = (tmp_path / "html" / "problems.html").read_text(encoding="utf-8")
    assert '<span class="whole">2.11e-7</span>' in problems
    assert re.findall(r">[^<]*[ (]\d\.\d+e-\d+", re.sub(r"<pre>.*?</pre>", "", problems, flags=re.DOTALL)) == []
    # Every picture is there: those in HTML tags are not looked at by Sphinx.
    sources = [
        page.parent / source
        for page in (tmp_path / "html").rglob("*.html")
        for source in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text(encoding="utf-8"))
    ]
    assert "explorer-5.3-phone.png" in {source.name for source in sources}
    assert [source for source in sources if not source.is_file()] == []


def test_every_public_name_is_in_the_reference():
    page = (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    named = re.findall(r"auto(?:class|function|module):: trunkfirst\.(\w+)", page)
    assert sorted(named) == sorted(set(trunkfirst.__all__) - {"__version__"})
    assert named[0] == "fit"


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md"])
def test_links_outside_the_site_lead_somewhere(file):
    path = ROOT / file
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


def test_program_of_the_readme_runs(capsys):
    """With a small method, because choosing one takes longer than a test should."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 6
    x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    trunk = trunkfirst.NetworkTrunk(hidden=(20,), width=6, iterations=50, starts=1)
    inputs = trunkfirst.StandardisedInputs()
    method = trunkfirst.TwoStep(trunk, trunkfirst.Linear(), inputs=inputs, weights="none")
    names: dict[str, Any] = {
        "inputs": a[:30],
        "outputs": a[:30] @ np.stack([np.sin(3 * x), x**2]),
        "points": x[:, None],
        "new_inputs": a[30:],
        "method": method,
    }
    assert "trunkfirst.fit(inputs, outputs, points)" in block
    exec(block.replace("points)", "points, method=method)", 1), names)
    assert names["fields"].shape == (10, 30)
    assert "finished" in capsys.readouterr().out


def test_citation_has_what_the_format_asks_for():
    words = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    for key in ("cff-version: 1.2.0", "message:", "title:", "authors:", "type: software", "references:"):
        assert re.search(rf"^{re.escape(key)}", words, re.MULTILINE), key
    assert f"version: {trunkfirst.__version__}\n" in words
