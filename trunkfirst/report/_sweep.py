"""The page of a sweep: every run in one table, and errors against what was varied."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files import read_json, update_manifest, write_text
from ._figures import figures_folder, write_panel
from ._html import Page, Section, render
from ._panel import Image, Omission, Panel
from ._style import GREY, figure_style, new_figure, plain
from ._tables import Table, scientific
from ._types import Axes, Figure
from ._wording import wording_for

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# What is drawn: key, name, line, marker filled or not.
_ERRORS = (("test", "test", "-", True), ("validation", "validation", "--", False))
_WIDE_RANGE = 8.0

Row = Mapping[str, Any]


def write_sweep(directory: Path) -> Path:
    """Write `figures/sweep-*.svg` and `report.html` of a finished sweep from its files; return the page's path."""
    found = read_json(directory / "sweep.json")
    configs = read_json(directory / "configs.json")["configs"]
    rows = found["rows"]
    with figure_style():
        section = _section(directory, found)
    first = next(iter(configs.values()))
    wording = wording_for(first["problem"] or Path(first["data"]["file"]).stem, None)
    page = Page(
        title=f"{wording.title}: sweep over {_listed(found['settings'])}",
        summary=_sentences(found),
        task=wording.task,
        conditions=f"{len(rows)} runs, each in a folder of its own beside this page.",
        notices=tuple(found["failures"]),
        remarks=(_RANKED, _HELD) if first["data"]["hold_validation"] else (_RANKED,),
        paper=None,
        claims=(),
        methods=_table(found),
        choices=(),
        runs=None,
        sections=(section,),
        configurations=_configurations(directory, rows),
        environment=read_json(directory / "environment.json"),
    )
    path = directory / "report.html"
    write_text(path, render(page))
    update_manifest(directory, "report.html", "figures/*")
    return path


_RANKED = (
    "Errors are mean relative errors. The order is that of the validation error; the test error stands beside it "
    "and chose nothing."
)
_HELD = (
    "Validation samples were kept out of the training: a run of the best settings with "
    "data.hold_validation = false trains on them too."
)


def _sentences(found: Mapping[str, Any]) -> tuple[str, str]:
    rows, best = found["rows"], found["best"]
    failed = sum(not _is_sound(row) for row in rows)
    second = f"{len(rows) - failed} of {len(rows)} runs were finished."
    if best is None:
        return "There is no validation error to rank the settings by.", second
    over = f", the mean over {best['runs']} seeds" if best["runs"] > 1 else ""
    settings = _listed([f"{key} {_text(value)}" for key, value in best["settings"].items()])
    return (
        f"Best on validation samples: {settings}, with an error of {scientific(best['validation'])}{over}.",
        second,
    )


def _table(found: Mapping[str, Any]) -> Table:
    keys = found["settings"]
    header = (*keys, "Validation error", "Test error", "Trunk loss", "Seconds", "Status")
    rows = tuple(
        (
            *(_text(row["settings"][key]) for key in keys),
            *(scientific(row[name]) for name in ("validation", "test", "trunk_loss")),
            "\u2013" if row["seconds"] is None else f"{row['seconds']:,.1f}",
            row["status"],
        )
        for row in found["rows"]
    )
    return Table("Every run, the best on validation samples first.", header, rows)


def _configurations(directory: Path, rows: Sequence[Row]) -> dict[str, str]:
    """The best run's."""
    sound = [row["name"] for row in rows if _is_sound(row)]
    return {name: (directory / name / "config.toml").read_text(encoding="utf-8") for name in sound[:1]}


# -- the figure


def _section(directory: Path, found: Mapping[str, Any]) -> Section:
    title = "Errors against what was varied"
    sound = [row for row in found["rows"] if _is_sound(row) and (row["test"] or row["validation"])]
    varied = [key for key in found["settings"] if len({_text(row["settings"][key]) for row in sound}) > 1]
    varied = [key for key in varied if key != "seed"] or varied
    if not varied:
        return Section("errors", title, (), (Omission(title, "fewer than two values have a finished run."),))
    images = tuple(
        Image(f"sweep-{key}", f"Test and validation errors against {key}", _draw(sound, key, varied))
        for key in varied
    )
    caption = (
        "Mean relative errors: test solid and filled, validation dashed and hollow. Lines, or marks where the "
        "setting is a name, are means over seeds; bands and bars reach from the smallest to the largest of them."
    )
    shown = write_panel(figures_folder(directory), 1, Panel("Test and validation errors", caption, images))
    return Section("errors", title, (shown,), ())


def _draw(rows: Sequence[Row], key: str, varied: Sequence[str]) -> Figure:
    """One setting along the axis, a line for each combination of the others."""
    figure, axes = new_figure(6.2, 4.4)
    others = [other for other in varied if other not in (key, "seed")]
    lines: dict[str, list[Row]] = {}
    for row in rows:  # the best first
        name = ", ".join(f"{other} {_text(row['settings'][other])}" for other in others)
        lines.setdefault(name, []).append(row)
    values = _values(rows, key)
    for number, (name, group) in enumerate(lines.items()):
        colour = _COLOURS[number] if number < len(_COLOURS) else GREY
        label = name if number < len(_COLOURS) else ("others" if number == len(_COLOURS) else "")
        shift = (number - (len(lines) - 1) / 2) * min(0.12, 0.5 / len(lines))
        for error, error_name, style, is_filled in _ERRORS:
            own = label if name and is_filled else ("" if name else error_name)
            _draw_line(axes, group, key, values, error, shift, (colour, style, is_filled, own))
    axes.set(yscale="log", xlabel=plain(key), ylabel="mean relative error")
    _set_ticks(axes, values)
    figure.legend(loc="outside upper left", ncols=2, columnspacing=1.2, handletextpad=0.5, fontsize=10)
    return figure


def _draw_line(
    axes: Axes,
    rows: Sequence[Row],
    key: str,
    values: Sequence[Any],
    error: str,
    shift: float,
    look: tuple[str, str, bool, str],
) -> None:
    colour, style, is_filled, label = look
    is_numeric = _is_numeric(values)
    places: list[float] = []
    spreads: list[tuple[float, float, float]] = []
    for number, value in enumerate(values):
        here = [row[error] for row in rows if row["settings"][key] == value and row[error]]
        if here:
            places.append(float(value) if is_numeric else number + shift)
            spreads.append((float(np.mean(here)), min(here), max(here)))
    if not places:
        return
    mean, low, high = np.array(spreads).T
    marks: dict[str, Any] = {
        "marker": "o",
        "color": colour,
        "markerfacecolor": colour if is_filled else "none",
        "label": label,
    }
    if is_numeric:
        axes.plot(places, mean, style, **marks)
        axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
    else:
        axes.errorbar(places, mean, (mean - low, high - mean), linestyle="none", capsize=3, **marks)


def _set_ticks(axes: Axes, values: Sequence[Any]) -> None:
    from matplotlib.ticker import NullLocator

    is_numeric = _is_numeric(values)
    if is_numeric and min(values) > 0 and max(values) / min(values) >= _WIDE_RANGE:
        axes.set_xscale("log")
    texts = [plain(_text(value)) for value in values]
    axes.set_xticks(list(values) if is_numeric else range(len(values)), texts)
    axes.xaxis.set_minor_locator(NullLocator())
    if sum(map(len, texts)) > 45:
        axes.tick_params(axis="x", rotation=30)
    if not is_numeric:
        axes.set_xlim(-0.5, len(values) - 0.5)


# -- settings and words


def _is_sound(row: Row) -> bool:
    return row["status"] == "finished"


def _values(rows: Sequence[Row], key: str) -> list[Any]:
    """Numbers in their order; names, and the rest, in that of the alphabet: that of the table is a ranking."""
    found = {_text(row["settings"][key]): row["settings"][key] for row in rows}
    values = list(found.values())
    return sorted(values) if _is_numeric(values) else [found[text] for text in sorted(found)]


def _is_numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
