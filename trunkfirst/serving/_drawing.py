"""How fields are drawn: on triangles in the plane, as a curve on a line, as dots elsewhere."""

import dataclasses as dc

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import Delaunay, QhullError


@dc.dataclass(frozen=True, eq=False)
class Drawing:
    """Places in the plane (one or two columns), the triangles between them, and a remark for the reader.

    `kind` is "curve", "triangles" or "dots"; `axes` are the words at the two axes.
    """

    kind: str
    axes: tuple[str, str]
    places: Float[np.ndarray, "points columns"]
    triangles: Int[np.ndarray, "triangles 3"]
    remark: str = ""


def make_drawing(
    points: Float[np.ndarray, "points coordinates"], triangles: Int[np.ndarray, "triangles 3"] | None = None
) -> Drawing:
    """The drawing that suits the points; without triangles, neighbours are joined (Delaunay)."""
    none = np.zeros((0, 3), np.int64)
    coordinates = points.shape[1]
    if coordinates == 1:
        return Drawing("curve", ("x", ""), points, none)
    if coordinates > 2:
        remark = f"The points have {coordinates} coordinates; they are drawn as dots at the first two."
        return Drawing("dots", ("first", "2nd"), points[:, :2], none, remark)
    axes = ("x", "y")
    if triangles is not None and len(triangles) > 0:
        return Drawing("triangles", axes, points, triangles)
    try:
        size = np.ptp(points, axis=0)
        joined = Delaunay(points / np.where(size > 0, size, 1.0)).simplices.astype(np.int64)
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        return Drawing(
            "dots", axes, points, none, "The points cannot be joined by triangles; they are drawn as dots."
        )
    return Drawing(
        "triangles",
        axes,
        points,
        joined,
        "The run kept no triangles; neighbouring points are joined for the picture.",
    )
