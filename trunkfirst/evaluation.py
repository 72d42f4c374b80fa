"""Errors of an operator on unseen samples, of its best possible branch, and of a kernel regression."""

import dataclasses as dc
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .data.array_checks import sample_blocks
from .data.data_display import html_table
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData, ScatteredData, mean_squares, output_units, relative_weights
from .device_arrays import seed_key
from .encode import make_fields
from .encoders import AbstractEncoder, Identity, to_host
from .errors import UsageError
from .fields import Fields, functions_of, trunk_values
from .linear.blocked_qr import one_blas_thread
from .linear.low_rank import principal_rows, thin_factor
from .linear.orthonormalise import SVD, field_sizes, projection, relative_errors
from .method import Trained
from .networks.operator import Operator
from .outputs import Output, OutputMap, is_free, raw_outputs
from .records import EvaluationRecord
from .regressors.ridge import Kernel
from .scattered import ScatteredFields

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Coordinates of the outputs below this share of their norm are rounding.
ROUNDING = 1e-14

Errors = Float[np.ndarray, " samples"]
Coordinates = Float[np.ndarray, "samples channels rank"]
Outputs = Float[np.ndarray, "samples points"] | Float[np.ndarray, "samples points channels"]


@dc.dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of `evaluate`: relative l2 errors of every sample in physical units.

    `predictions` are (samples, points) or (samples, points, channels). `errors` are (samples,), means over the
    channels if there are several. `optimal_errors` are those of the best coefficients for the same trunk, computed
    from the true outputs. If the data have a finer solution, `reference_errors` are those of the predictions
    against it, and `own_errors` those of the data against it; otherwise they are None.
    """

    predictions: Outputs
    errors: Errors
    optimal_errors: Errors
    reference_errors: Errors | None = None
    own_errors: Errors | None = None
    channel_errors: dict[str, Errors] | None = None
    """The errors of every channel by name, where there are several."""
    kernel_error: float | None = None
    """Mean relative error of `kernel_baseline` on the same samples; None until computed."""

    def summary(self) -> dict[str, Any]:
        """Mean, median and largest errors, under the keys of `test` in `metrics.json`."""
        reference = self.reference_errors
        numbers: dict[str, Any] = {
            "mean_relative_l2": float(self.errors.mean()),
            "median_relative_l2": float(np.median(self.errors)),
            "max_relative_l2": float(self.errors.max()),
            "optimal_mean_relative_l2": float(self.optimal_errors.mean()),
            "kernel_mean_relative_l2": self.kernel_error,
            "reference_mean_relative_l2": None if reference is None else float(reference.mean()),
        }
        if self.channel_errors is not None:
            numbers["channels"] = {name: float(errors.mean()) for name, errors in self.channel_errors.items()}
        return numbers

    def by_name(self) -> dict[str, Float[np.ndarray, " samples"]]:
        """All errors by name, those of single channels included."""
        errors = {"error": self.errors, **(self.channel_errors or {})}
        errors["best possible with this trunk"] = self.optimal_errors
        finer = {} if self.reference_errors is None else {"against the finer solution": self.reference_errors}
        return errors | finer

    def _rows(self) -> dict[str, str]:
        return {
            name: f"mean {each.mean():.2e}, median {np.median(each):.2e}, max {each.max():.2e}"
            for name, each in self.by_name().items()
        }

    def __repr__(self) -> str:
        rows = "; ".join(f"{name}: {value}" for name, value in self._rows().items())
        return f"Evaluation({len(self.errors)} samples; {rows})"

    def _repr_html_(self) -> str:
        """The same as a table; notebooks ask for it."""
        rows = [f"{name}: {value}" for name, value in self._rows().items()]
        return html_table("Evaluation", [f"{len(self.errors)} samples", *rows])

    def plot(self) -> "Axes":
        """Draw the sorted errors of all samples, and the best possible ones; returns the matplotlib axes."""
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(4.5, 3.2), layout="constrained")
        share = np.linspace(0, 100, len(self.errors))
        axes.semilogy(share, np.sort(self.errors), label="operator")
        axes.semilogy(share, np.sort(self.optimal_errors), "--", label="best possible with this trunk")
        axes.set(xlabel="samples with a smaller error (%)", ylabel="relative l2 error")
        axes.legend()
        return axes


def evaluate(operator: Operator | Trained, data: Any, outputs: Any = None, points: Any = None) -> Evaluation:
    """Predict every sample and compare it with its outputs.

    Args:
        operator: a trained operator, or the result of `fit`.
        data: `OperatorData` or `ScatteredData`; or inputs (samples, sensors).
        outputs: outputs (samples, points) or (samples, points, channels), if `data` are inputs.
        points: where these outputs are given, (points, coordinates); by default the training points.

    Returns:
        An `Evaluation` with the relative l2 error of every sample.

    Raises:
        DataError: arrays do not fit the operator.

    >>> import numpy as np
    >>> import trunkfirst
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = trunkfirst.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> modes = trunkfirst.ModesTrunk(width=2)
    >>> method = trunkfirst.TwoStep(modes, trunkfirst.Linear(), inputs="raw", weights="none")
    >>> operator = trunkfirst.fit(data.take(slice(0, 30)), method=method).operator
    >>> found = trunkfirst.evaluate(operator, data.take(slice(30, 40)))  # or evaluate(operator, inputs, outputs)
    >>> bool(found.errors.max() < 1e-9), len(found.errors)
    (True, 10)
    """
    operator = operator.operator if isinstance(operator, Trained) else operator
    data = _as_samples(operator, data, outputs, points)
    predictions = predict_at(operator, data)
    by_channel = _field_errors(predictions, data.outputs, data)
    reference = data.reference_outputs if isinstance(data, OperatorData) else None
    return Evaluation(
        predictions,
        by_channel.mean(axis=1),
        _field_errors(conditional_optimum(operator, data), data.outputs, data).mean(axis=1),
        None if reference is None else _field_errors(predictions, reference, data).mean(axis=1),
        None if reference is None else _field_errors(data.outputs, reference, data).mean(axis=1),
        dict(zip(data.channel_names, by_channel.T, strict=True)) if data.is_multichannel else None,
    )


def _as_samples(operator: Operator, data: Any, outputs: Any, points: Any) -> AnyData:
    if outputs is None and isinstance(data, OperatorData | ScatteredData):
        return data
    if outputs is None:
        raise UsageError("outputs: not given; use evaluate(operator, data) or evaluate(operator, inputs, outputs)")
    places = operator.domain.points if points is None else points
    if places is None:
        raise UsageError("points: this operator does not know its training points; pass points=...")
    names = operator.domain.channel_names
    return OperatorData(operator.checked_inputs(data), places, outputs, channel_names=names)


def predict_at(operator: Operator, data: AnyData) -> Outputs:
    """Predictions at the points of `data`; where a sample of scattered data has no point, at 0."""
    inputs = inputs_of(data)
    if isinstance(data, OperatorData):
        return operator.values_at(inputs, data.points)
    return operator.predict_scattered(inputs, np.nan_to_num(data.points), extrapolate=True)


def inputs_of(data: AnyData) -> dict[str, np.ndarray] | np.ndarray:
    """The inputs as an operator takes them.

    Several input functions may come in another order than in training; a single one may have any name.
    """
    functions = {name: function.values for name, function in data.inputs.items()}
    return functions if len(functions) > 1 else data.flat_inputs


def prediction_errors(operator: Operator, data: AnyData) -> tuple[Outputs, Errors]:
    """Predictions and their errors alone, as in an `Evaluation`."""
    predictions = predict_at(operator, data)
    return predictions, _field_errors(predictions, data.outputs, data).mean(axis=1)


def _field_errors(predictions: Outputs, outputs: Outputs, data: AnyData) -> Float[np.ndarray, "samples channels"]:
    weights = data.point_weights if isinstance(data, OperatorData) else None
    if isinstance(data, ScatteredData):
        mask = data.mask[..., None] if data.is_multichannel else data.mask
        predictions, outputs = np.where(mask, predictions, 0.0), np.where(mask, outputs, 0.0)
    if predictions.ndim == 2:
        return relative_errors(predictions, outputs, point_weights=weights)[:, None]
    channels = zip(np.moveaxis(predictions, 2, 0), np.moveaxis(outputs, 2, 0), strict=True)
    return np.stack([relative_errors(p, u, point_weights=weights) for p, u in channels], axis=1)


# -- the conditional optimum


def conditional_optimum(operator: Operator, data: AnyData) -> Outputs:
    """The least-squares approximation of each output by the operator's basis, Phi T or Phi.

    Directions at rounding level are left out. With an output map it is the best approximation before that map, for
    a positive output that of its logarithm.
    """
    with jax.enable_x64(operator.dtype == np.float64):
        fields = make_fields(data, operator.trunk.encoder, operator.output, None)
        if isinstance(fields, Fields) and not operator.trunk.depends_on_input:
            return _physical(operator, _projected(_basis_at(operator, fields.points), fields), data)
        features = operator.features(inputs_of(data)) if operator.trunk.depends_on_input else None
        if isinstance(fields, ScatteredFields):
            coefficients = _scattered_least_squares(operator, fields, features).reshape(data.samples, -1)
            return operator.scattered_fields(coefficients, np.nan_to_num(data.points), features)
        assert isinstance(fields, Fields)
        assert features is not None
        each = [
            _projected(_basis_at(operator, fields.points, features[sample : sample + 1]), fields.of_sample(sample))
            for sample in range(data.samples)
        ]
        return _physical(operator, np.concatenate(each), data)


def _basis_at(
    operator: Operator, points: Float[np.ndarray, "points features"], features: Array | None = None
) -> Float[np.ndarray, "points rank"]:
    """The basis at points that are encoded already; where it depends on the input, that of the one given."""
    bare = operator.trunk.after(Identity())
    if features is None:
        values = trunk_values(bare, points, operator.dtype)
    else:
        values = np.asarray(functions_of(bare, jnp.asarray(points, operator.dtype), features)[0])
    values = values if operator.transform is None else values @ np.asarray(operator.transform)
    return values.astype(float, copy=False)


def _projected(basis: Float[np.ndarray, "points rank"], fields: Fields) -> Float[np.ndarray, "rows points"]:
    values = SVD()(basis, point_weights=fields.point_weights).values
    return projection(fields.outputs, values, point_weights=fields.point_weights)


def _physical(operator: Operator, rows: Float[np.ndarray, "rows free"], data: AnyData) -> Outputs:
    """Outputs from their values before the output map; those at points with fixed values have no effect."""
    raw = np.zeros((len(rows), len(data.points)))
    raw[:, is_free(data.points, operator.output)] = rows
    if operator.channels is not None:
        raw = raw.reshape(data.samples, operator.channels, -1).swapaxes(1, 2)
    if operator.output is None:
        return raw
    return to_host(operator.output)(raw.astype(operator.dtype), np.asarray(data.points, operator.dtype))


def _scattered_least_squares(
    operator: Operator, fields: ScatteredFields, features: Array | None
) -> Float[np.ndarray, "rows rank"]:
    channels = fields.channels or 1
    shared = _basis_at(operator, fields.points) if features is None else None
    best = np.empty((fields.rows, operator.rank))
    for sample, (places, weights) in enumerate(zip(fields.places, fields.weights, strict=True)):
        own = None if features is None else features[sample : sample + 1]
        basis = _basis_at(operator, fields.points, own) if shared is None else shared
        roots, rows = np.sqrt(weights)[:, None], slice(sample * channels, (sample + 1) * channels)
        for row in range(rows.start, rows.stop):
            u = fields.outputs[row] * roots[:, 0]
            best[row] = np.linalg.lstsq(basis[places] * roots, u, rcond=1e-12)[0]
    return best


# -- the kernel baseline


def kernel_baseline(train: OperatorData, test: OperatorData, encoder: AbstractEncoder) -> float:
    """Mean relative test error of a Matern kernel ridge regression from encoded inputs to outputs.

    The outputs are compressed by an exact SVD; length scale and ridge are chosen by leave-one-out on at most 4,000
    training samples.
    """
    weights = relative_weights(train)
    unit = output_units(train)
    scale = unit * np.sqrt(mean_squares(train, unit))  # one a channel
    scale = np.where(scale > 0, scale, 1.0)
    shape, blocks = (train.samples, train.outputs[0].size), sample_blocks(train.outputs.shape)

    def scaled(block: slice) -> Float[np.ndarray, "some numbers"]:
        return np.reshape(train.outputs[block] / scale, (-1, shape[1]))

    roots = np.sqrt(weights)[:, None]
    modes = thin_factor(lambda: (scaled(block) * roots[block] for block in blocks), shape, tolerance=1e-12)
    modes /= np.linalg.norm(modes, axis=1, keepdims=True)
    targets = np.concatenate([scaled(block) @ modes.T for block in blocks])
    inputs, test_inputs = (to_host(encoder)(np.asarray(part.flat_inputs, np.float64)) for part in (train, test))
    branch = Kernel().fit(inputs, targets, weights, key=seed_key(0)).branch
    predictions = (np.asarray(branch(test_inputs)) @ modes).reshape(test.outputs.shape) * scale
    return float(_field_errors(predictions, test.outputs, test).mean())


# -- what a run keeps of its test samples, for the report

# The test sample shown as a map: the one whose label is nearest to this.
_EXAMPLES = {"nonlinear-conductivity": ("beta", 0.0), "discontinuous-conductivity": ("beta", 2.02)}
_WORST = 3


def evaluation_arrays(problem: str | None, evaluation: Evaluation, test: AnyData) -> dict[str, np.ndarray]:
    """Errors of all test samples, one example, the worst and a typical sample, as written to `evaluation.npz`."""
    example, order = _example(problem, test), np.argsort(evaluation.errors)
    cells = test.triangles if isinstance(test, OperatorData) else None
    return EvaluationRecord(
        errors=evaluation.errors,
        optimal_errors=evaluation.optimal_errors,
        points=test.points if isinstance(test, OperatorData) else test.points[example],
        example_index=np.asarray(example),
        example_target=test.outputs[example],
        example_prediction=evaluation.predictions[example],
        example_input=test.flat_inputs[example],
        **_fields_of("worst", order[: -1 - _WORST : -1], evaluation, test),
        **_fields_of("typical", order[[len(order) // 2]], evaluation, test),
        labels=test.labels,
        reference_errors=evaluation.reference_errors,
        triangles=None if cells is None or cells.shape[1] != 3 else cells,
    ).arrays()


def _fields_of(
    which: str, indices: Int[np.ndarray, " rows"], evaluation: Evaluation, test: AnyData
) -> dict[str, np.ndarray]:
    """Some samples, each in the channel that is worst."""
    channels = np.zeros(len(indices), np.int64)
    if evaluation.channel_errors is not None:
        by_channel = np.stack([evaluation.channel_errors[name][indices] for name in test.channel_names], axis=1)
        channels = by_channel.argmax(axis=1)

    def fields(outputs: np.ndarray) -> np.ndarray:
        chosen = outputs[indices]
        return chosen if chosen.ndim == 2 else chosen[np.arange(len(indices)), :, channels]

    points = test.points if isinstance(test, OperatorData) else test.points[indices]
    found = {
        "indices": indices,
        "inputs": test.flat_inputs[indices],
        "channels": channels,
        "points": np.broadcast_to(points, (len(indices), *points.shape[-2:])),
        "targets": fields(test.outputs),
        "predictions": fields(evaluation.predictions),
    }
    return {f"{which}_{name}": array for name, array in found.items()}


def _example(problem: str | None, test: AnyData) -> int:
    """The sample to show: the paper's where it has one, else one whose output has the median size.

    It depends on the data alone, so that all methods of a comparison show the same sample.
    """
    if problem in _EXAMPLES and _EXAMPLES[problem][0] in test.labels:
        name, value = _EXAMPLES[problem]
        return int(np.argmin(np.abs(test.labels[name] - value)))
    sizes = np.nansum(np.abs(test.outputs).reshape(test.samples, -1), axis=1)
    return int(np.argsort(sizes, kind="stable")[test.samples // 2])


@dc.dataclass(frozen=True, eq=False)
class OutputCoordinates:
    """Outputs before the output map as coordinates in an orthonormal basis of the span of them all.

    Nothing is lost, and distances are those of the fields: the root mean square, with the weights of the points.
    """

    values: Coordinates
    basis: Float[np.ndarray, "rank free"]
    sizes: Float[np.ndarray, "samples channels"]
    outputs: np.ndarray
    output: OutputMap | None
    points: Float[np.ndarray, "points coordinates"]
    roots: Float[np.ndarray, " points"]
    """The root of the weight of every point, zero where the output is fixed."""
    point_weights: Float[np.ndarray, " points"]

    @classmethod
    @one_blas_thread()
    def of(cls, data: OperatorData, output: Output) -> "OutputCoordinates":
        """The coordinates of all outputs of `data`."""
        fitted = output.fit(data)
        unscaled = None if fitted is None else dc.replace(fitted, scale=np.ones(data.channels))
        weights = (
            np.full(len(data.points), 1 / len(data.points)) if data.point_weights is None else data.point_weights
        )
        raw, factor = raw_outputs(data.outputs, data.points, unscaled)
        by_channel = raw.reshape(*raw.shape[:2], -1).swapaxes(1, 2)  # (samples, channels, points)
        roots = np.sqrt(weights) * factor
        free = roots > 0
        weighted = (by_channel * roots)[..., free].reshape(-1, int(free.sum()))
        _, basis, _ = principal_rows(weighted, ROUNDING)
        values = (weighted @ basis.T).reshape(*by_channel.shape[:2], -1)
        sizes = field_sizes(data.outputs.reshape(*raw.shape[:2], -1), point_weights=weights)
        return cls(values, basis, sizes, data.outputs, unscaled, data.points, roots, weights)

    def errors(self, rows: Int[np.ndarray, " rows"], predicted: Coordinates) -> Float[np.ndarray, "rows channels"]:
        """The relative error of every predicted sample and channel, in physical units."""
        if self.output is not None and self.output.is_positive:
            missed = (self.fields(predicted) - self.outputs[rows]).reshape(len(rows), len(self.points), -1)
            return np.sqrt(np.einsum("kpc,p->kc", missed**2, self.point_weights)) / self.sizes[rows]
        return np.linalg.norm(predicted - self.values[rows], axis=2) / self.sizes[rows]

    def fields(self, predicted: Coordinates) -> np.ndarray:
        """Physical outputs of these coordinates."""
        free = self.roots > 0
        raw = np.zeros((*predicted.shape[:2], len(self.points)))
        raw[..., free] = predicted @ self.basis / self.roots[free]
        raw = raw.swapaxes(1, 2) if self.outputs.ndim == 3 else raw[:, 0]
        return raw if self.output is None else np.asarray(self.output(raw, self.points))
