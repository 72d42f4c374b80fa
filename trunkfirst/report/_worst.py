"""The worst test samples, drawn: curves over a line, maps over a plane."""

import numpy as np

from ._experiment import Experiment
from ._maps import Mesh, draw_field, draw_map, shared_scale
from ._panel import Image, Omission, Panel
from ._run import Run, Sample
from ._style import legend_above, new_figure, plain, short_name
from ._wording import Wording

TITLE = "The worst test samples"


def draw_worst(experiment: Experiment, wording: Wording) -> Panel | Omission | None:
    """The samples with the largest errors of the first method that holds them."""
    run = next((run for run in experiment.runs if run.evaluation is not None and run.evaluation.worst), None)
    if run is None or run.evaluation is None:
        return None
    samples = [sample for sample in run.evaluation.worst if np.isfinite(sample.prediction).all()]
    dimension = run.evaluation.worst[0].points.shape[1]
    if not samples or dimension > 2:
        reason = "points have more than two coordinates." if samples else "no prediction of theirs is finite."
        return Omission(TITLE, reason)
    draw = _draw_curve if dimension == 1 else _draw_maps
    images = tuple(image for rank, sample in enumerate(samples) for image in draw(run, sample, rank, wording))
    caption = (
        f"{short_name(run.method)}, seed {run.seed}: the {len(samples)} of {len(run.evaluation.errors)} test "
        f"samples with the largest relative errors{_labels(run, samples)}. If they have something in common, more "
        "training samples of that kind are what helps."
    )
    return Panel(TITLE, caption, images)


def _labels(run: Run, samples: list[Sample]) -> str:
    """What the samples are, where numbers name them."""
    assert run.evaluation is not None
    named = [
        f"{name} = {', '.join(f'{values[sample.index]:.3g}' for sample in samples)}"
        for name, values in run.evaluation.labels.items()
    ]
    return f" ({'; '.join(named)})" if named else ""


def _name(run: Run, sample: Sample) -> str:
    assert run.evaluation is not None
    channel = f", channel {sample.channel + 1}" if run.evaluation.channels > 1 else ""
    return f"Sample {sample.index}{channel}: error {run.evaluation.errors[sample.index]:.1e}"


def _draw_curve(run: Run, sample: Sample, rank: int, wording: Wording) -> tuple[Image, ...]:
    figure, axes = new_figure(4.0, 2.95)
    order = np.argsort(sample.points[:, 0])
    x = sample.points[order, 0]
    axes.plot(x, sample.target[order], color="black", linewidth=1, label="target")
    axes.plot(x, sample.prediction[order], linestyle="--", linewidth=1.5, label="prediction")
    quantity = f"{wording.output} ({wording.unit})"
    axes.set(xlabel=plain(wording.coordinates[0]), ylabel=plain(quantity), title=plain(_name(run, sample)))
    legend_above(figure)
    return (Image(f"worst-{rank + 1}", f"{_name(run, sample)}; target and prediction as curves.", figure),)


def _draw_maps(run: Run, sample: Sample, rank: int, wording: Wording) -> tuple[Image, ...]:
    from matplotlib.tri import Triangulation

    assert run.evaluation is not None
    triangles = run.evaluation.triangles
    if triangles is None or len(triangles) == 0:
        triangles = Triangulation(*sample.points.T).triangles.astype(np.int64)
    mesh = Mesh(sample.points, triangles, wording.coordinates)
    error = np.abs(sample.prediction - sample.target)
    quantity = f"{wording.output} ({wording.unit})"
    return (
        draw_field(
            mesh,
            sample.target,
            name=f"worst-{rank + 1}",
            title=f"Sample {sample.index}, target",
            quantity=quantity,
        ),
        draw_map(
            mesh,
            error,
            shared_scale([error], f"|error| ({wording.unit})"),
            name=f"worst-{rank + 1}-error",
            title=_name(run, sample),
        ),
    )
