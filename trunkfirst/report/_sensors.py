"""A picture of sensors: where they lie, where the trunk's functions are large, and how many are enough."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ..files import write_text
from ._panel import Image
from ._style import FIELD_MAP, INK, figure_style, plain
from ._svg import to_svg
from ._types import Axes, Figure

_COLOURS = {"uniform": ("#D55E00", "s", "--"), "christoffel": ("#0072B2", "o", "-")}
_LABELS = {"uniform": "drawn uniformly", "christoffel": "drawn by Christoffel"}


@dataclass(frozen=True, eq=False)
class SensorPicture:
    """What is drawn: k on all places, the places chosen, and by kind the counts with their error ratios."""

    places: Float[np.ndarray, "places coordinates"]
    values: Float[np.ndarray, " places"]
    chosen: Int[np.ndarray, " sensors"]
    coordinate_names: tuple[str, ...]
    ladders: Mapping[str, tuple[Int[np.ndarray, " counts"], Float[np.ndarray, " counts"]]]
    ratio: float | None = None
    """That of the sensors chosen."""


def write_sensor_picture(path: Path, picture: SensorPicture) -> None:
    """Draw it as an SVG file."""
    with figure_style():
        write_text(path, to_svg(Image(path.stem, "", _draw(picture))))


def tick_counts(axes: Axes, counts: np.ndarray) -> None:
    """Ticks at the counts themselves, not at powers of ten; every other one where there are many."""
    from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

    apart = counts[np.append(True, np.diff(np.log(counts)) > 0.15)]
    shown = apart if len(apart) <= 7 else apart[::2]
    axes.xaxis.set_major_locator(FixedLocator([float(count) for count in shown]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _draw(picture: SensorPicture) -> Figure:
    from matplotlib.figure import Figure as NewFigure

    panels = 2 if picture.ladders else 1
    figure = NewFigure(figsize=(5.2 * panels, 4.2), layout="constrained")
    axes = figure.add_subplot(1, panels, 1)
    (_draw_line if picture.places.shape[1] == 1 else _draw_plane)(figure, axes, picture)
    if picture.ladders:
        _draw_ladders(figure.add_subplot(1, 2, 2), picture)
    return figure


def _draw_line(figure: Figure, axes: Axes, picture: SensorPicture) -> None:
    del figure
    order = np.argsort(picture.places[:, 0])
    x, k = picture.places[:, 0], picture.values
    axes.plot(x[order], k[order], color="#0072B2", linewidth=1.5, label="k(y)")
    axes.plot(
        x[picture.chosen], k[picture.chosen], "o", color="#D55E00", markersize=6, label="sensors", clip_on=False
    )
    axes.set(xlabel=plain(picture.coordinate_names[0]), ylabel="Christoffel function k", title=_title(picture))
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
    axes.scatter(
        x[picture.chosen],
        y[picture.chosen],
        s=24,
        facecolors="white",
        edgecolors="black",
        linewidths=1.2,
        zorder=3,
    )
    names = picture.coordinate_names
    axes.set(xlabel=plain(names[0]), ylabel=plain(names[1]), title=_title(picture))
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(visible=False)
    bar = figure.colorbar(colours, ax=axes, label="Christoffel function k")
    bar.solids.set_rasterized(True)  # pyright: ignore[reportOptionalMemberAccess]


def _title(picture: SensorPicture) -> str:
    return f"{len(picture.chosen)} sensors of {len(picture.places):,} places"


def _draw_ladders(axes: Axes, picture: SensorPicture) -> None:
    for name, (counts, ratios) in picture.ladders.items():
        colour, marker, line = _COLOURS[name]
        axes.plot(counts, ratios, color=colour, marker=marker, linestyle=line, label=_LABELS[name])
    if picture.ratio is not None:
        axes.plot(
            [len(picture.chosen)],
            [picture.ratio],
            "*",
            color="#009E73",
            markersize=13,
            zorder=4,
            label="the chosen sensors",
        )
    for level, side in ((1.1, "top"), (1.25, "bottom")):
        axes.axhline(level, color=INK, linewidth=0.8, linestyle=":")
        axes.annotate(f"{level:g}", (1.01, level), xycoords=("axes fraction", "data"), va=side, fontsize=10)
    axes.set(xscale="log", yscale="log", xlabel="number of sensors", ylabel="error of least squares / best error")
    tick_counts(axes, next(iter(picture.ladders.values()))[0])
    axes.set_ylim(bottom=0.95)
    axes.set_title("How many are enough")
    axes.legend(loc="upper right")
