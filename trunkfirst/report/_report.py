"""From a run or compare directory to figures and one HTML page."""

import dataclasses as dc
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ..data import OperatorData
from ..files import update_manifest, write_text
from ._anls import draw_anls
from ._choices import choice_tables
from ._cost import draw_cost
from ._diagnosis import budget_sentences, budget_tables, draw_budgets
from ._errors import draw_errors, draw_histogram, draw_mean_errors
from ._experiment import Experiment, read_experiment
from ._figures import figures_folder, write_panel
from ._geometry import draw_geometry, draw_pair
from ._html import Page, Section, Shown, render
from ._losses import draw_branch_losses, draw_trunk_losses
from ._maps import draw_maps
from ._panel import Omission, Panel
from ._style import figure_style, method_label
from ._summary import conditions, notices, remarks, summarise
from ._tables import methods_table, paper_table, runs_table
from ._wording import Wording, wording_for
from ._worst import draw_worst

Drawn = Panel | Omission | None
# Every name that a drawing can have: an earlier report's are removed, and nobody else's.
_NAMES = (
    *("geometry", "pair-input", "pair-output", "map-target", "map-error-*", "anls-loss", "anls-error"),
    *("trunk-loss", "trunk-loss-time", "branch-loss", "branch-loss-time"),
    *("error-time", "errors", "errors-mean", "errors-histogram", "worst-*"),
    *("budget-parts-*", "budget-samples-*"),
)


def write_report(directory: Path, *, data: OperatorData | None = None) -> Path:
    """Write `figures/*.svg` and `report.html` into a run or compare directory; return the page's path.

    Drawings of an earlier report that this one does not have are removed; page and drawings are signed in the
    directory's manifest.

    Reads files only: nothing is trained and JAX is not imported. What the files do not allow is left out
    with a sentence why. With `data` the input-output pair is the paper's (beta = 9.98), not the example.
    Equal files give equal bytes.

    Raises `DataError` when the directory holds no run, `CorruptFileError` when a file contradicts itself.
    """
    experiment = read_experiment(directory)
    wording = wording_for(experiment.problem, data)
    with figure_style():
        sections = _write_sections(directory, _draw_all(experiment, wording, data))
    sections = tuple(_with_budget(section, experiment) for section in sections)
    page = _page(experiment, wording, sections)
    path = directory / "report.html"
    write_text(path, render(page))
    update_manifest(directory, "report.html", "figures/*")
    return path


def _draw_all(
    experiment: Experiment, wording: Wording, data: OperatorData | None
) -> tuple[tuple[str, str, tuple[Drawn, ...]], ...]:
    """Key, title and figures of each section."""
    training = (draw_trunk_losses(experiment, wording), draw_branch_losses(experiment), draw_anls(experiment))
    errors = (
        draw_cost(experiment),
        draw_errors(experiment, wording),
        draw_mean_errors(experiment, wording) if len(experiment.seeds) > 1 else None,
        draw_histogram(experiment),
    )
    problem = (draw_geometry(experiment), draw_pair(experiment, wording, data))
    return (
        ("problem", "The problem", problem),
        ("training", "Training", training),
        ("errors", "Errors on unseen samples", errors),
        ("budget", "Error budget", draw_budgets(experiment)),
        ("maps", "Samples in full", (draw_maps(experiment, wording), draw_worst(experiment, wording))),
    )


def _with_budget(section: Section, experiment: Experiment) -> Section:
    """Sentences and tables beside the figures of the error budget."""
    if section.key != "budget":
        return section
    return dc.replace(section, text=budget_sentences(experiment), tables=budget_tables(experiment))


def _write_sections(
    directory: Path, sections: Sequence[tuple[str, str, tuple[Drawn, ...]]]
) -> tuple[Section, ...]:
    """Write each drawing to its file and number the figures through; empty sections are dropped."""
    folder = figures_folder(directory)
    panels = [panel for _, _, drawn in sections for panel in drawn if isinstance(panel, Panel)]
    _remove_stale(folder, {image.name for panel in panels for image in panel.images})
    written: list[Section] = []
    number = 0
    for key, title, drawn in sections:
        shown: list[Shown] = []
        for panel in (item for item in drawn if isinstance(item, Panel)):
            number += 1
            shown.append(write_panel(folder, number, panel))
        omissions = tuple(item for item in drawn if isinstance(item, Omission))
        if shown or omissions:
            written.append(Section(key, title, tuple(shown), omissions))
    return tuple(written)


def _remove_stale(folder: Path, names: set[str]) -> None:
    """Remove drawings that an earlier report made and this one does not make again."""
    assert all(_is_ours(name) for name in names)
    for path in folder.glob("*.svg"):
        if path.stem not in names and _is_ours(path.stem):
            path.unlink()


def _is_ours(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _NAMES)


def _page(experiment: Experiment, wording: Wording, sections: tuple[Section, ...]) -> Page:
    """Everything the page shows, in words and inline drawings."""
    environment = experiment.runs[0].environment
    first = {run.method: run for run in reversed(experiment.runs)}
    return Page(
        title=wording.title,
        summary=summarise(experiment),
        task=wording.task,
        conditions=conditions(experiment),
        notices=notices(experiment),
        remarks=remarks(experiment),
        paper=paper_table(experiment),
        claims=experiment.claims,
        methods=methods_table(experiment),
        choices=choice_tables(experiment),
        runs=runs_table(experiment) if len(experiment.runs) > 1 else None,
        sections=sections,
        configurations={
            f"{method_label(method)}, seed {first[method].seed}": first[method].config_text
            for method in experiment.methods
            if first[method].config_text
        },
        environment=environment,
    )
