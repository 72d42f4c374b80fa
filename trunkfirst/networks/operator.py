"""The operator: everything that is needed to predict, in physical units."""

import dataclasses as dc
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.array_checks import checked_rows
from ..data.data_display import Panel, html_table, plot_panels
from ..data.named_arrays import Dataset
from ..data.read_write import read_inputs
from ..encoders import Periodic, in_words
from ..errors import DataError, PredictOnlyError, UsageError
from ..intervals import Prediction
from .branches import PredictOnlyBranch
from .deeponet import (
    DeepONet,
    Inputs,
    Points,
    closed_form_fields,
    compiled_fields,
    fields_at,
    is_closed_form,
    predict_at_own_points,
    sample_blocks,
    scattered_fields,
    sensitivities,
    slopes,
)
from .fourier_layers import GridBranch
from .interpolants import GridSpline, SimplexInterpolation
from .inversion import InverseProblem, Inversion, checked_noise, checked_observations, checked_range
from .layers import count_parameters
from .storage import model_card, read_operator, write_operator
from .training_domain import UNKNOWN, TrainingDomain, input_rows, number_names, point_rows


class Operator(DeepONet):
    """A trained operator, u(y) = phi(y)^T T c(f): trunk phi, transform T, and branch c of the encoded input f.

    Output channels share the trunk, and each has `rank` coefficients of its own. `output` maps the sum to physical
    units. `domain` describes the training data: points, names, units, ranges.

    `predict` takes and returns NumPy arrays. The operator is also a frozen pytree, for use with `jax.jit`,
    `jax.vmap` and `jax.grad`.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> modes = trunkfirst.ModesTrunk(width=2)
    >>> method = trunkfirst.TwoStep(modes, trunkfirst.Linear(), inputs="raw", weights="none")
    >>> operator = trunkfirst.fit(a, a @ np.stack([np.sin(3 * x), x**2]), x[:, None], method=method).operator
    >>> operator.predict(a[:3], np.linspace(0, 1, 200)[:, None]).shape  # any points
    (3, 200)
    >>> operator.gradient(a[:3], x[:, None]).shape  # one derivative for each coordinate
    (3, 30, 1)
    """

    domain: TrainingDomain = eqx.field(static=True, default=UNKNOWN)

    def __check_init__(self) -> None:
        if self.domain is not UNKNOWN:
            self.domain.check(self.trunk.coordinates, self.sensors, self.channels or 1, len(self.input_names))

    @overload
    def predict(
        self,
        inputs: Dataset,
        points: Points | None = None,
        *,
        interval: float | None = None,
        extrapolate: bool = False,
    ) -> Any: ...
    @overload
    def predict(
        self, inputs: Inputs, points: Points | None = None, *, interval: None = None, extrapolate: bool = False
    ) -> np.ndarray: ...
    @overload
    def predict(
        self, inputs: Inputs, points: Points | None = None, *, interval: float, extrapolate: bool = False
    ) -> "Prediction": ...
    def predict(
        self,
        inputs: Inputs,
        points: Points | None = None,
        *,
        interval: float | None = None,
        extrapolate: bool = False,
    ) -> "np.ndarray | Prediction | Any":
        """Predict the outputs of new inputs.

        The computation has the precision of the operator, and runs in blocks of samples to limit the memory.

        Args:
            inputs: (samples, sensors); or a dictionary of these by input function, as `data.inputs`; or a pandas
                table with their columns. For an xarray Dataset the result is a Dataset with the names, coordinates
                and units of training.
            points: (points, coordinates), or {"x": x, "t": t} for a grid; by default the training points.
            interval: confidence level of prediction intervals, such as 0.9.
            extrapolate: predict at points outside the training domain too, with a warning; otherwise they are
                refused.

        Returns:
            An array (samples, points) or (samples, points, channels); with `interval` a `Prediction`, which also
            has bounds, and marks outliers and extrapolated points.

        Raises:
            DataError: wrong sizes, values that are not finite, or points outside the training domain.
            UsageError: `interval` is given, but the operator was fitted without intervals.
        """
        if isinstance(inputs, Dataset):
            return self._predict_dataset(inputs, points, interval=interval, extrapolate=extrapolate)
        rows = self.checked_inputs(inputs)
        places, is_outside = self._checked_points(points, extrapolate=extrapolate)
        values = self.values_at(rows, places)
        if interval is not None:
            return self._with_interval(values, rows, places, interval, is_outside)
        self._warn(rows, is_outside)
        return values

    def _predict_dataset(
        self, dataset: "Dataset", points: Points | None, *, interval: float | None, extrapolate: bool
    ) -> Any:
        given, domain = read_inputs(dataset, names=self.input_names), self.domain
        for name, known in zip(self.input_names, domain.sensors, strict=False):
            sensors = given.functions[name].sensors if name in given.functions else None
            if sensors is not None and not (sensors.shape == known.shape and np.allclose(sensors, known)):
                raise DataError(
                    f"inputs[{name!r}]: the sensors differ from those in training; use dataset.interp(...)"
                )
        rows = {name: function.values for name, function in given.functions.items()}
        rows = next(iter(rows.values())) if len(rows) == len(self.input_names) == 1 else rows
        places, is_outside = self._checked_points(points, extrapolate=extrapolate)
        found = self.predict(rows, points, interval=interval, extrapolate=extrapolate)
        if not isinstance(found, Prediction):
            return domain.dataset({"": found}, places, given, is_extrapolated=is_outside)
        fields = {"": found.values, "_lower": found.lower, "_upper": found.upper}
        return domain.dataset(fields, places, given, is_outlier=found.is_outlier, is_extrapolated=is_outside)

    def values_at(self, inputs: Inputs, points: Points) -> np.ndarray:
        """The same as `predict`, anywhere and without a warning: for evaluations, where the outputs are known."""
        rows = self.checked_inputs(inputs)
        places = checked_rows("points", points, ("points", "coordinates"), self.trunk.coordinates)
        bare = self._without_domain()
        expand = fields_at if isinstance(self.branch, PredictOnlyBranch) else compiled_fields
        with jax.enable_x64(self.dtype == jnp.float64):
            numbers = self.branch.numbers if isinstance(self.branch, GridBranch) else 0
            blocks = sample_blocks(len(rows), max(len(places) * (self.channels or 1) * self.layer_width, numbers))
            if is_closed_form(self):
                return closed_form_fields(self, rows, places, blocks)
            # A basis that depends on the input is computed with the fields, a block of samples at a time.
            moves = self.trunk.depends_on_input
            basis = None if moves else eqx.filter_jit(Operator.basis)(bare, places)
            return np.concatenate([np.asarray(expand(bare, rows[block], basis, places)) for block in blocks])

    def is_outside(self, points: Points) -> np.ndarray:
        """Whether each of `points` (points, coordinates) lies outside the training domain and its margin.

        All False for an operator that does not know its training points.
        """
        places = checked_rows("points", points, ("points", "coordinates"), self.trunk.coordinates)
        return self.domain.is_outside(places, self.periods)

    @property
    def periods(self) -> tuple[float, ...]:
        """The period of every coordinate, 0 for those that do not repeat; nothing if none does."""
        kinds = (Periodic, GridSpline, SimplexInterpolation)
        parts = jax.tree.leaves(self.trunk, is_leaf=lambda part: isinstance(part, kinds))
        return next((part.periods for part in parts if isinstance(part, kinds)), ())

    def _with_interval(
        self, values: np.ndarray, inputs: np.ndarray, points: np.ndarray, level: float, is_outside: np.ndarray
    ) -> "Prediction":
        if self.domain.intervals is None:
            raise UsageError("this operator has no prediction intervals; fit it with intervals=True")
        half = self.domain.intervals.half_width(points, level)
        half[is_outside] = np.nan
        return Prediction(values, values - half, values + half, self.domain.is_outlier(inputs), is_outside)

    def save(self, folder: Path | str, *, measured: Mapping[str, float | int] | None = None) -> Path:
        """Write the operator into `folder`, which is created if necessary; `trunkfirst.load` reads it.

        Args:
            folder: where to write.
            measured: numbers for the model card `README.md`, such as {"mean relative l2 error of 100 test
                samples": 1e-3}. Ranges and intervals are in it anyway.

        Returns:
            The folder.

        Raises:
            PredictOnlyError: the branch is a scikit-learn estimator.
            OutputNotWritableError: the folder cannot be created.
        """
        if isinstance(self.branch, PredictOnlyBranch):
            raise PredictOnlyError(self.branch.refusal("saved; predict in this program"))
        return write_operator(self, folder, model_card(self, measured or {}))

    def plot(self, inputs: Inputs) -> np.ndarray:
        """Draw the predictions of the first three `inputs` (samples, sensors); returns the matplotlib axes."""
        rows = self.checked_inputs(inputs)[:3]
        points, values = self._checked_points(None)[0], self.predict(rows)
        fields = np.moveaxis(values, 2, 0) if values.ndim == 3 else values[None]
        names = self.domain.channel_names or tuple(f"output {channel}" for channel in range(len(fields)))
        axes = self.domain.coordinate_names
        panels = [Panel(name, field, points, axes) for name, field in zip(names, fields, strict=True)]
        return plot_panels(panels, np.arange(len(rows)))

    def gradient(self, inputs: Inputs, points: Points | None = None, *, extrapolate: bool = False) -> np.ndarray:
        """Differentiate the outputs with respect to the coordinates of the points.

        Arguments, precision and exceptions are those of `predict`.

        Returns:
            Exact derivatives of the networks, (samples, points, coordinates) or (samples, points, channels,
            coordinates). At a kink of a ReLU trunk they are those of one side.
        """
        rows = self.checked_inputs(inputs)
        places, is_outside = self._checked_points(points, extrapolate=extrapolate)
        self._warn(rows, is_outside)
        bare = self._without_domain()
        with jax.enable_x64(self.dtype == jnp.float64):
            features = bare.features(rows)
            coefficients = jnp.asarray(bare.branch(features))
            at = bare.array("points", places, self.trunk.coordinates)
            blocks = sample_blocks(len(rows), at.size * (self.channels or 1) * self.layer_width)
            return np.concatenate([np.asarray(slopes(bare, coefficients[b], features[b], at)) for b in blocks])

    def invert(
        self,
        observations: Any,
        points: Points | None = None,
        *,
        noise: Any = None,
        starts: int = 16,
        seed: int = 0,
    ) -> Inversion:
        """Find inputs within the training range that explain measurements.

        The search follows gradients from several starts. If the operator has intervals, its own error is added to
        `noise`.

        Args:
            observations: measured values (points,) or (points, channels); NaN where nothing was measured.
            points: where they were measured, (points, coordinates); by default the training points.
            noise: standard deviation of the measurements, a number or an array like them; estimated from the
                residuals if left out.
            starts: number of starts.
            seed: seed of the starts.

        Returns:
            An `Inversion` with the inputs and their spread.

        Raises:
            UsageError: the inputs have more than 32 numbers.

        >>> import numpy as np
        >>> import trunkfirst
        >>> x, a = np.linspace(0, 1, 30)[:, None], np.random.default_rng(0).uniform(1, 2, size=(20, 1))
        >>> method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Kernel(), inputs="raw", weights="none")
        >>> operator = trunkfirst.fit({"a": a}, np.sin(a * x[:, 0]), x, method=method).operator
        >>> found = operator.invert(np.sin(1.3 * x[:, 0]), noise=1e-3)
        >>> bool(abs(found.inputs[0] - 1.3) < 3 * found.spread[0])
        True
        """
        if isinstance(self.branch, PredictOnlyBranch):
            raise PredictOnlyError(self.branch.refusal("inverted"))
        low, high = checked_range(self.domain.input_ranges)
        places, is_outside = self._checked_points(points, extrapolate=True)
        self.domain.refuse(places, is_outside, "leave the measurements there out")
        shape = (len(places), *(() if self.channels is None else (self.channels,)))
        values = checked_observations(observations, shape)
        is_known = ~np.isnan(values)
        sigma = None if noise is None else checked_noise(noise, shape)
        if sigma is not None and self.domain.intervals is not None:
            sigma = np.hypot(sigma, self.domain.intervals.deviations(places))
        bare = self._without_domain()
        with jax.enable_x64(self.dtype == jnp.float64):
            basis = None if self.trunk.depends_on_input else eqx.filter_jit(Operator.basis)(bare, places)
            problem = InverseProblem(
                number_names(self.input_names, self.domain.input_sizes),
                values[is_known],
                lambda x: np.asarray(compiled_fields(bare, x[None], basis, places)[0], float)[is_known],
                lambda x: np.asarray(sensitivities(bare, jnp.asarray(x), basis, places), float)[is_known],
                low,
                high,
                None if sigma is None else sigma[is_known],
            )
            return problem.solve(starts, seed)

    def predict_scattered(self, inputs: Inputs, points: Points, *, extrapolate: bool = False) -> np.ndarray:
        """Predict every sample at its own `points` (samples, points, coordinates); otherwise like `predict`."""
        rows, places = self.checked_inputs(inputs), np.asarray(points)
        if places.ndim != 3 or (len(places), places.shape[2]) != (len(rows), self.trunk.coordinates):
            expected = f"({len(rows)}, points, {self.trunk.coordinates})"
            raise DataError(f"points: expected shape {expected}, got {places.shape}")
        if not extrapolate:
            self._warn(rows, self._checked_points(places.reshape(-1, self.trunk.coordinates))[1])
        with jax.enable_x64(self.dtype == jnp.float64):
            return predict_at_own_points(self._without_domain(), rows, places)

    def scattered_fields(
        self, coefficients: np.ndarray, points: Points, features: Array | None = None
    ) -> np.ndarray:
        """The physical outputs of these coefficients, every sample at its own points."""
        return scattered_fields(self._without_domain(), coefficients, points, features)

    def __repr__(self) -> str:
        return f"Operator({', '.join(f'{name}: {text}' for name, text in self._summary().items())})"

    def _repr_html_(self) -> str:
        """The same as a table; notebooks ask for it."""
        rows = [f"{name}: {text}" for name, text in self._summary().items()]
        return html_table("Operator", [f"rank {self.rank}", *rows])

    def _summary(self) -> dict[str, str]:
        domain = self.domain
        outputs = ", ".join(domain.channel_names) or f"{self.channels or 1}"
        coordinates = ", ".join(domain.coordinate_names) or f"{self.trunk.coordinates} coordinates"
        known = {} if domain.points is None else {"training points": f"{len(domain.points):,}"}
        return {
            "inputs": f"{', '.join(self.input_names)} ({self.sensors} sensors)",
            "outputs": f"{outputs} at ({coordinates})",
            "encoder": in_words(self.encoder),
            "branch": f"{type(self.branch).__name__} ({count_parameters(self.branch):,} parameters)",
            "trunk": f"{self.trunk}, rank {self.rank}",
            "precision": str(self.dtype),
            **known,
        }

    def _without_domain(self) -> "Operator":
        # A domain is static for JAX: with it every operator would be compiled anew.
        return dc.replace(self, domain=UNKNOWN)

    def checked_inputs(self, inputs: Inputs) -> np.ndarray:
        """Inputs in any form as an array (samples, sensors), or a `DataError`."""
        return input_rows(inputs, self.input_names, self.domain.input_sizes, self.sensors)

    def _checked_points(
        self, points: Points | None, *, extrapolate: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """The points, and which of them lie outside the training domain."""
        if points is None:
            if self.domain.points is None:
                raise DataError("points: this operator does not know its training points; pass points=...")
            return self.domain.points, np.zeros(len(self.domain.points), bool)
        places = point_rows(points, self.domain.coordinate_names, self.trunk.coordinates)
        is_outside = self.is_outside(places)
        if not extrapolate:
            self.domain.refuse(places, is_outside)
        return places, is_outside

    def _warn(self, inputs: np.ndarray, is_outside: np.ndarray) -> None:
        """An array has no place for marks. Equinox puts a frame between this one, its caller and the user's."""
        if count := int(self.domain.is_far(inputs).sum()):
            which = f"inputs: {count:,} of {len(inputs):,} lie far outside the range of the training inputs"
            warnings.warn(f"{which}; their predictions are unreliable", UserWarning, stacklevel=5)
        if count := int(is_outside.sum()):
            which = f"points: {count:,} of {len(is_outside):,} lie outside the training domain"
            warnings.warn(f"{which}; the operator extrapolates", UserWarning, stacklevel=5)


def save(operator: Operator, folder: Path | str, *, measured: Mapping[str, float | int] | None = None) -> Path:
    """Write an operator into a folder that `load` reads; arguments and exceptions are those of `Operator.save`."""
    return operator.save(folder, measured=measured)


def load(folder: Path | str) -> Operator:
    """Read an operator from a model folder or a run folder.

    Args:
        folder: a folder written by `save`, or a run folder with one in `model/`.

    Returns:
        The `Operator`.

    Raises:
        CorruptFileError: a checksum or shape is wrong, or the parts do not fit together.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> modes = trunkfirst.ModesTrunk(width=2)
    >>> method = trunkfirst.TwoStep(modes, trunkfirst.Linear(), inputs="raw", weights="none")
    >>> operator = trunkfirst.fit(a, a @ np.stack([np.sin(3 * x), x**2]), x[:, None], method=method).operator
    >>> folder = operator.save("model")
    >>> again = trunkfirst.load("model")
    >>> bool((again.predict(a) == operator.predict(a)).all())
    True
    """
    return read_operator(folder, Operator)
