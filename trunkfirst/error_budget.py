"""Where the error of an operator comes from: trunk, sensors and branch, as squares that add up.

With functions psi that are orthonormal in L2_omega and span the operator's basis, a test function u with the
prediction v = psi^T c has |u - v|^2 = |u - Pi u|^2 + |c* - c|^2, where Pi u = psi^T c* is its projection. Least
squares from the values at the training points give other coefficients c', so c* - c = (c* - c') + (c' - c): the
error of the sensors and the error of the branch. The paper's proof of thm:main uses the nearest training sample
f_k instead: c*(f) - c(f) = [c*(f) - c*(f_k)] + [c*(f_k) - c'(f_k)] + [c'(f_k) - c(f_k)] + [c(f_k) - c(f)]; its
first and last part nearly cancel.
"""

import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .encode import make_fields
from .errors import DataError, UsageError
from .evaluation import inputs_of, predict_at
from .linear.orthonormalise import SVD, Orthonormal, projection
from .networks.operator import Operator
from .outputs import is_free

# Floats of a field in memory at once.
_BLOCK = 2**21

Squares = Float[np.ndarray, "samples channels"]
Values = Float[np.ndarray, "samples points channels"]


@dc.dataclass(frozen=True, eq=False)
class NearestSampleBudget:
    """Squared sizes of the four parts of the paper's proof, by the nearest training sample f_k."""

    operator: Squares
    """c*(f) - c*(f_k): between the two outputs."""
    sensors: Squares
    """c*(f_k) - c'(f_k)."""
    training: Squares
    """c'(f_k) - c(f_k): the training error of the branch."""
    network: Squares
    """c(f_k) - c(f): between the two predictions."""


@dc.dataclass(frozen=True, eq=False)
class ErrorBudget:
    """Squared sizes in L2_omega for every sample and channel, in physical units.

    total = trunk + coefficients + remainder, and coefficients = sensors + branch + cross. `total` is that of
    `Operator.predict`. The remainder is rounding unless the output map is not linear: for a logarithm it is twice
    the inner product of trunk and coefficients, which are then not orthogonal.
    """

    total: Squares
    trunk: Squares
    coefficients: Squares
    sensors: Squares
    branch: Squares
    cross: Squares
    size: Squares
    """|u|^2."""
    data: Squares | None = None
    """The effect of the data's own error, against a finer solution, on the coefficients; part of `sensors` too."""
    nearest_sample: NearestSampleBudget | None = None

    @property
    def remainder(self) -> Squares:
        """total - trunk - coefficients."""
        return self.total - self.trunk - self.coefficients

    def relative(self, part: Squares) -> float:
        """The mean over samples and channels of a part over |u|^2; a field of zeros counts with the mean |u|^2."""
        reference_mean_square = self.size.mean(axis=0)
        default = np.where(reference_mean_square > 0, reference_mean_square, 1.0)
        return float((part / np.where(self.size > 0, self.size, default)).mean())

    def parts(self) -> dict[str, Squares]:
        """All parts by their names in `diagnosis.json`."""
        names = ("total", "trunk", "coefficients", "sensors", "branch")
        found = {f"{name}_squared": getattr(self, name) for name in names}
        found |= {"cross": self.cross, "remainder": self.remainder}
        return found if self.data is None else found | {"data_squared": self.data}

    def summary(self) -> dict[str, object]:
        """Means over the samples: the part `budget` of `diagnosis.json`."""
        if (nearest := self.nearest_sample) is None:
            return {**self._means(self.parts()), "chain": None}
        chain = {f"{name}_squared": part for name, part in vars(nearest).items()}
        return {**self._means(self.parts()), "chain": self._means(chain)}

    def _means(self, parts: dict[str, Squares]) -> dict[str, object]:
        return {
            **{name: float(part.sum(axis=1).mean()) for name, part in parts.items()},  # channels are added
            "relative": {name: self.relative(part) for name, part in parts.items()},
        }


def error_budget(
    operator: Operator,
    test: OperatorData,
    at_sensors: OperatorData,
    *,
    nearest: tuple[OperatorData, OperatorData] | None = None,
) -> ErrorBudget:
    """The error budget of the samples `test`, given at the evaluation points.

    - `at_sensors`: the same samples at the points of training. Where these are the points of `test` too, the part
      of the sensors is zero: their least squares is the projection.
    - `nearest`: for every sample the nearest training sample, at both kinds of points; see `nearest_samples`.

    The point weights of `test` are those of omega, those of `at_sensors` weigh its least squares. Raises
    `DataError` where the samples do not match, the points are too few, or predictions are not finite.
    """
    _check(operator, test, at_sensors)
    moves = operator.trunk.depends_on_input
    step = 1 if moves else max(1, _BLOCK // (len(test.points) * test.channels))
    with jax.enable_x64(True):
        shared = None if moves else _frame(operator, test, at_sensors)
        blocks: list[ErrorBudget] = []
        for start in range(0, test.samples, step):
            given = [data.take(slice(start, start + step)) for data in (test, at_sensors, *(nearest or ()))]
            # A basis that depends on the input is that of the sample, and of the nearest sample its own.
            frames = [shared or _frame(operator, *pair) for pair in (given[:2], given[2:]) if pair]
            blocks.append(_block(frames, *given))
    return _concatenated(blocks)


def nearest_samples(asked: AnyData, training: AnyData) -> Int[np.ndarray, " samples"]:
    """For every sample of `asked` the training sample with the nearest input, in |f - g|_{w,2}."""
    roots = np.sqrt(input_weights(training))
    found = KDTree(training.flat_inputs * roots).query(asked.flat_inputs * roots)[1]
    return np.asarray(found, np.int64)


def input_weights(data: AnyData) -> Float[np.ndarray, " sensors"]:
    """Weights of all sensors side by side; those of each input function sum to 1."""
    parts: list[np.ndarray] = []
    for function in data.inputs.values():
        count, given = function.values.shape[1], function.sensor_weights
        parts.append(np.full(count, 1 / count) if given is None else given / given.sum())
    return np.concatenate(parts)


def trunk_basis(operator: Operator, data: OperatorData) -> Orthonormal:
    """The basis of `free_basis`, orthonormal in the mean over the points."""
    values, weights = free_basis(operator, data)
    return SVD()(values, point_weights=weights)


def trunk_projection(
    operator: Operator, data: OperatorData, rows: Float[np.ndarray, "rows points"]
) -> Float[np.ndarray, "rows points"]:
    """The projection of `rows`, those of the samples of `data` at its free points, onto the span of the basis."""
    if not operator.trunk.depends_on_input:
        return _onto(operator, data, rows)
    parts = np.split(rows, data.samples)
    return np.concatenate([_onto(operator, data.take([k]), part) for k, part in enumerate(parts)])


def _onto(operator: Operator, data: OperatorData, rows: np.ndarray) -> np.ndarray:
    values, weights = free_basis(operator, data)
    return projection(rows, SVD()(values, point_weights=weights).values, point_weights=weights)


def free_basis(
    operator: Operator, data: OperatorData
) -> tuple[Float[np.ndarray, "free functions"], Float[np.ndarray, " free"] | None]:
    """The operator's basis before any output map, at the points of `data`, and the point weights.

    Where an output map fixes boundary values, these points are left out and its factor is in the weights. Compiled
    as in `Operator.predict`, so that predictions are in the span to the last bits: where functions are nearly
    dependent, another order of the same operations changes the span by more than rounding. Where it depends on the
    input, `data` have one sample.
    """
    weights = make_fields(data.take(np.arange(1)), operator.trunk.encoder, operator.output, None).point_weights
    if operator.trunk.depends_on_input and data.samples > 1:
        raise UsageError(
            "the functions of the trunk depend on the input, so there is no common basis for all samples"
        )
    with jax.enable_x64(operator.dtype == np.float64):
        features = operator.features(inputs_of(data)) if operator.trunk.depends_on_input else None
        values = np.asarray(eqx.filter_jit(Operator.basis)(operator, data.points, features), np.float64)
        values = values if features is None else values[0]
    return values[is_free(data.points, operator.output)], weights


# -- samples in the basis


@dc.dataclass(frozen=True, eq=False)
class _Frame:
    """The operator's basis, orthonormal in L2_omega at the evaluation points and at the sensors."""

    operator: Operator
    points: Float[np.ndarray, "points coordinates"]
    free: Bool[np.ndarray, " points"]
    weights: Float[np.ndarray, " points"]
    basis: Orthonormal
    """On the free points; its `coordinates` take coefficients of the operator's functions to orthonormal ones."""
    sensors: Orthonormal

    def projected(self, data: OperatorData) -> Values:
        """Pi u, from the values at the evaluation points."""
        return self._physical(self._coefficients(self.basis, data), data)

    def sensed(self, data: OperatorData) -> Values:
        """The least squares from the values at the sensors, at the evaluation points."""
        own = self._coefficients(self.sensors, data)
        return self._physical(own @ (self.basis.coordinates @ self.sensors.transform).T, data)

    def predicted(self, data: OperatorData) -> Values:
        """The predictions of the operator."""
        predictions = _by_channel(np.asarray(predict_at(self.operator, data), float))
        if not np.isfinite(predictions).all():
            raise DataError("predictions: not all are finite, so there is no error budget")
        return predictions

    def squares(self, values: Values) -> Squares:
        """|.|^2 in L2_omega."""
        return np.einsum("kpc,p->kc", values**2, self.weights)

    def _coefficients(self, basis: Orthonormal, data: OperatorData) -> Float[np.ndarray, "rows rank"]:
        fields = make_fields(data, self.operator.trunk.encoder, self.operator.output, None)
        return basis.coefficients(fields.outputs, point_weights=fields.point_weights)

    def _physical(self, rows: Float[np.ndarray, "rows rank"], data: OperatorData) -> Values:
        everywhere = np.zeros((len(self.points), self.basis.rank))
        everywhere[self.free] = self.basis.values  # at the other points the output is fixed
        raw = (rows @ everywhere.T).reshape(data.samples, data.channels, -1).swapaxes(1, 2)
        if self.operator.output is None:
            return raw
        given = raw if self.operator.channels is not None else raw[..., 0]
        return _by_channel(np.asarray(self.operator.output(jnp.asarray(given), jnp.asarray(self.points))))


def _frame(operator: Operator, test: OperatorData, at_sensors: OperatorData) -> _Frame:
    free = is_free(test.points, operator.output)
    weights = np.full(len(free), 1 / len(free)) if test.point_weights is None else test.point_weights
    basis, sensors = (trunk_basis(operator, data) for data in (test, at_sensors))
    return _Frame(operator, test.points, free, weights, basis, sensors)


def _by_channel(outputs: Float[np.ndarray, "samples points ..."]) -> Values:
    return outputs if outputs.ndim == 3 else outputs[..., None]


def _block(
    frames: Sequence[_Frame], test: OperatorData, at_sensors: OperatorData, *nearest: OperatorData
) -> ErrorBudget:
    frame = frames[0]
    truth, reference = _by_channel(test.outputs), at_sensors.reference_outputs
    best, seen, predicted = frame.projected(test), frame.sensed(at_sensors), frame.predicted(test)
    finer = None if reference is None else frame.sensed(dc.replace(at_sensors, outputs=reference))
    return ErrorBudget(
        total=frame.squares(truth - predicted),
        trunk=frame.squares(truth - best),
        coefficients=frame.squares(best - predicted),
        sensors=frame.squares(best - seen),
        branch=frame.squares(seen - predicted),
        cross=2 * np.einsum("kpc,kpc,p->kc", best - seen, seen - predicted, frame.weights),
        size=frame.squares(truth),
        data=None if finer is None else frame.squares(seen - finer),
        nearest_sample=_nearest_sample(frames[1], best, predicted, *nearest) if nearest else None,
    )


def _nearest_sample(
    frame: _Frame, best: Values, predicted: Values, nearest: OperatorData, at_sensors: OperatorData
) -> NearestSampleBudget:
    own_best, seen, own_predicted = frame.projected(nearest), frame.sensed(at_sensors), frame.predicted(nearest)
    parts = (best - own_best, own_best - seen, seen - own_predicted, own_predicted - predicted)
    return NearestSampleBudget(*(frame.squares(part) for part in parts))


def _concatenated(parts: list[Any]) -> Any:
    """Arrays, or records of them, joined along the samples; None stays None."""
    if parts[0] is None or isinstance(parts[0], np.ndarray):
        return None if parts[0] is None else np.concatenate(parts)
    names = [field.name for field in dc.fields(parts[0])]
    return type(parts[0])(**{name: _concatenated([getattr(part, name) for part in parts]) for name in names})


def _check(operator: Operator, test: OperatorData, at_sensors: OperatorData) -> None:
    if test.samples != at_sensors.samples:
        raise DataError(
            f"outputs: {test.samples} samples at the evaluation points, but {at_sensors.samples} at the sensors"
        )
    if test.outputs.shape[2:] != at_sensors.outputs.shape[2:]:
        raise DataError(
            f"outputs: the axis 'channels' has {test.channels} entries at the evaluation points, but "
            f"{at_sensors.channels} at the sensors"
        )
    functions = operator.rank
    free = int(is_free(test.points, operator.output).sum())
    if free < 2 or (free < functions and free < len(at_sensors.points)):
        raise DataError(
            f"points: {free} evaluation points are too few for {functions} functions; "
            "give at least as many points as functions, and at least 2"
        )
    if operator.output is not None and operator.output.is_positive and not (test.outputs > 0).all():
        raise DataError("outputs: not all are positive, but the operator was trained on their logarithms")
