"""The page of a sweep: every run in one table, and errors against the settings that were varied."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..files.integrity import update_manifest
from ..files.text_files import read_json, read_text
from ..settings import setting_text
from .figures import (
    COLOURS,
    GREY,
    Axes,
    Image,
    Look,
    Omission,
    Panel,
    figure_style,
    new_figure,
    plain,
    to_image,
)
from .pages import Page, section, write_page
from .report_text import wording_for
from .tables import MISSING, Table, scientific

Row = Mapping[str, Any]

_RANKED = "Errors are mean relative errors. Runs are ordered by validation error; test errors were not used."
_HELD = (
    "Validation samples were kept out of the training: run the best settings again with "
    "data.hold_validation = false to train on them too."
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
        "Mean relative errors: test solid and filled, validation dashed and hollow. Lines, or marks where the "
        "setting is a name, are means over seeds; bands and bars reach from the smallest to the largest of them."
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
