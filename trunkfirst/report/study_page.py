"""Figures of the theory: convergence rates and the bound of a study, and the placement of sensors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..files.text_files import write_text
from ..records import Claim
from .figures import (
    BLUE,
    FIELD_MAP,
    GREEN,
    INK,
    PURPLE,
    SKY,
    VERMILION,
    Axes,
    Figure,
    Image,
    Look,
    Panel,
    figure_style,
    new_figure,
    plain,
    tick_counts,
    to_image,
)
from .pages import Page, section, write_page
from .tables import Table, claims_table, scientific

Summary = Mapping[str, Any]

# -- a study

_LOOKS = ((BLUE, "o"), (VERMILION, "s"), (GREEN, "^"))
_TERMS = {
    "N": (BLUE, "C N^-2r"),
    "K": (VERMILION, "K^-2s"),
    "m_x": (GREEN, "m_x^-2alpha"),
    "m_y": (PURPLE, "m_y^-r_t"),
}
# file name and axis label of each count
_COUNTS = {
    "N": ("width", "number of functions N"),
    "K": ("samples", "number of training inputs K"),
    "m_x": ("sensors", "input sensors m_x"),
    "m_y": ("points", "output sensors m_y"),
}


def write_study(
    directory: Path, summary: Summary, *, title: str, task: str, environment: Mapping[str, object]
) -> Path:
    """Write `figures/*.svg` and `study.html` for the `summary` of a study; return the page's path."""
    ladders, bound = summary["ladders"], summary["bound"]
    with figure_style():
        panels = [panel for name in _COUNTS if (panel := _ladder_panel(ladders, name)) is not None]
        panels += [_bound_panel(bound)] if bound else []
    page = Page(
        title=title,
        summary=_sentences(summary),
        task=task,
        conditions="",
        notices=(),
        sections=(
            section("paper", "Comparison with the theory", study_tables(summary)),
            section("numbers", "Numbers", (_ladder_table(ladders), *summary["notes"])),
            section("ladders", "Errors against counts", panels),
        ),
        configurations={str(summary["study"]): json.dumps(summary["settings"], indent=2)},
        environment=environment,
    )
    return write_page(directory / "study.html", page)


def study_tables(summary: Summary) -> list[Table]:
    """Measured slopes next to the theory, and the terms of the bound next to the error."""
    header = ("Series", "Slope in theory", "Measured slope", "Agrees")
    slopes = claims_table("Slopes of errors against counts.", tuple(map(_claim, summary["ladders"])), header)
    return [slopes, *([_bound_table(summary["bound"])] if summary["bound"] else [])]


def _sentences(summary: Summary) -> str:
    tested = [ladder for ladder in summary["ladders"] if ladder["holds"] is not None]
    text = f"{sum(bool(ladder['holds']) for ladder in tested)} of {len(tested)} slopes agree with the theory."
    if not summary["bound"]:
        return text
    ratios = [row["ratio"] for row in summary["bound"]]
    vacuous = sum(bool(row["is_vacuous"]) for row in summary["bound"])
    text += f" Measured squared errors are {scientific(min(ratios))} to {scientific(max(ratios))} of the bound"
    return text + (f", which is vacuous in {vacuous} of {len(ratios)} cases." if vacuous else ".")


def _claim(ladder: Summary) -> Claim:
    theory, interval = ladder["theory"], ladder["interval"]
    steeper = " or steeper" if ladder["rule"] == "not slower" else ""
    expected = "-" if theory is None else f"{theory:.3g}{steeper}"
    spread = "two measurements" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
    return Claim(_name(ladder), expected, f"{ladder['slope']:.3f} ({spread})", ladder["holds"])


def _name(ladder: Summary) -> str:
    return f"{ladder['name']}: {ladder['what']}"


def _ladder_table(ladders: Sequence[Summary]) -> Table:
    rows = [
        [_name(each), *(f"{n:,}: {scientific(e)}" for n, e in zip(each["counts"], each["errors"], strict=True))]
        for each in ladders
    ]
    most = max(map(len, rows))
    padded = tuple((*row, *[""] * (most - len(row))) for row in rows)
    return Table("Everything measured, as count: error.", ("Series", *[""] * (most - 1)), padded, "figures")


def _bound_table(rows: Sequence[Summary]) -> Table:
    caption = "The four terms of the paper's bound (corrected, constants of this operator) and the measured error."
    labels = (label for _, label in _TERMS.values())
    header = ("N, K, m_x, m_y", *labels, "Sum", "Measured", "Measured ÷ sum", "r_t")
    cells = tuple(
        (
            f"{row['N']}, {row['K']:,}, {row['m_x']:,}, {row['m_y']:,}",
            *(scientific(row["terms"][name]) for name in _TERMS),
            scientific(row["sum"]) + (" (vacuous)" if row["is_vacuous"] else ""),
            scientific(row["measured"]),
            scientific(row["ratio"]),
            f"{row['exponent']:.2g}",
        )
        for row in rows
    )
    return Table(caption, header, cells, "figures")


def _ladder_panel(ladders: Sequence[Summary], name: str) -> Panel | None:
    found = [ladder for ladder in ladders if ladder["name"] == name]
    if not found:
        return None
    file, axis = _COUNTS[name]
    alt = "; ".join(f"{ladder['what']}: slope {ladder['slope']:.2f}" for ladder in found)
    caption = f"Marks: measured. Lines: the fitted power. Dotted: the theory's slope. {alt[:1].upper()}{alt[1:]}."
    image = to_image(_draw_ladders(found, axis), f"ladder-{file}", alt, legend=1)
    return Panel(f"Errors against {axis}", caption, (image,))


def _draw_ladders(ladders: Sequence[Summary], axis: str) -> Figure:
    figure, axes = new_figure(6.4, 4.4)
    for ladder, (colour, marker) in zip(ladders, _LOOKS, strict=False):
        counts, errors = np.asarray(ladder["counts"], float), np.asarray(ladder["errors"])
        axes.plot(counts, errors, marker, color=colour, label=f"{ladder['what']}: {ladder['slope']:.2f}")
        axes.plot(counts, ladder["constant"] * counts ** ladder["slope"], "-", color=colour, linewidth=1.2)
        if ladder["theory"] is not None:
            expected = errors[0] * (counts / counts[0]) ** ladder["theory"]
            axes.plot(counts, expected, ":", color=colour, linewidth=1.6)
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="error")
    tick_counts(axes, np.unique(np.concatenate([np.asarray(ladder["counts"]) for ladder in ladders])))
    return figure


def _bound_panel(rows: Sequence[Summary]) -> Panel:
    figure, axes = new_figure(6.4, 4.4)
    widths = np.asarray([row["N"] for row in rows], float)
    for name, (colour, label) in _TERMS.items():
        values = np.asarray([row["terms"][name] for row in rows])
        if (values > 0).any():
            axes.plot(widths, values, "--", marker=".", color=colour, label=label)
    axes.plot(widths, [row["sum"] for row in rows], "-", color=INK, linewidth=2, label="sum")
    axes.plot(widths, [row["measured"] for row in rows], "*-", color=SKY, markersize=11, label="measured")
    axes.set(xscale="log", yscale="log", xlabel=_COUNTS["N"][1], ylabel="mean squared error")
    tick_counts(axes, widths)
    caption = (
        "Dashed: the terms of the paper's bound with the constants of this operator. Solid: their sum, an upper "
        "bound up to a factor of 3. Stars: the measured mean squared error."
    )
    alt = "Four terms, their sum, and the measured mean squared error for growing N."
    return Panel("Bound and measured error", caption, (to_image(figure, "bound", alt, legend=3),))


# -- sensors

_SENSOR_LOOKS: dict[str, Look] = {
    "uniform": {"label": "drawn uniformly", "color": VERMILION, "marker": "s", "linestyle": "--"},
    "christoffel": {"label": "drawn by Christoffel", "color": BLUE, "marker": "o", "linestyle": "-"},
}


@dataclass(frozen=True, eq=False)
class SensorPicture:
    """The Christoffel function k on all places, the places chosen, and error ratios against counts by kind."""

    places: Float[np.ndarray, "places coordinates"]
    values: Float[np.ndarray, " places"]
    chosen: Int[np.ndarray, " sensors"]
    coordinate_names: tuple[str, ...]
    ladders: Mapping[str, tuple[Int[np.ndarray, " counts"], Float[np.ndarray, " counts"]]]
    ratio: float | None = None
    """That of the sensors chosen."""


def write_sensor_picture(path: Path, picture: SensorPicture) -> None:
    """Draw where sensors lie, where the trunk's functions are large, and how many sensors are enough; as SVG."""
    with figure_style():
        write_text(path, _draw_sensors(picture, path.stem).svg)


def _draw_sensors(picture: SensorPicture, name: str) -> Image:
    from matplotlib.figure import Figure as NewFigure

    panels = 2 if picture.ladders else 1
    figure = NewFigure(figsize=(5.2 * panels, 4.2), layout="constrained")
    axes = figure.add_subplot(1, panels, 1)
    (_draw_line if picture.places.shape[1] == 1 else _draw_plane)(figure, axes, picture)
    axes.set_title(f"{len(picture.chosen)} sensors of {len(picture.places):,} places")
    if picture.ladders:
        _draw_ratios(figure.add_subplot(1, 2, 2), picture)
    return to_image(figure, name, "")


def _draw_line(figure: Figure, axes: Axes, picture: SensorPicture) -> None:
    del figure
    x, k, chosen = picture.places[:, 0], picture.values, picture.chosen
    order = np.argsort(x)
    axes.plot(x[order], k[order], color=BLUE, linewidth=1.5, label="k(y)")
    axes.plot(x[chosen], k[chosen], "o", color=VERMILION, markersize=6, label="sensors", clip_on=False)
    axes.set(xlabel=plain(picture.coordinate_names[0]), ylabel="Christoffel function k")
    axes.set_ylim(bottom=0)
    axes.legend()


def _draw_plane(figure: Figure, axes: Axes, picture: SensorPicture) -> None:
    from matplotlib.colors import LogNorm, Normalize

    x, y = picture.places[:, 0], picture.places[:, 1]
    high = float(picture.values.max())
    positive = np.maximum(picture.values, high / 1e4)
    norm = LogNorm() if high > 10 * positive.min() else Normalize(0, high)
    size = float(np.clip(6e4 / len(x), 2, 60))
    colours = axes.scatter(x, y, s=size, c=positive, cmap=FIELD_MAP, norm=norm, linewidths=0, rasterized=True)
    look: Look = {"s": 24, "facecolors": "white", "edgecolors": "black", "linewidths": 1.2, "zorder": 3}
    axes.scatter(x[picture.chosen], y[picture.chosen], **look)
    axes.set(xlabel=plain(picture.coordinate_names[0]), ylabel=plain(picture.coordinate_names[1]))
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(visible=False)
    bar = figure.colorbar(colours, ax=axes, label="Christoffel function k")
    bar.solids.set_rasterized(True)  # pyright: ignore[reportOptionalMemberAccess]


def _draw_ratios(axes: Axes, picture: SensorPicture) -> None:
    for name, (counts, ratios) in picture.ladders.items():
        axes.plot(counts, ratios, **_SENSOR_LOOKS[name])
    if picture.ratio is not None:
        look: Look = {"color": GREEN, "markersize": 13, "zorder": 4, "label": "the chosen sensors"}
        axes.plot([len(picture.chosen)], [picture.ratio], "*", **look)
    for level, side in ((1.1, "top"), (1.25, "bottom")):
        axes.axhline(level, color=INK, linewidth=0.8, linestyle=":")
        axes.annotate(f"{level:g}", (1.01, level), xycoords=("axes fraction", "data"), va=side, fontsize=10)
    axes.set(xscale="log", yscale="log", xlabel="number of sensors", ylabel="error of least squares / best error")
    tick_counts(axes, next(iter(picture.ladders.values()))[0])
    axes.set_ylim(bottom=0.95)
    axes.set_title("How many are enough")
    axes.legend(loc="upper right")
