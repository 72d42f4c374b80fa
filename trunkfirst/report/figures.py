"""What all figures share: the look of each method, drawings as SVG, and panels of drawings with a caption."""

import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # for run-time checks of annotations; importing the report must not import matplotlib
    Axes = Figure = Any

Look = dict[str, Any]  # arguments of matplotlib's functions

# The page replaces INK by its own text colour, so that figures follow the light or dark theme.
INK = "#1f2328"
GREY = "#8a9099"
# Okabe and Ito's palette, safe for colour-blind readers: blue, vermilion, green, purple, orange, sky blue
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = COLOURS
FIELD_MAP, ERROR_MAP = "viridis", "cividis"

_BITMAP_DPI = 200
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}
_STYLE: Look = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "font.family": "sans-serif",
    "font.size": 12,
    "axes.titlesize": 12,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "legend.fontsize": 11,
    "legend.columnspacing": 1.2,
    "legend.handletextpad": 0.5,
    "hatch.linewidth": 0.6,
    "svg.fonttype": "none",
}

# -- methods


@dataclass(frozen=True)
class MethodStyle:
    """Name and look of one training method, the same in every figure; the markers are the paper's."""

    name: str
    # Its own results
    colour: str
    marker: str
    line: str
    width: float
    hatch: str
    # Its conditional optimum
    optimal_colour: str
    optimal_marker: str

    def curve(self) -> Look:
        """Arguments of `plot` for a line."""
        look = {"color": self.colour, "linestyle": self.line, "linewidth": self.width}
        return look | {"label": plain(self.name)}

    def marks(self, size: float) -> Look:
        """Arguments of `plot` for markers without line; stars look small and are drawn larger."""
        size = 1.4 * size if self.marker == "*" else size
        look = {"linestyle": "none", "marker": self.marker, "markersize": size}
        return look | {"color": self.colour, "label": plain(self.name)}

    def hollow_marks(self) -> Look:
        """Arguments of `plot` for the errors of the conditional optimum."""
        look = {"linestyle": "none", "marker": self.optimal_marker, "markersize": 6, "markerfacecolor": "none"}
        name = plain(f"best possible, {self.name}")
        return look | {"color": self.optimal_colour, "label": name}


_STYLES = {
    "two-step": MethodStyle("two-step", BLUE, "*", "-", 2.6, "", SKY, "o"),
    "two-step-without-qr": MethodStyle("two-step without QR", GREEN, "^", "--", 1.4, "..", GREEN, "v"),
    "monolithic": MethodStyle("monolithic", VERMILION, "x", "-.", 2.0, "//", ORANGE, "s"),
}


def method_style(method: str) -> MethodStyle:
    """The look of a method; all that the paper does not have look alike."""
    return _STYLES.get(method) or MethodStyle(method, PURPLE, "D", ":", 2.0, "xx", PURPLE, "p")


def method_rank(method: str) -> int:
    """Position of a method in legends and tables; unknown methods come last."""
    return list(_STYLES).index(method) if method in _STYLES else len(_STYLES)


def method_label(method: str) -> str:
    """Name of a method in figures and tables."""
    return method_style(method).name


def method_names(methods: Iterable[str]) -> str:
    """Names of several methods, separated by commas."""
    return ", ".join(map(method_label, methods))


# -- drawing


@contextmanager
def figure_style() -> Generator[None]:
    """Settings under which every figure is drawn and written; they end with the block."""
    import matplotlib as mpl

    with mpl.rc_context(cast("Any", _STYLE)):
        yield


def new_figure(width: float = 5.6, height: float = 3.7) -> tuple[Figure, Axes]:
    """An empty figure with one pair of axes, sizes in inches, without pyplot's global state."""
    from matplotlib.figure import Figure as NewFigure

    figure = NewFigure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def plain(text: str) -> str:
    """Text for a figure, taken literally: a dollar sign would start a formula."""
    return text.replace("$", r"\$")


def mean_and_spread(
    values: Float[np.ndarray, "seeds steps"],
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """Mean and sample standard deviation over the seeds; the latter is 0 for a single seed."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0), spread


def band(
    mean: Float[np.ndarray, " steps"], spread: Float[np.ndarray, " steps"]
) -> tuple[Float[np.ndarray, " steps"], Float[np.ndarray, " steps"]]:
    """Mean minus and plus spread, for a logarithmic axis: where nothing is left, far below any axis drawn here."""
    lower = mean - spread
    return np.where(lower > 0, lower, mean * 1e-12), mean + spread


def draw_band(
    axes: Axes, method: str, places: np.ndarray, values: Float[np.ndarray, "seeds steps"], **changes: Any
) -> None:
    """Mean over seeds as a line, one standard deviation shaded; `changes` replace parts of the line's look."""
    style, (mean, spread) = method_style(method), mean_and_spread(values)
    axes.fill_between(places, *band(mean, spread), color=style.colour, alpha=0.2, linewidth=0)
    axes.plot(places, mean, **(style.curve() | changes))


def tick_counts(axes: Axes, counts: np.ndarray) -> None:
    """Ticks of the x axis at the counts themselves; every other one where there are many."""
    from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

    apart = counts[np.append(True, np.diff(np.log(counts)) > 0.15)]
    shown = apart if len(apart) <= 7 else apart[::2]
    axes.xaxis.set_major_locator(FixedLocator([float(count) for count in shown]))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


# -- drawings and panels


@dataclass(frozen=True)
class Image:
    """One drawing as an SVG document. `name` is its file name without suffix; `alt` describes it in words."""

    name: str
    alt: str
    svg: str

    @property
    def inline(self) -> str:
        """The drawing for use inside HTML: no outside names, unique ids, the page's text colour.

        Namespaces are implied in HTML; ids of groups repeat from figure to figure and nothing refers to them.
        """
        body = self.svg[self.svg.index("<svg ") :]
        body = re.sub(r"<style [^>]*>.*?</style>", "", body, flags=re.DOTALL)
        body = body.replace("xlink:href=", "href=").replace(INK, "currentColor")
        body = re.sub(r'<g id="[^"]*"', "<g", body)
        return re.sub(r"<svg [^>]*>", _opening_tag(body), body, count=1)


@dataclass(frozen=True)
class Panel:
    """One or several drawings under a title and a caption."""

    kind: ClassVar[str] = "figure"
    title: str
    caption: str
    images: tuple[Image, ...]
    rows: int | None = None

    @property
    def columns(self) -> int:
        """Drawings side by side on a wide screen."""
        if self.rows is not None:
            return len(self.images) // self.rows
        return len(self.images) if len(self.images) <= 3 else 2


@dataclass(frozen=True)
class Omission:
    """A figure that the files do not allow, and why."""

    kind: ClassVar[str] = "omission"
    title: str
    reason: str


Drawn = Panel | Omission | None


def to_image(figure: Figure, name: str, alt: str, *, legend: int = 0) -> Image:
    """Write a figure as SVG on white, with a legend of `legend` columns; equal figures give equal text."""
    import matplotlib as mpl

    if legend:
        figure.legend(loc="outside upper left", ncols=legend)
    buffer = BytesIO()
    with mpl.rc_context({"svg.hashsalt": name}):  # ids that depend on the content alone
        figure.savefig(buffer, format="svg", dpi=_BITMAP_DPI, metadata=_NO_METADATA)
    return Image(name, alt, buffer.getvalue().decode().replace("<svg ", '<svg style="background: #ffffff" ', 1))


def _opening_tag(body: str) -> str:
    box = re.search(r'viewBox="(0 0 ([\d.]+) [\d.]+)"', body)
    assert box is not None  # matplotlib always writes it
    return f'<svg viewBox="{box[1]}" style="max-width: {round(1.4 * float(box[2]))}px" aria-hidden="true">'
