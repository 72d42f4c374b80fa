"""Active-neuron least squares as it goes: branch loss and test error against iterations, as in the paper."""

import dataclasses as dc
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ..data import OperatorData
from ..evaluation import evaluate
from ..files import write_npz
from ..networks import Branch, Operator, Perceptron
from ..regressors import ActiveNeurons
from ..training import FitResult, Method, TwoStep


class KeptBranches:
    """Keeps branches during a fit and judges them on test samples after it, so that the fit cannot know."""

    def __init__(self) -> None:
        self._kept: dict[int, Branch] = {}
        self._is_watching = False

    def watch(self, method: Method) -> Method:
        """The same method, watched if its branch is fitted by active-neuron least squares."""
        if not isinstance(method, TwoStep) or not isinstance(method.branch, ActiveNeurons):
            return method
        self._is_watching = True

        def keep(iteration: int, branch: Perceptron) -> None:
            if iteration:
                self._kept[iteration] = branch

        return dc.replace(method, branch=dc.replace(method.branch, on_branch=keep))

    def write(self, path: Path, result: FitResult, test: OperatorData) -> None:
        """Write iterations, branch losses and mean test errors; nothing where nothing was watched."""
        losses = {step.iteration: step.loss for step in result.history if step.stage == "branch"}
        if not self._is_watching or not losses:
            return
        branches = self._kept | {max(losses): result.operator.branch}
        arrays = {
            "iterations": np.array(list(branches)),
            "branch_losses": np.array([losses[iteration] for iteration in branches]),
            "test_errors": _errors(list(branches.values()), result.operator, test),
        }
        write_npz(path, arrays)


def _errors(branches: list[Branch], operator: Operator, test: OperatorData) -> Float[np.ndarray, " branches"]:
    """Mean relative test error of the operator with each of the branches in turn."""
    operators = (dc.replace(operator, branch=branch) for branch in branches)
    return np.array([evaluate(each, test).errors.mean() for each in operators])
