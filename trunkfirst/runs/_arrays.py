"""What a run keeps of its test samples, for the report."""

import numpy as np

from ..data import AnyData, OperatorData
from ..evaluation import Evaluation

# The test sample shown as a map: the one whose label is nearest to this.
_EXAMPLES = {"nonlinear-conductivity": ("beta", 0.0), "discontinuous-conductivity": ("beta", 2.02)}


def evaluation_arrays(problem: str | None, evaluation: Evaluation, test: AnyData) -> dict[str, np.ndarray]:
    """Errors of all test samples, and one sample in full."""
    example = _example(problem, evaluation, test)
    arrays = {
        "errors": evaluation.errors,
        "optimal_errors": evaluation.optimal_errors,
        "points": test.points if isinstance(test, OperatorData) else test.points[example],
        "example_index": np.asarray(example),
        "example_target": test.outputs[example],
        "example_prediction": evaluation.predictions[example],
        "example_input": test.flat_inputs[example],
        **{f"labels.{name}": label for name, label in test.labels.items()},
    }
    if evaluation.reference_errors is not None:
        arrays["reference_errors"] = evaluation.reference_errors
    if isinstance(test, OperatorData) and test.triangles is not None:
        arrays["triangles"] = test.triangles
    return arrays


def _example(problem: str | None, evaluation: Evaluation, test: AnyData) -> int:
    """The sample to show: the paper's where it has one, else the one of median error."""
    if problem in _EXAMPLES and _EXAMPLES[problem][0] in test.labels:
        name, value = _EXAMPLES[problem]
        return int(np.argmin(np.abs(test.labels[name] - value)))
    return int(np.argsort(evaluation.errors)[len(evaluation.errors) // 2])
