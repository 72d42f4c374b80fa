"""The inverse problem drawn: its domain with the boundary conditions, and one input with its output."""

import numpy as np
from jaxtyping import Float

from ..data import OperatorData
from ._experiment import Experiment
from ._maps import Mesh, draw_field, mesh_of
from ._panel import Image, Omission, Panel
from ._run import Evaluation
from ._style import INK, new_figure
from ._types import Figure
from ._wording import Wording

Field = Float[np.ndarray, " points"]
PROBLEM = "discontinuous-conductivity"
RADIUS = 0.5
PAIR_BETA = 9.98  # the input-output pair that the paper shows
_PAIR_TITLE = "One input and its output"


def draw_geometry(experiment: Experiment) -> Panel | None:
    """Disk in the square with its boundary conditions; None for problems without a disk."""
    if experiment.problem != PROBLEM:
        return None
    caption = (
        "The domain: a square of side 2 with a disk of radius 0.5. At "
        "the bottom the outward flux -κ ∂p/∂n is 1; nothing passes through the sides; the pressure is held "
        "at 0 at the top. "
        "The conductivity κ is β in the disk and 1 outside."
    )
    alt = "A square with a disk at its centre; pressure 0 at the top, flux 1 at the bottom, none at the sides."
    return Panel("Geometry", caption, (Image("geometry", alt, _draw_domain()),))


def draw_pair(experiment: Experiment, wording: Wording, data: OperatorData | None) -> Panel | Omission | None:
    """Input and output field side by side, near beta = 9.98 when the data are at hand.

    None for problems whose inputs are no fields: there is nothing to draw.
    """
    if data is not None and (pair := _pair_from_data(data, wording)) is not None:
        return _panel(wording, *pair)
    evaluation = next((run.evaluation for run in experiment.runs if run.evaluation is not None), None)
    if evaluation is not None and (pair := _pair_from_example(evaluation, wording)) is not None:
        return _panel(wording, *pair)
    if experiment.problem == PROBLEM:
        return Omission(_PAIR_TITLE, "no run holds an example with its input on a triangulated mesh.")
    return None


def _pair_from_data(data: OperatorData, wording: Wording) -> tuple[Mesh, Field, Field, str] | None:
    values = next(iter(data.inputs.values())).values
    if data.triangles is None or data.points.shape[1] != 2 or values.shape[1] != len(data.points):
        return None
    beta = data.labels.get("beta")
    index = 0 if beta is None else int(np.argmin(np.abs(beta - PAIR_BETA)))
    note = "" if beta is None else f" at β = {beta[index]:.3g}"
    return Mesh(data.points, data.triangles, wording.coordinates), values[index], data.outputs[index], note


def _pair_from_example(evaluation: Evaluation, wording: Wording) -> tuple[Mesh, Field, Field, str] | None:
    mesh, source, target = mesh_of(evaluation, wording), evaluation.example_input, evaluation.example_target
    if mesh is None or source is None or target is None or source.shape != target.shape:
        return None
    beta, index = evaluation.labels.get("beta"), evaluation.example_index
    note = "" if beta is None or index is None else f" at β = {beta[index]:.3g}"
    return mesh, source, target, note


def _panel(wording: Wording, mesh: Mesh, source: Field, target: Field, note: str) -> Panel:
    images = (
        draw_field(mesh, source, name="pair-input", title="Input", quantity=f"{wording.input} ({wording.unit})"),
        draw_field(
            mesh, target, name="pair-output", title="Output", quantity=f"{wording.output} ({wording.unit})"
        ),
    )
    caption = f"What the operator is given and what it has to answer{note}: {wording.input}, and {wording.output}."
    return Panel(_PAIR_TITLE, caption, images)


def _draw_domain() -> Figure:
    from matplotlib.patches import Circle, Rectangle

    figure, axes = new_figure(width=4.4, height=4.1)
    axes.add_patch(Rectangle((-1, -1), 2, 2, fill=False, edgecolor=INK, linewidth=1.5))
    axes.add_patch(Circle((0, 0), RADIUS, facecolor="#56B4E955", edgecolor="#0072B2", linewidth=1.5))
    texts = [
        (0, 0, "disk: $\\kappa = \\beta$", 0),
        (0, 0.72, "outside: $\\kappa = 1$", 0),
        (0, 1.1, "pressure $p = 0$", 0),
        (0, -1.12, "flux $-\\kappa\\,\\partial p/\\partial n = 1$", 0),
        (-1.12, 0, "no flux", 90),
        (1.12, 0, "no flux", 270),
    ]
    for x, y, text, rotation in texts:
        axes.text(x, y, text, ha="center", va="center", rotation=rotation)
    axes.set(
        xlim=(-1.3, 1.3),
        ylim=(-1.3, 1.3),
        aspect="equal",
        xlabel="x (dimensionless)",
        ylabel="y (dimensionless)",
    )
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([-1, 0, 1])
    axes.grid(visible=False)
    return figure
