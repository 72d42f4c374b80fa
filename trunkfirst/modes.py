"""Step 1 in closed form: the principal modes of the outputs are the trunk (POD)."""

import dataclasses as dc
import time
from typing import Literal

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .errors import DataError
from .fields import AbstractFields, Fields, Mesh, TrunkResult, mean_one, plain_loss
from .linear.low_rank import principal_rows
from .linear.orthonormalise import orthonormal_already
from .minimisers.loop import OnStep
from .networks.interpolate import can_interpolate, interpolate
from .networks.layers import Modes
from .records import LogEntry
from .settings import Field, kind_field, record
from .trunks import AbstractTrunk

# Modes below this share of the largest are rounding.
_ROUNDING = 1e-14
# The most values of all modes at all points: 256 MiB.
_MOST_VALUES = 2**25
# Modes of samples at points of their own; those that hold noise are left out between the steps.
_SCATTERED_MODES = 40


@record
class ModesTrunk(AbstractTrunk):
    """Principal modes of the outputs at the training points, orthonormal in the point weights (POD).

    No trunk of the same width has a lower loss on the training outputs, for the weights used. The modes are exact
    at the points. Between them they are interpolated: splines on a grid, else over triangles or tetrahedra, linear
    where the outputs jump and of higher order where they are smooth. Samples at points of their own are first
    carried to common points, linearly from their nearest values.
    """

    width: int | None = Field(
        default=None, ge=1, description="the number of modes; by the error of the operator if left out"
    )
    between: Literal["auto", "linear", "smooth"] = Field(
        default="auto",
        description="interpolation between the points; auto: by leaving points out",
    )
    kind: Literal["modes"] = kind_field("modes")

    def fit(
        self, fields: AbstractFields, *, dtype: np.dtype, key: PRNGKeyArray, on_step: OnStep | None = None
    ) -> TrunkResult:
        del key
        begin = time.perf_counter()
        common = fields.at_common_points()
        is_aligned = common is fields
        found = principal_modes(common, self.width if is_aligned else self.width or _SCATTERED_MODES)
        found = dc.replace(found, values=found.values.astype(dtype))
        A = orthonormal_already(found.values).coefficients(common.outputs, point_weights=common.point_weights)
        found = _with_unweighted_points(found, common, A)
        functions = self._functions(found, common.mesh or Mesh(common.points))
        loss = (
            plain_loss(A, found.values, common.outputs, p=2.0) if is_aligned else fields.loss(functions, A, p=2.0)
        )
        seconds = time.perf_counter() - begin
        step = LogEntry("trunk", 1, 1, loss, loss, 1.0, seconds)
        if on_step is not None:
            on_step(step)
        return TrunkResult(
            functions,
            A,
            is_projected=True,
            loss=loss,
            status="finished",
            iterations=1,
            seconds=seconds,
            history=(step,),
            limits={
                "limit": _limit(common, A.shape[1], loss) if is_aligned else None,
                "limit_upper": None,
                "is_limited_by_network": False,
            },
            values=found.values if is_aligned else None,
        )

    def _functions(self, found: "PrincipalModes", mesh: Mesh) -> Modes:
        smooth = {"auto": None, "linear": False, "smooth": True}[self.between]
        return Modes(
            interpolate(
                mesh.points,
                found.values,
                triangles=mesh.triangles,
                periods=mesh.periods,
                importance=found.sizes,
                smooth=smooth,
            )
        )


def _with_unweighted_points(found: "PrincipalModes", fields: Fields, A: np.ndarray) -> "PrincipalModes":
    """The modes at points of weight zero, which decide on nothing, by least squares with the coefficients A."""
    if fields.point_weights is None or (fields.point_weights > 0).all():
        return found
    values, free = found.values.copy(), fields.point_weights == 0
    values[free] = np.linalg.lstsq(A, fields.outputs[:, free], rcond=None)[0].T
    return dc.replace(found, values=values)


def _limit(fields: Fields, count: int, loss: float) -> float:
    """The least unweighted loss of `count` functions (Eckart-Young): that of modes without weights."""
    if fields.sample_weights is None and fields.point_weights is None:
        return loss
    sizes, _, discarded = principal_rows(fields.outputs, _ROUNDING)
    return min(float(np.sum(sizes[count:] ** 2) + discarded) / fields.outputs.size, loss)


def has_modes(data: AnyData) -> bool:
    """Whether modes can be interpolated between the points of the data."""
    return not isinstance(data, OperatorData) or can_interpolate(data.points)


@dc.dataclass(frozen=True, eq=False)
class PrincipalModes:
    """Modes at the points, orthonormal in the weighted mean, and their singular values, largest first."""

    values: Float[np.ndarray, "points modes"]
    sizes: Float[np.ndarray, " modes"]


def principal_modes(fields: Fields, width: int | None = None) -> PrincipalModes:
    """The modes of the outputs above rounding, at most `width`.

    The sign of a mode is such that its largest value is positive.
    """
    roots = np.sqrt(mean_one(fields.point_weights, len(fields.points)))
    sizes, rows, _ = principal_rows(fields.weighted_outputs(), _ROUNDING)
    if not sizes.any():
        raise DataError("outputs: all of them are zero, or do not count; there is nothing to learn")
    count = min(len(sizes), width or len(sizes), max(_MOST_VALUES // len(roots), 1))
    modes = rows[:count].T * np.sqrt(len(roots))
    modes *= np.sign(modes[np.abs(modes).argmax(axis=0), np.arange(count)])
    return PrincipalModes(modes / np.where(roots > 0, roots, 1.0)[:, None], sizes[:count])
