"""matplotlib's types for annotations alone: importing this package must not import matplotlib."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:  # seen by run-time checkers of annotations
    Axes = Figure = Any

__all__ = ["Axes", "Figure"]
