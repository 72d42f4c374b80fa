"""How good an operator is, on samples that took no part in its making."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import AnyData, OperatorData, ScatteredData
from ..linear import SVD, projection, relative_errors
from ..networks import Operator, Trunk
from ..training import ScatteredFields, is_free, make_fields, trunk_values

Errors = Float[np.ndarray, " samples"]
Outputs = Float[np.ndarray, "samples points"] | Float[np.ndarray, "samples points channels"]


@dc.dataclass(frozen=True, eq=False)
class Evaluation:
    """Relative l2 errors, one a sample, in physical units; with several channels the mean over them.

    `optimal_errors` are those of the conditional optimum: the best coefficients for the same trunk, which only
    somebody who knows the output could choose (the paper's def:cond-opt-rel). `reference_errors` compare with a
    finer solution, `own_errors` the data themselves with it; None where there is none.
    """

    predictions: Outputs
    errors: Errors
    optimal_errors: Errors
    reference_errors: Errors | None = None
    own_errors: Errors | None = None
    channel_errors: dict[str, Errors] | None = None
    """The errors of every channel by name, where there are several."""
    kernel_error: float | None = None
    """Mean relative error of the kernel baseline on the same samples, where somebody computed it."""

    def summary(self) -> dict[str, Any]:
        """The part `test` of `metrics.json` that comes from here."""
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


def evaluate(operator: Operator, data: AnyData) -> Evaluation:
    """Predict every sample of `data` and compare.

    >>> import numpy as np
    >>> import trunkfirst as tf
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = tf.OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([np.sin(3 * x), x**2]))
    >>> trunk = tf.ProjectedTrunk(tf.TrunkSettings((1, 20, 6), "tanh", "xavier"), iterations=50, starts=1)
    >>> operator = tf.fit(data.take(slice(0, 30)), tf.TwoStep(trunk, tf.LinearRidge())).operator
    >>> found = tf.evaluate(operator, data.take(slice(30, 40)))
    >>> bool(found.errors.max() < 0.01), bool((found.optimal_errors <= found.errors * (1 + 1e-9)).all())
    (True, True)
    """
    predictions = predict_at(operator, data)
    by_channel = field_errors(predictions, data.outputs, data)
    optimal = field_errors(conditional_optimum(operator, data), data.outputs, data).mean(axis=1)
    reference = data.reference_outputs if isinstance(data, OperatorData) else None
    names = dict(zip(data.channel_names, by_channel.T, strict=True)) if data.is_multichannel else None
    if reference is None:
        return Evaluation(predictions, by_channel.mean(axis=1), optimal, channel_errors=names)
    return Evaluation(
        predictions,
        by_channel.mean(axis=1),
        optimal,
        field_errors(predictions, reference, data).mean(axis=1),
        field_errors(data.outputs, reference, data).mean(axis=1),
        names,
    )


def predict_at(operator: Operator, data: AnyData) -> Outputs:
    """Predictions where the outputs are given; zero where a sample has no point."""
    functions = {name: function.values for name, function in data.inputs.items()}
    # Several input functions may come in another order than in training; one goes by any name.
    inputs = functions if len(functions) > 1 else data.flat_inputs
    if isinstance(data, OperatorData):
        return operator.predict(inputs, data.points)
    return operator.predict_scattered(inputs, np.nan_to_num(data.points))


def field_errors(predictions: Outputs, outputs: Outputs, data: AnyData) -> Float[np.ndarray, "samples channels"]:
    """Relative errors, one a sample and channel."""
    weights = data.point_weights if isinstance(data, OperatorData) else None
    if isinstance(data, ScatteredData):
        mask = data.mask[..., None] if data.is_multichannel else data.mask
        predictions, outputs = np.where(mask, predictions, 0.0), np.where(mask, outputs, 0.0)
    if predictions.ndim == 2:
        return relative_errors(predictions, outputs, point_weights=weights)[:, None]
    channels = zip(np.moveaxis(predictions, 2, 0), np.moveaxis(outputs, 2, 0), strict=True)
    return np.stack([relative_errors(p, u, point_weights=weights) for p, u in channels], axis=1)


def conditional_optimum(operator: Operator, data: AnyData) -> Outputs:
    """The least-squares approximation of each output by the operator's own basis.

    For a two-step operator the basis is Phi T, else Phi. Directions at rounding level are left out. Best before
    an output map, that is for a positive output in its logarithm.
    """
    with jax.enable_x64(operator.dtype == np.float64):
        fields = make_fields(data, operator.trunk.encoder, operator.output, None)
        functions = trunk_values(Trunk(operator.trunk.network), fields.points, operator.dtype)  # encoded already
        features = functions if operator.transform is None else functions @ np.asarray(operator.transform)
        features = features.astype(float, copy=False)
        if isinstance(fields, ScatteredFields):
            coefficients = _own_least_squares(features, fields).reshape(data.samples, -1)
            return operator.scattered_fields(coefficients, np.nan_to_num(data.points))
        basis = SVD()(features, point_weights=fields.point_weights)
        best = projection(fields.outputs, basis.values, point_weights=fields.point_weights)
        return _physical(operator, best, data)


def _physical(operator: Operator, rows: Float[np.ndarray, "rows inside"], data: AnyData) -> Outputs:
    """Raw rows as outputs; where a boundary value is fixed, nothing was raw."""
    raw = np.zeros((len(rows), len(data.points)))
    raw[:, is_free(data.points, operator.output)] = rows
    if operator.channels is not None:
        raw = raw.reshape(data.samples, operator.channels, -1).swapaxes(1, 2)
    if operator.output is None:
        return raw
    return np.asarray(operator.output(jnp.asarray(raw, operator.dtype), jnp.asarray(data.points, operator.dtype)))


def _own_least_squares(
    features: Float[np.ndarray, "points rank"], fields: ScatteredFields
) -> Float[np.ndarray, "rows rank"]:
    channels = fields.channels or 1
    best = np.empty((fields.samples, features.shape[1]))
    for row, u in enumerate(fields.outputs):
        places, weights = fields.places[row // channels], fields.weights[row // channels]
        roots = np.sqrt(weights)[:, None]
        best[row] = np.linalg.lstsq(features[places] * roots, u * roots[:, 0], rcond=1e-12)[0]
    return best
