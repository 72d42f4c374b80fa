"""The report of a run or a comparison; HTML pages in one file with all drawings inside."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from ..files.integrity import make_folder, update_manifest
from ..files.text_files import fill_template, read_json, read_text, write_text
from ..settings import setting_text
from .budget_figures import budget_items
from .error_figures import draw_cost, draw_errors, draw_histogram, draw_mean_errors
from .error_maps import draw_error_maps, draw_fields, draw_geometry, draw_pair, draw_worst
from .figures import COLOURS, GREY, Axes, Image, Look, Omission, Panel, figure_style, new_figure, plain, to_image
from .loss_figures import draw_anls, draw_branch_losses, draw_trunk_losses
from .report_text import Wording, conditions, notices, remarks, summarise, wording_for
from .run_files import Experiment, read_experiment
from .tables import MISSING, Table, choice_tables, methods_table, paper_tables, runs_table, scientific

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
    folder = make_folder(path.parent / "figures")
    panels = [item for each in page.sections for item in each.items if isinstance(item, Panel)]
    for image in (image for panel in panels for image in panel.images):
        write_text(folder / f"{image.name}.svg", image.svg)
    filters = {"numbers": _numbers, "readable": _readable}
    write_text(path, fill_template("report/template.html", filters=filters, page=page))
    return path


def _numbers(text: str) -> Markup:
    """Escaped text in which neither 1.00e-3 nor |A| is broken at the end of a line."""
    return Markup(re.sub(r"\d\.\d+e-\d+|\|\w\|", r'<span class="number">\g<0></span>', str(escape(text))))  # noqa: S704


def _readable(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


# -- the report

_PAPER = (
    "The paper is Lee and Shin, “On the training and generalization of deep operator networks”. It calls the "
    "two-step method 2ST, the same without QR 2STw/oQR, and monolithic training (of both networks at once) VAN."
)
_UNTESTED = "No samples were held back for testing, so there are no pictures of unseen samples."
# Every name that a drawing of a report can have.
_NAMES = (
    *("geometry", "pair-input", "pair-output", "map-target", "map-error-*", "typical", "typical-*"),
    *("anls", "anls-loss", "anls-error"),
    *("trunk-loss", "trunk-loss-time", "branch-loss", "branch-loss-time"),
    *("error-time", "errors", "errors-mean", "errors-histogram", "worst-*"),
    *("budget-parts-*", "budget-samples-*", "learning-curve-*"),
)


def write_report(directory: Path) -> Path:
    """Write `figures/*.svg` and `report.html` into a run or compare directory; return the page's path.

    Drawings of an earlier report that this one does not have are removed. Page and drawings are added to the
    directory's manifest.

    Reads files only: nothing is trained and JAX is not imported. What the files do not allow is left out
    with the reason. Equal files give equal bytes.

    Raises `DataError` when the directory holds no run, `CorruptFileError` when a file contradicts itself.
    """
    experiment = read_experiment(directory)
    wording = wording_for(experiment.problem, experiment.runs[0].names)
    with figure_style():
        sections = _sections(experiment, wording)
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


def _sections(experiment: Experiment, wording: Wording) -> tuple[Section, ...]:
    paper = paper_tables(experiment)
    runs = runs_table(experiment) if len(experiment.runs) > 1 else None
    training = (draw_trunk_losses(experiment, wording), draw_branch_losses(experiment), draw_anls(experiment))
    errors: tuple[Item | None, ...] = (
        draw_cost(experiment),
        draw_errors(experiment, wording),
        draw_mean_errors(experiment, wording),
        draw_histogram(experiment),
    )
    is_untested = all(run.number("samples", "test") == 0 for run in experiment.runs)
    if is_untested:
        errors = (_UNTESTED,)
    fields = draw_fields(experiment, wording) if len(experiment.methods) == 1 else None
    first = fields or draw_error_maps(experiment, wording)
    left_out = (first,) if isinstance(first, Omission) else ()
    return (
        section("fields", "Predictions", () if left_out else (first,)),
        section("paper", "Comparison with the paper", (_PAPER, *paper) if paper else ()),
        section("numbers", "Numbers", (methods_table(experiment), *remarks(experiment), runs)),
        section("chosen", "Model selection", choice_tables(experiment)),
        section("problem", "The problem", (draw_geometry(experiment), draw_pair(experiment, wording))),
        section("training", "Training", training),
        section("errors", "Errors on unseen samples", errors),
        section("budget", "Error budget", budget_items(experiment)),
        section(
            "maps", "Single test samples", () if is_untested else (*left_out, draw_worst(experiment, wording))
        ),
    )


def _remove_stale(folder: Path) -> None:
    """Remove the drawings of an earlier report, and no other files."""
    for path in folder.glob("*.svg"):
        if any(fnmatchcase(path.stem, pattern) for pattern in _NAMES):
            path.unlink()


# -- the page of a sweep


Row = Mapping[str, Any]

_RANKED = "Errors are mean relative errors. Runs are ordered by validation error; test errors were not used."
_HELD = (
    "Validation samples were not used for training. To train on them too, run the best settings again with "
    "data.hold_validation = false."
)
_ERROR_LOOKS: dict[str, Look] = {
    "test": {"linestyle": "-"},
    "validation": {"linestyle": "--", "markerfacecolor": "none"},
}
_WIDE_RANGE = 8.0  # largest over smallest value from which an axis is logarithmic


def write_sweep(directory: Path) -> Path:
    """Write `figures/sweep-*.svg` and `report.html` of a finished sweep from its files; return the page's path."""
    found = read_json(directory / "sweep.json")
    config = next(iter(read_json(directory / "configs.json")["configs"].values()))
    wording = wording_for(config.get("problem") or Path(config["data"]["file"]).stem)
    rows = found["rows"]
    with figure_style():
        figure = _figure(found)
    held = _HELD if config["data"]["hold_validation"] else None
    best = [row["name"] for row in rows if _is_finished(row)][:1]
    page = Page(
        title=f"{wording.title}: sweep over {_listed(found['settings'])}",
        summary=_summary(found),
        task=wording.task,
        conditions=f"{len(rows)} runs, each in a folder of its own next to this page.",
        notices=tuple(found["failures"]),
        sections=(
            section("numbers", "Numbers", (sweep_table(found), _RANKED, held)),
            section("errors", "Errors against the varied settings", (figure,)),
        ),
        configurations={name: read_text(directory / name / "config.toml") for name in best},
        environment=read_json(directory / "environment.json"),
    )
    write_page(directory / "report.html", page)
    update_manifest(directory, "report.html", "figures/*")
    return directory / "report.html"


def _summary(found: Row) -> str:
    rows, best = found["rows"], found["best"]
    finished = f"{sum(map(_is_finished, rows))} of {len(rows)} runs were finished."
    if best is None:
        return f"There is no validation error to rank the settings by. {finished}"
    over = f", the mean over {best['runs']} seeds" if best["runs"] > 1 else ""
    settings = _listed([f"{key} {setting_text(value)}" for key, value in best["settings"].items()])
    error = scientific(best["validation"])
    return f"Best on validation samples: {settings}, with an error of {error}{over}. {finished}"


def sweep_table(found: Row) -> Table:
    """Every run of a sweep, from the content of `sweep.json`."""
    keys = found["settings"]
    rows = tuple(
        (
            *(setting_text(row["settings"][key]) for key in keys),
            *(scientific(row[name]) for name in ("validation", "test", "trunk_loss")),
            MISSING if row["seconds"] is None else f"{row['seconds']:,.1f}",
            row["status"],
        )
        for row in found["rows"]
    )
    header = (*keys, "Validation error", "Test error", "Trunk loss", "Seconds", "Status")
    return Table("Every run, the best on validation samples first.", header, rows, "figures")


# -- the figure


def _figure(found: Row) -> Panel | Omission:
    finished = [row for row in found["rows"] if _is_finished(row) and (row["test"] or row["validation"])]
    varied = [
        key for key in found["settings"] if len({setting_text(row["settings"][key]) for row in finished}) > 1
    ]
    varied = [key for key in varied if key != "seed"] or varied
    title = "Test and validation errors"
    if not varied:
        return Omission(title, "fewer than two values have a finished run.")
    caption = (
        "Mean relative errors: test errors are solid and filled, validation errors dashed and hollow. Lines, or "
        "marks if the setting is a name, are means over seeds; bands and bars range from the smallest to the "
        "largest."
    )
    return Panel(title, caption, tuple(_draw(finished, key, varied) for key in varied))


def _draw(rows: Sequence[Row], key: str, varied: Sequence[str]) -> Image:
    """One setting along the axis, a line for each combination of the others."""
    figure, axes = new_figure(6.2, 4.4)
    others = [other for other in varied if other not in (key, "seed")]
    groups: dict[str, list[Row]] = {}
    for row in rows:  # the best first
        name = ", ".join(f"{other} {setting_text(row['settings'][other])}" for other in others)
        groups.setdefault(name, []).append(row)
    values = _values(rows, key)
    for place, (name, group) in enumerate(groups.items()):
        colour = COLOURS[place] if place < len(COLOURS) else GREY
        label = name if place < len(COLOURS) else "others" * (place == len(COLOURS))
        shift = (place - (len(groups) - 1) / 2) * min(0.12, 0.5 / len(groups))
        for error, look in _ERROR_LOOKS.items():
            # With several lines only the first of a pair has a label; a single line is labelled by its error.
            own = {"color": colour, "label": label * (error == "test") if name else error}
            _draw_means(axes, _means(group, key, values, error, shift), is_line=_is_numeric(values), **look, **own)
    axes.set(yscale="log", xlabel=plain(key), ylabel="Mean relative error")
    _set_ticks(axes, values)
    return to_image(figure, f"sweep-{key}", f"Test and validation errors against {key}", legend=2)


def _means(rows: Sequence[Row], key: str, values: Sequence[Any], error: str, shift: float) -> np.ndarray:
    """Place, mean, smallest and largest error of every value; `shift` moves marks where the setting is a name."""
    found: list[tuple[float, ...]] = []
    for place, value in enumerate(values):
        if here := [row[error] for row in rows if row["settings"][key] == value and row[error]]:
            x = float(value) if _is_numeric(values) else place + shift
            found.append((x, float(np.mean(here)), min(here), max(here)))
    return np.array(found).reshape(-1, 4).T


def _draw_means(axes: Axes, means: np.ndarray, *, is_line: bool, linestyle: str, **look: Any) -> None:
    places, mean, low, high = means
    if is_line:
        axes.plot(places, mean, linestyle, marker="o", **look)
        axes.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
    else:
        axes.errorbar(places, mean, (mean - low, high - mean), linestyle="none", capsize=3, marker="o", **look)


def _set_ticks(axes: Axes, values: Sequence[Any]) -> None:
    from matplotlib.ticker import NullLocator

    is_numeric = _is_numeric(values)
    if is_numeric and min(values) > 0 and max(values) / min(values) >= _WIDE_RANGE:
        axes.set_xscale("log")
    texts = [plain(setting_text(value)) for value in values]
    axes.set_xticks(list(values) if is_numeric else range(len(values)), texts)
    axes.xaxis.set_minor_locator(NullLocator())
    if sum(map(len, texts)) > 45:
        axes.tick_params(axis="x", rotation=30)
    if not is_numeric:
        axes.set_xlim(-0.5, len(values) - 0.5)


# -- settings and words


def _is_finished(row: Row) -> bool:
    return row["status"] == "finished"


def _values(rows: Sequence[Row], key: str) -> list[Any]:
    """Values of a setting: numbers in increasing, everything else in alphabetical order."""
    found = {setting_text(row["settings"][key]): row["settings"][key] for row in rows}
    values = list(found.values())
    return sorted(values) if _is_numeric(values) else [found[text] for text in sorted(found)]


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
