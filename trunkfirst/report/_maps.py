"""Maps over the domain: a target and the absolute errors of each method on one colour scale."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ._experiment import Experiment
from ._panel import Image, Omission, Panel
from ._run import Evaluation
from ._style import ERROR_MAP, FIELD_MAP, plain, short_name
from ._types import Axes, Figure
from ._wording import Wording

DECADES = 4  # shown below the largest error; smaller errors take the lowest colour


@dataclass(frozen=True, eq=False)
class Mesh:
    """Where a map is drawn: points in the plane and the triangles between them."""

    points: Float[np.ndarray, "points 2"]
    triangles: Int[np.ndarray, "triangles 3"]
    coordinates: tuple[str, str]


@dataclass(frozen=True)
class Scale:
    """Colours from `low` to `high`, linear or logarithmic."""

    low: float
    high: float
    name: str
    colours: str
    is_logarithmic: bool = False


def mesh_of(evaluation: Evaluation, wording: Wording) -> Mesh | None:
    """The mesh of an evaluation, None when it has no triangles or is not in the plane."""
    points, triangles = evaluation.points, evaluation.triangles
    if points is None or triangles is None or len(triangles) == 0 or points.shape[1] != 2:
        return None
    return Mesh(points, triangles, wording.coordinates)


def draw_maps(experiment: Experiment, wording: Wording) -> Panel | Omission:
    """Target and absolute errors of the example sample, lowest seed of each method."""
    title = "Target and absolute errors of one test sample"
    examples = _examples(experiment)
    if not examples:
        return Omission(title, "no run holds a finite prediction for an example sample.")
    first = next(iter(examples.values()))
    mesh, target = mesh_of(first, wording), first.example_target
    if mesh is None or target is None:
        return Omission(
            title,
            "the points carry no triangles in the plane, so that there is nothing to colour between them.",
        )
    images = [
        draw_field(mesh, target, name="map-target", title="Target", quantity=f"{wording.output} ({wording.unit})")
    ]
    images += _error_images(mesh, examples, wording)
    caption = (
        f"The test sample {_describe(first, wording)}{_channel(first)}: its target, and the distance "
        "of each method's prediction from it, point by point. All error maps share one logarithmic colour "
        f"scale: dark is accurate, bright is wrong; errors more than {DECADES} orders below the largest "
        "take the darkest colour."
    )
    return Panel(title, caption, tuple(images))


def draw_field(mesh: Mesh, values: Float[np.ndarray, " points"], *, name: str, title: str, quantity: str) -> Image:
    """A map of one field on a linear colour scale of its own."""
    low, high = float(values.min()), float(values.max())
    return draw_map(mesh, values, Scale(low, high, quantity, FIELD_MAP), name=name, title=title)


def draw_map(mesh: Mesh, values: Float[np.ndarray, " points"], scale: Scale, *, name: str, title: str) -> Image:
    """Colours over triangles, interpolated between the corners. The colours are a bitmap, the text is not."""
    from matplotlib.colors import LogNorm, Normalize

    norm = (LogNorm if scale.is_logarithmic else Normalize)(scale.low, scale.high)
    figure, axes = _map_axes()
    shown = np.maximum(values, scale.low)
    colours = axes.tripcolor(
        mesh.points[:, 0],
        mesh.points[:, 1],
        shown,
        triangles=mesh.triangles,
        norm=norm,
        cmap=scale.colours,
        shading="gouraud",
        rasterized=True,
    )
    axes.set_aspect("equal")
    axes.grid(visible=False)
    axes.set(xlabel=plain(mesh.coordinates[0]), ylabel=plain(mesh.coordinates[1]), title=plain(title))
    bar = figure.colorbar(colours, cax=axes.inset_axes((1.06, 0, 0.07, 1)), label=plain(scale.name))
    bar.solids.set_rasterized(True)  # pyright: ignore[reportOptionalMemberAccess]
    alt = f"{title}: {scale.name}, from {values.min():.2e} to {values.max():.2e}."
    return Image(name, alt, figure)


def _map_axes() -> tuple[Figure, Axes]:
    """Axes at a fixed place, in inches, so that maps side by side line up."""
    from matplotlib.figure import Figure as NewFigure

    width, height, side = 4.0, 2.95, 2.0
    figure = NewFigure(figsize=(width, height))
    return figure, figure.add_axes((0.88 / width, 0.58 / height, side / width, side / height))


def _error_images(mesh: Mesh, examples: dict[str, Evaluation], wording: Wording) -> list[Image]:
    errors = {method: _absolute_error(evaluation) for method, evaluation in examples.items()}
    scale = shared_scale(list(errors.values()), f"|error| ({wording.unit})")
    return [
        draw_map(mesh, error, scale, name=f"map-error-{_slug(method)}", title=f"Error, {short_name(method)}")
        for method, error in errors.items()
    ]


def _slug(method: str) -> str:
    """A method's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")[:40]


def shared_scale(errors: Sequence[Float[np.ndarray, " points"]], name: str) -> Scale:
    """One logarithmic scale for all error maps; its range is safe when all errors are 0."""
    high = max(float(error.max()) for error in errors) or 1e-16
    return Scale(high / 10**DECADES, high, name, ERROR_MAP, is_logarithmic=True)


def _absolute_error(evaluation: Evaluation) -> Float[np.ndarray, " points"]:
    assert evaluation.example_prediction is not None  # `_examples` keeps no other
    assert evaluation.example_target is not None
    return np.abs(evaluation.example_prediction - evaluation.example_target)


def _examples(experiment: Experiment) -> dict[str, Evaluation]:
    """The first evaluation of each method that holds a finite example of the same sample."""
    found: dict[str, Evaluation] = {}
    reference: np.ndarray | None = None
    for run in experiment.runs:
        evaluation = run.evaluation
        if evaluation is None or evaluation.example_target is None or evaluation.example_prediction is None:
            continue
        reference = evaluation.example_target if reference is None else reference
        is_same = np.array_equal(reference, evaluation.example_target)
        if is_same and np.isfinite(evaluation.example_prediction).all():
            found.setdefault(run.method, evaluation)
    return found


def _channel(evaluation: Evaluation) -> str:
    return f" (the first of {evaluation.channels} output channels)" if evaluation.channels > 1 else ""


def _describe(evaluation: Evaluation, wording: Wording) -> str:
    """The example named by its labels: `with conductivity factor β = 5.00e+0`."""
    index = evaluation.example_index
    if index is None or not evaluation.labels or not 0 <= index < len(evaluation.errors):
        return "chosen as example"
    named = [
        f"{wording.label(name).split(' (')[0]} = {values[index]:.3g}" for name, values in evaluation.labels.items()
    ]
    return "with " + ", ".join(named)
