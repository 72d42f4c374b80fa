"""Where the error of an operator comes from: trunk, sensors, branch, in numbers that add up.

With functions psi that are orthonormal in L2_omega and span what the operator's basis spans, a test function u
with the prediction v = psi^T c has |u - v|^2 = |u - Pi u|^2 + |c* - c|^2, where Pi u = psi^T c* is its projection.
Least squares from the values at the training points give other coefficients c', so c* - c = (c* - c') + (c' - c):
what the sensors do not see, and what the branch does not learn. The paper's proof of thm:main goes through the
nearest training sample f_k instead: c*(f) - c(f) = [c*(f) - c*(f_k)] + [c*(f_k) - c'(f_k)] + [c'(f_k) - c(f_k)] +
[c(f_k) - c(f)]; its first and last part nearly cancel.
"""

import dataclasses as dc
from collections.abc import Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from ..data import AnyData, OperatorData
from ..errors import DataError
from ..linear import SVD, Orthonormal
from ..networks import Operator
from ..training import is_free, make_fields
from ._evaluate import predict_at

# Numbers of a field in memory at once.
_BLOCK = 2**21

Squares = Float[np.ndarray, "samples channels"]
Values = Float[np.ndarray, "samples points channels"]
Record = TypeVar("Record", "ErrorBudget", "Chain")


@dc.dataclass(frozen=True, eq=False)
class Chain:
    """Squared sizes of the four parts of the paper's way through the nearest training sample."""

    operator: Squares
    """c*(f) - c*(f_k): how far the outputs of the two are apart."""
    sensors: Squares
    """c*(f_k) - c'(f_k)."""
    training: Squares
    """c'(f_k) - c(f_k): what the branch has not learned of its own sample."""
    network: Squares
    """c(f_k) - c(f): how far the predictions of the two are apart."""


@dc.dataclass(frozen=True, eq=False)
class ErrorBudget:
    """Squared sizes in L2_omega, one for every sample and channel, in physical units.

    total = trunk + coefficients + remainder, and coefficients = sensors + branch + cross. `total` is that of the
    operator's own predictions. The remainder is rounding unless an output map bends the space: for a logarithm it
    is twice the inner product of the two parts, which are not orthogonal then.
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
    """What the outputs' own error, against a finer solution, does to the coefficients; it is in `sensors` too."""
    chain: Chain | None = None

    @property
    def remainder(self) -> Squares:
        """What the sum leaves."""
        return self.total - self.trunk - self.coefficients

    def mean(self, part: Squares) -> float:
        """The mean over the samples of a part; channels are added."""
        return float(part.sum(axis=1).mean())

    def relative(self, part: Squares) -> float:
        """The mean over samples and channels of a part over |u|^2; a field of zeros has the usual size."""
        usual = self.size.mean(axis=0)
        size = np.where(self.size > 0, self.size, np.where(usual > 0, usual, 1.0))
        return float((part / size).mean())

    def parts(self) -> dict[str, Squares]:
        """All parts by name."""
        names = ("total", "trunk", "coefficients", "sensors", "branch")
        found = {f"{name}_squared": getattr(self, name) for name in names}
        found |= {"cross": self.cross, "remainder": self.remainder}
        return found | ({} if self.data is None else {"data_squared": self.data})

    def summary(self) -> dict[str, object]:
        """Means over the samples: the part `budget` of `diagnosis.json`."""
        parts = self.parts()
        chain = None if self.chain is None else {f.name: getattr(self.chain, f.name) for f in dc.fields(Chain)}
        return {
            **{name: self.mean(part) for name, part in parts.items()},
            "relative": {name: self.relative(part) for name, part in parts.items()},
            "chain": None
            if chain is None
            else {
                **{f"{name}_squared": self.mean(part) for name, part in chain.items()},
                "relative": {f"{name}_squared": self.relative(part) for name, part in chain.items()},
            },
        }


def error_budget(
    operator: Operator,
    test: OperatorData,
    at_sensors: OperatorData,
    *,
    nearest: tuple[OperatorData, OperatorData] | None = None,
) -> ErrorBudget:
    """The budget of the samples `test`, given at the points where the error is to be judged.

    - `at_sensors`: the same samples at the points of training. If these are the points of `test` too, the sensors
      have no part: their least squares is the projection.
    - `nearest`: for every sample the nearest training sample, at both kinds of points; see `nearest_samples`.

    The point weights of `test` are those of omega, those of `at_sensors` weigh its least squares.
    """
    _check(operator, test, at_sensors)
    with jax.enable_x64(True):
        frame = _frame(operator, test, at_sensors)
        blocks = [_block(frame, part) for part in _blocks(test, at_sensors, nearest)]
    return _joined(ErrorBudget, blocks)


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


# -- the basis, and samples in it


@dc.dataclass(frozen=True, eq=False)
class _Frame:
    """The operator's basis, orthonormal in L2_omega, and the way to it from the sensors."""

    operator: Operator
    points: Float[np.ndarray, "points coordinates"]
    free: Bool[np.ndarray, " points"]
    weights: Float[np.ndarray, " points"]
    basis: Orthonormal
    """On the free points; its `coordinates` take coefficients of the operator's functions to orthonormal ones."""
    sensors: Orthonormal

    def projected(self, data: OperatorData) -> Values:
        """Pi u, from the values at the evaluation points."""
        fields = make_fields(data, self.operator.trunk.encoder, self.operator.output, None)
        return self._physical(self.basis.coefficients(fields.outputs, point_weights=fields.point_weights), data)

    def sensed(self, data: OperatorData, outputs: np.ndarray | None = None) -> Values:
        """The least squares from the values at the sensors, at the evaluation points."""
        data = data if outputs is None else dc.replace(data, outputs=outputs)
        fields = make_fields(data, self.operator.trunk.encoder, self.operator.output, None)
        own = self.sensors.coefficients(fields.outputs, point_weights=fields.point_weights)
        return self._physical(own @ (self.basis.coordinates @ self.sensors.transform).T, data)

    def predicted(self, data: OperatorData) -> Values:
        """What the operator says."""
        predictions = by_channel(np.asarray(predict_at(self.operator, data), float))
        if not np.isfinite(predictions).all():
            raise DataError("predictions: not all are finite, so that the operator has no error budget")
        return predictions

    def squares(self, values: Values) -> Squares:
        """|.|^2 in L2_omega."""
        return np.einsum("kpc,p->kc", values**2, self.weights)

    def _physical(self, rows: Float[np.ndarray, "rows rank"], data: OperatorData) -> Values:
        everywhere = np.zeros((len(self.points), self.basis.rank))
        everywhere[self.free] = self.basis.values  # elsewhere the output is fixed, whatever stands here
        raw = (rows @ everywhere.T).reshape(data.samples, data.channels, -1).swapaxes(1, 2)
        if self.operator.output is None:
            return raw
        given = raw if self.operator.channels is not None else raw[..., 0]
        return by_channel(np.asarray(self.operator.output(jnp.asarray(given), jnp.asarray(self.points))))


def _frame(operator: Operator, test: OperatorData, at_sensors: OperatorData) -> _Frame:
    free = is_free(test.points, operator.output)
    weights = np.full(len(free), 1 / len(free)) if test.point_weights is None else test.point_weights
    basis, sensors = (trunk_basis(operator, data) for data in (test, at_sensors))
    return _Frame(operator, test.points, free, weights, basis, sensors)


def trunk_basis(operator: Operator, data: OperatorData) -> Orthonormal:
    """The operator's basis orthonormal in the mean over the points of `data`, before any output map.

    Where an output map fixes the boundary, on the other points, with its factor in the weights.
    """
    free = is_free(data.points, operator.output)
    weights = make_fields(data.take(np.arange(1)), operator.trunk.encoder, operator.output, None).point_weights
    return SVD()(basis_values(operator, data.points)[free], point_weights=weights)


def basis_values(
    operator: Operator, points: Float[np.ndarray, "points coordinates"]
) -> Float[np.ndarray, "points functions"]:
    """The operator's own basis functions, in double precision.

    Compiled as in `Operator.predict`, so that predictions lie in their span to the last bits: where functions are
    nearly dependent, another order of the same operations gives another span by more than rounding.
    """
    with jax.enable_x64(operator.dtype == np.float64):
        return np.asarray(eqx.filter_jit(Operator.basis)(operator, points), np.float64)


def by_channel(outputs: Float[np.ndarray, "samples points ..."]) -> Values:
    """With an axis of channels, of length 1 where there was none."""
    return outputs if outputs.ndim == 3 else outputs[..., None]


# -- sample by sample


@dc.dataclass(frozen=True, eq=False)
class _Part:
    """Some samples, at evaluation points and at sensors, and the training samples next to them."""

    test: OperatorData
    at_sensors: OperatorData
    nearest: tuple[OperatorData, OperatorData] | None


def _blocks(
    test: OperatorData, at_sensors: OperatorData, nearest: tuple[OperatorData, OperatorData] | None
) -> Iterator[_Part]:
    step = max(1, _BLOCK // (len(test.points) * test.channels))
    for start in range(0, test.samples, step):
        rows = slice(start, start + step)
        near = None if nearest is None else (nearest[0].take(rows), nearest[1].take(rows))
        yield _Part(test.take(rows), at_sensors.take(rows), near)


def _block(frame: _Frame, part: _Part) -> ErrorBudget:
    truth = by_channel(part.test.outputs)
    best, seen, said = frame.projected(part.test), frame.sensed(part.at_sensors), frame.predicted(part.test)
    reference = part.at_sensors.reference_outputs
    finer = None if reference is None else frame.sensed(part.at_sensors, reference)
    return ErrorBudget(
        total=frame.squares(truth - said),
        trunk=frame.squares(truth - best),
        coefficients=frame.squares(best - said),
        sensors=frame.squares(best - seen),
        branch=frame.squares(seen - said),
        cross=2 * np.einsum("kpc,kpc,p->kc", best - seen, seen - said, frame.weights),
        size=frame.squares(truth),
        data=None if finer is None else frame.squares(seen - finer),
        chain=None if part.nearest is None else _chain(frame, best, said, *part.nearest),
    )


def _chain(frame: _Frame, best: Values, said: Values, nearest: OperatorData, at_sensors: OperatorData) -> Chain:
    next_best, seen, next_said = frame.projected(nearest), frame.sensed(at_sensors), frame.predicted(nearest)
    steps = (best - next_best, next_best - seen, seen - next_said, next_said - said)
    return Chain(*(frame.squares(step) for step in steps))


def _joined(kind: type[Record], parts: list[Any]) -> Record:
    """One record of the rows of all; where the parts have records or None in a field, these are joined."""
    fields: dict[str, Any] = {}
    for field in dc.fields(kind):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], Chain):
            fields[field.name] = _joined(Chain, values)
        else:
            fields[field.name] = None if values[0] is None else np.concatenate(values)
    return kind(**fields)


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
    functions = operator.trunk.width + 1 if operator.transform is None else operator.transform.shape[1]
    free = int(is_free(test.points, operator.output).sum())
    if free < 2 or (free < functions and free < len(at_sensors.points)):
        raise DataError(
            f"points: {free} evaluation points for {functions} functions, which could represent anything there; "
            "give at least as many points as functions, and at least 2"
        )
    if operator.output is not None and operator.output.is_positive and not (test.outputs > 0).all():
        raise DataError("outputs: not all are positive, but the operator was trained on their logarithms")
