"""`TwoStepDeepONet`: an operator as a scikit-learn regressor, whose targets are fields."""

from typing import Any, Self

import numpy as np
from jaxtyping import Float

from .data.operator_data import OperatorData
from .errors import DataError, MissingExtraError, PrecisionError
from .inputs import AbstractInputs, StandardisedInputs
from .interface import fit
from .regressors.base import AbstractRegressor
from .trunks import AbstractTrunk
from .two_step import TwoStep

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils import Tags, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise MissingExtraError("TwoStepDeepONet", "scikit-learn", "sklearn") from error

_FUNCTIONS = ("log", "inverse", "inverse-root")


class TwoStepDeepONet(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A DeepONet trained in two steps, as a scikit-learn regressor.

    A row of X is an input function at its sensors, the same row of y the output field at `points`. `fit` chooses
    what is "auto" on samples that are left out, as `trunkfirst.fit` does.

    Parameters
    ----------
    points: the points of the columns of y, (points, coordinates) or (points,); None: evenly spaced in [0, 1].
    trunk: "auto", "modes", "network", or a record such as `ModesTrunk(10)`.
    branch: "auto", "network", "linear", "kernel", or a record such as `Kernel()`.
    encoder: of X: "auto", "standardise", "raw", "log", ..., or a record such as `PrincipalInputs(8)`.
    weights: "auto", "none", or "relative" for the relative error of every sample.
    minutes: time limit for each fit.
    progress: whether to report progress.
    random_state: seed of the networks; the same seed gives the same bits.

    Attributes
    ----------
    operator_: the `Operator`: predicts at any points; `trunkfirst.save` saves it.
    result_: the `FitResult`, with history and diagnostics.
    points_, n_features_in_, feature_names_in_: as seen in training.

    `score` is R^2 with every column weighted by its variance, so that nearly constant columns, such as boundary
    values, do not dominate.

    A fitted estimator is in double precision. To read a pickle of it, switch on double precision in JAX first.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, a = np.linspace(0, 1, 20), rng.normal(size=(50, 3))
    >>> model = TwoStepDeepONet(points=x, branch="linear")
    >>> fields = model.fit(a, a @ np.stack([x, x**2, x**3])).predict(a[:5])
    >>> fields.shape
    (5, 20)
    """

    def __init__(
        self,
        points: Any = None,
        *,
        trunk: str | AbstractTrunk = "auto",
        branch: str | AbstractRegressor = "auto",
        encoder: str | AbstractInputs = "auto",
        weights: str = "auto",
        minutes: float | None = 5.0,
        progress: bool = False,
        random_state: Any = 0,
    ) -> None:
        self.points = points
        self.trunk = trunk
        self.branch = branch
        self.encoder = encoder
        self.weights = weights
        self.minutes = minutes
        self.progress = progress
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train on input functions X (samples, sensors) and output fields y (samples, points)."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64, ensure_min_samples=2)
        if y.ndim != 2:
            raise DataError(
                f"y: expected fields (samples, points), got shape {y.shape}; add an axis with [:, None]"
            )
        points = _checked_points(self.points, y.shape[1])
        data = OperatorData(X, *_at_two_points(points, y.astype(np.float64)))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        options: dict[str, Any] = {"minutes": self.minutes, "intervals": False, "progress": self.progress}
        self.result_ = fit(data, method=self._method(), seed=seed, **options)
        self.operator_ = self.result_.operator
        self.points_ = points
        return self

    def predict(self, X: Any) -> Float[np.ndarray, "samples points"]:
        """Output fields of X (samples, sensors) at the points of training."""
        check_is_fitted(self)
        return self.predict_at(X, self.points_)

    def predict_at(
        self, X: Any, points: Any, *, extrapolate: bool = False
    ) -> Float[np.ndarray, "samples elsewhere"]:
        """Output fields of X at other points (points, coordinates); see `Operator.predict` for `extrapolate`."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        if self.operator_.dtype != np.float64:
            raise PrecisionError(
                "this estimator was read from a pickle while double precision was switched off in JAX, so its "
                'numbers were rounded; add jax.config.update("jax_enable_x64", True) before reading it, '
                "or use trunkfirst.save(estimator.operator_, folder) and trunkfirst.load(folder)"
            )
        return self.operator_.predict(X, _as_points(points), extrapolate=extrapolate)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2 of the predictions, every column weighted by its variance."""
        return float(r2_score(y, self.predict(X), sample_weight=sample_weight, multioutput="variance_weighted"))

    def _method(self) -> TwoStep:
        parts: Any = (self.trunk, self.branch)
        inputs: Any = self.encoder
        inputs = StandardisedInputs(inputs) if inputs in _FUNCTIONS else inputs
        weights: Any = self.weights
        return TwoStep(*parts, inputs=inputs, weights=weights)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        return tags


def _as_points(points: Any) -> Float[np.ndarray, "points coordinates"]:
    array = np.asarray(points, np.float64)
    return array[:, None] if array.ndim == 1 else array


def _checked_points(points: Any, columns: int) -> Float[np.ndarray, "points coordinates"]:
    if points is None:
        return np.linspace(0, 1, columns)[:, None]
    array = _as_points(points)
    if array.ndim != 2 or len(array) != columns:
        raise DataError(f"points: y has {columns} columns, one for each point, but points has shape {array.shape}")
    return array


def _at_two_points(
    points: Float[np.ndarray, "points coordinates"], outputs: Float[np.ndarray, "samples points"]
) -> tuple[np.ndarray, np.ndarray]:
    """A field known at one point alone is taken as constant: a trunk needs more points than functions."""
    if len(points) > 1:
        return points, outputs
    return np.concatenate([points, points + 1]), np.repeat(outputs, 2, axis=1)
