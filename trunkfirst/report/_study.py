"""The page of a study: slopes beside the theory, ladders drawn, the terms of the bound beside measured errors."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import OutputNotWritableError
from ..files import write_text
from ._experiment import Claim
from ._html import Drawing, Page, Section, Shown, render
from ._panel import Image
from ._sensors import tick_counts
from ._style import INK, figure_style, new_figure
from ._svg import to_inline, to_svg
from ._tables import Table, scientific
from ._types import Figure

_BLUE, _ORANGE, _GREEN, _PINK, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"
_LINES = ((_BLUE, "o"), (_ORANGE, "s"), (_GREEN, "^"))
_TERMS = {
    "N": (_BLUE, "C N^-2r"),
    "K": (_ORANGE, "K^-2s"),
    "m_x": (_GREEN, "m_x^-2alpha"),
    "m_y": (_PINK, "m_y^-r_t"),
}
_NAMES = {
    "N": ("width", "number of functions N"),
    "K": ("samples", "number of training inputs K"),
    "m_x": ("sensors", "input sensors m_x"),
    "m_y": ("points", "output sensors m_y"),
}

Summary = Mapping[str, Any]


def write_study(
    directory: Path, summary: Summary, *, title: str, task: str, environment: Mapping[str, object]
) -> Path:
    """Write `figures/*.svg` and `study.html` for the `summary` of a study; return the page's path."""
    with figure_style():
        images = _images(summary)
        shown = _write_images(directory, images)
    page = Page(
        title=title,
        summary=_sentences(summary),
        task=task,
        conditions="",
        notices=(),
        remarks=tuple(summary["notes"]),
        paper=_bound_table(summary["bound"]) if summary["bound"] else None,
        claims=tuple(_claim(ladder) for ladder in summary["ladders"]),
        methods=_ladder_table(summary["ladders"]),
        choices=(),
        runs=None,
        sections=(Section("ladders", "Ladders", shown, ()),),
        configurations={str(summary["study"]): json.dumps(summary["settings"], indent=2)},
        environment=environment,
    )
    path = directory / "study.html"
    write_text(path, render(page))
    return path


def _images(summary: Summary) -> list[tuple[str, str, Image]]:
    """Title, caption and drawing."""
    images: list[tuple[str, str, Image]] = []
    for name, (file, axis) in _NAMES.items():
        ladders = [ladder for ladder in summary["ladders"] if ladder["name"] == name]
        if not ladders:
            continue
        alt = "; ".join(f"{ladder['what']}: slope {ladder['slope']:.2f}" for ladder in ladders)
        caption = f"Marks: measured. Lines: the fitted power. Dotted: the theory's slope. {_capital(alt)}."
        images.append(
            (f"Errors against {axis}", caption, Image(f"ladder-{file}", alt, _draw_ladders(ladders, axis)))
        )
    if summary["bound"]:
        caption = (
            "Whole operators. Dashed: the terms of thm:main with the constants of this operator. Black: their "
            "sum, an upper bound up to a factor of 3. Stars: the measured mean squared error."
        )
        alt = "Four terms, their sum, and the measured mean squared error for growing N."
        images.append(("The bound beside the error", caption, Image("bound", alt, _draw_bound(summary["bound"]))))
    return images


def _draw_ladders(ladders: Sequence[Summary], axis: str) -> Figure:
    figure, axes = new_figure(6.4, 4.4)
    for ladder, (colour, marker) in zip(ladders, _LINES, strict=False):
        counts, errors = np.asarray(ladder["counts"], float), np.asarray(ladder["errors"])
        label = f"{ladder['what']}: {ladder['slope']:.2f}"
        axes.plot(counts, errors, marker, color=colour, label=label)
        axes.plot(counts, ladder["constant"] * counts ** ladder["slope"], "-", color=colour, linewidth=1.2)
        if ladder["theory"] is not None:
            axes.plot(
                counts, errors[0] * (counts / counts[0]) ** ladder["theory"], ":", color=colour, linewidth=1.6
            )
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="error")
    tick_counts(axes, np.unique(np.concatenate([np.asarray(ladder["counts"]) for ladder in ladders])))
    figure.legend(loc="outside upper left", ncols=1, handletextpad=0.5, fontsize=10)
    return figure


def _draw_bound(rows: Sequence[Summary]) -> Figure:
    figure, axes = new_figure(6.4, 4.4)
    widths = np.asarray([row["N"] for row in rows], float)
    for name, (colour, label) in _TERMS.items():
        values = np.asarray([row["terms"][name] for row in rows])
        if (values > 0).any():
            axes.plot(widths, values, "--", marker=".", color=colour, label=label)
    axes.plot(widths, [row["sum"] for row in rows], "-", color=INK, linewidth=2, label="sum")
    axes.plot(widths, [row["measured"] for row in rows], "*-", color=_SKY, markersize=11, label="measured")
    axes.set(xscale="log", yscale="log", xlabel=_NAMES["N"][1], ylabel="mean squared error")
    tick_counts(axes, widths)
    figure.legend(loc="outside upper left", ncols=3, columnspacing=1.2, handletextpad=0.5)
    return figure


def _write_images(directory: Path, images: Sequence[tuple[str, str, Image]]) -> tuple[Shown, ...]:
    folder = directory / "figures"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputNotWritableError(f"cannot make {folder}: {error.strerror}") from error
    shown: list[Shown] = []
    for number, (title, caption, image) in enumerate(images, 1):
        svg = to_svg(image)
        write_text(folder / f"{image.name}.svg", svg)
        shown.append(Shown(number, title, caption, (Drawing(to_inline(svg), image.alt),)))
    return tuple(shown)


# -- words


def _sentences(summary: Summary) -> tuple[str, str]:
    judged = [ladder for ladder in summary["ladders"] if ladder["holds"] is not None]
    agreeing = sum(bool(ladder["holds"]) for ladder in judged)
    first = f"{agreeing} of {len(judged)} slopes agree with the theory."
    if not summary["bound"]:
        return first, ""
    ratios = [row["ratio"] for row in summary["bound"]]
    vacuous = sum(bool(row["is_vacuous"]) for row in summary["bound"])
    second = f"Measured squared errors are {scientific(min(ratios))} to {scientific(max(ratios))} of the bound"
    return first, second + (f", which is vacuous {vacuous} times of {len(ratios)}." if vacuous else ".")


def _claim(ladder: Summary) -> Claim:
    theory = "-" if ladder["theory"] is None else f"{ladder['theory']:.3g}"
    said = f"{theory} or steeper" if ladder["rule"] == "not slower" and ladder["theory"] is not None else theory
    interval = ladder["interval"]
    spread = "two measurements" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
    ours = f"{ladder['slope']:.3f} ({spread})"
    return Claim(f"{ladder['name']}: {ladder['what']}", said, ours, ladder["holds"])


def _ladder_table(ladders: Sequence[Summary]) -> Table:
    rows = tuple(
        (
            f"{ladder['name']}: {ladder['what']}",
            *(f"{n:,}: {scientific(e)}" for n, e in zip(ladder["counts"], ladder["errors"], strict=True)),
        )
        for ladder in ladders
    )
    most = max(len(row) for row in rows)
    padded = tuple((*row, *[""] * (most - len(row))) for row in rows)
    return Table("Everything measured, as count: error.", ("Ladder", *[""] * (most - 1)), padded)


def _bound_table(rows: Sequence[Summary]) -> Table:
    caption = (
        "The four terms of thm:main, corrected, with the constants of this operator, beside the measured error."
    )
    header = ("N, K, m_x, m_y", "C N^-2r", "K^-2s", "m_x^-2alpha", "m_y^-r_t", "Sum", "Measured", "Measured ÷ sum")
    return Table(
        caption,
        header,
        tuple(
            (
                f"{row['N']}, {row['K']:,}, {row['m_x']:,}, {row['m_y']:,}",
                *(scientific(row["terms"][name]) for name in _TERMS),
                scientific(row["sum"]) + (" (vacuous)" if row["is_vacuous"] else ""),
                scientific(row["measured"]),
                scientific(row["ratio"]),
            )
            for row in rows
        ),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
