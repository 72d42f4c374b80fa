"""Data as training sees them: inputs encoded, points encoded, outputs in raw form, weights in place."""

import dataclasses as dc
from typing import Any, Literal, overload

import jax
import numpy as np
from jaxtyping import Bool, Float

from .data.operator_data import OperatorData
from .data.scattered_data import AnyData, channel_weights
from .device_arrays import padded_count, to_device
from .encoders import AbstractEncoder, AnyArray, Identity, Parallel, in_precision
from .errors import SettingError
from .fields import AbstractFields, Basis, Fields, Mesh
from .inputs import AutoInputs, Coordinates, Inputs
from .linear.blocked_qr import one_blas_thread
from .outputs import Output, OutputMap, raw_outputs
from .regressors.base import AbstractRegressor, InputLayout, Regression
from .regressors.input_grid import OutputBasis, find_grid
from .regressors.symmetries import WithImages, with_images
from .scattered import ScatteredFields
from .settings import Field, record


@record
class Encodings:
    """How a method prepares its data."""

    inputs: Inputs = Field(default=AutoInputs(), kw_only=True, description="how inputs are encoded for the branch")
    coordinates: Coordinates = Field(default=Coordinates(), kw_only=True)
    output: Output = Field(default=Output(), kw_only=True)
    weights: Literal["relative", "none", "auto"] = Field(
        default="auto",
        kw_only=True,
        description="relative: relative errors count; none: absolute errors; auto: chosen on samples left out",
    )
    precision: Literal["double", "single"] = Field(default="double", kw_only=True, description="double or single")

    @property
    def dtype(self) -> np.dtype:
        """The precision of the networks."""
        return np.dtype(np.float64 if self.precision == "double" else np.float32)


@dc.dataclass(frozen=True, eq=False, kw_only=True)
class EncodedData:
    """What the steps of training look at, and what an operator needs besides trunk and branch."""

    fields: AbstractFields
    inputs: Float[AnyArray, "samples features"]
    layout: InputLayout
    sample_weights: Float[np.ndarray, " samples"] | None
    dtype: np.dtype
    # of the operator
    encoder: AbstractEncoder
    coordinates: AbstractEncoder
    output: OutputMap | None
    input_names: tuple[str, ...]
    # for images under symmetries
    raw_inputs: Float[np.ndarray, "samples sensors"] | None = None

    @property
    def rows(self) -> int:
        """Output functions in all: samples times channels."""
        return self.fields.rows

    @property
    def notes(self) -> dict[str, Any]:
        """What `metrics.json` should know about the data."""
        return {}

    def after_trunk(self) -> "EncodedData":
        """The same without what only step 1 needs."""
        return self

    def fit_branch(
        self, branch: AbstractRegressor, basis: Basis, *, images: int | None = None, **options: Any
    ) -> Regression:
        """Step 2: the coefficients of all channels of a sample, next to each other, from the encoded inputs.

        With `images`, samples and their images under the symmetries that they show, up to this many in all.
        """
        targets = basis.targets.reshape(len(self.inputs), -1)
        unit, layout = basis.loss_unit, self.layout_with(basis)
        inputs, weights = self.inputs, self.sample_weights
        if images is not None:
            found = self._with_images(targets, layout, images)
            inputs, targets = encoded(self.encoder, found.inputs, self.dtype), found.targets
            weights = None if weights is None else weights[found.rows]
        return branch.fit(inputs, targets.astype(self.dtype), weights, layout=layout, loss_unit=unit, **options)

    def _with_images(self, targets: np.ndarray, layout: InputLayout, most: int) -> WithImages:
        if self.raw_inputs is None or layout.grid is None or layout.basis is None:
            raise SettingError(
                "images: symmetries are found only if inputs and outputs lie on one grid and the trunk is "
                "orthonormalised; leave out method.images"
            )
        return with_images(self.raw_inputs, np.asarray(targets), layout.grid, layout.basis, most)

    def layout_with(self, basis: Basis) -> InputLayout:
        """The layout of the inputs, with the basis at the output points where all samples share them."""
        if basis.orthonormal is None or not isinstance(self.fields, Fields) or self.fields.mesh is None:
            return self.layout
        mesh, dual = self.fields.mesh, basis.orthonormal.dual(self.fields.point_weights)
        return dc.replace(
            self.layout, basis=OutputBasis(mesh.points, basis.orthonormal.values, dual, mesh.periods)
        )


def encode(data: AnyData, method: Encodings, dtype: np.dtype) -> EncodedData:
    """Fit the encoders and the output map of `method` to training data."""
    output = method.output.fit(data)
    coordinates = method.coordinates.fit(data, dtype)
    encoder = in_precision(method.inputs.fit(data), dtype)
    rows = channel_weights(data, is_relative(method, output))
    inputs = encoded(encoder, data.flat_inputs, dtype)
    fields = with_periods(make_fields(data, coordinates, output, rows), method.coordinates, data)
    return EncodedData(
        fields=dc.replace(fields, inputs=inputs) if isinstance(fields, Fields) else fields,
        inputs=inputs,
        layout=input_layout(data, encoder),
        sample_weights=None if rows is None else rows.mean(axis=1).astype(dtype),
        dtype=dtype,
        encoder=encoder,
        coordinates=coordinates,
        output=output,
        input_names=tuple(data.inputs),
        raw_inputs=data.flat_inputs,
    )


def with_periods(fields: AbstractFields, coordinates: Coordinates, data: AnyData) -> AbstractFields:
    """The fields with the periods of their coordinates."""
    if not isinstance(fields, Fields | ScatteredFields) or fields.mesh is None or not coordinates.periods:
        return fields
    periods = coordinates.all_periods(data.coordinate_names)
    return dc.replace(fields, mesh=dc.replace(fields.mesh, periods=periods))


def is_relative(method: Encodings, output: OutputMap | None) -> bool:
    """Whether samples are weighted by their size; logarithms have no relative error."""
    return method.weights == "relative" and (output is None or not output.is_positive)


def input_layout(data: AnyData, encoder: AbstractEncoder) -> InputLayout:
    """How the features of the inputs are arranged after encoding."""
    return InputLayout(input_groups(encoder, data.flat_inputs.shape[1]), find_grid(data))


@overload
def make_fields(
    data: OperatorData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> Fields: ...
@overload
def make_fields(
    data: AnyData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> AbstractFields: ...
def make_fields(
    data: AnyData,
    coordinates: AbstractEncoder,
    output: OutputMap | None,
    row_weights: Float[np.ndarray, "samples channels"] | None,
) -> AbstractFields:
    """Undo the output map, encode the points, and put channels below each other."""
    weights = None if row_weights is None else row_weights.ravel()
    channels = data.channels if data.is_multichannel else None
    if isinstance(data, OperatorData):
        rows, factor = raw_rows(data, output)
        inside = factor > 0
        point_weights = data.point_weights
        if output is not None and output.boundary is not None:
            squares = factor[inside] ** 2 * (1.0 if point_weights is None else point_weights[inside])
            point_weights = squares / squares.sum()
        triangles = data.triangles if inside.all() else None
        places = data.points[inside]
        mesh = Mesh(places, triangles)
        return Fields(_encode_points(coordinates, places), rows, point_weights, weights, channels, mesh=mesh)
    points, places = data.pooled()
    mask = data.mask
    raw, factor = raw_outputs(np.nan_to_num(data.outputs, nan=1.0), points[places], output)
    # Given weights sum to 1 in every sample; here a point counts 1 in the mean.
    values = mask if data.point_weights is None else data.point_weights * data.counts[:, None]
    scattered = np.where(factor > 0, values * factor**2, 0.0)
    return ScatteredFields(
        _encode_points(coordinates, points),
        places,
        _rows(_zeros_outside(raw, mask)),
        scattered,
        weights,
        channels,
        Mesh(points),
    )


def raw_rows(
    data: OperatorData, output: OutputMap | None
) -> tuple[Float[np.ndarray, "rows inside"], Float[np.ndarray, " points"]]:
    """Raw fields at the points that count, channels below each other, and how much every point counts."""
    raw, factor = raw_outputs(data.outputs, data.points, output)
    return _rows(raw if (factor > 0).all() else raw[:, factor > 0]), factor


def _encode_points(coordinates: AbstractEncoder, points: Float[np.ndarray, "points coordinates"]) -> np.ndarray:
    if isinstance(coordinates, Identity):
        return points
    # Similar numbers of points share compiled programs.
    padded = np.pad(points, ((0, padded_count(len(points)) - len(points)), (0, 0)), mode="edge")
    with jax.enable_x64(True):
        return np.asarray(coordinates(to_device(padded)))[: len(points)]


def _rows(outputs: Float[np.ndarray, "..."]) -> Float[np.ndarray, "rows points"]:
    """(samples, points, channels) to (samples x channels, points); two axes stay as they are."""
    return outputs if outputs.ndim == 2 else outputs.swapaxes(1, 2).reshape(-1, outputs.shape[1])


def _zeros_outside(raw: Float[np.ndarray, "..."], mask: Bool[np.ndarray, "samples most"]) -> np.ndarray:
    return np.where(mask[..., None] if raw.ndim == 3 else mask, raw, 0.0)


def encoded(
    encoder: AbstractEncoder, inputs: Float[np.ndarray, "samples sensors"], dtype: np.dtype | type = np.float64
) -> Float[np.ndarray, "samples features"]:
    """The encoded inputs, computed with NumPy where the encoder can."""
    with one_blas_thread():
        return np.asarray(encoder(np.asarray(inputs, dtype)))


def input_groups(encoder: AbstractEncoder, sensors: int) -> tuple[int, ...]:
    """How many features each input function has after encoding; a common encoder makes them one group."""
    one = np.ones((1, sensors))
    with np.errstate(all="ignore"):
        parts = encoder.split(one) if isinstance(encoder, Parallel) else [encoder(one)]
    return tuple(part.shape[1] for part in parts)
