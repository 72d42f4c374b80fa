"""The report of a run or a comparison; HTML pages in one file with all drawings inside."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from ..data.operator_data import OperatorData
from ..errors import OutputNotWritableError
from ..files.integrity import update_manifest
from ..files.text_files import write_text
from .budget_section import budget_items
from .error_figures import draw_cost, draw_errors, draw_histogram, draw_mean_errors
from .error_maps import draw_error_maps, draw_geometry, draw_pair, draw_worst
from .figures import Omission, Panel, figure_style
from .loss_figures import draw_anls, draw_branch_losses, draw_trunk_losses
from .report_text import Wording, conditions, notices, remarks, summarise, wording_for
from .run_files import Experiment, read_experiment
from .tables import Table, choice_tables, methods_table, paper_tables, runs_table

Item = str | Table | Panel | Omission

# -- any page


@dataclass(frozen=True)
class Section:
    """Paragraphs, tables and figures under one heading, and the figures that could not be drawn."""

    key: str
    title: str
    items: tuple[Item, ...]


def section(key: str, title: str, items: Sequence[Item | None]) -> Section:
    """A section of what there is; reasons for missing figures come last."""
    found = [item for item in items if item is not None]
    return Section(key, title, tuple(sorted(found, key=lambda item: isinstance(item, Omission))))


@dataclass(frozen=True)
class Page:
    """Everything a page shows. Sections without content are left out."""

    title: str
    summary: str
    task: str
    conditions: str
    notices: tuple[str, ...]
    sections: tuple[Section, ...]
    configurations: Mapping[str, str]
    environment: Mapping[str, object]


def write_page(path: Path, page: Page) -> Path:
    """Write a page, and each of its drawings to a file of `figures/` next to it; return the page's path."""
    folder = path.parent / "figures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {folder}: {error.strerror}") from error
    panels = [item for each in page.sections for item in each.items if isinstance(item, Panel)]
    for image in (image for panel in panels for image in panel.images):
        write_text(folder / f"{image.name}.svg", image.svg)
    write_text(path, _render(page))
    return path


def _render(page: Page) -> str:
    """The page as HTML; every text is escaped, except figures, which matplotlib has escaped."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"numbers": _numbers, "readable": _readable}
    template = environment.from_string(files(__package__ or __name__).joinpath("template.html").read_text("utf-8"))
    return template.render(page=page)


def _numbers(text: str) -> Markup:
    """Escaped text in which neither 1.00e-3 nor |A| is broken at the end of a line."""
    return Markup(re.sub(r"\d\.\d+e-\d+|\|\w\|", r'<span class="number">\g<0></span>', str(escape(text))))  # noqa: S704


def _readable(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


# -- the report

_PAPER = (
    "The paper is Lee and Shin, “On the training and generalization of deep operator networks”. It calls the "
    "two-step method 2ST, the same without orthonormalisation 2STw/oQR, and the usual training of everything at "
    "once VAN."
)
# Every name that a drawing of a report can have.
_NAMES = (
    *("geometry", "pair-input", "pair-output", "map-target", "map-error-*", "anls", "anls-loss", "anls-error"),
    *("trunk-loss", "trunk-loss-time", "branch-loss", "branch-loss-time"),
    *("error-time", "errors", "errors-mean", "errors-histogram", "worst-*"),
    *("budget-parts-*", "budget-samples-*"),
)


def write_report(directory: Path, *, data: OperatorData | None = None) -> Path:
    """Write `figures/*.svg` and `report.html` into a run or compare directory; return the page's path.

    Drawings of an earlier report that this one does not have are removed. Page and drawings are added to the
    directory's manifest.

    Reads files only: nothing is trained and JAX is not imported. What the files do not allow is left out
    with the reason. With `data` the input-output pair is the paper's (beta = 9.98), not the example.
    Equal files give equal bytes.

    Raises `DataError` when the directory holds no run, `CorruptFileError` when a file contradicts itself.
    """
    experiment = read_experiment(directory)
    wording = wording_for(experiment.problem, data)
    with figure_style():
        sections = _sections(experiment, wording, data)
    _remove_stale(directory / "figures")
    first = {run.method: run for run in reversed(experiment.runs)}
    page = Page(
        title=wording.title,
        summary=" ".join(summarise(experiment)),
        task=wording.task,
        conditions=conditions(experiment),
        notices=notices(experiment),
        sections=sections,
        configurations={
            first[method].name: first[method].config_text
            for method in experiment.methods
            if first[method].config_text
        },
        environment=experiment.runs[0].environment,
    )
    write_page(directory / "report.html", page)
    update_manifest(directory, "report.html", "figures/*")
    return directory / "report.html"


def _sections(experiment: Experiment, wording: Wording, data: OperatorData | None) -> tuple[Section, ...]:
    paper = paper_tables(experiment)
    runs = runs_table(experiment) if len(experiment.runs) > 1 else None
    training = (draw_trunk_losses(experiment, wording), draw_branch_losses(experiment), draw_anls(experiment))
    errors = (
        draw_cost(experiment),
        draw_errors(experiment, wording),
        draw_mean_errors(experiment, wording),
        draw_histogram(experiment),
    )
    samples = (draw_error_maps(experiment, wording), draw_worst(experiment, wording))
    return (
        section("paper", "Comparison with the paper", (_PAPER, *paper) if paper else ()),
        section("numbers", "Numbers", (methods_table(experiment), *remarks(experiment), runs)),
        section("chosen", "Model selection", choice_tables(experiment)),
        section("problem", "The problem", (draw_geometry(experiment), draw_pair(experiment, wording, data))),
        section("training", "Training", training),
        section("errors", "Errors on unseen samples", errors),
        section("budget", "Error budget", budget_items(experiment)),
        section("maps", "Single test samples", samples),
    )


def _remove_stale(folder: Path) -> None:
    """Remove the drawings of an earlier report, and no other files."""
    for path in folder.glob("*.svg"):
        if any(fnmatchcase(path.stem, pattern) for pattern in _NAMES):
            path.unlink()
