"""What a run keeps of its test samples, for the report."""

import numpy as np

from ..data.operator_data import OperatorData
from ..data.scattered_data import AnyData
from ..evaluation import Evaluation
from ..records import EvaluationRecord

# The test sample shown as a map: the one whose label is nearest to this.
_EXAMPLES = {"nonlinear-conductivity": ("beta", 0.0), "discontinuous-conductivity": ("beta", 2.02)}

_WORST = 3


def evaluation_arrays(problem: str | None, evaluation: Evaluation, test: AnyData) -> dict[str, np.ndarray]:
    """Errors of all test samples, one example and the worst samples, as written to `evaluation.npz`."""
    example = _example(problem, test)
    cells = test.triangles if isinstance(test, OperatorData) else None
    return EvaluationRecord(
        errors=evaluation.errors,
        optimal_errors=evaluation.optimal_errors,
        points=test.points if isinstance(test, OperatorData) else test.points[example],
        example_index=np.asarray(example),
        example_target=test.outputs[example],
        example_prediction=evaluation.predictions[example],
        example_input=test.flat_inputs[example],
        **_worst(evaluation, test),
        labels=test.labels,
        reference_errors=evaluation.reference_errors,
        triangles=None if cells is None or cells.shape[1] != 3 else cells,
    ).arrays()


def _worst(evaluation: Evaluation, test: AnyData) -> dict[str, np.ndarray]:
    """The samples with the largest errors, the worst first, each in the channel that is worst."""
    indices = np.argsort(evaluation.errors)[::-1][:_WORST]
    channels = np.zeros(len(indices), np.int64)
    if evaluation.channel_errors is not None:
        by_channel = np.stack([evaluation.channel_errors[name][indices] for name in test.channel_names], axis=1)
        channels = by_channel.argmax(axis=1)

    def fields(outputs: np.ndarray) -> np.ndarray:
        chosen = outputs[indices]
        return chosen if chosen.ndim == 2 else chosen[np.arange(len(indices)), :, channels]

    points = test.points if isinstance(test, OperatorData) else test.points[indices]
    return {
        "worst_indices": indices,
        "worst_inputs": test.flat_inputs[indices],
        "worst_channels": channels,
        "worst_points": np.broadcast_to(points, (len(indices), *points.shape[-2:])),
        "worst_targets": fields(test.outputs),
        "worst_predictions": fields(evaluation.predictions),
    }


def _example(problem: str | None, test: AnyData) -> int:
    """The sample to show: the paper's where it has one, else one whose output has the median size.

    It depends on the data alone, so that all methods of a comparison show the same sample.
    """
    if problem in _EXAMPLES and _EXAMPLES[problem][0] in test.labels:
        name, value = _EXAMPLES[problem]
        return int(np.argmin(np.abs(test.labels[name] - value)))
    sizes = np.nansum(np.abs(test.outputs).reshape(test.samples, -1), axis=1)
    return int(np.argsort(sizes, kind="stable")[test.samples // 2])
