"""How data are shown: ranges in words, a table for notebooks, plots of a few samples."""

import dataclasses as dc
import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int


def range_in_words(values: np.ndarray) -> str:
    """Return "from LOW to HIGH"; NaN is ignored."""
    return f"from {np.nanmin(values):.4g} to {np.nanmax(values):.4g}"


def html_table(title: str, sentences: Sequence[str]) -> str:
    """Return a table with a row for each "heading: text"; the first sentence is the caption."""
    first, *others = map(html.escape, sentences)
    rows = (sentence.partition(": ") for sentence in others)
    cells = "".join(
        f'<tr><th style="text-align: left">{heading}</th><td style="text-align: left">{text}</td></tr>'
        for heading, _, text in rows
    )
    caption = f'<caption style="text-align: left"><b>{html.escape(title)}</b>: {first}</caption>'
    return f"<table>{caption}{cells}</table>"


@dc.dataclass(frozen=True)
class Panel:
    """One function of all samples, to be plotted in one column."""

    title: str
    values: Float[np.ndarray, "samples points"]
    points: Float[np.ndarray, "points coordinates"] | None
    """Coordinates of the values; None if they are not known."""
    axis_names: tuple[str, ...] = ()
    triangles: Int[np.ndarray, "triangles 3"] | None = None
    grid_shape: tuple[int, ...] | None = None

    @property
    def is_map(self) -> bool:
        """Whether a sample is a colour map rather than a line."""
        if self.points is None:
            return self.grid_shape is not None and len(self.grid_shape) == 2
        return self.points.shape[1] == 2 and np.linalg.matrix_rank(self.points - self.points[0]) == 2

    def draw(self, axes: Any, sample: int) -> None:
        """Draw one sample into matplotlib axes."""
        axes.set_title(self.title)
        values = self.values[sample]
        if self.is_map:
            axes.figure.colorbar(self._draw_map(axes, values), ax=axes)
        elif self.points is not None and self.points.shape[1] == 1:
            order = np.argsort(self.points[:, 0], kind="stable")
            axes.plot(self.points[order, 0], values[order], label=f"sample {sample}")
            axes.set_xlabel((self.axis_names or ("sensor coordinate",))[0])
        else:
            axes.plot(values, "o" if len(values) < 20 else "-", label=f"sample {sample}")
            axes.set_xlabel("point" if self.axis_names else "sensor")
            axes.locator_params(axis="x", integer=True)

    def _draw_map(self, axes: Any, values: np.ndarray) -> Any:
        if self.points is None:
            assert self.grid_shape is not None
            return axes.pcolormesh(values.reshape(self.grid_shape))
        spans = np.ptp(self.points, axis=0)
        axes.set_aspect("equal" if 4 * spans.min() > spans.max() else "auto")
        for name, label in zip(self.axis_names, (axes.set_xlabel, axes.set_ylabel), strict=False):
            label(name)
        x, y = self.points.T
        columns, rows = np.unique(x), np.unique(y)
        order = np.lexsort((x, y))
        if self.triangles is None and len(columns) * len(rows) == len(x) and _is_grid(x[order], y[order], columns):
            grid = values[order].reshape(len(rows), len(columns))
            return axes.pcolormesh(columns, rows, grid, shading="gouraud")
        return axes.tripcolor(x, y, values, triangles=self.triangles, shading="gouraud")


def _is_grid(x: np.ndarray, y: np.ndarray, columns: np.ndarray) -> bool:
    """Whether sorted points are those of a rectangular grid."""
    lines = y.reshape(-1, len(columns))
    return np.array_equal(x, np.tile(columns, len(lines))) and (lines == lines[:, :1]).all()


def plot_panels(panels: Sequence[Panel], samples: Int[np.ndarray, " chosen"]) -> np.ndarray:
    """Plot the chosen samples, a column for each panel; one row if all of them are lines.

    Next to maps, single numbers are written beside their sample.
    """
    import matplotlib.pyplot as plt

    is_one_row = not any(panel.is_map for panel in panels)
    numbers = {} if is_one_row else {p.title: p.values[:, 0] for p in panels if p.values.shape[1] == 1}
    panels = [panel for panel in panels if panel.title not in numbers]
    rows = 1 if is_one_row else len(samples)
    size = (4 * len(panels), 3 * rows)
    _, axes = plt.subplots(rows, len(panels), figsize=size, squeeze=False, layout="constrained")
    for row, sample in enumerate(map(int, samples)):
        for panel, place in zip(panels, axes[0 if is_one_row else row], strict=True):
            panel.draw(place, sample)
        if not is_one_row:
            lines = [f"sample {sample}", *(f"{name} = {each[sample]:.4g}" for name, each in numbers.items())]
            axes[row, 0].set_ylabel("\n".join(lines))
    if is_one_row:
        axes[0, -1].legend()
    return axes
