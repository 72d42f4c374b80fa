"""How methods look: one colour, marker, line and hatch each, the same in every figure.

Colours are Okabe and Ito's, told apart by the colour-blind; markers are the paper's.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from ._types import Axes, Figure

# The page replaces INK by its own text colour, so that figures follow light and dark.
INK = "#1f2328"
GREY = "#8a9099"
FIELD_MAP = "viridis"
ERROR_MAP = "cividis"


@dataclass(frozen=True)
class MethodStyle:
    """Names and looks of one training method."""

    label: str
    paper_name: str
    # Its own results
    colour: str
    marker: str
    line: str
    width: float
    hatch: str
    # Its conditional optimum
    optimal_colour: str
    optimal_marker: str


STYLES = {
    "two-step": MethodStyle("two-step", "2ST", "#0072B2", "*", "-", 2.6, "", "#56B4E9", "o"),
    "two-step-without-qr": MethodStyle(
        "two-step without QR", "2STw/oQR", "#009E73", "^", "--", 1.4, "..", "#009E73", "v"
    ),
    "monolithic": MethodStyle("monolithic", "VAN", "#D55E00", "x", "-.", 2.0, "//", "#E69F00", "s"),
}
_OTHER = ("#CC79A7", "D", ":", 2.0, "xx", "#CC79A7", "p")


def method_rank(method: str) -> int:
    """Place of a method in legends and tables; unknown methods come last."""
    return list(STYLES).index(method) if method in STYLES else len(STYLES)


def method_style(method: str) -> MethodStyle:
    """Look of a method; one the paper does not have gets a look of its own."""
    return STYLES.get(method) or MethodStyle(method, "", *_OTHER)


def method_label(method: str) -> str:
    """Name of a method with the paper's abbreviation: `two-step (2ST)`."""
    style = method_style(method)
    return f"{style.label} ({style.paper_name})" if style.paper_name else style.label


def plain(text: str) -> str:
    """Text for a figure, taken literally: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


@contextmanager
def figure_style() -> Generator[None]:
    """Settings under which every figure is drawn and written; they end with the block."""
    import matplotlib as mpl

    ink = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: dict[str, Any] = {
        **dict.fromkeys(ink, INK),
        "font.family": "sans-serif",
        "font.size": 12,
        "axes.titlesize": 12,
        "axes.grid": True,
        "grid.color": GREY,
        "grid.alpha": 0.3,
        "grid.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
        "savefig.facecolor": "none",
        "legend.frameon": False,
        "legend.fontsize": 11,
        "hatch.linewidth": 0.6,
        "svg.fonttype": "none",
    }
    with mpl.rc_context(cast("Any", settings)):
        yield


def new_figure(width: float = 5.6, height: float = 3.7) -> tuple[Figure, Axes]:
    """An empty figure of one pair of axes, in inches, without pyplot's global state."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def legend_above(figure: Figure) -> None:
    """A legend over the axes, where it hides no data; it takes its room from them."""
    figure.legend(loc="outside upper left", ncols=2, columnspacing=1.2, handletextpad=0.5)


def short_name(method: str) -> str:
    """The paper's abbreviation where there is one: for titles and legends with little room."""
    style = method_style(method)
    return style.paper_name or style.label
