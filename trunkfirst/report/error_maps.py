"""Single test samples over the domain: target and errors of each method, the worst samples, the problem itself."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ..records import EvaluationRecord, SampleField
from .figures import (
    BLUE,
    ERROR_MAP,
    FIELD_MAP,
    GREY,
    INK,
    VERMILION,
    Axes,
    Drawn,
    Figure,
    Image,
    Look,
    Omission,
    Panel,
    method_label,
    new_figure,
    plain,
    to_image,
)
from .report_text import Wording
from .run_files import Experiment, Run
from .tables import scientific

Field = Float[np.ndarray, " points"]
DECADES = 4  # shown below the largest error; smaller errors take the lowest colour

# -- maps


@dataclass(frozen=True, eq=False)
class Mesh:
    """Where a map is drawn: points in the plane and the triangles between them."""

    points: Float[np.ndarray, "points 2"]
    triangles: Int[np.ndarray, "triangles 3"]
    coordinates: tuple[str, str]


def _mesh(evaluation: EvaluationRecord, wording: Wording) -> Mesh | None:
    """The mesh of an evaluation, None when it is not in the plane."""
    points = evaluation.points
    if points is None or points.shape[1] != 2 or np.isnan(points).any():
        return None
    return _mesh_of(points, evaluation.triangles, wording)


def _mesh_of(points: np.ndarray, triangles: np.ndarray | None, wording: Wording) -> Mesh:
    """The points with their triangles, or with those of Delaunay; `triangles` may be those of other points."""
    from matplotlib.tri import Triangulation

    if triangles is None or len(triangles) == 0 or triangles.max() >= len(points):
        triangles = Triangulation(*points.T).triangles.astype(np.int64)
    return Mesh(points, triangles, wording.coordinates)


def _draw_field(
    mesh: Mesh, values: Field, *, name: str, title: str, quantity: str, scale: Field | None = None
) -> Image:
    """A map of one field on a linear colour scale of its own, or on that of another field, `scale`."""
    from matplotlib.colors import Normalize

    scale = values if scale is None else scale
    norm = Normalize(float(scale.min()), float(scale.max()))
    return _draw_map(mesh, values, name=name, title=title, quantity=quantity, norm=norm, cmap=FIELD_MAP)


def _draw_error(mesh: Mesh, error: Field, largest: float, *, name: str, title: str, unit: str) -> Image:
    """A map of an error on a logarithmic colour scale up to `largest`; the scale is safe when that is 0."""
    from matplotlib.colors import LogNorm

    high = largest or 1e-16
    look: Look = {"norm": LogNorm(high / 10**DECADES, high), "cmap": ERROR_MAP}
    return _draw_map(mesh, error, name=name, title=title, quantity=f"|error| ({unit})", **look)


def _draw_map(mesh: Mesh, values: Field, *, name: str, title: str, quantity: str, norm: Any, cmap: str) -> Image:
    """Colours over triangles, interpolated between the corners. The colours are a bitmap, the text is not."""
    figure, axes = _map_axes()
    shown = np.maximum(values, norm.vmin)
    look: Look = {"norm": norm, "cmap": cmap, "shading": "gouraud", "rasterized": True}
    x, y = mesh.points.T
    colours = axes.tripcolor(x, y, shown, triangles=mesh.triangles, **look)
    axes.grid(visible=False)
    width, height = np.ptp(mesh.points, axis=0)
    axes.set(aspect="equal" if 2 / 3 < width / height < 3 / 2 else "auto", title=plain(title))
    axes.set(xlabel=plain(mesh.coordinates[0]), ylabel=plain(mesh.coordinates[1]))
    bar = figure.colorbar(colours, cax=axes.inset_axes((1.06, 0, 0.07, 1)), label=plain(quantity))
    bar.solids.set_rasterized(True)  # pyright: ignore[reportOptionalMemberAccess]
    return to_image(figure, name, f"{title}: {quantity}, from {values.min():.2e} to {values.max():.2e}.")


def _map_axes() -> tuple[Figure, Axes]:
    """Axes at a fixed place, in inches, so that maps side by side line up."""
    from matplotlib.figure import Figure as NewFigure

    width, height, side = 4.0, 2.95, 2.0
    figure = NewFigure(figsize=(width, height))
    return figure, figure.add_axes((0.88 / width, 0.58 / height, side / width, side / height))


# -- one sample, all methods


def draw_error_maps(experiment: Experiment, wording: Wording) -> Drawn:
    """Target and absolute errors of one test sample, lowest seed of each method that holds this sample."""
    heading = "Target and absolute errors of one test sample"
    examples = _examples(experiment)
    if not examples:
        return Omission(heading, "no run has a finite prediction of an example sample.")
    evaluation, sample = next(iter(examples.values()))
    mesh = _mesh(evaluation, wording)
    if mesh is None:
        return Omission(heading, "the points are not in the plane.")
    errors = {method: np.abs(each.prediction - each.target) for method, (_, each) in examples.items()}
    largest = max(float(error.max()) for error in errors.values())
    images = [_draw_field(mesh, sample.target, name="map-target", title="Target", quantity=wording.output_axis)]
    for method, error in errors.items():
        name, title = f"map-error-{_slug(method)}", f"Error, {method_label(method)}"
        images.append(_draw_error(mesh, error, largest, name=name, title=title, unit=wording.unit))
    channel = f" (the first of {evaluation.channels} output channels)" if evaluation.channels > 1 else ""
    label = _labelled(evaluation.labels, wording, sample.index)
    caption = (
        f"One test sample{f' with {label}' if label else ''}{channel}: its target, and the absolute error of each "
        "method's prediction. All error maps share one logarithmic colour scale (dark: accurate, bright: wrong); "
        f"errors more than {DECADES} orders below the largest have the darkest colour."
    )
    left_out = ", ".join(method_label(method) for method in experiment.methods if method not in examples)
    if left_out:
        caption += f" Not shown, because the files have no finite prediction of this sample: {left_out}."
    return Panel(heading, caption, tuple(images))


def _examples(experiment: Experiment) -> dict[str, tuple[EvaluationRecord, SampleField]]:
    """Finite predictions of one sample by method: the sample that most methods hold.

    In files of version 0.1 every run may hold a sample of its own.
    """
    groups: dict[bytes, dict[str, tuple[EvaluationRecord, SampleField]]] = {}
    for run in experiment.runs:
        sample = None if run.evaluation is None else run.evaluation.example
        if run.evaluation is not None and sample is not None and np.isfinite(sample.prediction).all():
            group = groups.setdefault(sample.target.tobytes(), {})
            group.setdefault(run.method, (run.evaluation, sample))
    return max(groups.values(), key=len, default={})


def _labelled(labels: Mapping[str, np.ndarray], wording: Wording, *indices: int) -> str:
    """Samples named by their labels: `conductivity factor β = 5, 700`; empty where they have none."""
    if any(not 0 <= index < len(values) for values in labels.values() for index in indices):
        return ""
    return "; ".join(
        f"{wording.label(name).split(' (')[0]} = {', '.join(f'{values[index]:.3g}' for index in indices)}"
        for name, values in labels.items()
    )


def _slug(method: str) -> str:
    """A method's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "-", method.lower()).strip("-")[:40]


# -- a typical and the worst samples


def draw_fields(experiment: Experiment, wording: Wording) -> Drawn:
    """Target, prediction and error of a typical and of the worst test sample of the first run that has them."""
    title = "A typical and the worst test sample"
    found = _with_worst(experiment)
    if found is None or not found[1].typical:
        return None
    _, evaluation = found
    worst = evaluation.worst[0]
    shown = [(evaluation.typical[0], "typical", "Typical"), (worst, "typical-worst", "Worst")]
    if not all(np.isfinite(sample.prediction).all() for sample, _, _ in shown):
        return Omission(title, "a prediction is not finite.")
    largest = max(float(np.abs(sample.prediction - sample.target).max()) for sample, _, _ in shown)
    name, count = wording.channel(worst.channel).split(" (")[0], evaluation.channels
    channel = f" Shown is {name}, one of {count} channels." if count > 1 else ""
    caption = (
        f"The samples with the median and with the largest error, of {len(evaluation.errors):,} test "
        f"samples, which were not used for training.{channel} The largest absolute error here is "
        f"{scientific(largest)}."
    )
    return _panel(title, caption, evaluation, shown, wording)


def draw_worst(experiment: Experiment, wording: Wording) -> Drawn:
    """The samples with the largest errors of the first run that holds them."""
    title = "The worst test samples"
    found = _with_worst(experiment)
    if found is None:
        return None
    run, evaluation = found
    samples = [sample for sample in evaluation.worst if np.isfinite(sample.prediction).all()]
    if not samples:
        return Omission(title, "none of their predictions is finite.")
    labels = _labelled(evaluation.labels, wording, *(sample.index for sample in samples))
    caption = (
        f"{method_label(run.method)}, seed {run.seed}: the {len(samples)} of {len(evaluation.errors)} test "
        f"samples with the largest relative errors{f' ({labels})' if labels else ''}. If they have something in "
        "common, add training samples of that kind."
    )
    several = evaluation.channels > 1
    names = [f"Sample {each.index}{f', channel {each.channel + 1}' if several else ''}" for each in samples]
    shown = [(each, f"worst-{k}", name) for k, (each, name) in enumerate(zip(samples, names, strict=True), 1)]
    return _panel(title, caption, evaluation, shown, wording)


def _panel(
    title: str,
    caption: str,
    evaluation: EvaluationRecord,
    shown: Sequence[tuple[SampleField, str, str]],
    wording: Wording,
) -> Panel:
    """A row for each sample, given with the name of its file and its own name, if it has several images."""
    images = [image for each in shown for image in _draw_sample(evaluation, *each, wording)]
    return Panel(title, caption, tuple(images), rows=len(shown) if len(images) > len(shown) else None)


def _with_worst(experiment: Experiment) -> tuple[Run, EvaluationRecord] | None:
    """The first run that holds its worst samples."""
    runs = ((run, run.evaluation) for run in experiment.runs)
    return next(((run, each) for run, each in runs if each is not None and each.worst), None)


def _draw_sample(
    evaluation: EvaluationRecord, sample: SampleField, name: str, label: str, wording: Wording
) -> list[Image]:
    """Target, prediction and error: as curves, as maps or, of more coordinates, errors against targets."""
    is_known = 0 <= sample.index < len(evaluation.errors)
    title = f"{label}, error {scientific(evaluation.errors[sample.index])}" if is_known else label
    if sample.points.shape[1] == 1:
        return _draw_curves(sample, name, title, wording)
    if sample.points.shape[1] > 2:
        return [_draw_agreement(sample, name, title, wording)]
    mesh = _mesh_of(sample.points, evaluation.triangles, wording)
    error = np.abs(sample.prediction - sample.target)
    field: Look = {"quantity": wording.channel(sample.channel), "scale": sample.target}
    unit = field["quantity"].partition(" (")[2].rstrip(")") or wording.unit
    return [
        _draw_field(mesh, sample.target, name=name, title=f"{label}: target", **field),
        _draw_field(mesh, sample.prediction, name=f"{name}-prediction", title="Prediction", **field),
        _draw_error(mesh, error, float(error.max()), name=f"{name}-error", title=title, unit=unit),
    ]


def _draw_curves(sample: SampleField, name: str, title: str, wording: Wording) -> list[Image]:
    order = np.argsort(sample.points[:, 0], kind="stable")
    x, target, prediction = sample.points[order, 0], sample.target[order], sample.prediction[order]
    first, axes = new_figure(4.6, 3.0)
    axes.plot(x, target, color=INK, linewidth=1, label="target")
    axes.plot(x, prediction, color=BLUE, linestyle="--", linewidth=1.5, label="prediction")
    axes.set(title=plain(title), ylabel=plain(wording.channel(sample.channel)))
    second, below = new_figure(4.6, 3.0)
    below.plot(x, prediction - target, color=VERMILION, linewidth=1.2, label="prediction - target")
    below.axhline(0, color=GREY, linewidth=0.8)
    below.set(title=plain(title), ylabel="error")
    for each in (axes, below):
        each.set(xlabel=plain(wording.coordinates[0]))
    return [
        to_image(first, name, f"{title}: target and prediction as curves.", legend=2),
        to_image(second, f"{name}-error", f"{title}: prediction minus target.", legend=2),
    ]


def _draw_agreement(sample: SampleField, name: str, title: str, wording: Wording) -> Image:
    figure, axes = new_figure(4.6, 3.4)
    axes.plot(sample.target, sample.prediction - sample.target, ".", color=BLUE, markersize=3, rasterized=True)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(title=plain(title), xlabel=plain(f"target: {wording.channel(sample.channel)}"))
    axes.set(ylabel="prediction - target")
    return to_image(figure, name, f"{title}: prediction minus target at all points, against the target.")


# -- the inverse problem

_INVERSE = "discontinuous-conductivity"


def draw_geometry(experiment: Experiment) -> Drawn:
    """Disk in the square with its boundary conditions; None for problems without a disk."""
    if experiment.problem != _INVERSE:
        return None
    caption = (
        "The domain: a square of side 2 with a disk Ω₁ of radius 0.5. At the bottom, Γ_N₁, the outward flux "
        "-κ ∂p/∂n is 1; the sides, Γ_N₂, are impermeable; the pressure at the top, Γ_D₁, is 0. The conductivity κ "
        "is β in the disk and 1 outside it, in Ω₂."
    )
    alt = "A square with a disk at its centre; pressure 0 at the top, flux 1 at the bottom, none at the sides."
    return Panel("Geometry", caption, (to_image(_draw_domain(), "geometry", alt),))


def _draw_domain() -> Figure:
    from matplotlib.patches import Circle, Rectangle

    figure, axes = new_figure(width=4.4, height=4.1)
    axes.add_patch(Rectangle((-1, -1), 2, 2, fill=False, edgecolor=INK, linewidth=1.5))
    axes.add_patch(Circle((0, 0), 0.5, facecolor="#56B4E955", edgecolor=BLUE, linewidth=1.5))
    texts = (
        (0, 0.1, "$\\Omega_1$", 0),
        (0, -0.12, "$\\kappa = \\beta$", 0),
        (-0.75, 0.72, "$\\Omega_2$", 0),
        (-0.7, -0.72, "$\\kappa = 1$", 0),
        (0, 1.12, "$\\Gamma_{D_1}$: $p = 0$", 0),
        (0, -1.14, "$\\Gamma_{N_1}$: $-\\kappa\\,\\partial p/\\partial n = 1$", 0),
        (-1.14, 0, "$\\Gamma_{N_2}$: no flux", 90),
        (1.14, 0, "$\\Gamma_{N_2}$: no flux", 270),
    )
    for x, y, text, rotation in texts:
        axes.text(x, y, text, ha="center", va="center", rotation=rotation)
    axes.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
    axes.set(xlabel="x (dimensionless)", ylabel="y (dimensionless)")
    axes.grid(visible=False)
    return figure


def draw_pair(experiment: Experiment, wording: Wording) -> Drawn:
    """Input and output field of the example side by side; None for problems whose inputs are not fields."""
    title = "One input and its output"
    record = next((run.evaluation for run in experiment.runs if run.evaluation is not None), None)
    mesh = None if record is None else _mesh(record, wording)
    sample, source = (None, None) if record is None else (record.example, record.example_input)
    if record is None or mesh is None or sample is None or source is None or source.shape != sample.target.shape:
        reason = "no run holds an example with its input on a triangulated mesh."
        return Omission(title, reason) if experiment.problem == _INVERSE else None
    label = _labelled(record.labels, wording, sample.index)
    input_axis = f"{wording.input} ({wording.unit})"
    images = (
        _draw_field(mesh, source, name="pair-input", title="Input", quantity=input_axis),
        _draw_field(mesh, sample.target, name="pair-output", title="Output", quantity=wording.output_axis),
    )
    note = f", with {label}" if label else ""
    return Panel(title, f"Input and output of the operator: {wording.input} and {wording.output}{note}.", images)
