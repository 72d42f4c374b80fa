"""Any scikit-learn regressor as a branch; scikit-learn itself is never imported."""

import copy
import inspect
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ..errors import SettingError, UsageError
from ..networks.branches import Estimator, PredictOnlyBranch
from ..settings import kind_field, record
from .base import AbstractRegressor, Regression, Task, generator


@record
class Sklearn(AbstractRegressor):
    """An estimator with `fit` and `predict`; it is copied before it is fitted.

    A `random_state` left open is set from the key. The operator that comes out predicts only: gradients,
    compilation, saving and export raise `PredictOnlyError`.
    """

    estimator: Any
    kind: Literal["scikit-learn"] = kind_field("scikit-learn")

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Estimator):
            raise UsageError(f"{self.estimator!r} is not an estimator: it needs the methods fit and predict")

    def learn(self, task: Task) -> Regression:
        """Fit a copy of the estimator; weights are passed as `sample_weight`."""
        X, Y, w = task.to_host()
        fitted = copy.deepcopy(self.estimator)
        _set_random_state(fitted, int(generator(task.key).integers(2**31)))
        # One column as a vector: what estimators for a single output expect.
        fitted.fit(X, Y[:, 0] if Y.shape[1] == 1 else Y, **self._weight_argument(task.weights is not None, w))
        return task.closed_form(PredictOnlyBranch(fitted))

    def _weight_argument(self, is_weighted: bool, w: Float[np.ndarray, " samples"]) -> dict[str, Any]:
        if not is_weighted:
            return {}
        parameters = inspect.signature(self.estimator.fit).parameters.values()
        if not any(p.name == "sample_weight" or p.kind is p.VAR_KEYWORD for p in parameters):
            name = type(self.estimator).__name__
            raise SettingError(f"{name} takes no sample weights; use another estimator, or equal weights")
        return {"sample_weight": w}


def _set_random_state(estimator: Any, seed: int) -> None:
    """Give the estimator a seed if it asks for one and has none."""
    known = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    if "random_state" in known and known["random_state"] is None:
        estimator.set_params(random_state=seed)
