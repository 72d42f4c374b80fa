"""The report: made from files alone, complete in one file; missing files leave parts out."""

import base64
import json
import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image
from report_runs import rows, spoil, write_comparison, write_run

from trunkfirst.report.pages import write_report

pytestmark = pytest.mark.usefixtures("unrendered")

HOSTILE = '<script>alert("1")</script> $x^{$ & "quoted"'


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished report, to be read only."""
    return write_report(write_comparison(tmp_path_factory.mktemp("report")))


class Links(HTMLParser):
    """Collects what could reach outside the page, ids, tags and the cells of table rows."""

    def __init__(self, page: str):
        super().__init__()
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"href", "src", "xlink:href", "srcset", "data", "action"}:
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")


def test_page_is_one_file_with_nothing_outside(report: Path):
    page = report.read_text()
    links = Links(page)
    assert not re.search(r"https?://|file:|@import", page)
    assert str(report.parent) not in page
    assert all(reference.startswith(("#", "data:image/png;base64,")) for reference in links.references)
    assert not links.tags & {"script", "link", "iframe", "object", "embed"}
    assert len(links.ids) == len(set(links.ids))
    inner = {reference[1:] for reference in links.references if reference.startswith("#")}
    assert inner <= set(links.ids)


def test_every_image_decodes(report: Path):
    page = report.read_text()
    pictures = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)", page)
    assert len(pictures) >= 3  # a target and two error maps
    for picture in pictures:
        Image.open(BytesIO(base64.b64decode(picture))).verify()
    files = list((report.parent / "figures").glob("*.svg"))
    assert sorted(file.stem for file in files) == [
        "branch-loss", "branch-loss-time", "error-time", "errors", "errors-histogram", "errors-mean",
        "map-error-monolithic", "map-error-two-step", "map-target", "trunk-loss", "trunk-loss-time",
    ]  # fmt: skip
    for file in files:
        assert ET.parse(file).getroot().tag.endswith("svg")
    assert page.count("<svg ") == len(files)


def test_tables_hold_the_metrics(report: Path):
    found = rows(report.read_text())
    assert ["Test error, mean", "7.89e-4", "4.56e-3"] in found
    # seeds 0 and 1: 2.5e-7 and 5e-7, 1.5e-5 and 3e-5; mean and sample standard deviation by hand
    assert ["Trunk loss (monolithic: overall loss)", "3.75e-7 ± 1.77e-7", "2.25e-5 ± 1.06e-5"] in found
    assert ["Branch loss", "3.21e-9", "\u2013"] in found
    assert ["Branch loss", "two-step", "about 1.00e-9", "3.21e-9", "3.21"] in found
    assert [
        "Overall loss (paper: mean of five seeds)",
        "monolithic",
        "1.84e-5",
        "2.25e-5 ± 1.06e-5",
        "1.22",
    ] in found
    single = [row for row in found if row[:2] == ["two-step", "1"]]
    assert "5.00e-7" in single[0]
    assert [row[-1] for row in found if row[0] == "QR helps"] == ["✓ yes", "✗ no", "not tested"]


def test_opens_with_the_result(report: Path):
    page = report.read_text()
    lead = re.sub(r"<[^>]*>", "", page[page.index('class="lead"') : page.index("The operator maps")])
    assert "7.89e-4 with two-step, 4.56e-3 with monolithic" in lead
    assert "the monolithic one is 5.78 times as large" in lead
    assert "2 claims that could be tested here, 1 holds" in lead


@pytest.mark.usefixtures("rendered")
def test_hostile_text_is_shown_not_run(tmp_path: Path):
    folder = write_run(tmp_path / "run", method=HOSTILE, problem=HOSTILE)
    spoil(folder, **{"labels.beta": None, f"labels.{HOSTILE.replace('/', '')}": np.arange(5.0)})
    (folder / "config.toml").write_text(f"# {HOSTILE}\n")
    (folder / "claims.json").write_text(
        json.dumps([{"claim": HOSTILE, "paper": HOSTILE, "ours": HOSTILE, "holds": True}])
    )
    (folder / "environment.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    page = write_report(folder).read_text()
    assert "script" not in Links(page).tags
    assert "&lt;script&gt;alert" in page
    assert 'aria-label="Training loss against iterations for &lt;script' in page


@pytest.mark.usefixtures("rendered")
def test_equal_files_give_equal_bytes(report: Path, tmp_path: Path):
    again = write_report(write_comparison(tmp_path / "elsewhere"))
    assert again.read_bytes() == report.read_bytes()
    for figure in (again.parent / "figures").iterdir():
        assert figure.read_bytes() == (report.parent / "figures" / figure.name).read_bytes()


@pytest.mark.parametrize(
    ("missing", "left_out"),
    [
        (("evaluation.npz",), ["Error of each test sample", "Target and absolute errors"]),
        (("history.jsonl",), ["Training loss of the trunk", "Training loss of the branch"]),
        (("config.toml", "environment.json"), []),
        (("evaluation.npz", "history.jsonl", "config.toml"), ["Histogram of errors"]),
    ],
)
def test_missing_files_leave_figures_out(tmp_path: Path, missing: tuple[str, ...], left_out: list[str]):
    folder = write_run(tmp_path / "run")
    for name in missing:
        (folder / name).unlink()
    page = write_report(folder).read_text()
    for title in left_out:
        assert re.search(f"“{title}.*” is left out: ", page)
    assert page.count("is left out: ") >= len(left_out)


def test_histograms_count_every_seed_on_its_own(tmp_path: Path):
    page = write_report(write_comparison(tmp_path)).read_text()
    assert "Counted: 5 errors for each of 2 seeds of two-step" in page
    assert "one outline for each seed" in page


def test_one_seed_is_said_where_its_mean_is_left_out(tmp_path: Path):
    page = write_report(write_run(tmp_path / "run")).read_text()
    assert "“Mean error over seeds” is left out: it needs several seeds" in page


@pytest.mark.usefixtures("rendered")
def test_the_geometry_has_the_labels_of_the_paper(tmp_path: Path):
    folder = write_run(tmp_path / "run", problem="discontinuous-conductivity")
    assert "Γ_D₁" in write_report(folder).read_text()
    drawn = (folder / "figures" / "geometry.svg").read_text()
    assert drawn.count("Γ") == 4
    assert drawn.count("Ω") == 2
