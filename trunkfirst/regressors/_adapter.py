"""Any scikit-learn regressor as a branch; scikit-learn itself is never imported."""

import copy
import dataclasses as dc
import inspect
import time
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import SettingError, UsageError
from ..minimisers import OnStep
from ..networks import Estimator, PredictOnlyBranch
from ._abstract import AbstractRegressor, Regression
from ._host import closed_form, to_host
from ._numbers import generator


@dc.dataclass(frozen=True)
class SklearnRegressor(AbstractRegressor):
    """An estimator with `fit` and `predict`; it is copied before it is fitted.

    A `random_state` left open is set from the key. The operator that comes out predicts only: gradients,
    compilation, saving and export raise `PredictOnlyError`.
    """

    kind: ClassVar[str] = "scikit-learn"
    estimator: Any

    def __post_init__(self) -> None:
        if not isinstance(self.estimator, Estimator):
            raise UsageError(f"{self.estimator!r} is no estimator: it needs the methods fit and predict")

    def fit(
        self,
        inputs: Float[Array, "samples features"],
        targets: Float[Array, "samples coefficients"],
        weights: Float[Array, " samples"] | None = None,
        *,
        key: PRNGKeyArray,
        loss_unit: float = 1.0,
        on_step: OnStep | None = None,
    ) -> Regression:
        """Fit a copy of the estimator; weights are passed on as `sample_weight`."""
        begin = time.perf_counter()
        X, Y, w = to_host(inputs, targets, weights)
        fitted = copy.deepcopy(self.estimator)
        _set_random_state(fitted, int(generator(key).integers(2**31)))
        # One column as a vector: what estimators for a single output expect.
        fitted.fit(X, Y[:, 0] if Y.shape[1] == 1 else Y, **self._weight_argument(weights is not None, w))
        branch = PredictOnlyBranch(fitted)
        return closed_form(branch, inputs, targets, weights, begin=begin, loss_unit=loss_unit, on_step=on_step)

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
